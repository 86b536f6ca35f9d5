"""Behaviour of other programs: names like the driver's, graphs that allocate, many pools, edits while they run."""
from .evictions import HOLDER, answer, evict, say
from .stage import MIB, check, eventually

NAMED = '''
    ctypes.CDLL(None).prctl(15, b"cuda-train", 0, 0, 0)
'''

# A captured graph with its own allocation, launched on command.
GRAPH = '''
    cuda = Cuda(); stream, graph, ready, inner = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda.must("cuStreamCreate", ctypes.byref(stream), 1)
    cuda.must("cuStreamBeginCapture_v2", stream, 2)
    cuda.must("cuMemAllocAsync", ctypes.byref(inner), ctypes.c_size_t(8 << 20), stream)
    cuda.must("cuMemsetD8Async", inner, 7, ctypes.c_size_t(8 << 20), stream)
    cuda.must("cuMemFreeAsync", inner, stream)
    cuda.must("cuStreamEndCapture", stream, ctypes.byref(graph))
    cuda.must("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
    reply(pid=os.getpid())
    for line in sys.stdin:
        code = cuda.call("cuGraphLaunch", ready, stream)
        reply(code=code or cuda.call("cuStreamSynchronize", stream))
'''

# Pools that keep freed memory.
POOLS = '''
    cuda = Cuda(); stream, pools = ctypes.c_void_p(), []
    cuda.must("cuStreamCreate", ctypes.byref(stream), 1)
    class Props(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("kind", ctypes.c_int), ("id", ctypes.c_int), ("security", ctypes.c_void_p),
                    ("most", ctypes.c_size_t), ("usage", ctypes.c_ushort), ("rest", ctypes.c_ubyte * 54)]
    reply(pid=os.getpid())
    for line in sys.stdin:
        pool, pointer, keep, kept = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64(2**64 - 1), ctypes.c_uint64()
        props = Props(type=1, kind=1)
        cuda.must("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(props))
        cuda.must("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))
        code = cuda.call("cuMemAllocFromPoolAsync", ctypes.byref(pointer), ctypes.c_size_t(int(line)), pool, stream)
        if code == 0: cuda.must("cuMemFreeAsync", pointer, stream)
        cuda.must("cuStreamSynchronize", stream); pools.append(pool); sum_kept = 0
        for one in pools:
            cuda.must("cuMemPoolGetAttribute", one, 5, ctypes.byref(kept)); sum_kept += kept.value
        reply(code=code, kept=sum_kept)
'''


@check
def a_program_named_as_the_drivers_threads_are_comes_back_from_an_eviction(bench):
    client = bench.run([], NAMED + HOLDER)
    pid, size = answer(client)["pid"], 256 * MIB
    assert say(client, f"hold {size}")["code"] == 0
    evict(bench, pid)
    bench.ctl("resume", str(pid))
    back = say(client, "right")
    assert back["wrong"] == 0, back
    return back


@check
def a_graph_that_allocates_runs_after_an_eviction(bench):
    client = bench.run([], GRAPH)
    pid = answer(client)["pid"]
    assert say(client)["code"] == 0
    evict(bench, pid)
    bench.ctl("resume", str(pid))
    assert say(client)["code"] == 0
    return {}


@check
def an_edit_reaches_an_evicted_process(bench):
    """Under a policy that records events by itself; the edit restores the policy before."""
    client, other = bench.run(["--priority", "-5"], HOLDER), bench.run(["--priority", "5"], HOLDER)
    pid, _ = answer(client)["pid"], answer(other)
    bench.ctl("policy", "set", "all", "overlap", "order=priority")
    assert say(client, f"hold {64 * MIB}")["code"] == 0 and say(other, f"hold {64 * MIB}")["code"] == 0
    assert say(client, "work 0.5")["rounds"] > 0
    evict(bench, pid)
    for words in [["policy", "set", "all", "off"], ["quota", "set", str(pid), "1GiB"], ["policy", "set", "all", "timeslice=5ms"]]:
        said = bench.ctl(*words, limit=30).stdout
        assert "has not" not in said and "have not" not in said, said
    assert bench.ps(pid)["state"] == "evicted", bench.ps(pid)["state"]
    bench.ctl("resume", str(pid))
    assert say(client, "right")["wrong"] == 0
    eventually("it is back", lambda: bench.ps(pid)["state"] != "evicted")
    return {}


@check
def the_pools_of_a_process_keep_no_more_than_its_quota_together(bench):
    client = bench.run(["--memory", "256MiB"], POOLS)
    pid, most = answer(client)["pid"], 0
    for _ in range(12):
        said = say(client, str(96 * MIB))
        assert said["code"] in (0, 2), said
        most = max(most, said["kept"])
    assert most <= 256 * MIB, most
    assert bench.ps(pid)["devices"][0]["used_bytes"] <= 256 * MIB
    return {"kept_at_most": most}
