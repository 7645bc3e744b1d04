"""Household: does it say anything where the others of one's home are?

    OMP_NUM_THREADS=1 python benchmarks/household.py --cache DIRECTORY

People who spend their nights at one place are a household. Two things are measured on development towns (seeds from 100
on, one person in ten misbehaves by the first red team), judged by habits alone. First a question, `apart`: the share of
days like this one on which the person was with somebody of the household at this half hour, asked of events that are
spent without any of them; as one look more. Second an explanation: of the first five incidents a day per 1,000 people,
how many are true where somebody of the household was there too, and how many elsewhere. Writes
benchmarks/results/household.json; its table is in docs/evidence/hiding.md.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measured import write_result
from questions import ALERTS_A_DAY, SCHEMA, TOWNS, Town, label_every_stay, measure_scores
from ustad import progress
from ustad.clock import local_time
from ustad.config import SplitConfig
from ustad.dataset import Dataset, zone_of
from ustad.events.together import place_keys
from ustad.evidence_source import Answerer, Answers
from ustad.habits.habit_source import HabitSource
from ustad.habits.stages import HistoryInquiry
from ustad.lessons import take_whole_week
from ustad.scoring.adding_judge import AddingJudge, Judgement, p_values
from ustad.scoring.incidents import find_incidents
from ustad.tables import agent_codes

RESULTS = Path(__file__).parent / "results" / "household.json"
SETS = ("town-101", "town-102", "town-103", "simla-101", "simjordan-101", "numosim-la-101", "numosim-la-102")
#: To be built in, the look must raise the AP of events or people by `GAIN` and lower neither by more than `LOSS`; to be
#: told as an explanation, incidents with somebody of the household must be true at most half as often as the others.
GAIN, LOSS, HALF = 0.01, 0.002, 0.5
SLOTS, NIGHT = 48, 6  # half hours of a day; 03:00


@dataclass(frozen=True)
class Whereabouts:
    """Where everybody is at every half hour, and with whom of the household."""

    first_day: int
    place: np.ndarray  # uint64 [people, days, SLOTS], 0 where nobody knows
    household: np.ndarray  # int64 [people]
    together: np.ndarray  # bool [people, days, SLOTS] with somebody of the household
    ids: list[Any]

    @classmethod
    def of(cls, events: pa.Table, known_until: int) -> Whereabouts:
        """Homes are those of the days up to `known_until`."""
        codes, ids = agent_codes(events[SCHEMA.entity])
        keys = place_keys(events, SCHEMA)
        clocks = [local_time(events[name], zone_of(events, SCHEMA)) for name in (SCHEMA.time, SCHEMA.end)]
        first_day = int(clocks[0].day.min())
        begin, end = (
            np.ceil((clock.day.astype(np.int64) - first_day) * SLOTS + clock.minute / 30).astype(int)
            for clock in clocks
        )
        days = int(clocks[1].day.max()) - first_day + 1
        place = np.zeros((len(ids), days * SLOTS), np.uint64)
        for who, key, a, b in zip(codes.tolist(), keys.tolist(), begin.tolist(), end.tolist(), strict=True):
            place[who, a:b] = key
        place = place.reshape(len(ids), days, SLOTS)
        homes = [_most_frequent(nights) for nights in place[:, : known_until - first_day + 1, NIGHT]]
        _, household = np.unique(homes, return_inverse=True)
        household = np.where(np.array(homes) == 0, -1, household)
        return cls(first_day, place, household, _find_together(place, household), [str(one) for one in ids])

    def ask(self, events: pa.Table, last_known: int) -> tuple[np.ndarray, np.ndarray]:
        """`apart` of each event by days up to `last_known`, and whether somebody of the household is there: [N]."""
        codes = {name: n for n, name in enumerate(self.ids)}
        who = np.array([codes[str(name)] for name in events[SCHEMA.entity].to_pylist()])
        times = [events[name].cast(pa.int64()).to_numpy() for name in (SCHEMA.time, SCHEMA.end)]
        middle = pa.array((times[0] + times[1]) // 2).cast(pa.timestamp("us", tz="UTC"))
        clock = local_time(pa.chunked_array([middle]), zone_of(events, SCHEMA))
        day, slot = clock.day.astype(np.int64) - self.first_day, (clock.minute // 30).astype(int)
        is_weekend = np.array([(d + self.first_day + 3) % 7 >= 5 for d in range(self.place.shape[1])])
        past = np.arange(self.place.shape[1]) <= last_known - self.first_day
        usual = np.stack([self.together[:, past & (is_weekend == kind)].mean(axis=1) for kind in (False, True)])
        now = self.together[who, day, slot]
        share = usual[is_weekend[day].astype(int), who, slot]
        size = np.bincount(self.household[self.household >= 0], minlength=1)
        has_others = (self.household[who] >= 0) & (size[np.maximum(self.household[who], 0)] > 1)
        return np.where(has_others, np.where(now, 0.0, share), np.nan), now


def _most_frequent(keys: np.ndarray) -> int:
    names, count = np.unique(keys[keys != 0], return_counts=True)
    return int(names[count.argmax()]) if len(names) else 0


def _find_together(place: np.ndarray, household: np.ndarray) -> np.ndarray:
    together = np.zeros(place.shape, bool)
    for number in np.unique(household[household >= 0]):
        members = np.flatnonzero(household == number)
        for one in members:
            for other in members[members != one]:
                together[one] |= (place[one] == place[other]) & (place[one] != 0)
    return together


@dataclass
class Household(Answerer):
    """The share of days on which the person is not alone at this hour, of events spent without the household."""

    values: dict[Any, float]
    name: ClassVar[str] = "household"
    looks: ClassVar[dict[str, tuple[str, ...]]] = {"apart": ("apart",)}

    def answer(self, inquiry: HistoryInquiry) -> Answers:
        stays = inquiry.table.slice(inquiry.first)["stay_id"].to_pylist()
        return Answers({"apart": np.array([self.values[stay] for stay in stays])})


def measure(town: Town, cache: Path) -> dict[str, Any]:
    label_every_stay()
    data = town.open(cache)
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    test = data.between(split.test_first, split.test_last)
    train, week = take_whole_week(train, week, SCHEMA)
    last = int(local_time(train[SCHEMA.time], zone_of(train, SCHEMA)).day.max())
    where = Whereabouts.of(pa.concat_tables([train, week, test]), last)
    of_week, _ = where.ask(week, last)
    of_test, is_with = where.ask(test, split.test_first - 1)
    values = dict(zip(week["stay_id"].to_pylist(), of_week.tolist(), strict=True))
    values |= dict(zip(test["stay_id"].to_pylist(), of_test.tolist(), strict=True))
    everybody = np.ones(week.num_rows, bool)
    habits, inquiry, answers = HabitSource.learn(train, week, SCHEMA, everybody)
    source, days = Household(values), split.test_last - split.test_first + 1
    line: dict[str, Any] = {"set": town.name, "people": len(where.ids), "asked": float(np.isfinite(of_test).mean())}
    for name, others in (("rule", ()), ("apart", (source,))):
        both = [answers, *(one.answer(inquiry) for one in others)]
        judge = AddingJudge.fit((habits, others), inquiry, both, everybody)
        judged = judge.judge(test, pa.concat_tables([train, week]))
        scored, agents = _as_tables(test, judged)
        line[name] = measure_scores(data, scored, agents, days)
        if name == "rule":
            number = max(1, round(ALERTS_A_DAY * days * len(where.ids) / 1000))
            line["explained"] = _explain(data, scored, is_with, np.isfinite(of_test), number=number)
    print(
        line["set"],
        line["explained"],
        [line[n][k] for n in ("rule", "apart") for k in ("events", "agents")],
        flush=True,
    )
    return line


def _as_tables(test: pa.Table, judged: Judgement) -> tuple[pa.Table, pa.Table]:
    p_value = p_values(judged.score)
    incidents = find_incidents(test, SCHEMA, p_value, judged.score)
    for name, values in {"score": judged.score, "p_value": p_value, "echo": incidents.echo}.items():
        test = test.append_column(name, pa.array(values))
    test = test.append_column("incident_id", pa.array(incidents.incident_id.tolist(), pa.string()))
    return test, pa.table({"agent_id": pa.array(judged.entity_ids.tolist()), "score": judged.agent_score})


def _explain(
    data: Dataset, scored: pa.Table, is_with: np.ndarray, has_others: np.ndarray, *, number: int
) -> dict[str, list[int]]:
    """True and all of the first incidents: led by an event with the household, without it, of who lives alone."""
    assert data.labels is not None
    labels = data.labels["stay_id"].cast(scored["stay_id"].type).combine_chunks()
    is_true = pc.is_in(scored["stay_id"], labels).to_numpy(zero_copy_only=False)
    names, counts = scored["incident_id"].to_pylist(), {name: [0, 0] for name in ("with", "without", "alone")}
    right = {name for name, hit in zip(names, is_true, strict=True) if hit}
    order = [row for row in np.argsort(-scored["score"].to_numpy(), kind="stable") if names[row] is not None]
    leads = {names[row]: row for row in reversed(order)}  # of each incident the most unusual event
    for name in list(dict.fromkeys(names[row] for row in order))[:number]:
        row = leads[name]
        count = counts["alone" if not has_others[row] else "with" if is_with[row] else "without"]
        count[0] += name in right
        count[1] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, help="where simulated data are kept; a directory of their own if absent")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    cache = options.cache or Path(tempfile.mkdtemp(prefix="household-"))
    lines = [measure(town, cache) for town in TOWNS if town.name in options.sets]
    seconds = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    rule = {"gain": GAIN, "loss": LOSS, "half": HALF}
    write_result(options.out, {"lines": lines, **rule, "processor_s": seconds})


if __name__ == "__main__":
    main()
