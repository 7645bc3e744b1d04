"""Does doubt mean something? Coverage of what habits expect, and precision of alerts by how sure their sentence is.

    OMP_NUM_THREADS=1 python benchmarks/expectations.py --cache DIRECTORY

Coverage: in development towns without anomalies, how many starts and durations of the test weeks at own places lie
within the ± that is shown (two thirds are meant), as the earlier visits lie and as widened, by visits known and by kind
of place. Each figure has a standard error over people, whose own events are alike, and from these it is said how many
figures would be near to what is meant if every ± were right. Precision: of the first five incidents a day per 1,000
people (14 at least) in the sets of `questions.py`, how many are true, by whether the sentence says sure, fairly sure or
unsure. Writes benchmarks/results/expectations.json.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import erf

from measured import write_result
from questions import ALERTS_A_DAY, SCHEMA, TOWNS, label_every_stay
from ustad import progress
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.events.visits import read_visits
from ustad.habits.habit_model import HabitModel
from ustad.habits.habit_words import sentences
from ustad.habits.usual import usual
from ustad.habits.usual_kernels import WITHIN
from ustad.habits.widths import Widths
from ustad.judges import learn_from
from ustad.lab.evaluation.gps import MOST_UNUSUAL
from ustad.lessons import take_whole_week
from ustad.scoring.adding_judge import AddingJudge, p_values
from ustad.scoring.incidents import find_incidents
from ustad.simulate import simulate_tables

RESULTS = Path(__file__).parent / "results" / "expectations.json"
#: Towns without anomalies whose expectations are checked: preset, people, seeds.
QUIET = (("town", 300, range(401, 405)), ("numosim-la", 300, range(401, 403)))
FEWEST = 500  # events of a group that is reported
EDGES, NAMES = np.array([2, 4, 10, 20]), ("1", "2 or 3", "4 to 9", "10 to 19", "20 or more")


def learn(data: Dataset) -> tuple[AddingJudge, pa.Table, pa.Table, int]:
    """The model, the test weeks, what came before them, and how many days they are."""
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    model = learn_from(*take_whole_week(train, week, SCHEMA), SCHEMA)
    test = data.between(split.test_first, split.test_last)
    return model, test, pa.concat_tables([train, week]), split.test_last - split.test_first + 1


def measure_coverage() -> dict[str, dict[str, Any]]:
    groups: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for preset, people, seeds in QUIET:
        for seed in seeds:
            judge, test, _, _ = learn(simulate_tables(preset, agents=people, seed=seed, anomalous_share=0.0))
            model = judge.source("habits")
            visits = read_visits(test, SCHEMA, model.frame)
            place = model.habits.locate(visits)[0]
            known = np.flatnonzero(place >= 0)
            at, own = place[known], visits.take(known)
            person = seed * people + own.entity
            inside = np.stack([_inside(model, own, at, widths) for widths in (Widths.plain(1), model.widths)])
            number = np.searchsorted(EDGES, model.habits.place_count[at], side="right")
            kind = model.habits.place_category[at]
            for i, name in enumerate(NAMES):
                groups[f"{preset}, visits known: {name}"].append((inside[..., number == i], person[number == i]))
            for code in np.unique(kind[kind > 0]):
                name = f"{preset}, {model.frame.categories[code - 1]}"
                groups[name].append((inside[..., kind == code], person[kind == code]))
    figures = {
        name: _figures(*(np.concatenate(parts, axis=-1) for parts in zip(*g, strict=True)))
        for name, g in groups.items()
    }
    return {name: row for name, row in figures.items() if row["events"] >= FEWEST}


def _figures(inside: np.ndarray, person: np.ndarray) -> dict[str, Any]:
    """Of events of a group (bool [2, 2, N]: plain and widened, start and duration; who they are of, int64 [N])."""
    plain, wide = inside.mean(axis=-1).tolist()
    error = [standard_error(one, person) for one in inside[1]]
    people = len(np.unique(person))
    return {"events": len(person), "people": people, "plain": plain, "wide": wide, "error": error}


def standard_error(inside: np.ndarray, person: np.ndarray) -> float:
    """Of the share of events inside (bool [N]), as between draws of other people: what one person has too many or too
    few of is added up before it is squared."""
    _, index = np.unique(person, return_inverse=True)
    beyond = np.bincount(index, weights=inside - inside.mean())
    few = len(beyond) / max(len(beyond) - 1, 1)
    return float(np.sqrt(few * (beyond**2).sum()) / len(inside))


def expect_by_chance(coverage: dict[str, dict[str, Any]]) -> dict[str, float]:
    """If every ± were right: how many figures would be within 2 and 5 points, and how far off they would be."""
    errors = np.array([row["error"] for row in coverage.values()]).ravel()
    near = {f"within_{round(100 * points)}": float(erf(points / errors / np.sqrt(2)).sum()) for points in (0.02, 0.05)}
    return near | {"mean_off": float(errors.mean() * np.sqrt(2 / np.pi))}


def _inside(model: HabitModel, visits: Any, place: np.ndarray, widths: Widths) -> np.ndarray:
    """Whether start and duration lie within ±: bool [2, N]."""
    times = usual(model.habits, visits, place, widths)
    away = np.abs(visits.minute - times.start)
    start = np.minimum(away, 1440.0 - away) <= times.start_spread
    return np.stack([start, np.abs(visits.duration - times.duration) <= times.duration_spread])


def count_by_doubt(data: Dataset) -> dict[str, list[int]]:
    """True ones and all of the first incidents, by the word of their sentence."""
    model, test, before, days = learn(data)
    judged = model.judge(test, before)
    incidents = find_incidents(test, SCHEMA, p_values(judged.score), judged.score)
    assert data.labels is not None
    labelled = pc.is_in(test["stay_id"], data.labels["stay_id"].cast(test["stay_id"].type).combine_chunks()).to_numpy()
    right = set(incidents.incident_id[labelled]) - {None}
    leads = np.flatnonzero(np.array([i is not None for i in incidents.incident_id]) & ~incidents.echo)
    most = max(MOST_UNUSUAL, round(ALERTS_A_DAY * days * len(judged.entity_ids) / 1000))
    leads = leads[np.argsort(-judged.score[leads], kind="stable")][:most]
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row, text in zip(
        leads, sentences(model.source("habits"), judged.answers[0].facts, judged, test, rows=leads), strict=True
    ):
        word = re.search(r"(Sure|Fairly sure|Unsure):", text)
        counts[word.group(1) if word else "nothing said"][0] += incidents.incident_id[row] in right
        counts[word.group(1) if word else "nothing said"][1] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, help="where simulated data are kept; a directory of their own if absent")
    options = parser.parse_args()
    progress.disable()
    label_every_stay()
    cache, total = options.cache or Path(tempfile.mkdtemp(prefix="questions-")), defaultdict(lambda: np.zeros(2, int))
    for town in TOWNS:
        for word, counts in count_by_doubt(town.open(cache)).items():
            total[word] += counts
    doubt = {word: counts.tolist() for word, counts in total.items()}
    print(doubt, flush=True)
    coverage = measure_coverage()
    results = {"share": WITHIN, "coverage": coverage, "by_chance": expect_by_chance(coverage), "doubt": doubt}
    write_result(RESULTS, results)


if __name__ == "__main__":
    main()
