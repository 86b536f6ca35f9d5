"""Graphs with conditional parts, built by hand and captured: an if with an else, a switch."""

from cuda.bindings import driver
from cuda.core import Device


def done(answer):
    error, *values = answer
    assert int(error) == 0, error
    return values[0] if values else None


device = Device(0)
device.set_current()
stream = device.create_stream(options={"nonblocking": True})
handle = driver.CUstream(int(stream.handle))
context = done(driver.cuCtxGetCurrent())
word = done(driver.cuMemAlloc(4))


def value():
    stream.sync()
    found = bytearray(4)
    done(driver.cuMemcpyDtoH(found, word, 4))
    return int.from_bytes(found, "little")


def run(kind, size, first):
    """Launches a graph whose n-th body writes n + 1, and returns the written values."""
    graph = done(driver.cuGraphCreate(0))
    assign = driver.CU_GRAPH_COND_ASSIGN_DEFAULT
    condition = done(driver.cuGraphConditionalHandleCreate(graph, context, first, assign))
    params = driver.CUgraphNodeParams()
    params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = condition
    params.conditional.type = kind
    params.conditional.size = size
    params.conditional.ctx = context
    done(driver.cuGraphAddNode(graph, None, None, 0, params))
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    for index, body in enumerate(params.conditional.phGraph_out):
        done(driver.cuStreamBeginCaptureToGraph(handle, body, None, None, 0, relaxed))
        done(driver.cuMemsetD32Async(word, index + 1, 1, handle))
        done(driver.cuStreamEndCapture(handle))
    ready = done(driver.cuGraphInstantiate(graph, 0))
    done(driver.cuMemsetD32(word, 0, 1))
    done(driver.cuGraphLaunch(ready, handle))
    found = value()
    done(driver.cuGraphExecDestroy(ready))
    done(driver.cuGraphDestroy(graph))
    return found


kinds = driver.CUgraphConditionalNodeType
print([run(kinds.CU_GRAPH_COND_TYPE_IF, 2, first) for first in (0, 1)])
print([run(kinds.CU_GRAPH_COND_TYPE_SWITCH, 3, first) for first in range(4)])
assert run(kinds.CU_GRAPH_COND_TYPE_WHILE, 1, 0) == 0

# The way of cuda-core: a builder for each body.
builder = device.create_graph_builder()
builder.begin_building()
condition = builder.create_condition(default_value=1)
body = builder.if_then(condition)
body.begin_building()
done(driver.cuMemsetD32Async(word, 9, 1, driver.CUstream(int(body.stream.handle))))
body.end_building()
graph = builder.end_building().complete()
graph.launch(stream)
assert value() == 9
print("done")
