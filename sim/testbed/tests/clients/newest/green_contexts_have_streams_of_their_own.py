"""Green contexts: a device's multiprocessors are split, and a context on some of them runs work in its streams."""

from cuda.bindings import driver


def done(answer):
    error, *values = answer
    assert int(error) == 0, error
    return values[0] if len(values) == 1 else values


MIB = 1 << 20
done(driver.cuInit(0))
device = done(driver.cuDeviceGet(0))
kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
all_of_it = done(driver.cuDeviceGetDevResource(device, kind))
groups, count, rest = done(driver.cuDevSmResourceSplitByCount(2, all_of_it, 0, 16))
assert count == 2 and [group.sm.smCount for group in groups] == [16, 16]
print(all_of_it.sm.smCount, rest.sm.smCount)
assert rest.sm.smCount == all_of_it.sm.smCount - 32

description = done(driver.cuDevResourceGenerateDesc([groups[0]], 1))
flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
assert driver.cuGreenCtxCreate(description, device, 0)[0] != 0
green = done(driver.cuGreenCtxCreate(description, device, flags))
assert done(driver.cuGreenCtxGetDevResource(green, kind)).sm.smCount == 16
context = done(driver.cuCtxFromGreenCtx(green))
stream = done(driver.cuGreenCtxStreamCreate(green, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
assert int(done(driver.cuStreamGetGreenCtx(stream))) == int(green)

# Work in the green context's stream, ordered by events of the context.
done(driver.cuCtxSetCurrent(context))
assert int(done(driver.cuCtxGetDevice())) == int(device)
memory = done(driver.cuMemAlloc(MIB))
event = done(driver.cuEventCreate(0))
done(driver.cuMemsetD32Async(memory, 5, MIB // 4, stream))
done(driver.cuGreenCtxRecordEvent(green, event))
done(driver.cuGreenCtxWaitEvent(green, event))
done(driver.cuEventSynchronize(event))
word = bytearray(4)
done(driver.cuMemcpyDtoH(word, memory, 4))
assert word == b"\5\0\0\0"

# The context is destroyed; its allocations and its stream remain. Drivers differ in how calls on the stream fail then.
primary = done(driver.cuDevicePrimaryCtxRetain(device))
done(driver.cuGreenCtxDestroy(green))
print("the stream answers", driver.cuStreamQuery(stream)[0].name)
done(driver.cuStreamDestroy(stream))
done(driver.cuCtxSetCurrent(primary))
done(driver.cuMemFree(memory))
done(driver.cuDevicePrimaryCtxRelease(device))
print("done")
