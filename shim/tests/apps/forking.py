"""Forks without exec while its threads launch, as data loaders do: forking.py"""

import ctypes
import os
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")


def launch(times):
    answer = 0
    for _ in range(times):
        answer |= cuda.cuLaunchKernel(None, 10, 1, 1, 1, 1, 1, 0, None, None, None)
    return answer


def use():
    context = ctypes.c_void_p()
    answer = cuda.cuInit(0) | cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    return answer | cuda.cuCtxSetCurrent(context), context


answer, context = use()
done = threading.Event()


def work():
    cuda.cuCtxSetCurrent(context)
    while not done.is_set():
        launch(5)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for number in range(20):
    child = os.fork()
    if not child:
        # Half of them never use the GPU, half initialise it again; none runs its exit handlers.
        os._exit(0 if number % 2 else (use()[0] | launch(5)) & 1)
    answer |= os.waitpid(child, 0)[1]
done.set()
for thread in threads:
    thread.join()
print("answers", answer | launch(5))
sys.stdout.flush()
os._exit(0)
