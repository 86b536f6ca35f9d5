"""The mixes of assets/experiments, and the regret of what the guide recommends: how far it is behind the best of all measured ways."""
import json
import subprocess
from pathlib import Path

from gpusuite.stage import ROOT

# Plan, its urgent program (None: all are equal), the recommended condition.
MIXES = [
    ("inference", "inference", "overlap order=priority"),
    ("llm", "llm", "overlap order=priority"),
    ("long-matmul", "inference", "overlap order=priority"),
    ("long-kernel", "inference", "overlap order=priority"),
    ("frameworks", None, "timeslice=5ms order=fair"),
]
MOST = 0.05


def measured(gpushare, plan, out, options):
    """Runs a plan and returns its document."""
    path = Path(out, f"{plan}.json")
    subprocess.run([gpushare, "experiment", ROOT / f"assets/experiments/{plan}.toml", "--json", path, *options], check=True, stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())


def figures_of(document, urgent):
    """Returns {figure: {condition: value}}: the urgent program's figures, smaller is better, and the others' rates over alone, summed."""
    kinds = {row["condition"]: row["kind"] for figure in document["figures"] for row in figure["conditions"]}
    shared = [name for name, kind in kinds.items() if kind != "alone"]
    of = lambda figure, key: {row["condition"]: row[key] for row in figure["conditions"] if row[key] is not None}
    made = {f"{urgent} {figure['figure']}": of(figure, "median") for figure in document["figures"] if figure["program"] == urgent}
    others = [of(figure, "of_alone") for figure in document["figures"] if figure["program"] != urgent]
    made["the others together"] = {name: sum(rates[name] for rates in others) for name in shared if all(name in rates for rates in others)}
    return {figure: {name: values[name] for name in shared if name in values} for figure, values in made.items()}


def regrets(document, urgent, ours):
    """Returns (figure, ours, best, its condition, regret) for each figure."""
    rows = []
    for figure, values in figures_of(document, urgent).items():
        if ours not in values:
            raise ValueError(f"{figure} was not measured under {ours}")
        is_rate = figure == "the others together"
        best = (max if is_rate else min)(values, key=values.get)
        worse = values[best] / values[ours] if is_rate else values[ours] / values[best]
        rows.append((figure, values[ours], values[best], best, worse - 1))
    return rows


def run(gpushare, out, only, options):
    """Measures the mixes and prints the regrets. Returns how many are above the goal."""
    above = 0
    for plan, urgent, ours in MIXES:
        if not any(word in plan for word in only.split(",")):
            continue
        print(f"\n{plan}, recommended: {ours}")
        for figure, value, least, best, regret in regrets(measured(gpushare, plan, out, options), urgent, ours):
            above += regret > MOST
            print(f"  {figure:24} {value:9.2f}  best {least:9.2f} ({best})  regret {regret:7.1%}", flush=True)
    print(f"\n{above} regrets above {MOST:.0%}")
    return above
