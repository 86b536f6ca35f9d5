"""Several devices in one machine; skipped on a machine with one."""
from . import timeline
from .stage import MIB, Skip, answer, check, eventually, spin

COUNT = """
    lib = ctypes.CDLL("libcuda.so.1"); count = ctypes.c_int()
    lib.cuInit(0); lib.cuDeviceGetCount(ctypes.byref(count)); reply(count=count.value)
"""


def several(bench):
    if answer(bench.run([], COUNT))["count"] < 2:
        raise Skip("one device")


@check
def each_device_has_a_quota_of_its_own(bench):
    several(bench)
    client = bench.run(["--memory", "0:1GiB,1:2GiB"], """
        cuda, got = Cuda(), {}
        for ordinal in (0, 1):
            context = ctypes.c_void_p()
            cuda.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
            cuda.must("cuCtxSetCurrent", context)
            free, total = cuda.info()
            got[ordinal] = [total >> 30, cuda.alloc(total - (64 << 20))[0], cuda.alloc(128 << 20)[0]]
        reply(got=got, pid=os.getpid()); sys.stdin.readline()
    """)
    at = answer(client)
    assert at["got"] == {"0": [1, 0, 2], "1": [2, 0, 2]}, at
    used = [device["used_bytes"] for device in bench.ps(at["pid"])["devices"]]
    assert used == [(1024 - 64) * MIB, (2048 - 64) * MIB], used
    return {}


@check
def programs_on_two_devices_neither_deadlock_nor_overlap(bench):
    several(bench)
    jobs = [("a", 200, "one"), ("b", 200, "streams"), ("c", 150, "graph")]
    out = {}
    for policy in ("timeslice=3ms overlap=0", "launches=2", "always"):
        for number, kernels in enumerate(timeline.witnesses(bench, policy.split(), jobs, 4, devices=2)):
            kernels = timeline.shared(kernels)
            assert timeline.overlaps(kernels) == 0, (policy, number, timeline.overlaps(kernels))
            out[f"{policy} device {number}"] = {"kernels": len(kernels), "switches": len(timeline.runs(kernels))}
    return out


@check
def pick_answers_the_device_that_is_idle(bench):
    several(bench)
    busy = spin(bench, 20)
    eventually("it holds memory or runs", lambda: any(p["devices"] and p["devices"][0]["launches"] > 20 for p in bench.processes()))
    taken = next(p["devices"][0]["uuid"] for p in bench.processes())
    picked = bench.ctl("pick").stdout.strip()
    busy.kill()
    assert picked and picked != taken, (picked, taken)
    return {"taken": taken, "picked": picked}
