"""The mixes of assets/experiments, and the regret of what the guide recommends: how far it is behind the best of all measured ways."""
import json
import subprocess
from pathlib import Path
from statistics import mean, median, stdev

from gpusuite.stage import ROOT

# What assets/guide/policies.md recommends where MPS may be used, and where not, and the other ways that the tables show as close.
SHORT = ("MPS, overlap order=priority", "overlap order=priority")
LONG = ("MPS, the long kernels without it, overlap order=priority", "overlap order=priority")
RIVALS = ("alone", "time slicing (no gpushare)", "MPS, client priority")
LONG_RIVALS = ("alone", "time slicing (no gpushare)", "MPS, the long kernels without it")
# Plan, its urgent program (None: all are equal), what is recommended, and the rivals (None: all, one after the other).
MIXES = [
    ("inference", "inference", SHORT, RIVALS),
    ("llm", "llm", SHORT, RIVALS),
    ("long-matmul", "inference", LONG, LONG_RIVALS),
    ("long-kernel", "inference", LONG, LONG_RIVALS),
    ("frameworks", None, ("MPS, overlap order=fair", "hw-timeslice=5ms"), None),
]
# Ways that are close differ by less than a host whose processors have other work changes between two runs, and than two equal programs.
IN_TURNS = ["--switch", "5", "--seconds", "5", "--repeats", "5", "--copies", "2"]
MOST = 0.05
# Student's t for 90 % of both sides, by the number of samples less one.
STUDENT = [6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81]
OTHERS = "the others together"


def measured(gpushare, plan, ways, out, options, read):
    """Runs a plan, in turns if it has an urgent program, unless its documents are only to be read. Returns the documents that there are."""
    # The ways that use MPS may have been measured apart.
    paths = [Path(out, f"{plan}{apart}{'-in-turns' if ways else ''}.json") for apart in ("", "-mps")]
    if not read:
        only = [word for way in ways or () for word in ("--only", way)]
        options = options or (IN_TURNS if ways else [])
        plan = ROOT / f"assets/experiments/{plan}.toml"
        subprocess.run([gpushare, "experiment", plan, "--json", paths[0], *only, *options], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def has(document, way):
    return any(run["condition"] == way for run in document["runs"])


def rounds_of(document, program, figure):
    """Returns {condition: {round: value}} of the runs that did not fail; infinity where the program had nothing to measure."""
    found = {}
    for run in document["runs"]:
        if run["failure"] is not None or run["warm_up"]:
            continue
        values = [one["value"] for one in run["figures"] if (one["program"], one["figure"]) == (program, figure)]
        # Alone only one program runs at a time, and has all its figures.
        found.setdefault(run["condition"], {})[run["round"]] = values[0] if values else float("inf")
    return found


def figures_of(document, urgent):
    """Returns {figure: {condition: {round: value}}}, smaller is better: the urgent program's figures, and one over the others' rates, summed.

    A rate is divided by that of the program alone, or else by time slicing or the first way that was measured."""
    kinds = {row["condition"]: row["kind"] for figure in document["figures"] for row in figure["conditions"]}
    shared = [name for name, kind in kinds.items() if kind != "alone"]
    unit = next((name for wanted in ("alone", "bare") for name, kind in kinds.items() if kind == wanted), shared[0])
    made, others = {}, []
    for figure in document["figures"]:
        rounds = rounds_of(document, figure["program"], figure["figure"])
        if figure["program"] == urgent:
            made[f"{urgent} {figure['figure']}"] = {name: rounds.get(name, {}) for name in shared}
        else:
            base = median(rounds[unit].values())
            others.append({name: {at: value / base for at, value in one.items()} for name, one in rounds.items()})
    together = {}
    for name in shared:
        common = set.intersection(*(set(rates.get(name, {})) for rates in others))
        together[name] = {at: 1 / sum(rates[name][at] for rates in others) for at in common}
    made[OTHERS] = together
    return {figure: {name: rounds for name, rounds in ways.items() if rounds} for figure, ways in made.items()}


def luck_of(document, at):
    """Returns what the luck of a round hangs on: the copy of which it is, or with one copy the round itself."""
    return at // (document["warm_up"] + document["repeats"]) if document.get("copies", 1) > 1 else at


def pick(document, ways, but):
    """Returns the way that the rounds of other luck than this one's show as the best. From a round itself the luckiest of many would be picked."""
    others = {name: [value for at, value in rounds.items() if luck_of(document, at) != luck_of(document, but)] for name, rounds in ways.items()}
    seen = {name: values or list(ways[name].values()) for name, values in others.items()}
    return min(seen, key=lambda name: median(seen[name]))


def regrets(document, urgent, ours):
    """Returns (figure, ours, the way picked most often, its value, regret, {round: its regret}) for each figure; the values are medians.

    A user measures all ways and picks the best; the regret is what we are behind that one in a round in which it was not picked, the median of
    all rounds. Against the ways that use MPS only if ours does, and that a user could pick: none that makes any figure twice as bad as it can be."""
    figures = figures_of(document, urgent)
    if not ours.startswith("MPS"):
        figures = {figure: {name: rounds for name, rounds in ways.items() if not name.startswith("MPS")} for figure, ways in figures.items()}
    middle = {figure: {name: median(rounds.values()) for name, rounds in ways.items()} for figure, ways in figures.items()}
    rows = []
    for figure, ways in figures.items():
        if ours not in ways:
            raise ValueError(f"{figure} was not measured under {ours}")
        fair = {name: rounds for name, rounds in ways.items() if name == ours or all(one.get(name, 0) <= 2 * min(one.values()) for one in middle.values())}
        picked = {at: pick(document, {name: rounds for name, rounds in fair.items() if at in rounds}, at) for at in fair[ours]}
        each = {at: fair[ours][at] / fair[name][at] - 1 for at, name in picked.items()}
        best = max(picked.values(), key=list(picked.values()).count)
        rows.append((figure, middle[figure][ours], best, middle[figure][best], median(each.values()), each))
    return rows


def independent(document, each):
    """Returns the regrets that say how sure the median is: of the rounds, or of three copies and more the mean of each."""
    lots = {}
    for at, regret in each.items():
        lots.setdefault(luck_of(document, at), []).append(regret)
    return [mean(lot) for lot in lots.values()] if len(lots) > 2 else list(each.values())


def bounds(each):
    """Returns between which regrets the true one lies with 90 % of certainty, by how these differ; None for less than two."""
    if len(each) < 2:
        return None
    half = STUDENT[min(len(each) - 1, len(STUDENT)) - 1] * stdev(each) / len(each) ** 0.5
    return mean(each) - half, mean(each) + half


def verdict(each):
    """Says where the regret is to the goal: a figure that differs by half between rounds shows neither."""
    if float("inf") in each:
        return "above"
    least, most = bounds(each) or (-1, 1)
    return "above" if least > MOST else "within" if most <= MOST else "not told"


def run(gpushare, out, only, options, read=False):
    """Measures the mixes, or reads their documents in `out`, and prints the regrets. Returns how many are shown to be above the goal."""
    counts, loud = {"above": 0, "within": 0, "not told": 0}, 0
    for plan, urgent, recommended, rivals in MIXES:
        if not any(word in plan for word in only.split(",")):
            continue
        documents = measured(gpushare, plan, rivals and recommended + rivals, out, options, read)
        for ours in recommended:
            print(f"\n{plan}, recommended: {ours}")
            document = next((one for one in documents if has(one, ours)), None)
            if document is None:
                print("  not measured")
                continue
            for figure, value, best, least, regret, each in regrets(document, urgent, ours):
                told = verdict(independent(document, each))
                counts[told] += 1
                loud += told == "not told" and regret > MOST
                if figure == OTHERS:
                    value, least = 1 / value, 1 / least
                rounds = "in one round, from which the best is picked" if len(each) < 2 else f"in {len(each)} rounds {min(each.values()):.1%} to {max(each.values()):.1%}"
                print(f"  {figure:24} {value:9.2f}  best {least:9.2f} ({best})  regret {regret:7.1%} ({rounds}): {told}", flush=True)
    print(f"\n{counts['above']} regrets above {MOST:.0%}, {counts['within']} within")
    if counts["not told"]:
        print(f"{counts['not told']} not told, {loud} of them with a median above {MOST:.0%}: there is one round only, or the rounds differ too much. "
              "Measure more of them, longer ones, or on a quieter machine")
    return counts["above"]
