"""cuda-bindings under a script: `alloc N`, `free`, `info`, one reply per line; ends at the end of its input."""

import sys

from cuda.bindings import driver as cu


def check(answer):
    code, *values = answer
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return values


def answer(words):
    if words[0] == "alloc":
        code, address = cu.cuMemAlloc(int(words[1]))
        if code == cu.CUresult.CUDA_SUCCESS:
            held.append(address)
        return code.name
    if words[0] == "free":
        check(cu.cuMemFree(held.pop()))
        return "freed"
    if words[0] == "info":
        return " ".join(str(number) for number in check(cu.cuMemGetInfo()))
    raise ValueError(words)


held = []
check(cu.cuInit(0))
(device,) = check(cu.cuDeviceGet(0))
(context,) = check(cu.cuDevicePrimaryCtxRetain(device))
check(cu.cuCtxSetCurrent(context))
print("ready", flush=True)
for line in sys.stdin:
    print(answer(line.split()), flush=True)
