"""The lock on a real device: shares, takeovers, and its promises checked with the device's own clock."""
import os, signal, statistics, time

from . import timeline
from .stage import Skip, check, eventually, spin


def locks(bench):
    """Returns the lock's figures on the first device, by the label of the process."""
    return {p["name"]: p["devices"][0]["lock"] for p in bench.processes() if p["devices"]}


def held_over(bench, names, seconds):
    """Returns the nanoseconds for which each process held the lock in a period that begins when all have held it."""
    eventually("all hold", lambda: set(names) <= set(locks(bench)) and all(locks(bench)[n]["held_ns"] for n in names))
    time.sleep(1)
    began, before = time.monotonic_ns(), locks(bench)
    time.sleep(seconds)
    took, after = time.monotonic_ns() - began, locks(bench)
    return {n: after[n]["held_ns"] - before[n]["held_ns"] for n in names}, took


def end(bench, children):
    bench.ctl("policy", "set", "all", "off")
    for child in children:
        child.kill()
        child.wait()


@check
def every_policy_and_order_is_shared_by_two_alike(bench):
    out = {}
    for policy in ("timeslice=5ms", "timeslice=50ms", "launches=3", "always"):
        for order in ("fifo", "priority", "fair"):
            bench.ctl("policy", "set", "all", policy, f"order={order}")
            children = [spin(bench, 20, "--name", name) for name in ("a", "b")]
            held, _ = held_over(bench, ("a", "b"), 2)
            shares, forced = timeline.percent(held), sum(l["forced"] for l in locks(bench).values())
            end(bench, children)
            eventually("both have left", lambda: not locks(bench))
            assert abs(shares["a"] - 50) <= 3, (policy, order, shares)
            out[f"{policy} {order}"] = {"share_percent": shares, "forced": forced}
    return out


@check
def no_kernel_of_one_process_runs_in_anothers_turn(bench):
    """Checks the drain with the device's clock: three processes, streams of all kinds and graphs."""
    out = {}
    jobs = [("one", 300, "one"), ("streams", 200, "streams"), ("graph", 150, "graph")]
    for policy in ("timeslice=5ms overlap=0", "launches=3", "always"):
        kernels = timeline.shared(timeline.witnesses(bench, [*policy.split(), "order=fair"], jobs, 4)[0])
        overlapping, switches = timeline.overlaps(kernels), len(timeline.runs(kernels))
        assert overlapping == 0 and switches >= 20, (policy, overlapping, switches)
        out[policy] = {"kernels": len(kernels), "switches": switches, "busy_percent": timeline.percent(timeline.busy(kernels))}
    return out


@check
def a_turn_begins_no_earlier_than_its_overlap_allows(bench):
    """By default slices overlap by 200 us. Measures how long two processes had kernels at once, at each change of the turn."""
    jobs = [("one", 300, "one"), ("streams", 200, "streams"), ("graph", 150, "graph")]
    kernels = timeline.shared(timeline.witnesses(bench, ["timeslice=5ms", "order=fair"], jobs, 4)[0])
    together = timeline.together(kernels)
    assert len(together) >= 20, len(together)
    usual, most = statistics.median(together), statistics.quantiles(together, n=100)[98]
    # The time left in a turn is derived from the last kernel, so one more kernel may follow.
    assert usual <= 200_000 + 300_000, (usual, most)
    return {"changes": len(together), "usual_us": usual // 1000, "p99_us": most // 1000, "longest_us": max(together) // 1000}


@check
def without_a_lock_the_card_mixes_them(bench):
    """The control experiment: without a lock the check above finds overlaps."""
    jobs = [("one", 300, "one"), ("other", 300, "one")]
    kernels = timeline.shared(timeline.witnesses(bench, ["off"], jobs, 3)[0])
    overlapping = timeline.overlaps(kernels)
    assert overlapping > 0, len(kernels)
    return {"overlaps": overlapping, "kernels": len(kernels)}


@check
def the_turn_changes_as_often_as_the_policy_says(bench):
    """Two equal processes that never stop: the turn changes after each call under `always`, after each third under `launches=3`."""
    out = {}
    for policy, most in (("always", 1), ("launches=3", 3)):
        for order in ("fifo", "fair"):
            jobs = [("a", 1000, "one"), ("b", 1000, "one")]
            kernels = timeline.shared(timeline.witnesses(bench, [policy, f"order={order}"], jobs, 3)[0])
            lengths = timeline.runs(kernels)[5:-1]
            usual = statistics.median(lengths)
            assert usual <= most, (policy, order, usual, lengths[:20])
            out[f"{policy} {order}"] = {"median_run": usual, "longest_run": max(lengths), "kernels": len(kernels)}
    return out


@check
def the_other_runs_on_after_the_holder_is_killed(bench):
    bench.ctl("policy", "set", "all", "timeslice=1s")
    a, b = spin(bench, 10, "--name", "a"), spin(bench, 10, "--name", "b")

    def holder():
        for p in bench.processes():
            if p["devices"] and p["devices"][0]["lock"]["state"] == "hold":
                return p["pid"]
        return None

    first = eventually("somebody holds", holder)
    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    eventually("the other holds", lambda: holder() not in (None, first))
    bench.ctl("policy", "set", "all", "off")
    return {"seen_within_s": round(time.monotonic() - began, 3)}


@check
def weights_share_a_saturated_device(bench):
    bench.ctl("policy", "set", "all", "timeslice=5ms", "order=fair")
    weights = {"one": 1, "two": 2, "four": 4}
    children = [spin(bench, 30, "--name", name, "--weight", str(100 * weight)) for name, weight in weights.items()]
    held, _ = held_over(bench, weights, 10)
    end(bench, children)
    shares = timeline.percent(held)
    assert all(abs(shares[name] - 100 * weight / 7) <= 2 for name, weight in weights.items()), shares
    return {"share_percent": shares, "ideal": {name: round(100 * weight / 7, 1) for name, weight in weights.items()}}


def launched_over(bench, names, seconds):
    """Returns the shares of the kernels that each process launched in a period, in per cent."""
    def count():
        processes = bench.processes()
        return {p["name"]: p["devices"][0]["launches"] for p in processes if p["devices"]}

    eventually("all launch", lambda: set(names) <= set(count()) and all(count()[n] for n in names))
    time.sleep(1)
    before = count()
    time.sleep(seconds)
    after = count()
    return timeline.percent({n: after[n] - before[n] for n in names})


@check
def the_cards_own_slices_share_by_weight(bench):
    """Judges by what is done, because a driver may accept a slice and not obey. Kernels are short: one at
    the end of a slice ends in the next. Bursts are long: a process whose burst ends in its slice loses the rest of it."""
    if bench.sim:
        # The simulated kernel module answers where it is preloaded.
        bench.env["LD_PRELOAD"] = str(bench.bin / "libcuda.so")
    weights = {"one": 1, "two": 2, "four": 4}
    kernels = {"kernel_us": 500, "burst": 200} if bench.sim else {"kernel_us": 100, "burst": 2000}
    children = [spin(bench, 60, "--name", name, "--weight", str(100 * weight), **kernels) for name, weight in weights.items()]

    def slices():
        devices = {p["name"]: p["devices"][0] for p in bench.processes() if p["devices"]}
        refused = [d["card_slice_refused"] for d in devices.values() if d["card_slice_refused"]]
        if refused:
            raise Skip(f"hw-timeslice is refused: {refused[0]}")
        return {name: device["card_slice_us"] for name, device in devices.items()}

    shares = {"default": launched_over(bench, weights, 5)}
    bench.ctl("policy", "set", "all", "hw-timeslice=4ms")
    eventually("all have their slices", lambda: slices() == {name: 4000 * weight for name, weight in weights.items()})
    shares["weights 1:2:4"] = launched_over(bench, weights, 10)
    bench.ctl("policy", "set", "all", "off")
    eventually("the slices are given back", lambda: set(slices().values()) == {None})
    shares["given back"] = launched_over(bench, weights, 5)
    end(bench, children)
    for name, weight in weights.items():
        assert abs(shares["default"][name] - 100 / 3) <= 3, shares
        assert abs(shares["weights 1:2:4"][name] - 100 * weight / 7) <= 2, shares
        assert abs(shares["given back"][name] - 100 / 3) <= 3, shares
    return {"share_percent": shares}


@check
def caps_hold_on_a_saturated_device(bench):
    bench.ctl("policy", "set", "all", "timeslice=5ms", "order=fair")
    caps = {"ten": 10, "thirty": 30, "fifty": 50}
    children = [spin(bench, 30, "--name", name, "--cap", f"{cap}%") for name, cap in caps.items()]
    held, took = held_over(bench, caps, 10)
    end(bench, children)
    shares = {name: round(100 * ns / took, 1) for name, ns in held.items()}
    assert all(abs(shares[name] - cap) <= 2 for name, cap in caps.items()), shares
    return {"held_percent": shares}


@check
def a_stopped_holder_is_passed_over_and_finds_out(bench):
    bench.ctl("policy", "set", "all", "timeslice=5ms", "max-hold=3s", "grace=1s")
    children = [spin(bench, 30, "--name", name) for name in ("a", "b")]
    held_over(bench, ("a", "b"), 0.5)
    pids = {p["name"]: p["pid"] for p in bench.processes()}

    def stopped_with_the_lock():
        # A process stopped in its turn, or while it waits, is handed its next turn all the same.
        os.kill(pids["a"], signal.SIGSTOP)
        for _ in range(20):
            if locks(bench)["a"]["state"] == "hold":
                return True
            time.sleep(0.05)
        os.kill(pids["a"], signal.SIGCONT)
        return False

    eventually("a is stopped with the lock", stopped_with_the_lock)
    before = locks(bench)["b"]["held_ns"]
    eventually("b has the device to itself", lambda: locks(bench)["b"]["held_ns"] - before > 1_000_000_000)
    forced = sum(l["forced"] for l in locks(bench).values())
    assert forced > 0, locks(bench)
    os.kill(pids["a"], signal.SIGCONT)
    at = locks(bench)["a"]["acquisitions"]
    eventually("a takes its turns again", lambda: locks(bench)["a"]["acquisitions"] > at + 3)
    end(bench, children)
    return {"forced": forced}
