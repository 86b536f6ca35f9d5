"""Typical use of cuda-bindings: copies, pools, kernels, events, graphs, too much memory."""

import array

from cuda.bindings import driver as cu

MIB = 1 << 20
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin_us_2000(.param .u64 anything) { ret; }
\0"""


def check(answer):
    code, *values = answer
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else tuple(values) if values else None


def memory():
    free, total = check(cu.cuMemGetInfo())
    assert 0 <= free <= total
    return free


def host(values):
    data = array.array("I", values)
    return data, data.buffer_info()[0], len(data) * data.itemsize


def copies():
    source, source_address, size = host(range(1 << 16))
    target, target_address, _ = host([0] * (1 << 16))
    before = memory()
    first, second = check(cu.cuMemAlloc(size)), check(cu.cuMemAlloc(size))
    assert before - memory() >= 2 * size
    check(cu.cuMemcpyHtoD(first, source_address, size))
    check(cu.cuMemcpyDtoD(second, first, size))
    check(cu.cuMemsetD32(first, 0xABCD, len(source)))
    check(cu.cuMemcpyDtoH(target_address, second, size))
    assert target == source
    check(cu.cuMemcpyDtoH(target_address, first, size))
    assert set(target) == {0xABCD}
    check(cu.cuMemFree(first))
    check(cu.cuMemFree(second))
    assert memory() == before


def pools(stream):
    source, source_address, size = host(range(1 << 12))
    target, target_address, _ = host([0] * (1 << 12))
    address = check(cu.cuMemAllocAsync(size, stream))
    check(cu.cuMemcpyHtoDAsync(address, source_address, size, stream))
    check(cu.cuMemcpyDtoHAsync(target_address, address, size, stream))
    check(cu.cuMemFreeAsync(address, stream))
    check(cu.cuStreamSynchronize(stream))
    assert target == source


def launch(kernel, stream):
    argument = array.array("Q", [7])
    pointers = array.array("Q", [argument.buffer_info()[0]])
    check(cu.cuLaunchKernel(kernel, 4, 1, 1, 32, 1, 1, 0, stream, pointers.buffer_info()[0], 0))


def kernels(kernel, stream):
    start, end = check(cu.cuEventCreate(0)), check(cu.cuEventCreate(0))
    check(cu.cuEventRecord(start, stream))
    for _ in range(3):
        launch(kernel, stream)
    check(cu.cuEventRecord(end, stream))
    check(cu.cuEventSynchronize(end))
    took = check(cu.cuEventElapsedTime(start, end))
    assert took >= 5.9, f"three kernels of 2 ms took {took} ms"


def graphs(kernel, stream):
    """A captured copy and two kernels run when the graph is launched, and not before."""
    source, source_address, size = host(range(1 << 12))
    target, target_address, _ = host([0] * (1 << 12))
    address = check(cu.cuMemAlloc(size))
    check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    check(cu.cuMemcpyHtoDAsync(address, source_address, size, stream))
    launch(kernel, stream)
    launch(kernel, stream)
    check(cu.cuMemcpyDtoHAsync(target_address, address, size, stream))
    graph = check(cu.cuStreamEndCapture(stream))
    _, nodes = check(cu.cuGraphGetNodes(graph))
    assert nodes == 4, nodes
    executable = check(cu.cuGraphInstantiate(graph, 0))
    assert set(target) == {0}, "a capture runs nothing"
    for _ in range(2):
        check(cu.cuGraphLaunch(executable, stream))
        check(cu.cuStreamSynchronize(stream))
        assert target == source
        target[:] = array.array("I", [0] * len(target))
    check(cu.cuGraphExecDestroy(executable))
    check(cu.cuGraphDestroy(graph))
    check(cu.cuMemFree(address))


def too_much():
    before = memory()
    code, _ = cu.cuMemAlloc(1 << 50)
    assert code == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, code
    held = []
    while True:
        code, address = cu.cuMemAlloc(256 * MIB)
        if code != cu.CUresult.CUDA_SUCCESS:
            break
        held.append(address)
    assert code == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, code
    assert len(held) == before // (256 * MIB), (len(held), before)
    for address in held:
        check(cu.cuMemFree(address))
    assert memory() == before, "it goes on as before"
    return len(held)


check(cu.cuInit(0))
assert check(cu.cuDriverGetVersion()) >= 13000
device = check(cu.cuDeviceGet(0))
name = check(cu.cuDeviceGetName(64, device)).split(b"\0")[0].decode()
context = check(cu.cuDevicePrimaryCtxRetain(device))
check(cu.cuCtxSetCurrent(context))
stream = check(cu.cuStreamCreate(0))
module = check(cu.cuModuleLoadData(PTX))
kernel = check(cu.cuModuleGetFunction(module, b"spin_us_2000"))
copies()
pools(stream)
kernels(kernel, stream)
graphs(kernel, stream)
pieces = too_much()
check(cu.cuModuleUnload(module))
check(cu.cuStreamDestroy(stream))
check(cu.cuDevicePrimaryCtxRelease(device))
print(f"{name}: done, {pieces} pieces of 256 MiB fit")
