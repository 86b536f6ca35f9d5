"""Evictions: memory leaves the card and returns, by the driver's checkpoint calls, through `pause --evict`, `resume` and `evict-after`."""
import glob, subprocess, sys, textwrap, threading, time

from .frameworks import torch
from .memory import ALLOCATOR
from .stage import MIB, Skip, check, eventually
from .stage import answer as unbounded

# Fills its memory with words that contain their own position, and reads them back.
HOLDER = '''
    cuda = Cuda(); pointer, turn = None, 0
    reply(pid=os.getpid())
    for line in sys.stdin:
        word, *rest = line.split() or [""]
        if word in ("hold", "change"):
            if word == "hold": size = int(rest[0]); code, pointer = cuda.alloc(size)
            else: turn += 1
            for at in range(0, size if code == 0 else 0, 64 << 20):
                part = min(64 << 20, size - at)
                cuda.must("cuMemsetD32_v2", ctypes.c_uint64(pointer.value + at), ctypes.c_uint((at >> 20) + turn), ctypes.c_size_t(part // 4))
            cuda.must("cuCtxSynchronize"); reply(code=code)
        elif word == "right":
            began, wrong, one = time.monotonic(), 0, ctypes.c_uint()
            for at in range(0, size, 64 << 20):
                for place in (at, min(at + (64 << 20), size) - 4):
                    cuda.must("cuMemcpyDtoH_v2", ctypes.byref(one), ctypes.c_uint64(pointer.value + place), ctypes.c_size_t(4))
                    wrong += one.value != (at >> 20) + turn
            reply(wrong=wrong, seconds=round(time.monotonic() - began, 3))
        elif word == "work":
            ends, rounds = time.monotonic() + float(rest[0]), 0
            while time.monotonic() < ends:
                for at in range(0, size, 64 << 20):
                    part = min(64 << 20, size - at)
                    cuda.must("cuMemsetD32_v2", ctypes.c_uint64(pointer.value + at), ctypes.c_uint((at >> 20) + turn), ctypes.c_size_t(part // 4))
                cuda.must("cuCtxSynchronize"); rounds += 1
            reply(rounds=rounds)
        elif word == "managed":
            out = ctypes.c_uint64()
            reply(code=cuda.call("cuMemAllocManaged", ctypes.byref(out), ctypes.c_size_t(1 << 20), 1))
        elif word == "query": reply(code=cuda.call("cuStreamQuery", None))
        elif word == "info": reply(info=cuda.info())
        elif word == "quit": sys.exit(0)
'''


def answer(child, limit=60):
    """Returns the client's next reply; a client that hangs fails the check with its position."""
    lines = []
    reader = threading.Thread(target=lambda: lines.append(unbounded(child)), daemon=True)
    reader.start()
    reader.join(limit)
    if lines:
        return lines[0]
    raise AssertionError(f"no answer in {limit} s: {where(child.pid)}")


def say(child, word="", limit=60):
    child.stdin.write(word + "\n")
    child.stdin.flush()
    return answer(child, limit)


def where(pid):
    """Returns the position of each of its threads, as far as the kernel reports it."""

    def read(task, name):
        try:
            return open(f"{task}/{name}").read().strip()
        except OSError:
            return "?"

    tasks = glob.glob(f"/proc/{pid}/task/*")
    return [(read(task, "comm"), read(task, "wchan"), read(task, "syscall").split(" ")[0]) for task in tasks]


def evict(bench, pid, limit=60):
    began = time.monotonic()
    try:
        said = bench.ctl("pause", str(pid), "--evict", ok=False, limit=limit)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"not evicted in {limit} s: {bench.ps(pid)['residence']} {where(pid)}")
    if any(words in said.stdout for words in ("not one that is known", "lacks what is needed", "too little memory")):
        raise Skip(said.stdout.splitlines()[-1])
    assert said.returncode == 0, said.stdout + said.stderr
    return round(time.monotonic() - began, 2)


def comes_back_behind(bench, pid, client, other, limit=60):
    """Calls the evicted client while the other process uses its memory: it waits until the other ends, and then has its memory."""
    bench.ctl("resume", str(pid))
    client.stdin.write("right\n")
    client.stdin.flush()
    eventually("it waits for room", lambda: bench.ps(pid)["residence"]["state"] == "returning")
    time.sleep(2)
    assert bench.ps(pid)["residence"]["state"] == "returning", bench.ps(pid)["residence"]
    other.stdin.write("quit\n")
    other.stdin.flush()
    back = answer(client, limit)
    assert back["wrong"] == 0, back


def gib(bench):
    return (1 if bench.sim else 8) << 30


@check
def an_overcommitted_card_is_filled_twice(bench):
    """A process of higher priority holds most of the card. Two others use the rest in turn, each evicted for the other."""
    filler = bench.run(["--priority", "5"], ALLOCATOR)
    victim, newcomer = bench.run([], HOLDER), bench.run([], HOLDER)
    answer(filler)
    pid, other, size = answer(victim)["pid"], answer(newcomer)["pid"], gib(bench)
    assert say(filler, f"alloc {say(filler, 'info')['info'][0] - size * 3 // 2}")["code"] == 0
    assert say(victim, f"hold {size}")["code"] == 0
    assert say(newcomer, f"hold {size}")["code"] == 2, "the card has room for both"
    bench.ctl("policy", "set", "all", "overcommit=on")
    bench.ctl("pause", str(pid))
    began = time.monotonic()
    code = say(newcomer, f"hold {size}")["code"]
    why = bench.ps(pid)["residence"]["refused"]
    if code == 2 and why and any(words in why for words in ("not one that is known", "lacks what is needed", "too little memory")):
        raise Skip(why)
    assert code == 0, (code, why)
    out = round(time.monotonic() - began, 2)
    assert bench.ps(pid)["state"] == "evicted"
    bench.ctl("resume", str(pid))
    bench.ctl("pause", str(other))
    back = say(victim, "right")
    assert back["wrong"] == 0, back
    assert bench.ps(other)["state"] == "evicted"
    return {"bytes": size, "alloc_with_eviction_s": out, "swapped_back_s": back["seconds"]}


@check
def evicted_memory_leaves_the_card_and_comes_back_where_it_was(bench):
    watcher, client = bench.run([], HOLDER), bench.run([], HOLDER)
    answer(watcher)
    pid, size = answer(client)["pid"], gib(bench)
    assert say(client, f"hold {size}")["code"] == 0
    before = say(watcher, "info")["info"][0]
    out = evict(bench, pid)
    device = bench.ps(pid)["devices"][0]
    assert device["used_bytes"] == 0 and device["evicted_bytes"] == size, device
    eventually("the card is emptier", lambda: say(watcher, "info")["info"][0] >= before + size * 0.99)
    bench.ctl("resume", str(pid))
    back = say(client, "right")
    assert back["wrong"] == 0, back
    assert bench.ps(pid)["devices"][0]["used_bytes"] == size
    return {"bytes": size, "out_s": out, "back_s": back["seconds"], "residence": bench.ps(pid)["residence"]}


@check
def a_card_is_filled_twice_and_who_comes_back_waits_for_room(bench):
    if bench.sim:
        raise Skip("the simulator's tests have it")
    filler, one, two = bench.run([], ALLOCATOR), bench.run([], HOLDER), bench.run([], HOLDER)
    answer(filler)
    pid, other = answer(one)["pid"], answer(two)["pid"]
    # A larger card is filled first: the evicted memory goes to the host, which has other work.
    free = say(one, "info")["info"][0]
    room = min(free, 36 << 30)
    assert room == free or say(filler, f"alloc {free - room}")["code"] == 0
    size = int(room * 0.7) // (64 * MIB) * (64 * MIB)
    assert say(one, f"hold {size}")["code"] == 0
    assert say(two, f"hold {size}")["code"] == 2
    out = evict(bench, pid)
    assert say(two, f"hold {size}")["code"] == 0
    comes_back_behind(bench, pid, one, two)
    return {"bytes": size, "out_s": out, "back_s": bench.ps(pid)["residence"]["swap_ns"] / 1e9, "other": other}


@check
def an_idle_process_is_evicted_and_work_brings_it_back_but_no_query(bench):
    client = bench.run(["--evict-after", "2s"], HOLDER)
    pid, size = answer(client)["pid"], 1 << 30
    assert say(client, f"hold {size}")["code"] == 0
    state = lambda: bench.ps(pid)["residence"]["state"]
    eventually("it is evicted", lambda: state() == "evicted", limit=60)
    say(client, "query")
    assert state() == "evicted"
    say(client, "right")
    assert state() == "resident"
    assert say(client, "right")["wrong"] == 0
    return {"residence": bench.ps(pid)["residence"]}


@check
def managed_memory_is_refused_and_the_process_goes_on(bench):
    client = bench.run([], HOLDER)
    pid = answer(client)["pid"]
    assert say(client, f"hold {256 * MIB}")["code"] == 0 and say(client, "managed")["code"] == 0
    said = bench.ctl("pause", str(pid), "--evict", ok=False)
    assert said.returncode == 1 and "managed memory" in said.stdout, said.stdout
    bench.ctl("resume", str(pid))
    assert say(client, "right")["wrong"] == 0
    return {}


@check
def a_process_that_ends_while_it_is_evicted_ends(bench):
    client = bench.run([], HOLDER)
    pid = answer(client)["pid"]
    assert say(client, f"hold {512 * MIB}")["code"] == 0
    evict(bench, pid)
    began = time.monotonic()
    client.stdin.write("quit\n")
    client.stdin.flush()
    client.wait(timeout=60)
    gone = lambda: all(p["pid"] != pid for p in bench.processes())
    eventually("it leaves ps", gone)
    return {"seconds": round(time.monotonic() - began, 3), "code": client.returncode}


@check
def a_pytorch_training_is_evicted_and_goes_on_with_the_same_results(bench):
    torch(bench)
    source = '''
        import torch
        torch.manual_seed(7); torch.use_deterministic_algorithms(False)
        model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096)).cuda()
        ballast = torch.arange(1 << 28, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        generator = torch.Generator(device="cuda").manual_seed(3)
        graph, x, y = None, torch.randn(512, 512, device="cuda"), None
        reply(pid=os.getpid())
        for line in sys.stdin:
            word, *rest = line.split() or [""]
            if word == "steps":
                for _ in range(int(rest[0])):
                    data = torch.randn(256, 4096, device="cuda", generator=generator)
                    loss = (model(data) - data).square().mean()
                    optimizer.zero_grad(); loss.backward(); optimizer.step()
                reply(loss=loss.item(), sum=sum(p.double().sum().item() for p in model.parameters()),
                      ballast=bool((ballast == torch.arange(1 << 28, device="cuda")).all()))
    '''
    plain, moved = bench.run([], source), bench.run([], source)
    answer(plain)
    pid = answer(moved)["pid"]
    seen = []
    for _ in range(3):
        want, have = say(plain, "steps 30"), say(moved, "steps 30")
        assert want == have and have["ballast"], (want, have)
        seen.append(evict(bench, pid))
        bench.ctl("resume", str(pid))
    want, have = say(plain, "steps 30"), say(moved, "steps 30")
    assert want == have and have["ballast"], (want, have)
    # The training is stopped between two calls, at full load.
    moved.stdin.write("steps 3000\n")
    moved.stdin.flush()
    time.sleep(1)
    seen.append(evict(bench, pid))
    bench.ctl("resume", str(pid))
    assert answer(moved)["ballast"]
    return {"out_s": seen, "residence": bench.ps(pid)["residence"]}


@check
def which_calls_answer_while_a_process_is_locked(bench):
    """A list without a pass condition: calls that need not wait while the process is evicted, which the driver's documentation leaves open."""
    source = textwrap.dedent('''
        import ctypes, json, os, sys, threading
        lib = ctypes.CDLL(sys.argv[1])
        def must(name, *args):
            code = getattr(lib, name)(*args)
            if code: print(json.dumps({"skip": f"{name}: {code}"})); sys.exit(0)
        must("cuInit", 0)
        context, pointer, stream, event = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
        must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0); must("cuCtxSetCurrent", context)
        must("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
        must("cuStreamCreate", ctypes.byref(stream), 1); must("cuEventCreate", ctypes.byref(event), 0)
        a, b = ctypes.c_size_t(), ctypes.c_size_t()
        buffer = ctypes.create_string_buffer(4096)
        calls = {
            "cuDriverGetVersion": (ctypes.byref(a),), "cuDeviceGetCount": (ctypes.byref(a),), "cuDeviceGet": (ctypes.byref(a), 0),
            "cuDeviceGetAttribute": (ctypes.byref(a), 16, 0), "cuDeviceGetName": (buffer, 100, 0), "cuDeviceTotalMem_v2": (ctypes.byref(a), 0),
            "cuCtxGetCurrent": (ctypes.byref(a),), "cuCtxGetDevice": (ctypes.byref(a),), "cuCtxSetCurrent": (context,),
            "cuCtxPushCurrent_v2": (context,), "cuCtxGetApiVersion": (context, ctypes.byref(a)), "cuMemGetInfo_v2": (ctypes.byref(a), ctypes.byref(b)),
            "cuPointerGetAttribute": (ctypes.byref(a), 2, pointer), "cuStreamQuery": (stream,), "cuEventQuery": (event,),
            "cuEventRecord": (event, stream), "cuStreamIsCapturing": (stream, ctypes.byref(a)), "cuStreamSynchronize": (stream,),
            "cuMemHostAlloc": (ctypes.byref(a), ctypes.c_size_t(4096), 0), "cuDevicePrimaryCtxGetState": (0, ctypes.byref(a), ctypes.byref(b)),
            "cuGetErrorName": (2, ctypes.byref(a)), "cuCtxSynchronize": (),
        }
        answers, ready = {}, threading.Barrier(len(calls) + 1)
        def ask(name, args):
            lib.cuCtxSetCurrent(context); ready.wait(); gate.wait(); getattr(lib, name)(*args); answers[name] = True
        gate = threading.Event()
        threads = [threading.Thread(target=ask, args=item, daemon=True) for item in calls.items()]
        for thread in threads: thread.start()
        ready.wait()
        must("cuCheckpointProcessLock", os.getpid(), None)
        gate.set()
        for thread in threads: thread.join(0.3)
        done = sorted(answers)
        must("cuCheckpointProcessUnlock", os.getpid(), None)
        for thread in threads: thread.join(10)
        print(json.dumps({"answer": done, "wait": sorted(set(calls) - set(done)), "all_went_on": len(answers) == len(calls)}))
    ''')
    env = {**bench.env, "GPUSHARE_SIM_WORLD": "locked"} if bench.sim else bench.env
    done = subprocess.run([sys.executable, "-c", source, str(bench.driver())], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-400:]
    import json

    said = json.loads(done.stdout)
    if "skip" in said:
        raise Skip(said["skip"])
    assert said["all_went_on"], said
    return said
