"""The operator's programs."""
import json

from .stage import ROOT, Skip, check


@check
def the_doctor_finds_nothing_broken(bench):
    report = bench.ctl("doctor", "--json", ok=False)
    return {"exit": report.returncode, "report": json.loads(report.stdout)}


@check
def the_demo_runs_on_the_card(bench):
    if bench.sim:
        raise Skip("the demo on the simulator is one of the tests")
    done = bench.ctl("demo", "--headless", "--seconds", "5")
    assert "Simulated" not in done.stdout, done.stdout
    return {"printed": done.stdout.strip().splitlines()[-1]}


@check
def the_experiment_measures_the_lock_wrappers_modes_beside_ours(bench):
    if bench.sim:
        raise Skip("the experiment on the simulator is one of the tests")
    done = bench.ctl("experiment", str(ROOT / "assets/experiments/priority.toml"), limit=240)
    return {"table": done.stdout.splitlines()}
