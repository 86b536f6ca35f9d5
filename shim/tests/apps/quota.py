"""NVIDIA's own Python bindings under a quota of 8 MiB: prints each result on a line.

They find every function by cuGetProcAddress; NVML (nvidia-ml-py) is found through ctypes.
"""

import pynvml
from cuda.bindings import driver

MIB = 1 << 20


def ok(answer):
    code, *values = answer
    assert code == 0, code
    return values[0] if len(values) == 1 else values


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
print("total", ok(driver.cuDeviceTotalMem(device)) // MIB)

block = ok(driver.cuMemAlloc(3 * MIB))
print("info", [n // MIB for n in ok(driver.cuMemGetInfo())])
print("refused", driver.cuMemAlloc(5 * MIB + 1)[0].name)

stream = ok(driver.cuStreamCreate(0))
piece = ok(driver.cuMemAllocAsync(5 * MIB, stream))
print("refused", driver.cuMemAllocAsync(1, stream)[0].name)

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
print("nvml", [n // MIB for n in (memory.total, memory.free, memory.used)])

ok(driver.cuMemFreeAsync(piece, stream))
ok(driver.cuStreamSynchronize(stream))
ok(driver.cuMemFree(block))
print("info", [n // MIB for n in ok(driver.cuMemGetInfo())])
