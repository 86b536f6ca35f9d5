// A clone and an executable have references of their own; a launch keeps the executable's until it is done.
#include "app.h"
#include <unistd.h>

static int destroyed;
static void destroy(void *unused) { (void)unused, __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST); }
static volatile int go;
static void held_up(void *unused) { (void)unused; while (!go) {} }

static Any with_object(void) {
    Any graph, object;
    DO(cuGraphCreate(&graph, 0));
    DO(cuUserObjectCreate(&object, NULL, destroy, 1, 1));
    DO(cuGraphRetainUserObject(graph, object, 1, 1));
    return graph;
}

int main(void) {
    start();
    Any graph = with_object(), clone, exec, stream, node;
    DO(cuGraphClone(&clone, graph));
    DO(cuGraphDestroy(graph));
    TRUE(destroyed == 0);
    DO(cuGraphDestroy(clone));
    TRUE(destroyed == 1);

    graph = with_object();
    HostCall host = {held_up, NULL};
    DO(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphDestroy(graph));
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuGraphLaunch(exec, stream));
    DO(cuGraphExecDestroy(exec));
    TRUE(destroyed == 1);
    go = 1;
    DO(cuStreamSynchronize(stream));
    // A driver calls the destructor some time after that.
    for (int left = 30000; left > 0 && __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) < 2; left--) usleep(1000);
    TRUE(destroyed == 2);
    return 0;
}
