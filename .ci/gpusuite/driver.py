"""The driver itself: whether it behaves as the simulator does, and what its calls cost."""
from .stage import ROOT, answer, cc, check, under

# Left out: tests that need a small device, tests of promises that only the simulator makes, and tests with multicast objects,
# which take switches that other machines share.
NOT_HERE = ("threads_use_all_at_once", "null_arguments_are_errors")


@check
def cu_get_proc_address_and_dlsym_agree(bench):
    """Checks whether both lookups return the same pointer."""
    client = bench.run([], '''
        cuda = Cuda()
        differ = []
        for name, version in [("cuMemAlloc", 3020), ("cuLaunchKernel", 4000), ("cuMemGetInfo", 3020), ("cuStreamSynchronize", 2000)]:
            found = ctypes.c_void_p()
            cuda.must("cuGetProcAddress_v2", name.encode(), ctypes.byref(found), version, ctypes.c_uint64(0), None)
            symbol = name + ("_v2" if version == 3020 else "")
            if ctypes.cast(getattr(cuda.lib, symbol), ctypes.c_void_p).value != found.value: differ.append(name)
        reply(differ=differ)
    ''')
    return answer(client)


@check
def the_simulators_conformance_programs_hold_on_this_driver(bench):
    """The C programs of sim/cuda/tests/apps, without and with the library: a failure without it is a fault of the simulator."""
    wrong, changed = {}, {}
    for source in sorted((ROOT / "sim/cuda/tests/apps").glob("*.c")):
        if source.stem in NOT_HERE or "multicast" in source.stem:
            continue
        program = cc(bench, source)
        bare, ours = under(bench, False, [program]), under(bench, True, [program])
        if bare.returncode:
            wrong[source.stem] = bare.stderr.strip()[-160:]
        if (bare.returncode == 0) != (ours.returncode == 0):
            changed[source.stem] = [bare.returncode, ours.returncode, ours.stderr.strip()[-160:]]
    if changed:
        raise AssertionError(f"the preload changes: {changed}; bare, these differ from the simulator: {wrong}")
    return {"driver_differs_from_simulator": wrong}


@check
def what_a_call_costs_on_this_driver(bench):
    program = cc(bench, ROOT / "shim/benches/apps/on_a_gpu.c")
    times = {}
    for way, preload, policy in (("bare", False, ""), ("off", True, "off"), ("held", True, "timeslice=1s")):
        best = {}
        for _ in range(3):
            done = under(bench, preload, [program], GPUSHARE_POLICY=policy) if policy else under(bench, preload, [program])
            assert done.returncode == 0, done.stderr
            for line in done.stdout.splitlines():
                name, value = line.rsplit(" ", 1)
                best[name] = min(float(value), best.get(name, 1e18))
        times[way] = best
    return {name: {way: times[way][name] for way in times} for name in times["bare"]}
