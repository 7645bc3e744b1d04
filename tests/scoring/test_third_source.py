"""A source that nobody knows of: a class of its own is all it takes to be asked, added up, shown and asked live.

Training, saving and loading are not covered: for these a source has `save` and a `load`, and `judges.py` names it.
"""

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import FIRST_DAY, between, insert_visit, make_routine
from whole_scores import score_by_habits

from ustad.evidence_source import Answers, Source
from ustad.judges import learn_from
from ustad.live.habit_live import HabitLive
from ustad.schema import mobility_schema

SCHEMA = mobility_schema("none", 16, True)
SINCE = FIRST_DAY + 28


def find_rain(time_us, place):
    """A number of each hour, and far more at one place."""
    return (time_us // 3_600_000_000 * 7919 % 97) / 97 + 5.0 * (place == 999)


class Weather(Source):
    """Says how much it rained."""

    name, looks = "weather", {"visit": ("rain",), "storm": ("rain",)}
    most_events = 1

    def answer(self, case):
        events = case.events(np.arange(len(case.order)))
        return Answers(
            {"rain": find_rain(events["started_at"].cast(pa.int64()).to_numpy(), events["poi_id"].to_numpy())}
        )

    def live(self):
        return self

    def start(self, history, before):
        return None

    def ask_row(self, window, rows, visits, place, *, table):
        return {"rain": float(find_rain(int(visits.time[0]), rows[-1]["poi_id"]))}

    def alone(self):
        return nullcontext()


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=1, agents=12, days=35)


@pytest.fixture(scope="module")
def judges(life):
    """Habits alone, and with the weather."""
    lessons = (between(life, 0, 21), between(life, 21, 28), SCHEMA)
    return learn_from(*lessons), learn_from(*lessons, others=(Weather(),))


@pytest.fixture(scope="module")
def week(life):
    return insert_visit(between(life, 28, 35), 4, 30, 1000, minutes=40)


def test_its_answers_are_calibrated_added_up_and_shown(judges, life, week):
    plain, wet = (score_by_habits(judge, week, between(life, 0, 28), reasons="all")[0].to_pylist() for judge in judges)
    at = week["poi_id"].to_pylist().index(999)
    shares = {one["name"]: one["share"] for one in wet[at]["evidence"]}
    assert shares["rain"] > 0.1
    assert sum(shares.values()) == pytest.approx(1)
    assert "rain" not in {one["name"] for one in plain[at]["evidence"]}
    assert judges[1].looks.weights["storm"] == {"rain": 1.0}
    assert wet[at]["reason"].split(".")[0] == plain[at]["reason"].split(".")[0]


def test_live_asks_it_as_in_bulk(judges, life, week):
    judge = judges[1]
    events, _ = score_by_habits(judge, week, period=(SINCE, SINCE + 6))
    batch = dict(zip(events["stay_id"].to_pylist(), events["score"].to_pylist(), strict=True))
    live = HabitLive(judge, since=SINCE)
    live.warm(between(life, 0, 28))
    for row in week.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist():
        scores = live.update(row)
        assert scores["score"] == pytest.approx(batch[row["stay_id"]], abs=1e-6)
        assert "rain" in {one["name"] for one in scores["evidence"]}


def test_it_goes_on_where_entities_are_forgotten(judges, week):
    left = judges[1].forget([4])
    assert [source.name for source in left.sources] == ["habits", "weather"]
    assert np.isfinite(left.judge(week).score).all()
