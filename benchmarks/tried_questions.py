"""Questions and tests of people that were tried and are not asked: each beside what is asked, on development towns.

    OMP_NUM_THREADS=1 python benchmarks/tried_questions.py --cache DIRECTORY

The sets are those of `questions.py`. Tests of people are ranked alone; questions are added to the looks, calibrated as
all others. Writes benchmarks/results/tried_questions.json; `questions.py` puts the figures on its page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from scipy.special import gammaincc, gammaln

from measured import write_result
from questions import SCHEMA, TOWNS, label_every_stay, measure_scores, summarise
from ustad import progress
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.events.visits import Visits
from ustad.evidence_source import Answers
from ustad.habits.habit_source import HabitSource
from ustad.habits.history import Habits
from ustad.habits.kernels import apart, bell
from ustad.habits.questions import LOOKS
from ustad.habits.stages import HistoryInquiry
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.lessons import take_whole_week
from ustad.scoring.adding_judge import p_values
from ustad.scoring.entity_tests import AgentReference, Period, combine_tests
from ustad.scoring.incidents import find_incidents
from ustad.scoring.looks import Groups, Looks, surprise_of, unit_weights

RESULTS = Path(__file__).parent / "results" / "tried_questions.json"
#: The surprise that one event counts at most in the mean of a question.
MOST = 3.0
#: Of how many visits to one place the most unusual are added up at most.
LONGEST_RUN = 5
#: Visits that the own share of a place is worth beside what came after the place before.
OWN_VISITS = 2.0
#: How near to this hour visits count for the order, minutes.
SAME_PART = 120.0

Raw = dict[str, np.ndarray]
Looks_ = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Answered:
    """N visits of one period by entity and time, what habits answer about them, and the histories they were asked."""

    table: pa.Table
    visits: Visits
    raw: Raw
    tests: Raw
    evidence: Raw
    place: np.ndarray
    key: np.ndarray
    habits: Habits
    days: tuple[int, int]

    @classmethod
    def of(cls, inquiry: HistoryInquiry, answers: Answers, habits: Habits) -> Answered:
        rows, comparison = inquiry.visits.row, answers.facts.comparison
        raw = {name: values[rows] for name, values in answers.raw.items()}
        own = (dict(answers.tests), dict(answers.evidence), comparison.place[rows], comparison.key[rows])
        return cls(inquiry.table, inquiry.visits, raw, *own, habits, inquiry.test_days)

    @property
    def period(self) -> Period:
        return Period(self.visits.entity, self.visits.entity_key, self.visits.day, self.days)

    def of_the_one_before(self, values: np.ndarray, nothing: Any) -> np.ndarray:
        """The value of the visit before, `nothing` at the first of an entity: [N]."""
        is_same = np.r_[False, self.visits.entity[1:] == self.visits.entity[:-1]]
        return np.where(is_same, np.r_[nothing, values[:-1]], nothing).astype(values.dtype)


@dataclass(frozen=True)
class Prepared:
    """A town: its calibrating week and what is scored."""

    data: Dataset
    week: Answered
    scored: Answered


def prepare(data: Dataset) -> Prepared:
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    test = data.between(split.test_first, split.test_last)
    train, week = take_whole_week(train, week, SCHEMA)
    source, inquiry, answers = HabitSource.learn(train, week, SCHEMA, np.ones(week.num_rows, bool))
    test_inquiry = source.open_inquiry(test, pa.concat_tables([train, week]))
    known = inquiry.history.trained_habits
    scored = Answered.of(test_inquiry, source.answer(test_inquiry), source.habits)
    return Prepared(data, Answered.of(inquiry, answers, known), scored)


# --------------------------------------------------------------------------------------------------- judging
def judge(town: Prepared, more: Callable[[Answered], Raw], looks: Looks_) -> dict[str, Any]:
    """Figures of a town where these answers are asked too and added up so."""
    week, scored = town.week, town.scored
    groups = Groups.of(week.visits.entity, week.visits.entity_key, np.ones(len(week.visits), bool))
    fitted, week_score = Looks.of_week({**week.raw, **more(week)}, None, groups, unit_weights([looks]))
    _, _, score = fitted.weigh({**scored.raw, **more(scored)})
    reference = AgentReference.fit(week_score, week.period, np.ones(len(week.visits.entity_key), bool), week.tests)
    agents = reference.judge(score, scored.period, scored.tests) | scored.evidence
    return measure_scores(town.data, *score_tables(scored, score, combine_tests(agents)), days_of(scored))


def days_of(scored: Answered) -> int:
    return scored.days[1] - scored.days[0] + 1


def score_tables(scored: Answered, score: np.ndarray, agent_score: np.ndarray) -> tuple[pa.Table, pa.Table]:
    """Events and people with their scores, as `measure_scores` reads them."""
    by_row = np.empty(len(score))
    by_row[scored.visits.row] = score
    p_value = p_values(by_row)
    incidents = find_incidents(scored.table, SCHEMA, p_value, by_row)
    events = scored.table
    for name, values in {"score": by_row, "p_value": p_value, "echo": incidents.echo}.items():
        events = events.append_column(name, pa.array(values))
    events = events.append_column("incident_id", pa.array(incidents.incident_id.tolist(), pa.string()))
    return events, pa.table({"agent_id": pa.array(scored.visits.entity_ids.tolist()), "score": agent_score})


# ----------------------------------------------------------------------------------------- questions of events
def order_of_visits(answered: Answered) -> Raw:
    """-log of the chance of this place after the one before at about this hour, from own visits: every new place is as
    likely as those seen once."""
    habits, visits = answered.habits, answered.visits
    before = answered.of_the_one_before(answered.key, np.uint64(0))
    asked = (habits.owners(visits), answered.place, before, visits.minute)
    known = (habits.place_offsets, habits.visit_offsets, habits.visit_previous, habits.visit_minute)
    return {"order": _after_the_one_before(*asked, *known)}


@njit
def _after_the_one_before(
    owner: np.ndarray,
    place: np.ndarray,
    before: np.ndarray,
    minute: np.ndarray,
    place_offsets: np.ndarray,
    visit_offsets: np.ndarray,
    visit_previous: np.ndarray,
    visit_minute: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    result = np.full(len(place), np.nan)
    for i in range(len(place)):
        if owner[i] < 0 or before[i] == 0:
            continue
        whole = here = after = both = 0.0
        for p in range(place_offsets[owner[i]], place_offsets[owner[i] + 1]):
            is_once = visit_offsets[p + 1] - visit_offsets[p] == 1
            is_here = p == place[i] or (place[i] < 0 and is_once)
            for v in range(visit_offsets[p], visit_offsets[p + 1]):
                weight = bell(apart(visit_minute[v], minute[i]), SAME_PART)
                whole += weight
                here += weight if is_here else 0.0
                if visit_previous[v] == before[i]:
                    after += weight
                    both += weight if is_here else 0.0
        own_share = (here + 0.5) / (whole + 1.0)
        result[i] = -np.log((both + OWN_VISITS * own_share) / (after + OWN_VISITS))
    return result


VISIT = LOOKS["visit"]
#: What was asked besides, and what it was added up with.
QUESTIONS: dict[str, tuple[Callable[[Answered], Raw], Looks_]] = {
    "as it is": (lambda _: {}, LOOKS),
    "order alone": (order_of_visits, {**LOOKS, "order": ("order",)}),
    "order in the visit": (order_of_visits, {**LOOKS, "visit": (*VISIT, "order")}),
    "without stay": (lambda _: {}, {name: own for name, own in LOOKS.items() if name != "stay"}),
    "stay = duration + end": (lambda _: {}, {**LOOKS, "stay": ("duration", "end")}),
    "elsewhere + distance": (lambda _: {}, {**LOOKS, "elsewhere": ("elsewhere", "distance")}),
}


# ------------------------------------------------------------------------------------------- tests of people
def people_tests(town: Prepared) -> dict[str, np.ndarray]:
    """Values of each person by name of the test: float64 [E]."""
    week, scored = town.week, town.scored
    groups = Groups.of(week.visits.entity, week.visits.entity_key, np.ones(len(week.visits), bool))
    fitted, week_score = Looks.of_week(week.raw, None, groups, unit_weights([LOOKS]))
    surprise, _, score = fitted.weigh(scored.raw)
    before = surprise_of(fitted.tails, week.raw)
    rises = {name: _rise(before[name], surprise[name], week, scored) for name in VISIT}
    reference = AgentReference.fit(week_score, week.period, np.ones(len(week.visits.entity_key), bool), week.tests)
    return {
        "top": reference.judge(score, scored.period, scored.tests)["top"],
        **{f"rise of {name}": values for name, values in rises.items()},
        "highest rise": np.max(list(rises.values()), axis=0),
        "run of scores": _runs(score, scored),
        "run of durations": _runs(surprise["duration"], scored),
        "run of ends": _runs(surprise["end"], scored),
    }


def _rise(before: np.ndarray, now: np.ndarray, week: Answered, scored: Answered) -> np.ndarray:
    """How much the mean of bounded surprises rose since the person's own week, in standard errors: float64 [E]."""
    old, new = np.minimum(before, MOST), np.minimum(now, MOST)
    own = {key: i for i, key in enumerate(week.visits.entity_key.tolist())}
    at = np.array([own.get(key, len(own)) for key in scored.visits.entity_key.tolist()])
    number, total = (np.append(np.bincount(week.visits.entity, w, len(own)), 0.0)[at] for w in (np.ones(len(old)), old))
    E = len(scored.visits.entity_key)
    count, new_total = (np.bincount(scored.visits.entity, w, E) for w in (np.ones(len(new)), new))
    mean = np.where(number > 0, total / np.maximum(number, 1), old.mean())
    error = old.std() * np.sqrt(1 / np.maximum(count, 1) + 1 / np.maximum(number, 1))
    return (new_total / np.maximum(count, 1) - mean) / error


def _runs(surprise: np.ndarray, scored: Answered) -> np.ndarray:
    """-log10 of the chance of the two to five most unusual visits to one place, the least likely of any place and
    number: float64 [E]. Sums of so many -ln p are Gamma distributed; any so many of all visits there may be chosen."""
    entity = scored.visits.entity
    order = np.lexsort((-surprise, scored.key, entity))
    owner, key, ordered = entity[order], scored.key[order], surprise[order]
    starts = np.flatnonzero(np.r_[True, (owner[1:] != owner[:-1]) | (key[1:] != key[:-1])])
    group = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(owner)]))
    rank, number = np.arange(len(owner)) - starts[group], np.bincount(group)[group]
    total = np.cumsum(ordered)
    total -= (total - ordered)[starts][group]
    rows = np.flatnonzero((rank >= 1) & (rank < LONGEST_RUN))
    many, n = rank[rows] + 1, number[rows]
    choices = (gammaln(n + 1) - gammaln(many + 1) - gammaln(n - many + 1)) / np.log(10)
    tail = -np.log10(np.maximum(gammaincc(many, np.log(10) * total[rows]), 1e-300)) - choices
    result = np.zeros(len(scored.visits.entity_key))
    np.maximum.at(result, owner[rows], tail)
    return result


def measure_people(town: Prepared) -> dict[str, dict[str, Any]]:
    """AUROC and AP of each test alone, and AUROC by kind."""
    assert town.data.agent_labels is not None
    kinds = dict(zip(*(town.data.agent_labels[c].to_pylist() for c in ("agent_id", "kind")), strict=True))
    kind = np.array([kinds.get(agent, "") for agent in town.scored.visits.entity_ids.tolist()])
    figures = {}
    for name, values in people_tests(town).items():
        by_kind = {
            one: auroc(kind[chosen] == one, values[chosen])
            for one in sorted(set(kind.tolist()) - {""})
            for chosen in [(kind == one) | (kind == "")]
        }
        figures[name] = {"agents": [auroc(kind != "", values), average_precision(kind != "", values)], "kinds": by_kind}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="where `questions.py` keeps simulated data")
    parser.add_argument("--sets", nargs="*", default=[town.name for town in TOWNS])
    options = parser.parse_args()
    progress.disable()
    label_every_stay()
    lines: list[dict[str, Any]] = []
    people: dict[str, list[dict[str, Any]]] = {}
    for town in (town for town in TOWNS if town.name in options.sets):
        prepared = prepare(town.open(options.cache))
        for name, (more, looks) in QUESTIONS.items():
            lines.append({"set": town.name, "without": name, **judge(prepared, more, looks)})
        for name, figures in measure_people(prepared).items():
            people.setdefault(name, []).append(figures)
        print(town.name, flush=True)
    kinds = {kind for all_sets in people.values() for one in all_sets for kind in one["kinds"]}
    tests = {
        name: {
            "agents": np.mean([one["agents"] for one in all_sets], axis=0).tolist(),
            "kinds": {
                kind: float(np.mean([one["kinds"][kind] for one in all_sets if kind in one["kinds"]]))
                for kind in sorted(kinds)
            },
        }
        for name, all_sets in people.items()
    }
    write_result(RESULTS, {"questions": summarise(lines), "people": tests, "lines": lines})


if __name__ == "__main__":
    main()
