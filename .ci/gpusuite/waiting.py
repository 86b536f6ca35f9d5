"""Allocations that wait for memory: woken by frees and deaths, within their time, and correct afterwards."""
import os, signal, time

from .memory import ALLOCATOR
from .stage import MIB, Skip, answer, check, eventually, say


def waits(bench, pid):
    return eventually("it waits for memory", lambda: bench.ps(pid)["devices"][0]["memory_wait"])


def begin(child, word):
    child.stdin.write(word + "\n")
    child.stdin.flush()


@check
def an_allocation_over_its_quota_waits_until_the_quota_is_raised(bench):
    client = bench.run(["--memory", "256MiB", "--on-full", "wait"], ALLOCATOR)
    pid = answer(client)["pid"]
    assert say(client, f"alloc {200 * MIB}")["code"] == 0
    begin(client, f"alloc {100 * MIB}")
    assert waits(bench, pid)["limit"] == "quota"
    assert bench.ps(pid)["state"] == "memwait"
    began = time.monotonic()
    bench.ctl("quota", "set", str(pid), "1GiB")
    assert answer(client)["code"] == 0
    return {"after_the_edit_s": round(time.monotonic() - began, 4)}


@check
def a_full_device_is_waited_for_until_another_process_frees_or_is_killed(bench):
    """The driver's own out-of-memory: two clients whose quotas are each six tenths of the free memory."""
    holder = bench.run(["--name", "holder"], ALLOCATOR)
    held_by = answer(holder)["pid"]
    free = say(holder, "info")["info"][0]
    size = free * 6 // 10
    waiting = bench.run(["--on-full", "wait"], ALLOCATOR)
    pid = answer(waiting)["pid"]
    seconds = {}
    for end in ["free", "kill"]:
        assert say(holder, f"alloc {size}")["code"] == 0
        begin(waiting, f"alloc {size}")
        wait = waits(bench, pid)
        assert wait["limit"] == "device" and wait["held_by"][0]["pid"] == held_by, wait
        began = time.monotonic()
        if end == "free":
            assert say(holder, "free")["code"] == 0
        else:
            os.kill(held_by, signal.SIGKILL)
        assert answer(waiting)["code"] == 0
        seconds[end] = round(time.monotonic() - began, 4)
        assert say(waiting, "free")["code"] == 0
    device = bench.ps(pid)["devices"][0]
    assert device["memory_waits"] == 2 and device["memory_gave_up"] == 0, device
    return seconds


@check
def a_wait_ends_with_the_drivers_own_code_when_its_time_is_up(bench):
    holder = bench.run([], ALLOCATOR)
    answer(holder)
    size = say(holder, "info")["info"][0] * 6 // 10
    assert say(holder, f"alloc {size}")["code"] == 0
    waiting = bench.run(["--on-full", "wait=700ms"], ALLOCATOR)
    answer(waiting)
    began = time.monotonic()
    assert say(waiting, f"alloc {size}")["code"] == 2
    took = time.monotonic() - began
    assert took >= 0.7, took
    return {"seconds": round(took, 3)}


TORCH = """
    import torch
    reply(pid=os.getpid())
    held = []
    for line in sys.stdin:
        word, *rest = line.split() or [""]
        try:
            if word == "alloc": held.append(torch.empty(int(rest[0]), dtype=torch.uint8, device="cuda"))
            elif word == "drop": held.clear()
            reply(ok=True, reserved=torch.cuda.memory_reserved())
        except torch.cuda.OutOfMemoryError:
            reply(ok=False, reserved=torch.cuda.memory_reserved())
"""


def has_torch():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


@check
def pytorch_empties_its_cache_before_it_waits(bench):
    """PyTorch's unused cache is larger than the request: it is refused once, frees the cache, and does not wait."""
    if bench.sim or not has_torch():
        raise Skip("needs PyTorch on a GPU")
    client = bench.run(["--memory", "4GiB", "--on-full", "wait=20s"], TORCH)
    pid = answer(client)["pid"]
    for _ in range(3):
        assert say(client, f"alloc {1 << 30}")["ok"]
    assert say(client, "drop")["ok"]
    began = time.monotonic()
    assert say(client, f"alloc {3 << 30}")["ok"], "3 GiB of cache stood in the way"
    assert time.monotonic() - began < 10
    assert bench.ps(pid)["devices"][0]["memory_waits"] == 0
    begin(client, f"alloc {2 << 30}")
    waits(bench, pid)
    bench.ctl("quota", "set", str(pid), "8GiB")
    assert answer(client)["ok"]
    return {}
