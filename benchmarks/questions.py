"""What each question of habits is worth: development towns scored with all questions, and leaving one out at a time.

    OMP_NUM_THREADS=1 python benchmarks/questions.py --cache DIRECTORY               all, and every question left out
    OMP_NUM_THREADS=1 python benchmarks/questions.py --cache DIRECTORY --leave none  all of them, nothing left out
    OMP_NUM_THREADS=1 python benchmarks/questions.py --sets town-101 simla-101

Seeds from 100 on: no figure that is reported elsewhere comes from them. One person in ten misbehaves, by the first red
team. Habits alone judge (as `quick`), one process. A line for each set and configuration: AUROC / AP of events by their
own score, of events by their incident's, of agents; how many of the first 14 incidents are true, and of the first five
a day per 1,000 people; shares of normal people's events with p ≤ .001, .01 and .05, each as a multiple of the level;
agents' AUROC by kind. Simulated data are kept in the cache. `--before FILE` puts the result file of an earlier version
beside it. Writes benchmarks/results/questions.json and docs/evidence/questions.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measured import write_result
from questions_page import kind_means, write_page
from ustad import progress
from ustad.config import SplitConfig
from ustad.dataset import Dataset, load_directory
from ustad.habits.questions import TERMS
from ustad.judges import learn_from
from ustad.lab.evaluation.detection_metrics import auroc, average_precision, incident_scores
from ustad.lab.evaluation.gps import count_true
from ustad.lab.evaluation.recordings import TRUE_STAYS, open_recording
from ustad.lessons import calibrating, take_whole_week
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import p_values
from ustad.scoring.incidents import find_incidents
from ustad.simulate import presets

RESULTS = Path(__file__).parent / "results" / "questions.json"
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "questions.md"
SCHEMA = mobility_schema()
LEVELS = (0.001, 0.01, 0.05)
ALERTS_A_DAY = 5  # per 1,000 people
ANOMALOUS = 0.1  # share of the people
#: Nothing left out, but half of the people calibrate, as where a network is trained.
BY_HALF = "half"


@dataclasses.dataclass(frozen=True)
class Town:
    """People of one seed, their red team, and how they are recorded."""

    preset: str
    agents: int
    seed: int
    variant: str = "standard"
    phone: str = TRUE_STAYS

    @property
    def name(self) -> str:
        return f"{self.preset}-{self.seed}"

    def open(self, cache: Path) -> Dataset:
        place = cache / self.name
        if (place / "meta.json").exists():
            return load_directory(place)
        options = {"variant": self.variant, "anomalous_share": ANOMALOUS}
        return open_recording(self.preset, place, self.phone, self.agents, seed=self.seed, **options)


TOWNS = (
    Town("town", 300, 101),
    Town("town", 300, 102),
    Town("town", 300, 103),
    Town("town", 300, 104, "skipped"),
    Town("town", 300, 105, "long-stays"),
    Town("town", 300, 106, phone="phone"),
    Town("town", 300, 107, phone="logger"),
    Town("town", 300, 108, phone="phone"),
    Town("town", 300, 109, phone="phone"),
    Town("simla", 500, 101),
    Town("simla", 500, 102),
    Town("simla", 1000, 103),
    Town("simjordan", 500, 101),
    Town("simjordan", 500, 102),
    Town("numosim-la", 500, 101),
    Town("numosim-la", 500, 102, "near-5km"),
)


def measure(data: Dataset, without: tuple[str, ...], by_half: bool = False) -> dict[str, Any]:
    """Figures of one town, judged without some questions; calibrated by everybody or by half of the people."""
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    test = data.between(split.test_first, split.test_last)
    half = calibrating(week, SCHEMA.entity) if by_half else None
    if half is None:
        train, week = take_whole_week(train, week, SCHEMA)
    model = learn_from(train, week, SCHEMA, half, without=without)
    judged = model.judge(test, pa.concat_tables([train, week]))
    p_value = p_values(judged.score)
    incidents = find_incidents(test, SCHEMA, p_value, judged.score)
    columns = {"score": judged.score, "p_value": p_value, "echo": incidents.echo}
    for name, values in columns.items():
        test = test.append_column(name, pa.array(values))
    test = test.append_column("incident_id", pa.array(incidents.incident_id.tolist(), pa.string()))
    agents = pa.table({"agent_id": pa.array(judged.entity_ids.tolist()), "score": judged.agent_score})
    return measure_scores(data, test, agents, split.test_last - split.test_first + 1)


def measure_scores(data: Dataset, events: pa.Table, agents: pa.Table, days: int) -> dict[str, Any]:
    """Figures of one town from its scored events of so many days and its scored people."""
    assert data.labels is not None
    assert data.agent_labels is not None
    score, p_value, names = (events[c].to_numpy(zero_copy_only=False) for c in ("score", "p_value", "incident_id"))
    true = pc.is_in(events["stay_id"], data.labels["stay_id"].cast(events["stay_id"].type).combine_chunks()).to_numpy()
    kinds = dict(zip(*(data.agent_labels[c].to_pylist() for c in ("agent_id", "kind")), strict=True))
    kind = np.array([kinds.get(agent, "") for agent in agents["agent_id"].to_pylist()])
    normal = ~pc.is_in(events["agent_id"], pa.array(list(kinds), events["agent_id"].type)).to_numpy()
    number = max(1, round(ALERTS_A_DAY * days * len(kind) / 1000))
    agent_score = agents["score"].to_numpy()
    return {
        "events": _both(true, score),
        "incidents": _both(true, incident_scores(events)),
        "agents": _both(kind != "", agent_score),
        "true_of_14": count_true(events, data.labels),
        "precision": _precision(events, true, number),
        "most": min(1.0, len(set(names[true].tolist()) - {None}) / number),
        "small_p": [float((p_value[normal] <= level).mean()) / level for level in LEVELS],
        **_by_kind(kind, agent_score),
    }


def _by_kind(kind: np.ndarray, score: np.ndarray) -> dict[str, dict[str, float]]:
    """AUROC and AP of people of each kind of anomaly among normal ones."""
    figures = {}
    for one in sorted(set(kind) - {""}):
        chosen = (kind == one) | (kind == "")
        figures[one] = _both(kind[chosen] == one, score[chosen])
    return {
        "kinds": {one: pair[0] for one, pair in figures.items()},
        "kinds_ap": {one: pair[1] for one, pair in figures.items()},
    }


def _both(truth: np.ndarray, score: np.ndarray) -> list[float]:
    return [auroc(truth, score), average_precision(truth, score)]


def _precision(scored: pa.Table, true: np.ndarray, number: int) -> float:
    """Share of the first so many incidents that hold a labelled stay."""
    names = scored["incident_id"].to_pylist()
    right = {name for name, hit in zip(names, true, strict=True) if hit}
    leads = [i for i in np.argsort(-scored["score"].to_numpy(), kind="stable") if names[i] is not None]
    first = list(dict.fromkeys(names[i] for i in leads))[:number]
    return sum(name in right for name in first) / max(1, len(first))


def show(town: str, left_out: str, found: dict[str, Any]) -> None:
    three = " ".join("{:.3f}/{:.3f}".format(*found[level]) for level in ("events", "incidents", "agents"))
    small = " ".join(f"{value:.2f}" for value in found["small_p"])
    kinds = ", ".join(f"{kind} {value:.2f}" for kind, value in found["kinds"].items())
    print(
        f"{town:<15}{left_out:<13}{three}  {found['true_of_14']:>2}/14 {found['precision']:.2f}  p×{small}  {kinds}",
        flush=True,
    )


def label_every_stay() -> None:
    """Simulated Jordan labels people alone; single stays are needed here."""
    presets.PRESETS["simjordan"] = dataclasses.replace(presets.PRESETS["simjordan"], event_labels=True)


def measure_town(town: Town, cache: Path, leave: list[str]) -> list[dict[str, Any]]:
    """A line for each configuration."""
    progress.disable()
    label_every_stay()
    data, lines = town.open(cache), []
    for left_out in leave:
        whole = left_out in ("none", BY_HALF)
        figures = measure(data, () if whole else (left_out,), by_half=left_out == BY_HALF)
        lines.append({"set": town.name, "without": left_out, **figures})
        show(town.name, left_out, figures)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, help="where simulated data are kept; a directory of their own if absent")
    parser.add_argument("--sets", nargs="*", default=[town.name for town in TOWNS])
    parser.add_argument("--leave", nargs="*", default=["none", BY_HALF, *(t for t in TERMS if t != "silence")])
    parser.add_argument("--before", type=Path, help="results of an earlier version, for the first line of the page")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    options = parser.parse_args()
    cache = options.cache or Path(tempfile.mkdtemp(prefix="questions-"))
    lines: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        towns = [town for town in TOWNS if town.name in options.sets]
        for some in pool.map(partial(measure_town, cache=cache, leave=options.leave), towns):
            lines += some
    means = summarise(lines)
    for left_out, figures in means.items():
        print(f"mean without {left_out:<13}" + "  ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    results = {"lines": lines, "means": means}
    if options.before is not None:
        earlier = json.loads(options.before.read_text())
        results |= {"before": earlier["means"]["none"], "kinds_before": kind_means(earlier["lines"])}
    write_result(options.out, results)
    if options.out == RESULTS:
        PAGE.write_text(write_page(**results))


def summarise(lines: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Means over the sets, by what was left out."""
    result = {}
    for left_out in dict.fromkeys(line["without"] for line in lines):
        mine = [line for line in lines if line["without"] == left_out]
        result[left_out] = {
            "events_auroc": float(np.mean([line["events"][0] for line in mine])),
            "events_ap": float(np.mean([line["events"][1] for line in mine])),
            "incidents_ap": float(np.mean([line["incidents"][1] for line in mine])),
            "agents_auroc": float(np.mean([line["agents"][0] for line in mine])),
            "agents_ap": float(np.mean([line["agents"][1] for line in mine])),
            "true_of_14": float(np.mean([line["true_of_14"] for line in mine])),
            "precision": float(np.mean([line["precision"] for line in mine])),
        }
    return result


if __name__ == "__main__":
    main()
