"""Checkpoints: a process locks itself from a second thread, and its memory leaves the device and returns; another process is locked too."""

import os
import subprocess
import sys
import threading

from cuda.bindings import driver

MIB = 1 << 20
STATES = driver.CUprocessState


def done(answer):
    error, *values = answer
    assert int(error) == 0, error
    return values[0] if len(values) == 1 else values


def start():
    done(driver.cuInit(0))
    context = done(driver.cuDevicePrimaryCtxRetain(0))
    done(driver.cuCtxSetCurrent(context))
    return context


def used():
    free, total = done(driver.cuMemGetInfo())
    return total - free


def state(pid):
    return done(driver.cuCheckpointProcessGetState(pid))


class Other:
    """Another process with device memory, which returns a word of it on request."""

    def __init__(self, what):
        self.process = subprocess.Popen(
            [sys.executable, __file__, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.line() == "ready"
        self.pid = self.process.pid

    def line(self):
        return self.process.stdout.readline().strip()

    def say(self):
        self.process.stdin.write("word\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


def be_another(what):
    start()
    if what == "managed":
        memory = done(driver.cuMemAllocManaged(MIB, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    else:
        memory = done(driver.cuMemAlloc(512 * MIB))
    done(driver.cuMemsetD32(memory, 77, 1))
    print("ready", flush=True)
    for _ in sys.stdin:
        word = bytearray(4)
        done(driver.cuMemcpyDtoH(word, memory, 4))
        print(int.from_bytes(word, "little"), flush=True)


if len(sys.argv) > 1:
    be_another(sys.argv[1])
    sys.exit()

# Another process: it waits while it is locked, and finds its memory at the same addresses.
start()
other = Other("plain")
pid = other.pid
before = used()
done(driver.cuCheckpointProcessLock(pid, None))
assert state(pid) == STATES.CU_PROCESS_STATE_LOCKED
other.say()
done(driver.cuCheckpointProcessCheckpoint(pid, None))
assert state(pid) == STATES.CU_PROCESS_STATE_CHECKPOINTED
assert before - used() >= 500 * MIB, (before, used())
illegal = (driver.CUresult.CUDA_ERROR_ILLEGAL_STATE,)
assert driver.cuCheckpointProcessUnlock(pid, None) == illegal
done(driver.cuCheckpointProcessRestore(pid, None))
assert used() == before
done(driver.cuCheckpointProcessUnlock(pid, None))
assert other.line() == "77"
other.end()

# A process with managed memory is refused and continues.
other = Other("managed")
done(driver.cuCheckpointProcessLock(other.pid, None))
refused = (driver.CUresult.CUDA_ERROR_NOT_SUPPORTED,)
assert driver.cuCheckpointProcessCheckpoint(other.pid, None) == refused
assert driver.cuCheckpointProcessRestore(other.pid, None) == illegal
done(driver.cuCheckpointProcessUnlock(other.pid, None))
other.say()
assert other.line() == "77"
other.end()

# A restore without room fails for good, even when there is room again (H200, 580.159.04).
other = Other("plain")
done(driver.cuCheckpointProcessLock(other.pid, None))
done(driver.cuCheckpointProcessCheckpoint(other.pid, None))
filler = done(driver.cuMemAlloc(done(driver.cuMemGetInfo())[0] - 64 * MIB))
assert driver.cuCheckpointProcessRestore(other.pid, None) == (driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY,)
lost = (driver.CUresult.CUDA_ERROR_OPERATING_SYSTEM,)
assert driver.cuCheckpointProcessRestore(other.pid, None) == lost
done(driver.cuMemFree(filler))
assert driver.cuCheckpointProcessRestore(other.pid, None) == lost
assert driver.cuCheckpointProcessUnlock(other.pid, None) == illegal
assert state(other.pid) == STATES.CU_PROCESS_STATE_CHECKPOINTED
other.process.kill()
other.process.wait()

# The process itself, from a second thread, while the first one works.
memory = done(driver.cuMemAlloc(64 * MIB))
rounds, ends = [], threading.Event()


def checkpoint():
    try:
        for step in (
            driver.cuCheckpointProcessLock,
            driver.cuCheckpointProcessCheckpoint,
            driver.cuCheckpointProcessRestore,
            driver.cuCheckpointProcessUnlock,
        ):
            done(step(os.getpid(), None))
            rounds.append(step.__name__)
    finally:
        ends.set()


thread = threading.Thread(target=checkpoint)
thread.start()
while True:
    # At least one round: on a busy machine the other thread may be done before this one runs again.
    done(driver.cuMemsetD32(memory, 5, MIB))
    done(driver.cuCtxSynchronize())
    if ends.is_set():
        break
thread.join()
assert len(rounds) == 4, rounds
assert state(os.getpid()) == STATES.CU_PROCESS_STATE_RUNNING
word = bytearray(4)
done(driver.cuMemcpyDtoH(word, memory, 4))
assert word == b"\5\0\0\0"
print("done")
