"""The mixes of assets/experiments, and the regret of what the guide recommends: how far it is behind the best of all measured ways."""
import json
import subprocess
from pathlib import Path

from gpusuite.stage import ROOT

# Plan, its urgent program (None: all are equal), what assets/guide/policies.md recommends where MPS may be used, and where not.
SHORT = ("MPS, overlap order=priority", "overlap order=priority")
LONG = ("MPS, the long kernels without it, overlap order=priority", "overlap order=priority")
MIXES = [
    ("inference", "inference", SHORT),
    ("llm", "llm", SHORT),
    ("long-matmul", "inference", LONG),
    ("long-kernel", "inference", LONG),
    ("frameworks", None, ("MPS, overlap order=fair", "hw-timeslice=5ms")),
]
MOST = 0.05


def measured(gpushare, plan, out, options, read):
    """Runs a plan, unless its document is only to be read, and returns the document."""
    path = Path(out, f"{plan}.json")
    if not read:
        subprocess.run([gpushare, "experiment", ROOT / f"assets/experiments/{plan}.toml", "--json", path, *options], check=True, stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())


def best_rounds(figure):
    """Returns {condition: value} of each condition's best round: whatever else the machine does makes a round worse, and never better."""
    best = "min" if figure["better"] == "lower" else "max"
    return {row["condition"]: row[best] for row in figure["conditions"] if row[best] is not None}


def of_alone(figure):
    """Returns {condition: value over the one alone} of the best rounds."""
    best = best_rounds(figure)
    alone = next(row["condition"] for row in figure["conditions"] if row["kind"] == "alone")
    return {name: value / best[alone] for name, value in best.items()}


def figures_of(document, urgent):
    """Returns {figure: {condition: value}}: the urgent program's figures, smaller is better, and the others' rates over alone, summed."""
    kinds = {row["condition"]: row["kind"] for figure in document["figures"] for row in figure["conditions"]}
    shared = [name for name, kind in kinds.items() if kind != "alone"]
    made = {f"{urgent} {figure['figure']}": best_rounds(figure) for figure in document["figures"] if figure["program"] == urgent}
    others = [of_alone(figure) for figure in document["figures"] if figure["program"] != urgent]
    made["the others together"] = {name: sum(rates[name] for rates in others) for name in shared if all(name in rates for rates in others)}
    return {figure: {name: values[name] for name in shared if name in values} for figure, values in made.items()}


def badness(figure, values):
    """Returns how many times as bad each condition is as the best one."""
    if figure == "the others together":
        return {name: max(values.values()) / max(value, 1e-9) for name, value in values.items()}
    return {name: value / min(values.values()) for name, value in values.items()}


def regrets(document, urgent, ours):
    """Returns (figure, ours, best, its condition, regret) for each figure.

    Against the ways that use MPS only if ours does, and that a user could pick: none that makes any figure twice as bad as it can be."""
    figures = figures_of(document, urgent)
    if not ours.startswith("MPS"):
        figures = {figure: {name: value for name, value in values.items() if not name.startswith("MPS")} for figure, values in figures.items()}
    bad = [badness(figure, values) for figure, values in figures.items()]
    rows = []
    for figure, values in figures.items():
        if ours not in values:
            raise ValueError(f"{figure} was not measured under {ours}")
        ways = {name: value for name, value in values.items() if name == ours or all(one.get(name, 1) <= 2 for one in bad)}
        worse = badness(figure, ways)
        best = min(worse, key=worse.get)
        rows.append((figure, values[ours], values[best], best, worse[ours] - 1))
    return rows


def run(gpushare, out, only, options, read=False):
    """Measures the mixes, or reads their documents in `out`, and prints the regrets. Returns how many are above the goal."""
    above = 0
    for plan, urgent, recommended in MIXES:
        if not any(word in plan for word in only.split(",")):
            continue
        document = measured(gpushare, plan, out, options, read)
        for ours in recommended:
            print(f"\n{plan}, recommended: {ours}")
            for figure, value, least, best, regret in regrets(document, urgent, ours):
                above += regret > MOST
                print(f"  {figure:24} {value:9.2f}  best {least:9.2f} ({best})  regret {regret:7.1%}", flush=True)
    print(f"\n{above} regrets above {MOST:.0%}")
    return above
