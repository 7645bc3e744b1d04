"""A source that nobody knows of: a class of its own and a line in `judges.py` are all it takes to be trained, asked,
added up, shown, asked live, saved and loaded.
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import FIRST_DAY, between, insert_visit, make_routine
from whole_scores import score_by_habits

from ustad.config import Config
from ustad.evidence_source import Answers, OneAnswer, OtherSource, SourceFit
from ustad.judges import SOURCES, Trainer, learn_from, load_judge
from ustad.lessons import Lessons, split_entities
from ustad.live.habit_live import HabitLive
from ustad.schema import mobility_schema

SCHEMA = mobility_schema("none", 16, True)
SINCE = FIRST_DAY + 28


def find_rain(time_us, place):
    """A number of each hour, and far more at one place."""
    return (time_us // 3_600_000_000 * 7919 % 97) / 97 + 5.0 * (place == 999)


def find_noise(time_us):
    return 1.0 + time_us // 3_600_000_000 % 3


def find_doubt(time_us):
    """A number of each hour, and far more in every fifth hour of the week that is scored."""
    hour = time_us // 3_600_000_000
    return hour * 31 % 101 + 500.0 * ((hour % 5 == 0) & (hour >= 24 * SINCE))


class Weather(OtherSource):
    """Says how much it rained, what sort of unusual that is, and when that is in doubt."""

    name, looks = "weather", {"visit": ("rain",), "storm": ("rain",)}
    most_events = 1

    def __init__(self, most=6.0):
        self.most = most  # what was learnt: more is a flood

    @classmethod
    def fit(cls, lessons, training):
        return SourceFit(cls(), cls().answer)

    def answer(self, inquiry):
        events = inquiry.events(np.arange(len(inquiry.order)))
        time = events["started_at"].cast(pa.int64()).to_numpy()
        return Answers({"rain": find_rain(time, events["poi_id"].to_numpy())}, find_noise(time), find_doubt(time))

    def find_kinds(self, answers, leads, about):
        return np.where((leads == "rain") & (answers.raw["rain"] < self.most), "wet", None)

    def live(self):
        return self

    def start(self, history, before):
        return None

    def ask_row(self, window, rows, visits, place, *, table):
        time = int(visits.time[0])
        return OneAnswer({"rain": float(find_rain(time, rows[-1]["poi_id"]))}, find_noise(time), find_doubt(time))

    def find_kind(self, answer, lead, about):
        return "wet" if lead == "rain" and answer.raw["rain"] < self.most else None

    def save(self, place):
        (place / "weather.json").write_text(json.dumps({"most": self.most}))
        return {"weather.zero": np.zeros(1)}, {"weather": True}

    @classmethod
    def load(cls, content):
        return cls(**json.loads((content.place / "weather.json").read_text()))

    def facts(self):
        return {"most": self.most}

    def alone(self):
        return nullcontext()


class Flood(Weather):
    """Says also how much it rained on each day, whoever was out."""

    beside: ClassVar = {"flood": 30.0}

    def answer(self, inquiry):
        answers = super().answer(inquiry)
        days = inquiry.visits.day[inquiry.order]
        return replace(answers, beside={"flood": np.bincount(days - days.min(), answers.raw["rain"])})

    def describe_entities(self, answers, event_scores, surprises):
        worst = float(surprises["flood"].max())
        return {"worst_flood": pa.array(np.full(len(np.unique(event_scores["agent_id"].to_numpy())), worst))}


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


def test_habits_that_are_learnt_while_it_is_trained_are_the_same(life, week, monkeypatch):
    """A GPU trains, and meanwhile the CPU learns habits: as if one came after the other."""
    monkeypatch.setattr(Weather, "stops_early", True)
    monkeypatch.setitem(SOURCES, "weather", (lambda config, schema: True, lambda: Weather))
    encoder = SimpleNamespace(schema=SCHEMA)
    lessons = Lessons(encoder, between(life, 0, 21), *split_entities(between(life, 21, 28), SCHEMA.entity))
    scores = []
    for beside in (False, True):
        monkeypatch.setattr(Trainer, "trains_on_gpu", beside)
        judge = Trainer(Config.preset("quick"), "cpu").fit(lessons)
        assert judge.facts() == {"most": 6.0}
        scores.append(judge.judge(week).score)
    np.testing.assert_array_equal(*scores)


def test_saved_and_loaded_it_scores_the_same(judges, week, tmp_path, monkeypatch):
    """What it learnt and its files are its own; the judge has its distributions, its doubt's among them."""
    monkeypatch.setitem(SOURCES, "weather", (lambda config, schema: True, lambda: Weather))
    for number, judge in enumerate((*judges, replace(judges[1], others=(Weather(most=0.4),)))):
        place = tmp_path / str(number)
        place.mkdir()
        judge.save(place)
        encoder = SimpleNamespace(schema=SCHEMA)
        again = load_judge(place, encoder, Config.preset("quick"), None, whole=True, files=())
        assert [source.name for source in again.sources] == [source.name for source in judge.sources]
        one, other = judge.judge(week), again.judge(week)
        np.testing.assert_array_equal(one.score, other.score)
        assert one.kind.tolist() == other.kind.tolist()
        assert (again.looks.doubt is None) == (number == 0)
        live = [HabitLive(j, since=SINCE, reasons="all") for j in (judge, again)]
        for row in week.slice(0, 40).sort_by("started_at").to_pylist():
            assert live[0].update(row) == live[1].update(row)


def test_what_it_measures_beside_answers_is_calibrated_by_the_judge_and_saved(life, week, tmp_path, monkeypatch):
    """Of each local day of a week how much it rained; the week that calibrates says what is normal."""
    monkeypatch.setitem(SOURCES, "weather", (lambda config, schema: True, lambda: Flood))
    judge = learn_from(between(life, 0, 21), between(life, 21, 28), SCHEMA, others=(Flood(),))
    judge.save(tmp_path)
    again = load_judge(tmp_path, SimpleNamespace(schema=SCHEMA), Config.preset("quick"), None, whole=True, files=())
    values = np.array([0.0, 10.0, 200.0, 2000.0])
    surprises = judge.calibrate({"flood": values, "unheard of": values})
    assert surprises.keys() == {"flood"}
    assert (np.diff(surprises["flood"]) >= 0).all()
    assert surprises["flood"][0] == pytest.approx(0.0, abs=1e-9)
    assert surprises["flood"][-1] > 1
    np.testing.assert_array_equal(again.calibrate({"flood": values})["flood"], surprises["flood"])
    assert judge.beside["flood"].scale >= Flood.beside["flood"]
    agents = [score_by_habits(j, week, between(life, 0, 28))[1] for j in (judge, again)]
    assert agents[0]["worst_flood"].to_pylist() == agents[1]["worst_flood"].to_pylist()
    assert len(set(agents[0]["worst_flood"].to_pylist())) == 1


def test_live_asks_it_as_in_bulk(judges, life, week):
    judge = judges[1]
    events, _ = score_by_habits(judge, week, period=(SINCE, SINCE + 6))
    batch = {row["stay_id"]: row for row in events.to_pylist()}
    live = HabitLive(judge, since=SINCE)
    live.warm(between(life, 0, 28))
    for row in week.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist():
        scores = live.update(row)
        assert scores["score"] == pytest.approx(batch[row["stay_id"]]["score"], abs=1e-6)
        assert "rain" in {one["name"] for one in scores["evidence"]}
        for name in ("kind", "uncertainty_noise", "uncertainty_model"):
            assert scores[name] == batch[row["stay_id"]][name], name
    assert {"wet", "unsure", "predictable"} <= {one["kind"] for one in batch.values()}


@pytest.mark.parametrize("missing", ["fit", "answer", "save", "load", "live"])
def test_a_source_that_lacks_what_every_source_has_fails_when_it_is_made(missing):
    lacking = type("Lacking", (Weather,), {missing: getattr(OtherSource, missing)})
    with pytest.raises(TypeError, match=rf"abstract method '?{missing}"):
        lacking()


def test_it_goes_on_where_entities_are_forgotten(judges, week):
    left = judges[1].forget([4])
    assert [source.name for source in left.sources] == ["habits", "weather"]
    assert np.isfinite(left.judge(week).score).all()
