"""Traces of real clients: every call is counted, the lock is on the same timeline, and Alnair's logs are right."""
import json, time

from .frameworks import TRAINER, torch
from .stage import answer, check, eventually, say, spin


@check
def a_trace_of_two_that_share_has_their_calls_and_their_turns(bench):
    bench.ctl("policy", "set", "all", "timeslice=5ms")
    children = [spin(bench, 20, "--name", name) for name in ("a", "b")]
    eventually("both run", lambda: sum(p["devices"][0]["launches"] > 5 for p in bench.processes() if p["devices"]) == 2)
    bench.ctl("trace", "start", "all")
    time.sleep(1)
    bench.ctl("trace", "stop", "all")
    events = json.loads(bench.ctl("trace", "export", "all").stdout)["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert all(e["dur"] >= 0 for e in spans)
    launches = {}
    for span in spans:
        if span["name"].startswith("cuLaunchKernel"):
            launches[span["pid"]] = launches.get(span["pid"], 0) + 1
    assert len(launches) == 2 and min(launches.values()) >= 30, launches
    names = {e["name"].split()[0].lower() for e in spans if not e["name"].startswith("cu")}
    assert any("hold" in n for n in names) and any("wait" in n for n in names), names
    stats = bench.ctl("trace", "stats", "name:a").stdout
    assert "cuLaunchKernel" in stats, stats
    logs = bench.dir / "logs"
    logs.mkdir()
    bench.ctl("trace", "export", "name:a", "--format", "alnair", "-o", str(logs))
    assert "name:cuLaunchKernel\ncount:" in (logs / "metrics.log").read_text()
    for child in children:
        child.kill()
    return {"launches": sorted(launches.values()), "spans": len(spans)}


@check
def pflog_writes_alnairs_logs_of_a_training(bench):
    torch(bench)
    logs = bench.dir / "pflog"
    logs.mkdir()
    bench.env["PFLOG"] = str(logs)
    client = bench.run([], TRAINER)
    answer(client)
    assert say(client, "step 20").get("ok")
    client.stdin.close()
    assert client.wait(60) == 0
    lines = (logs / "metrics.log").read_text().splitlines()
    counts = {lines[i][5:]: int(lines[i + 1][6:]) for i in range(0, len(lines) - 2, 3) if lines[i].startswith("name:")}
    assert counts.get("cuLaunchKernel", 0) + counts.get("cuLaunchKernelEx", 0) >= 60 and counts.get("cuInit", 0) >= 1, counts
    assert "name:cuInit start:" in (logs / "timeline.log").read_text()
    return {name: count for name, count in counts.items() if count}
