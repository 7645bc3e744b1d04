"""How small an anomaly must be to go unnoticed: for every kind of the second red team, a curve over its size.

    python benchmarks/cost_to_hide.py                                 2,000 people of the preset town, scorer best
    python benchmarks/cost_to_hide.py --scorer quick --preset simla   another scorer, another simulated city
    python benchmarks/cost_to_hide.py --data DIRECTORY                stays you have instead of a simulated city
    python benchmarks/cost_to_hide.py --scorer random --agents 100    a fake scorer, to try the script
    python benchmarks/cost_to_hide.py --kinds detour,shadow           some kinds; the others keep what was measured

One kind and size at a time misbehaves in an otherwise normal town, and alerts are raised at a fixed rate: the highest
scores, five a day per 1,000 people. Agents that are anomalous by the labels of your data are left out. An alert is an
incident where the scorer gives incidents, else a single stay. An anomalous agent is caught when an alert holds one of
its labelled stays. The scorer learns once per town, because the red team changes nothing before the test period;
`--fit-each` learns again for every kind and size. Writes benchmarks/results/cost_to_hide.json and
docs/figures/cost_to_hide.svg; needs matplotlib for the figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measured import write_result
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.files import read_json
from ustad.lab.evaluation.detection_metrics import auroc
from ustad.lab.red_team import SecondTeam, second_red_team
from ustad.lab.red_team.second_team import KINDS
from ustad.simulate.setting import SimulationPlan
from ustad.simulate.simulation import in_memory

ALERTS_A_DAY = 5  # per 1,000 people
LADDER = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # times the standard size of each kind
COUNTED = ("visits", "nights", "days")
ROOT = Path(__file__).parent
Make = Callable[[str, float], Dataset]  # kind and size → data with the second red team


class Scorer(Protocol):
    """What `ustad.Detector` does, as far as it is needed here."""

    def fit(self, data: Dataset) -> Any: ...
    def score(self, data: Dataset) -> Any: ...


class RandomScorer:
    """Scores of pure chance: what is caught is what the number of alerts alone catches."""

    def fit(self, data: Dataset) -> RandomScorer:
        return self

    def score(self, data: Dataset) -> SimpleNamespace:
        split = data.split(SplitConfig())
        events = data.between(split.test_first, split.test_last)
        chance = np.random.default_rng(0).random(events.num_rows)
        return SimpleNamespace(events=events.append_column("score", pa.array(chance)))


def make_scorer(name: str) -> Scorer:
    """A preset of the detector by name, or `random`."""
    if name == "random":
        return RandomScorer()
    from ustad import Detector

    scorer: Scorer = Detector(name)
    return scorer


# ----------------------------------------------------------------------------------------------- counting
@dataclass
class Count:
    """What the alerts of one or several towns caught."""

    agents: int = 0  # anomalous
    agents_caught: int = 0
    stays: int = 0  # meant, not mere neighbours
    stays_caught: int = 0
    alerts: int = 0
    alerts_right: int = 0

    def add(self, other: Count) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def shares(self) -> dict[str, float | None]:
        pairs = {
            "agents_caught": (self.agents_caught, self.agents),
            "stays_caught": (self.stays_caught, self.stays),
            "precision": (self.alerts_right, self.alerts),
            "stays_each": (self.stays, self.agents),  # what a life had room for may be less than the size
        }
        return {name: some / whole if whole else None for name, (some, whole) in pairs.items()}


def list_alerts(scores: Any, number: int) -> list[list[Any]]:
    """Stays of the highest alerts: those of incidents where there are any, else single stays."""
    incidents = getattr(scores, "incidents", None)
    if incidents is not None:
        return _highest(incidents["score"], number, incidents["stay_ids"].to_pylist())
    events = scores.events
    stays = events["stay_id"].to_pylist()
    if "incident_id" not in events.column_names or events["incident_id"].null_count == events.num_rows:
        return _highest(events["score"], number, [[stay] for stay in stays])
    members: dict[Any, list[int]] = {}
    for row, incident in enumerate(events["incident_id"].to_pylist()):
        members.setdefault(("stay", row) if incident is None else ("incident", incident), []).append(row)
    score = events["score"].to_numpy()
    best = pa.array([float(np.nanmax(score[rows])) for rows in members.values()])
    return _highest(best, number, [[stays[row] for row in rows] for rows in members.values()])


def _highest(score: pa.ChunkedArray | pa.Array, number: int, groups: list[list[Any]]) -> list[list[Any]]:
    values = np.nan_to_num(score.to_numpy(zero_copy_only=False), nan=-np.inf)
    return [groups[k] for k in np.argsort(-values, kind="stable")[:number]]


def alert_budget(data: Dataset) -> int:
    """How many alerts the test period allows."""
    split = data.split(SplitConfig())
    people = len(pc.unique(data.between(split.test_first, split.test_last)["agent_id"]))
    return max(1, round(ALERTS_A_DAY * (split.test_last - split.test_first + 1) * people / 1000))


def count_caught(scores: Any, data: Dataset) -> Count:
    """Compare the highest alerts with the labels."""
    assert data.labels is not None
    assert data.agent_labels is not None
    keys, agents, roles = (data.labels[name].to_pylist() for name in ("stay_id", "agent_id", "role"))
    owner = dict(zip(keys, agents, strict=True))
    meant = {key for key, role in zip(keys, roles, strict=True) if role != "neighbour"}
    alerts = list_alerts(scores, alert_budget(data))
    alerted = {stay for stays in alerts for stay in stays}
    return Count(
        agents=data.agent_labels.num_rows,
        agents_caught=len({owner[stay] for stay in alerted if stay in owner}),
        stays=len(meant),
        stays_caught=len(meant & alerted),
        alerts=len(alerts),
        alerts_right=sum(any(stay in owner for stay in stays) for stays in alerts),
    )


def half_hidden(sizes: list[float], caught: list[float | None]) -> float | None:
    """The size at which half of the agents are missed, between the two sizes where the curve last rises over half.

    0 where even the smallest size is caught by half, None where the largest is not, or where nothing was measured.
    """
    points = [(size, share) for size, share in zip(sizes, caught, strict=True) if share is not None]
    below = [n for n, (_, share) in enumerate(points) if share < 0.5]
    if not points or (below and below[-1] == len(points) - 1):
        return None
    if not below:
        return 0.0
    (small, low), (large, high) = points[below[-1]], points[below[-1] + 1]
    return float(np.exp(np.interp(0.5, [low, high], np.log([small, large]))))


# ---------------------------------------------------------------------------------------------- measuring
def make_towns(options: argparse.Namespace) -> Iterator[tuple[Dataset, Make]]:
    """Per seed: the normal town, and how to make it with a red team of one kind and size."""
    for seed in options.seeds:
        if options.data is not None:
            from ustad import open_data

            normal = without_labelled(open_data(options.data))
            yield normal, _on_table(normal, options.share, seed)
        else:
            yield _simulated(options, seed)


def _on_table(data: Dataset, share: float, seed: int) -> Make:
    return lambda kind, size: second_red_team(data, share, seed, kind=kind, size=size)


def without_labelled(data: Dataset) -> Dataset:
    """The agents that are not anomalous by the labels of the data, so that their alerts are no false ones."""
    if data.agent_labels is not None:
        known = data.agent_labels.filter(data.agent_labels["anomaly"])["agent_id"].to_pylist()
        everybody = pc.unique(data.events["agent_id"]).to_pylist()
        data = data.only(sorted(set(everybody) - set(known)))
    return replace(data, labels=None, agent_labels=None)


def _simulated(options: argparse.Namespace, seed: int) -> tuple[Dataset, Make]:
    plan = SimulationPlan(options.preset, options.agents, seed, options.days, anomalous_share=options.share)
    simulation = plan.prepare()
    # Labels of single stays are needed whatever the preset publishes.
    simulation = replace(simulation, preset=replace(simulation.preset, event_labels=True))

    def make(kind: str, size: float) -> Dataset:
        return in_memory(replace(simulation, red_team=SecondTeam(kind, size)))

    return make("all", 0.0), make


def factors_of(kind: str, ladder: list[float]) -> list[float]:
    """The ladder of a kind; what is counted comes in whole numbers from one on, so that all agents have the size."""
    standard = KINDS[kind].standard
    sizes = [standard * factor for factor in ladder]
    if KINDS[kind].unit in COUNTED:
        sizes = [max(1, round(size)) for size in sizes]
    return [size / standard for size in sorted(set(sizes))]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Counts by kind and size over all seeds."""
    counts = {(kind, factor): Count() for kind in options.kinds for factor in factors_of(kind, options.ladder)}
    areas: dict[tuple[str, float], list[float]] = {key: [] for key in counts}
    for normal, make in make_towns(options):
        scorer = make_scorer(options.scorer)
        if not options.fit_each:
            scorer.fit(normal)
        for kind, factor in counts:
            data = make(kind, factor)
            if data.agent_labels is None or not data.agent_labels.num_rows:
                continue
            if options.fit_each:
                scorer = make_scorer(options.scorer)
                scorer.fit(data)
            scores = scorer.score(data)
            count = count_caught(scores, data)
            counts[kind, factor].add(count)
            areas[kind, factor] += agents_auroc(scores, data)
            size = f"{KINDS[kind].standard * factor:7g} {KINDS[kind].unit:<7}"
            print(
                f"{kind:<16} {size} {count.agents_caught:4d} of {count.agents:4d} agents, "
                f"{count.stays_caught:5d} of {count.stays:5d} stays, {count.alerts} alerts",
                flush=True,
            )
    curves = {}
    for name in options.kinds:
        own = {factor: count for (kind, factor), count in counts.items() if kind == name}
        curves[name] = describe(name, own, {factor: areas[name, factor] for factor in own})
    return curves


def agents_auroc(scores: Any, data: Dataset) -> list[float]:
    """AUROC of agents, where the scorer says anything of them."""
    agents = getattr(scores, "agents", None)
    if agents is None or data.agent_labels is None:
        return []
    truth = pc.is_in(agents["agent_id"], data.agent_labels["agent_id"].cast(agents["agent_id"].type).combine_chunks())
    return [auroc(truth.to_numpy(zero_copy_only=False), agents["score"].to_numpy())]


def describe(kind: str, counts: dict[float, Count], areas: dict[float, list[float]] | None = None) -> dict[str, Any]:
    """One kind's curve, with sizes in its unit."""
    unit, standard = KINDS[kind].unit, KINDS[kind].standard
    rows: list[dict[str, Any]] = [
        {"size": standard * factor, "factor": factor, "counts": vars(count), **count.shares()}
        for factor, count in sorted(counts.items())
    ]
    for row in rows:
        own = (areas or {}).get(row["factor"], [])
        row["agents_auroc"] = float(np.mean(own)) if own else None
    hidden = half_hidden([row["size"] for row in rows], [row["agents_caught"] for row in rows])
    return {"unit": unit, "standard": standard, "half_hidden": hidden, "rows": rows}


# -------------------------------------------------------------------------------------------------- figure
def draw(result: dict[str, Any], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no figure: it needs matplotlib (pip install 'ustad[plots]')")
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ustad"
    from matplotlib import pyplot

    kinds = result["kinds"]
    columns = min(5, len(kinds))
    lines = -(-len(kinds) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(2.6 * columns, 2.1 * lines), constrained_layout=True, squeeze=False, sharey=True
    )
    for axis in axes.ravel()[len(kinds) :]:
        axis.axis("off")
    for axis, (kind, curve) in zip(axes.ravel(), kinds.items(), strict=False):
        rows = [row for row in curve["rows"] if row["agents_caught"] is not None]
        for name, style, label in (("agents_caught", "o-", "people"), ("stays_caught", ".:", "single stays")):
            axis.semilogx([row["size"] for row in rows], [row[name] for row in rows], style, label=label, markersize=3)
        axis.axhline(0.5, color="grey", linewidth=0.5)
        if curve["half_hidden"]:
            axis.axvline(curve["half_hidden"], color="grey", linewidth=0.5, linestyle="--")
        axis.set_title(kind, fontsize=9)
        axis.set_xlabel(curve["unit"], fontsize=8)
        axis.set_ylim(-0.03, 1.03)
        ticks = [row["size"] for row in rows][::2]
        axis.set_xticks(ticks, labels=[f"{size:,.3g}" if size < 1000 else f"{size:,.0f}" for size in ticks])
        axis.set_xticks([], minor=True)
        axis.tick_params(labelsize=7)
    axes[0, 0].legend(fontsize=6)
    for line in axes:
        line[0].set_ylabel("share caught", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    print(f"written to {path}")


def say(kinds: dict[str, Any]) -> None:
    for kind, curve in kinds.items():
        hidden, largest = curve["half_hidden"], curve["rows"][-1]["size"]
        shown = (
            (f"{hidden:,.3g}" if hidden < 1000 else f"{hidden:,.0f}")
            if hidden
            else f"below {curve['rows'][0]['size']:g}"
        )
        print(f"{kind:<16} half are missed at {shown if hidden is not None else f'{largest:g} still'} {curve['unit']}")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scorer", default="best", help="a preset of the detector, or random")
    parser.add_argument("--preset", default="town", help="the simulated city")
    parser.add_argument("--data", type=Path, help="stays to use instead of a simulated city")
    parser.add_argument("--agents", type=int, default=2_000)
    parser.add_argument("--days", type=int, help="days to simulate; the preset's by default")
    parser.add_argument("--share", type=float, default=0.02, help="anomalous agents; keep them fewer than the alerts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help="kinds, by commas")
    parser.add_argument("--ladder", type=float, nargs="+", default=list(LADDER), help="times the standard sizes")
    parser.add_argument("--fit-each", action="store_true", help="learn again for every kind and size")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "cost_to_hide.json")
    parser.add_argument("--figure", type=Path, default=ROOT.parent / "docs" / "figures" / "cost_to_hide.svg")
    options = parser.parse_args(arguments)
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"unknown kind '{unknown[0]}'; choose from {', '.join(KINDS)}")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    names = ("scorer", "preset", "agents", "days", "share", "seeds", "ladder", "fit_each")
    settings = {name: getattr(options, name) for name in names} | {"alerts_a_day_per_1000": ALERTS_A_DAY}
    if options.data is not None:
        settings |= {"data": options.data.name, "preset": None, "agents": None, "days": None}
    kept: dict[str, Any] = {}
    if options.out.exists():
        before = read_json(options.out)
        kept = before["kinds"] if before["settings"] == settings else {}
    curves = kept | measure(options)
    result = {"settings": settings, "kinds": {kind: curves[kind] for kind in KINDS if kind in curves}}
    write_result(options.out, result)
    print(f"written to {options.out}")
    say(result["kinds"])
    draw(result, options.figure)


if __name__ == "__main__":
    main()
