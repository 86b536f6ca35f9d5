"""The kernels of several processes on a device, merged into one timeline."""
import subprocess

from .stage import ROOT, Skip, cc

WITNESS = ROOT / ".ci/gpusuite/programs/witness.c"
# Two reads of the device's clock may differ by this much.
CLOCK_NS = 2_000


def witnesses(bench, policy, jobs, seconds, devices=1):
    """Runs one spinning program for each (name, KERNEL_US, HOW) under a policy; returns their kernels as [(start, end, name)] by device."""
    if bench.sim:
        raise Skip("the simulator's kernels do not read its clock; its own timeline is tested there")
    program = cc(bench, WITNESS)
    bench.ctl("policy", "set", "all", *policy)
    children = []
    for name, kernel_us, how in jobs:
        argv = [bench.bin / "gpushare", "run", "--name", name, "--", program, str(seconds), str(kernel_us), how, str(devices)]
        children.append((name, subprocess.Popen([str(a) for a in argv], env=bench.env, text=True, stdout=subprocess.PIPE)))
        bench.children.append(children[-1][1])
    kernels = [[] for _ in range(devices)]
    for name, child in children:
        out, _ = child.communicate(timeout=seconds + 60)
        assert child.returncode == 0, (name, child.returncode)
        for line in out.splitlines():
            device, start, end = map(int, line.split())
            kernels[device].append((start, end, name))
    for device in kernels:
        device.sort()
    return kernels


def shared(kernels):
    """Returns the part of the timeline in which all ran: from the last first kernel to the first last one."""
    names = {name for _, _, name in kernels}
    begin = max(min(s for s, _, n in kernels if n == name) for name in names)
    end = min(max(e for _, e, n in kernels if n == name) for name in names)
    return [k for k in kernels if k[0] >= begin and k[1] <= end]


def overlaps(kernels):
    """Counts kernels that began before one of another process had ended."""
    count, last = 0, {}
    for start, end, name in kernels:
        if any(other != name and until > start + CLOCK_NS for other, until in last.items()):
            count += 1
        last[name] = max(end, last.get(name, 0))
    return count


def together(kernels):
    """Returns, for each change from one process to another, the nanoseconds for which the earlier one's kernels continued."""
    spans, last, before = [], {}, None
    for start, end, name in kernels:
        if before not in (None, name):
            spans.append(max(0, last[before] - start))
        last[name], before = max(end, last.get(name, 0)), name
    return spans


def runs(kernels):
    """Returns the number of consecutive kernels of one process, for each run."""
    lengths, before = [], None
    for _, _, name in kernels:
        if name == before:
            lengths[-1] += 1
        else:
            lengths.append(1)
        before = name
    return lengths


def busy(kernels):
    """Returns the nanoseconds of kernels by process."""
    sums = {}
    for start, end, name in kernels:
        sums[name] = sums.get(name, 0) + end - start
    return sums


def percent(sums):
    whole = max(1, sum(sums.values()))
    return {name: round(100 * value / whole, 1) for name, value in sorted(sums.items())}
