// A user object lives until its last reference is gone: the program's, or that of a graph.
#include "app.h"

static int destroyed;
static void destroy(void *by) { destroyed += *(int *)by; }

int main(void) {
    start();
    Any object, graph;
    int one = 1;
    DO(cuGraphCreate(&graph, 0));
    EXPECT(cuUserObjectCreate(&object, &one, destroy, 0, 1), INVALID_VALUE);
    DO(cuUserObjectCreate(&object, &one, destroy, 1, 1));
    DO(cuGraphRetainUserObject(graph, object, 2, 0));
    DO(cuUserObjectRelease(object, 1));
    TRUE(destroyed == 0);
    DO(cuGraphReleaseUserObject(graph, object, 1));
    DO(cuGraphReleaseUserObject(graph, object, 2)); // More than it has: none is released.
    TRUE(destroyed == 0);
    DO(cuGraphDestroy(graph));
    TRUE(destroyed == 1);

    // One whose reference moves into the graph.
    DO(cuGraphCreate(&graph, 0));
    DO(cuUserObjectCreate(&object, &one, destroy, 1, 1));
    DO(cuGraphRetainUserObject(graph, object, 1, 1));
    DO(cuGraphDestroy(graph));
    TRUE(destroyed == 2);
    return 0;
}
