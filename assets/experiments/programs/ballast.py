"""Holds the memory of the GPU except for a room, so that a large card stands for a small one.

    ballast.py GIB

Leaves GIB of what is free ($BALLAST_ROOM instead, if set). Uses the driver only, and ends when it is asked to.
"""
import ctypes
import os
import signal
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def call(name, *words):
    code = getattr(cuda, name)(*words)
    if code:
        sys.exit(f"{name}: driver error {code}")


call("cuInit", 0)
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
free, total, start = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
room = float(os.environ.get("BALLAST_ROOM", sys.argv[1]))
rest = free.value - int(room * 2**30)
if rest <= 0:
    sys.exit(f"only {free.value / 2**30:.1f} GiB of the GPU are free")
call("cuMemAlloc_v2", ctypes.byref(start), ctypes.c_size_t(rest))
print("ready", flush=True)
while True:
    time.sleep(60)
