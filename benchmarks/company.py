"""Groups: how well several people at one odd place and time are told, and whether their p-values keep their word.

    OMP_NUM_THREADS=1 python benchmarks/company.py

Cities of 500 people and seeds from 100 on, judged by habits alone (as `quick`). Three times each: with meetings of the
second red team (5 % of the people), with the first red team (10 %), which knows no company, and without any. A pair is
two people together at a place that few go to. Pairs are ranked by all that is asked, and leaving one out at a time.
`summed` adds how unusual the less unusual of both events is; that was tried and is gone: it only orders equally rare
groups. `the rule before` told pairs at places new to both that at most three people go to, each visit with p ≤ 0.3.
Scores of events and people are not touched, so nothing else can lose. Writes benchmarks/results/company.json; its table
is in docs/evidence/hiding.md.
"""

from __future__ import annotations

import argparse
import resource
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measured import write_result
from ustad import progress
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.distribution import Distribution
from ustad.events.together import FEW, P_VALUE, PairTails, count_people, few_visits, first_ways, place_keys
from ustad.habits.habit_source import HabitSource
from ustad.lab.evaluation.detection_metrics import average_precision
from ustad.lab.red_team import SecondTeam
from ustad.lessons import take_whole_week
from ustad.schema import mobility_schema
from ustad.scoring.adding_judge import AddingJudge, p_values
from ustad.scoring.incidents import find_incidents
from ustad.simulate.setting import SimulationPlan
from ustad.simulate.simulation import in_memory
from ustad.tables import agent_codes
from ustad.triage.groups import NEW, find_groups

RESULTS = Path(__file__).parent / "results" / "company.json"
SCHEMA = mobility_schema()
CITIES = (("town", 131), ("town", 132), ("simla", 131), ("simjordan", 131), ("numosim-la", 131))
AGENTS, LEVELS = 500, (0.05, 0.01, 0.001)
#: Groups a day per 1,000 people whose precision is told.
A_DAY = 1
MEETINGS, FIRST_TEAM, NOBODY = "meetings", "first red team", "nobody"
SHARES = {MEETINGS: 0.05, FIRST_TEAM: 0.1, NOBODY: 0.0}


def make_city(preset: str, seed: int, team: str) -> Dataset:
    simulation = SimulationPlan(preset, AGENTS, seed, None, anomalous_share=SHARES[team]).prepare()
    simulation = replace(simulation, preset=replace(simulation.preset, event_labels=True))
    return in_memory(replace(simulation, red_team=SecondTeam("meeting")) if team == MEETINGS else simulation)


@dataclass(frozen=True)
class Pairs:
    """Two people's events at one place that few go to: rows of the events, and what is known of each pair."""

    one: np.ndarray
    other: np.ndarray
    new: np.ndarray  # to how many of both
    people: np.ndarray  # who go there
    less: np.ndarray  # score of the less unusual event

    @classmethod
    def of(cls, events: pa.Table) -> Pairs:
        score, is_new = (events[name].to_numpy(zero_copy_only=False) for name in ("score", NEW))
        start, end = (events[name].cast(pa.int64()).to_numpy() for name in (SCHEMA.time, SCHEMA.end))
        place, agent = place_keys(events, SCHEMA), agent_codes(events[SCHEMA.entity])[0]
        visits = few_visits(place, agent, start, end)
        one, other = (visits.row[pair] for pair in first_ways(visits))
        new = is_new[one].astype(np.int64) + is_new[other]
        return cls(one, other, new, count_people(place, agent)[one], np.minimum(score[one], score[other]))


def rank_pairs(week: Pairs, test: Pairs) -> dict[str, np.ndarray]:
    """Scores of the test's pairs by all questions (`none` is left out), without each, and with scores summed up."""
    scores = {}
    for left_out in ("none", "new", "people"):
        known, asked = ([np.zeros_like(one.new) if left_out == "new" else one.new] for one in (week, test))
        known += [np.full_like(week.people, FEW) if left_out == "people" else week.people]
        asked += [np.full_like(test.people, FEW) if left_out == "people" else test.people]
        tails = PairTails.fit(*known)
        assert tails is not None
        scores[left_out] = tails.weigh(*asked) + 1e-6 * np.minimum(test.less, 100)  # scores order what is equally rare
        if left_out == "none":
            less = Distribution.fit(week.less)
            both = Distribution.fit(tails.weigh(*known) - less.log10_tail(week.less))
            scores["summed"] = -both.log10_tail(tails.weigh(*asked) - less.log10_tail(test.less))
    return scores


def score_city(data: Dataset) -> tuple[pa.Table, pa.Table, PairTails, int]:
    """Events of the calibration week and of the test weeks with scores, how rare pairs are, and days of the test."""
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    test = data.between(split.test_first, split.test_last)
    train, week = take_whole_week(train, week, SCHEMA)
    everybody = np.ones(week.num_rows, bool)
    habits, inquiry, answers = HabitSource.learn(train, week, SCHEMA, everybody)
    judge = AddingJudge.fit((habits, ()), inquiry, [answers], everybody)
    judged = judge.judge(test, pa.concat_tables([train, week]))
    assert judge.together is not None
    known = _add(week, judge.looks.weigh(answers.raw)[2], habits.find_new(answers))
    asked = _add(test, judged.score, habits.find_new(judged.answers[0]))
    return known, asked, judge.together, split.test_last - split.test_first + 1


def _add(events: pa.Table, score: np.ndarray, is_new: np.ndarray) -> pa.Table:
    incidents = find_incidents(events, SCHEMA, p_values(score), score)
    names = pa.array(incidents.incident_id.tolist(), pa.string())
    columns = {"score": pa.array(score), NEW: pa.array(is_new), "incident_id": names}
    for name, column in columns.items():
        events = events.append_column(name, column)
    return events


def measure(preset: str, seed: int, team: str) -> dict[str, Any]:
    """Figures of one city."""
    data = make_city(preset, seed, team)
    week, test, tails, days = score_city(data)
    pairs = Pairs.of(test)
    met = _find_met(data, test) if team == MEETINGS else np.zeros(test.num_rows, bool)
    is_true = met[pairs.one] & met[pairs.other]
    p_value = 10.0 ** -tails.weigh(pairs.new, pairs.people)
    groups = find_groups([test], SCHEMA, tails).to_pylist()
    line: dict[str, Any] = {"city": f"{preset}-{seed}", "team": team, "days": days, "pairs": len(pairs.one)}
    line |= {"small_p": [float((p_value[~is_true] <= level).mean() / level) for level in LEVELS]}
    line |= {"groups": len(groups), "groups_a_day": len(groups) / days * 1000 / AGENTS}
    if team == MEETINGS:
        line |= _compare_groups(groups, test, met, max(1, round(A_DAY * days * AGENTS / 1000)))
        scores = rank_pairs(Pairs.of(week), pairs)
        line["ap"] = {name: average_precision(is_true, score) for name, score in scores.items()}
        old = (pairs.people <= 3) & (pairs.new == 2) & (p_values(pairs.less) <= 0.3)
        line["before"] = {"pairs": int(old.sum()), "true": int((old & is_true).sum()), "of": int(is_true.sum())}
        line["now"] = {"pairs": int((p_value <= P_VALUE).sum()), "true": int((is_true & (p_value <= P_VALUE)).sum())}
    print(line, flush=True)
    return line


def _compare_groups(groups: list[dict[str, Any]], test: pa.Table, met: np.ndarray, number: int) -> dict[str, Any]:
    """Groups that hold two events of a meeting, and people who met and are named by one."""
    events = {str(stay) for stay in test["stay_id"].filter(pa.array(met)).to_pylist()}
    people = {str(who) for who in test["agent_id"].filter(pa.array(met)).to_pylist()}
    hits = [len(events & set(group["event_ids"])) >= 2 for group in groups]
    named = {who for group, hit in zip(groups, hits, strict=True) if hit for who in group["agent_ids"]}
    precision = float(np.mean(hits[:number])) if hits else 0.0
    return {
        "true_groups": sum(hits), "people": len(people), "people_named": len(people & named), "precision": precision,
    }  # fmt: skip


def _find_met(data: Dataset, test: pa.Table) -> np.ndarray:
    """Which events are meetings of the red team: bool [N]."""
    assert data.labels is not None
    meant = data.labels.filter(pc.equal(data.labels["role"], "inserted"))["stay_id"]
    return pc.is_in(test["stay_id"], meant.cast(test["stay_id"].type).combine_chunks()).to_numpy(zero_copy_only=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cities", type=int, default=len(CITIES), help="how many of the cities")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    lines = [measure(*city, team) for city in CITIES[: options.cities] for team in SHARES]
    write_result(options.out, {"lines": lines, "processor_s": sum(resource.getrusage(resource.RUSAGE_SELF)[:2])})


if __name__ == "__main__":
    main()
