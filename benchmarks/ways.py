"""Ways: is a route that a person has never taken worth a question of its own?

    OMP_NUM_THREADS=1 python benchmarks/ways.py --cache DIRECTORY

Four development towns from GPS (seeds from 100 on, one person in ten misbehaves by the first red team), judged by
habits alone. Two questions about the trip that leads to a stay, asked where its person went that way before: `way`, how
much of the path lies in cells of 150 m that this person never crossed, and `longer`, its length against the person's
shortest trip between the same places. Nobody in the red teams takes another route to a usual place, so that is made
here: a tenth of the normal people bend two trips of the test weeks sideways, with the same ends and times. Measured:
stays after bent trips by each question alone, by the rule, and by the rule with a look more; and what that look costs
the towns' own red team. Writes benchmarks/results/ways.json; its table is in docs/evidence/hiding.md.
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
from questions import SCHEMA, TOWNS, Town, measure_scores
from ustad import progress
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.evidence_source import Answerer, Answers
from ustad.habits.habit_source import HabitSource
from ustad.habits.stages import HistoryInquiry
from ustad.lab.evaluation.detection_metrics import auroc, average_precision
from ustad.lessons import take_whole_week
from ustad.scoring.adding_judge import AddingJudge, Judgement, p_values
from ustad.scoring.incidents import find_incidents

RESULTS = Path(__file__).parent / "results" / "ways.json"
SETS = ("town-106", "town-107", "town-108", "town-109")
QUESTIONS = ("way", "longer")
#: To be built in, a look must raise the AP of stays after bent trips by this, and cost no AP of the towns' red team.
GAIN, LOSS = 0.05, 0.002
CELL_M, STEP_M, BEND_KM, LEAST_KM = 150.0, 75.0, 1.0, 1.0
SHARE, TRIPS_EACH = 0.1, 2


@dataclass
class Trip:
    """A trip between two stays, on a plane in metres."""

    agent: str
    stay: int  # that it leads to
    start: int  # microseconds
    x: np.ndarray
    y: np.ndarray

    @property
    def ends(self) -> tuple[str, int, int, int, int]:
        """Whose, from where to where: cells of 300 m."""
        corners = (round(float(v) / 300) for v in (self.x[0], self.y[0], self.x[-1], self.y[-1]))
        return (self.agent, *corners)  # type: ignore[return-value]

    @property
    def length(self) -> float:
        return float(np.hypot(np.diff(self.x), np.diff(self.y)).sum())

    @property
    def cells(self) -> set[tuple[int, int]]:
        legs = np.hypot(np.diff(self.x), np.diff(self.y))
        at = np.r_[0.0, np.cumsum(legs)]
        steps = np.linspace(0, at[-1], max(2, int(at[-1] / STEP_M) + 1))
        cells = (np.floor(np.interp(steps, at, axis) / CELL_M).astype(int).tolist() for axis in (self.x, self.y))
        return set(zip(*cells, strict=True))

    def bend(self, side: int) -> Trip:
        """The same trip with a bulge of `BEND_KM` to one side."""
        t = np.linspace(0, 1, 40)
        legs = np.r_[0.0, np.cumsum(np.hypot(np.diff(self.x), np.diff(self.y)))]
        x, y = (np.interp(t * legs[-1], legs, axis) for axis in (self.x, self.y))
        across = np.array([-(y[-1] - y[0]), x[-1] - x[0]])
        across = side * 1000 * BEND_KM * across / max(float(np.hypot(*across)), 1.0)
        bulge = np.sin(np.pi * t)
        return Trip(self.agent, self.stay, self.start, x + across[0] * bulge, y + across[1] * bulge)


def read_trips(data: Dataset) -> list[Trip]:
    """Trips that were seen whole, in order of time."""
    assert data.trips is not None
    table = data.trips.filter(pc.invert(data.trips["crosses_gap"])).sort_by("started_at")
    paths = table["path"].combine_chunks()
    points, offsets = paths.flatten(), np.r_[0, np.cumsum(pc.list_value_length(paths).to_numpy())]
    lat, lon = (points.field(name).to_numpy() for name in ("lat", "lon"))
    middle = float(np.median(lat))
    x = (lon - float(np.median(lon))) * 111_195 * np.cos(np.radians(middle))
    y = (lat - middle) * 111_195
    columns = [table[name].to_pylist() for name in ("agent_id", "destination_stay_id")]
    starts = table["started_at"].cast(pa.int64()).to_pylist()
    rows = zip(*columns, starts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [Trip(str(who), stay, start, x[a:b], y[a:b]) for who, stay, start, a, b in rows if b - a >= 3]


class Known:
    """What each person's earlier trips were like."""

    def __init__(self, trips: list[Trip]) -> None:
        self.cells: dict[str, set[tuple[int, int]]] = {}
        self.length: dict[tuple[Any, ...], float] = {}
        for trip in trips:
            self.cells.setdefault(trip.agent, set()).update(trip.cells)
            self.length[trip.ends] = min(self.length.get(trip.ends, np.inf), trip.length)

    def ask(self, trip: Trip) -> dict[str, float] | None:
        """Answers about a trip; None where the person never went between these places."""
        if trip.ends not in self.length:
            return None
        cells, own = trip.cells, self.cells[trip.agent]
        longer = np.log(max(trip.length, 1.0) / max(self.length[trip.ends], 1.0))
        return {"way": len(cells - own) / len(cells), "longer": float(longer)}


@dataclass
class Ways(Answerer):
    """What is answered about the stay that a trip leads to."""

    values: dict[int, dict[str, float]]
    questions: tuple[str, ...]
    name: ClassVar[str] = "ways"

    @property
    def looks(self) -> dict[str, tuple[str, ...]]:  # type: ignore[override]  # chosen by who measures
        return {question: (question,) for question in self.questions}

    def answer(self, inquiry: HistoryInquiry) -> Answers:
        stays = inquiry.table.slice(inquiry.first)["stay_id"].to_pylist()
        none = dict.fromkeys(QUESTIONS, np.nan)
        rows = [self.values.get(stay, none) for stay in stays]
        return Answers({question: np.array([row[question] for row in rows]) for question in self.questions})


def bend_trips(trips: list[Trip], known: Known, normal: set[str], seed: int) -> dict[int, Trip]:
    """Trips of the test weeks that are bent, by the stay that they lead to."""
    rng = np.random.default_rng(seed)
    chosen: dict[str, list[Trip]] = {}
    for trip in trips:
        if trip.agent in normal and trip.length >= 1000 * LEAST_KM and known.ask(trip) is not None:
            chosen.setdefault(trip.agent, []).append(trip)
    people = rng.permutation(sorted(chosen))[: round(SHARE * len(normal))]
    bent: dict[int, Trip] = {}
    for who in people.tolist():
        for n in rng.permutation(len(chosen[who]))[:TRIPS_EACH]:
            bent[chosen[who][n].stay] = chosen[who][n].bend(int(rng.choice([-1, 1])))
    return bent


def measure(town: Town, cache: Path) -> dict[str, Any]:
    data = town.open(cache)
    split = data.split(SplitConfig())
    train = data.between(split.train_first, split.validation_first - 1)
    week = data.between(split.validation_first, split.test_first - 1)
    test = data.between(split.test_first, split.test_last)
    train, week = take_whole_week(train, week, SCHEMA)
    first_week, first_test = (int(pc.min(one["started_at"].cast(pa.int64())).as_py()) for one in (week, test))
    trips = read_trips(data)
    before = [trip for trip in trips if trip.start < first_week]
    of_week = [trip for trip in trips if first_week <= trip.start < first_test]
    of_test = [trip for trip in trips if trip.start >= first_test]
    early, known = Known(before), Known([*before, *of_week])
    assert data.agent_labels is not None
    labelled = {str(who) for who in data.agent_labels["agent_id"].to_pylist()}
    normal = {str(who) for who in test["agent_id"].to_pylist()} - labelled
    bent = bend_trips(of_test, known, normal, town.seed)
    values = {trip.stay: answer for trip in of_week if (answer := early.ask(trip)) is not None}
    real = values | {trip.stay: answer for trip in of_test if (answer := known.ask(trip)) is not None}
    odd = real | {stay: answer for stay, trip in bent.items() if (answer := known.ask(trip)) is not None}
    line: dict[str, Any] = {"set": town.name, "asked": len(real) / (week.num_rows + test.num_rows), "bent": len(bent)}
    everybody = np.ones(week.num_rows, bool)
    habits, inquiry, answers = HabitSource.learn(train, week, SCHEMA, everybody)
    stays = test["stay_id"].to_pylist()
    is_normal = np.array([str(who) in normal for who in test["agent_id"].to_pylist()])
    is_bent = np.array([stay in bent for stay in stays])
    for questions in ((), ("way",), ("longer",), QUESTIONS):
        figures: dict[str, Any] = {}
        for name, answers_of in (("own", real), ("bent", odd)):
            source = Ways(answers_of, questions)
            sources = (habits, (source,)) if questions else (habits, ())
            both = [answers, source.answer(inquiry)] if questions else [answers]
            judge = AddingJudge.fit(sources, inquiry, both, everybody)
            judged = judge.judge(test, pa.concat_tables([train, week]))
            figures[name] = (
                _measure_red_team(data, test, judged, split.test_last - split.test_first + 1)
                if name == "own"
                else _measure_bent(judged, is_normal, is_bent)
            )
        line[" + ".join(questions) or "rule"] = figures
    for question in QUESTIONS:
        score = np.array([odd[stay][question] if stay in odd else -1.0 for stay in stays])
        line[f"{question} alone"] = _both(is_bent[is_normal], score[is_normal])
    print(line, flush=True)
    return line


def _measure_bent(judged: Judgement, is_normal: np.ndarray, is_bent: np.ndarray) -> dict[str, list[float]]:
    """Stays after bent trips among those of people without a label; and these people."""
    people = np.bincount(judged.entity[is_bent], minlength=len(judged.entity_ids)) > 0
    known = np.bincount(judged.entity[is_normal], minlength=len(judged.entity_ids)) > 0
    return {
        "events": _both(is_bent[is_normal], judged.score[is_normal]),
        "agents": _both(people[known], judged.agent_score[known]),
    }


def _measure_red_team(data: Dataset, test: pa.Table, judged: Judgement, days: int) -> dict[str, Any]:
    p_value = p_values(judged.score)
    incidents = find_incidents(test, SCHEMA, p_value, judged.score)
    for name, values in {"score": judged.score, "p_value": p_value, "echo": incidents.echo}.items():
        test = test.append_column(name, pa.array(values))
    test = test.append_column("incident_id", pa.array(incidents.incident_id.tolist(), pa.string()))
    agents = pa.table({"agent_id": pa.array(judged.entity_ids.tolist()), "score": judged.agent_score})
    return measure_scores(data, test, agents, days)


def _both(truth: np.ndarray, score: np.ndarray) -> list[float]:
    return [auroc(truth, score), average_precision(truth, score)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, help="where simulated data are kept; a directory of their own if absent")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    progress.disable()
    cache = options.cache or Path(tempfile.mkdtemp(prefix="ways-"))
    lines = [measure(town, cache) for town in TOWNS if town.name in options.sets]
    seconds = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    write_result(options.out, {"lines": lines, "gain": GAIN, "loss": LOSS, "processor_s": seconds})


if __name__ == "__main__":
    main()
