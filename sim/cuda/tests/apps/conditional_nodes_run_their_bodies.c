// The bodies of conditional nodes run by the value that a launch begins with; a body is a graph like another.
#include "app.h"

typedef struct { unsigned long long handle; int type; unsigned size; Any *bodies; Any context; } Conditional;
typedef struct { int type, reserved0[3]; Conditional conditional; char rest[256 - 16 - sizeof(Conditional)]; } Params;
typedef struct { unsigned long long flags; Any stream, node; int result; } HowItWent;

Result cuGraphConditionalHandleCreate(unsigned long long *, Any, Any, unsigned, unsigned);
Result cuGraphAddNode_v2(Any *, Any, const Any *, const void *, size_t, Params *);
Result cuGraphInstantiateWithParams(Any *, Any, HowItWent *);
Result cuStreamBeginCaptureToGraph(Any, Any, const Any *, const void *, size_t, int);
Result cuGraphDestroyNode(Any);

enum { IF = 0, WHILE = 1, SWITCH = 2, CONDITIONAL = 13, ASSIGN = 1 };

static Any context, stream;
static Ptr word;

static unsigned value(void) {
    unsigned found = 0;
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(&found, word, sizeof found));
    return found;
}

static void writes(Any graph, unsigned what) {
    Any node;
    Fill fill = {.to = word, .value = what, .element = 4, .width = 1, .height = 1};
    DO(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
}

// A conditional node whose n-th body writes n + 1, with a condition of this graph or of one around it; its bodies' handles.
static Any *add(Any around, Any graph, Any *node, int type, unsigned size, unsigned first, unsigned flags) {
    Params params = {.type = CONDITIONAL, .conditional = {.type = type, .size = size, .context = context}};
    DO(cuGraphConditionalHandleCreate(&params.conditional.handle, around, context, first, flags));
    DO(cuGraphAddNode_v2(node, graph, NULL, NULL, 0, &params));
    for (unsigned body = 0; body < size; body++) writes(params.conditional.bodies[body], body + 1);
    return params.conditional.bodies;
}

// What is written by a launch of a graph with one such node.
static unsigned written(int type, unsigned size, unsigned first, unsigned flags) {
    Any graph, exec, node;
    int kind;
    DO(cuGraphCreate(&graph, 0));
    add(graph, graph, &node, type, size, first, flags);
    DO(cuGraphNodeGetType(node, &kind));
    TRUE(kind == CONDITIONAL);
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuMemsetD32_v2(word, 0, 1));
    DO(cuGraphLaunch(exec, stream));
    unsigned found = value();
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    return found;
}

int main(void) {
    context = start();
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAlloc_v2(&word, 4));

    TRUE(written(IF, 1, 1, ASSIGN) == 1);
    TRUE(written(IF, 1, 0, ASSIGN) == 0);
    TRUE(written(IF, 2, 0, ASSIGN) == 2);
    TRUE(written(WHILE, 1, 0, ASSIGN) == 0);
    TRUE(written(SWITCH, 3, 2, ASSIGN) == 3);
    TRUE(written(SWITCH, 3, 3, ASSIGN) == 0);

    // A handle wants one node, in its graph or a graph inside, of a known kind and size.
    Any graph, other, node, second, exec;
    unsigned long long handle;
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphCreate(&other, 0));
    EXPECT(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 2), INVALID_VALUE);
    DO(cuGraphConditionalHandleCreate(&handle, graph, context, 1, ASSIGN));
    HowItWent how = {0};
    EXPECT(cuGraphInstantiateWithParams(&exec, graph, &how), INVALID_VALUE);
    TRUE(how.result == 5);
    Params params = {.type = CONDITIONAL, .conditional = {.handle = handle, .type = IF, .size = 3, .context = context}};
    EXPECT(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params), INVALID_VALUE);
    params.conditional.size = 1;
    EXPECT(cuGraphAddNode_v2(&node, other, NULL, NULL, 0, &params), INVALID_VALUE);
    DO(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
    Any body = params.conditional.bodies[0];
    EXPECT(cuGraphAddNode_v2(&second, graph, NULL, NULL, 0, &params), INVALID_VALUE);
    DO(cuGraphConditionalHandleCreate(&params.conditional.handle, body, context, 1, ASSIGN));
    EXPECT(cuGraphAddNode_v2(&second, graph, NULL, NULL, 0, &params), INVALID_VALUE);
    DO(cuGraphAddNode_v2(&second, body, NULL, NULL, 0, &params));
    EXPECT(cuGraphDestroy(body), INVALID_VALUE);
    EXPECT(cuGraphClone(&second, graph), NOT_SUPPORTED);
    EXPECT(cuGraphAddChildGraphNode(&second, other, NULL, 0, graph), NOT_SUPPORTED);

    // A body can be captured, and can hold a conditional node itself.
    Any inner;
    DO(cuStreamBeginCaptureToGraph(stream, body, NULL, NULL, 0, RELAXED));
    DO(cuMemsetD32Async(word, 7, 1, stream));
    DO(cuStreamEndCapture(stream, &inner));
    TRUE(inner == body);
    add(graph, body, &inner, IF, 1, 1, ASSIGN);
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuMemsetD32_v2(word, 0, 1));
    DO(cuGraphLaunch(exec, stream));
    TRUE(value() == 1); // The captured 7 came first.
    DO(cuGraphExecDestroy(exec));

    // Memory cannot come and go in a body.
    GraphAlloc memory = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 4096};
    DO(cuGraphAddMemAllocNode(&inner, body, NULL, 0, &memory));
    EXPECT(cuGraphInstantiateWithFlags(&exec, graph, 0), INVALID_VALUE);
    DO(cuGraphDestroy(graph));
    DO(cuGraphDestroy(other));
    return 0;
}
