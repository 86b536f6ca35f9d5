"""The ledger compared with the driver: exact bytes, quotas that change, dead processes, the view from inside."""
import os, signal, subprocess, sys, time

from .stage import MIB, ROOT, Skip, answer, cc, check, eventually, say, under


@check
def used_bytes_match_to_the_byte(bench):
    client = bench.run(["--memory", "1GiB"], '''
        cuda = Cuda(); held = []
        for size in [1, 4096, 3 << 20, (64 << 20) + 7]:
            code, pointer = cuda.alloc(size); assert code == 0, code
            held.append(pointer)
        free, total = cuda.info()
        reply(pid=os.getpid(), free=free, total=total)
        sys.stdin.readline()
    ''')
    at = answer(client)
    want = 1 + 4096 + 3 * MIB + 64 * MIB + 7
    device = bench.ps(at["pid"])["devices"][0]
    assert device["used_bytes"] == want, device
    assert device["quota_bytes"] == 1 << 30 and at["total"] == 1 << 30, (device, at)
    assert at["free"] == (1 << 30) - want, at
    return {"used_bytes": want}


ALLOCATOR = '''
    cuda = Cuda(); held = []
    reply(pid=os.getpid())
    for line in sys.stdin:
        word, *rest = line.split() or [""]
        if word == "alloc":
            code, pointer = cuda.alloc(int(rest[0]))
            if code == 0: held.append(pointer)
            reply(code=code)
        elif word == "free": reply(code=cuda.free(held.pop()))
        elif word == "info": reply(info=cuda.info())
'''


@check
def a_lowered_quota_refuses_the_next_allocation_and_a_raised_one_lets_it_go_on(bench):
    one, other = bench.run(["--memory", "1GiB"], ALLOCATOR), bench.run(["--memory", "1GiB"], ALLOCATOR)
    pid, _ = answer(one)["pid"], answer(other)["pid"]
    assert say(one, f"alloc {256 * MIB}")["code"] == 0
    bench.ctl("quota", "set", str(pid), "300MiB")
    assert say(one, f"alloc {64 * MIB}")["code"] == 2
    assert say(one, "info")["info"] == [44 * MIB, 300 * MIB]
    assert say(other, f"alloc {64 * MIB}")["code"] == 0
    bench.ctl("quota", "set", str(pid), "2GiB")
    assert say(one, f"alloc {64 * MIB}")["code"] == 0
    assert bench.ps(pid)["devices"][0]["denials"] == 1
    return {}


@check
def a_killed_process_gives_its_bytes_back(bench):
    client = bench.run([], ALLOCATOR)
    pid = answer(client)["pid"]
    assert say(client, f"alloc {512 * MIB}")["code"] == 0
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    gone = lambda: all(p["pid"] != pid for p in bench.processes())
    eventually("the dead process leaves ps", gone)
    return {"seconds": round(time.monotonic() - began, 3)}


@check
def a_dead_process_has_left_the_device_when_it_leaves_the_ledger(bench):
    """Bytes that return to the others' quota must be available on the device: 16 GiB (on the simulator 4), then SIGKILL."""
    size = (4 if bench.sim else 16) << 30
    watcher, client = bench.run([], ALLOCATOR), bench.run([], ALLOCATOR)
    answer(watcher)
    pid = answer(client)["pid"]
    before = say(watcher, "info")["info"][0]
    assert say(client, f"alloc {size}")["code"] == 0
    eventually("the device is fuller", lambda: say(watcher, "info")["info"][0] <= before - size)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    gone = lambda: all(p["pid"] != pid for p in bench.processes())
    eventually("the dead process leaves ps", gone)
    left = time.monotonic() - began
    eventually("its memory is free", lambda: say(watcher, "info")["info"][0] >= before - size // 16)
    return {"left_the_ledger_s": round(left, 3), "free_on_the_device_s": round(time.monotonic() - began, 3)}


@check
def a_group_shares_one_quota(bench):
    bench.ctl("group", "create", "team", "memory=1GiB")
    one, other = bench.run(["--group", "team"], ALLOCATOR), bench.run(["--group", "team"], ALLOCATOR)
    answer(one), answer(other)
    assert say(one, f"alloc {700 * MIB}")["code"] == 0
    assert say(other, f"alloc {400 * MIB}")["code"] == 2
    assert say(other, "info")["info"][0] == 324 * MIB
    assert say(one, "free")["code"] == 0
    assert say(other, f"alloc {400 * MIB}")["code"] == 0
    return {}


@check
def nvml_inside_the_process_agrees_with_its_quota(bench):
    """Queried with nvidia-ml-py; outside the process the whole card is shown."""
    if subprocess.run([sys.executable, "-c", "import pynvml"], capture_output=True).returncode:
        raise Skip("no nvidia-ml-py here")
    client = bench.run(["--memory", "3GiB"], """
        import pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        outside = pynvml.nvmlDeviceGetMemoryInfo(handle)
        cuda = Cuda()
        code, pointer = cuda.alloc(1 << 30); assert code == 0, code
        inside = pynvml.nvmlDeviceGetMemoryInfo(handle)
        reply(total=inside.total, used=inside.used, free=inside.free, whole=outside.total)
    """)
    seen = answer(client)
    assert seen["total"] == 3 << 30 and seen["used"] + seen["free"] <= seen["total"], seen
    assert seen["free"] == 2 << 30, seen
    return seen


@check
def the_ledger_is_what_the_driver_keeps(bench):
    """Graphs, mapped memory and arrays, step by step: the ledger in the program's own view compared with the driver's blocks."""
    program = cc(bench, ROOT / ".ci/gpusuite/programs/account.c", "-ldl")
    done = under(bench, True, [program], GPUSHARE_MEMORY="8GiB")
    wrong = [line for line in done.stdout.splitlines() if line.startswith("DIFFERS")]
    steps = sum(line.startswith("ok") for line in done.stdout.splitlines())
    assert done.returncode == 0 and not wrong and steps >= 20, (done.returncode, steps, wrong[:4], done.stderr[-200:])
    return {"steps": steps}
