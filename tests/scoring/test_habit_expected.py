"""What was expected by an entity's own history: where, what, when and how long, each with its ±, and in words."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, make_routine, odd_week
from whole_scores import score_by_habits

from ustad.events.visits import Frame, read_visits
from ustad.habits.history import Habits
from ustad.habits.usual import days_left_out, remembered_days, usual
from ustad.habits.usual_kernels import usual_start, visits_near, weighted_quantile
from ustad.habits.widths import Widths
from ustad.judges import learn_from
from ustad.live.habit_live import HabitLive
from ustad.schema import mobility_schema
from ustad.scoring.alerts import AlertRule
from ustad.scoring.judge import Request
from ustad.scoring.scored_parts import ScoredParts

SCHEMA = mobility_schema()
PLAIN = Widths.plain(1)  # as wide as the earlier visits lie
FEATURES = ("start", "duration", "x", "y")


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=1, agents=12, days=35)


@pytest.fixture(scope="module")
def model(life):
    return learn_from(between(life, 0, 21), between(life, 21, 28), SCHEMA)


@pytest.fixture(scope="module")
def odd(life):
    return odd_week(life)


@pytest.fixture(scope="module")
def scored(life, model, odd):
    return score_by_habits(model, odd, between(life, 0, 28), AlertRule("top", 9), reasons="all")[0]


def _column(table, name):
    return table[name].to_numpy(zero_copy_only=False)


# ------------------------------------------------------------------------------------------------- values
def test_the_expected_place_is_where_a_loop_over_days_finds_the_entity_most_often(life, model, odd):
    """The slow way: for every day of the history of that kind, where was the entity at that moment?"""
    visits = read_visits(odd, SCHEMA, model.history.frame)
    habits = model.history.habits
    place, _ = habits.locate(visits)
    found = usual(habits, visits, place, PLAIN)
    past = read_visits(between(life, 0, 28), SCHEMA, model.history.frame)
    own, _ = habits.locate(past)
    for i in range(0, len(visits), 37):
        middle = visits.minute[i] + visits.duration[i] / 2
        moment, weekend = middle % 1440, (visits.weekday[i] + int(middle // 1440)) % 7 >= 5
        mine = past.entity_ids[past.entity] == visits.entity_ids[visits.entity[i]]
        begin = past.day[mine] * 1440 + past.minute[mine]
        days = [d for d in range(habits.first_day, habits.last_day + 1) if ((d + 3) % 7 >= 5) == weekend]
        there = [
            own[mine][(begin <= d * 1440 + moment) & (d * 1440 + moment < begin + past.duration[mine])] for d in days
        ]
        counts = np.unique(np.concatenate(there), return_counts=True)
        assert found.share[i] == pytest.approx(counts[1].max() / len(days))
        assert found.place[i] in counts[0][counts[1] == counts[1].max()]


def test_days_of_each_kind_are_those_of_the_calendar(model):
    days = range(model.history.habits.first_day, model.history.habits.last_day + 1)
    weekends = sum((d + 3) % 7 >= 5 for d in days)
    assert (remembered_days(model.history.habits) == [len(days) - weekends, weekends]).all()


def test_of_two_usual_starts_the_nearer_one_is_expected():
    starts, kind = np.array([480.0, 490, 485, 500, 780, 790, 785]), np.ones(7)
    assert usual_start(starts, visits_near(starts, kind), 800.0) in (780.0, 785.0, 790.0)
    assert usual_start(starts, visits_near(starts, kind), 300.0) in (480.0, 485.0, 490.0)
    assert usual_start(starts, visits_near(starts, kind), np.nan) in (485.0, 490.0)
    late = np.array([1430.0, 5.0, 10.0])
    assert usual_start(late, visits_near(late, np.ones(3)), np.nan) in (5.0, 1430.0)  # round midnight


def test_what_is_usual_of_a_row_does_not_hang_on_the_rows_around_it(model, odd, monkeypatch):
    visits = read_visits(odd, SCHEMA, model.history.frame)
    place, _ = model.history.habits.locate(visits)
    monkeypatch.setattr("ustad.habits.in_parts.LEAST_ROWS", 50)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    together = usual(model.history.habits, visits, place, PLAIN)
    for i in (0, 17, len(visits) - 1):
        single = usual(model.history.habits, visits.take(np.array([i])), place[[i]], PLAIN)
        for name in ("start", "start_spread", "duration", "duration_spread"):
            np.testing.assert_array_equal(getattr(single, name)[0], getattr(together, name)[i])


@pytest.mark.parametrize(
    "rule", [AlertRule(), AlertRule("top", 6), AlertRule("fdr", 0.3), AlertRule("alerts_per_day", 3)]
)
def test_parts_give_the_reasons_of_the_whole_to_exactly_what_is_flagged(life, model, odd, rule):
    before = between(life, 0, 28)
    whole, agents = score_by_habits(model, odd, before, rule)
    made = list(ScoredParts(model, odd, before, Request(rule), entities=5))
    events, people = (pa.concat_tables([getattr(part, name) for part in made]) for name in ("events", "agents"))
    wanted = whole.sort_by("stay_id")
    for name in ("alert", "reason", "kind"):
        assert events.sort_by("stay_id")[name].to_pylist() == wanted[name].to_pylist()
    assert people.sort_by("agent_id")["reason"].to_pylist() == agents.sort_by("agent_id")["reason"].to_pylist()
    assert wanted["reason"].null_count > len(wanted) / 2


def test_quantiles_by_weight_are_those_of_repeated_values():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=30), rng.integers(1, 5, 30)
    repeated = np.sort(np.repeat(values, weights))
    for share in (0.2, 0.5, 0.6827):
        wanted = repeated[int(np.ceil(share * len(repeated))) - 1]
        assert weighted_quantile(values, weights.astype(float), share) == pytest.approx(wanted)


# ------------------------------------------------------------------------------------------------- columns
def test_most_normal_events_lie_within_twice_what_was_expected(scored):
    normal = _column(scored, "score") < 1
    for name in FEATURES:
        error, spread = _column(scored, f"error_{name}"), _column(scored, f"spread_{name}")
        assert np.isfinite(error[normal]).all(), name
        assert (error <= 2 * spread + 1e-6)[normal].mean() > 0.8, name


def test_columns_have_the_paper_presets_names_and_say_what_was(scored, odd):
    for feature in (*FEATURES, "poi"):
        assert {f"expected_{feature}", f"observed_{feature}"} <= set(scored.column_names)
    assert {"expected_lat", "expected_lon"} <= set(scored.column_names)
    length = (odd["finished_at"].cast(pa.int64()).to_numpy() - odd["started_at"].cast(pa.int64()).to_numpy()) / 60e6
    np.testing.assert_allclose(_column(scored, "observed_duration"), length)
    assert scored["observed_poi"].to_pylist() == odd["poi_category"].to_pylist()
    away = np.abs(_column(scored, "expected_start") - _column(scored, "observed_start"))
    np.testing.assert_allclose(_column(scored, "error_start"), np.minimum(away, 1440 - away))


def test_somebody_without_history_has_no_expectations(life, model, odd):
    stranger = odd.set_column(1, "agent_id", pa.array(odd["agent_id"].to_numpy() + 1000))
    events, _ = score_by_habits(model, stranger, reasons="all")
    for name in ("expected_start", "expected_duration", "expected_lat", "expected_poi"):
        assert events[name].null_count == events.num_rows, name
    assert not any(re.search("Always|Nearly|Usually|Often|Sometimes", text) for text in events["reason"].to_pylist())
    assert all("Unsure: they have no history yet." in text for text in events["reason"].to_pylist())


# ------------------------------------------------------------------------------------------------- words
def test_an_inserted_visit_says_what_was_expected_instead(scored, odd):
    inserted = scored.filter(pa.array(odd["poi_id"].to_numpy() == 999)).to_pylist()
    for row in inserted:
        fact, usual_place = row["reason"].split(". ")[:2]
        assert re.fullmatch(r"At .* at 22:30 for 40 min", fact)
        there = "home" if row["expected_poi"] == "Home" else row["expected_poi"]
        assert re.match(rf"\w+ at {there} at this hour \((\d+) of 20 weekdays\), [\d.]+ ?k?m? ?", usual_place)
        assert "Sure: 20 weekdays known." in row["reason"]


def test_an_own_place_says_start_and_duration_with_their_uncertainty(scored):
    own = [row for row in scored.to_pylist() if not row["new_place"]]
    assert own
    for row in own:
        spans = row["reason"].count("anything from") + row["reason"].count("at any hour")  # where they differ much
        assert row["reason"].count("±") + spans == 2
        assert ("They come here " if spans else "Usually here ") in row["reason"]


def test_days_before_are_those_since_the_entity_was_first_seen(life, odd):
    """Agent 4 joins in the second week, agent 5 three days before its end, agent 6 in the week that is scored."""
    agent, day = life["agent_id"].to_numpy(), life["started_at"].cast(pa.int64()).to_numpy() // 86_400_000_000 - 19_723
    joined = life.filter(pa.array(day >= np.select([agent == 4, agent == 5, agent == 6], [8, 25, 28], 0)))
    model = learn_from(between(joined, 0, 21), between(joined, 21, 28), SCHEMA)
    events, _ = score_by_habits(model, odd.filter(odd["agent_id"].to_numpy() > 2), reasons="all")
    texts = {a: [r["reason"] for r in events.to_pylist() if r["agent_id"] == a] for a in (3, 4, 5, 6)}
    for who, words in ((3, "in the 28 days"), (4, "in the 20 days"), (5, "in the 3 days")):
        assert all(re.search(f"{words} (before|until 28 January)", text) for text in texts[who]), who
    assert not any(re.search("days (before|until)", text) for text in texts[6])
    assert all("Unsure: they have no history yet." in text for text in texts[6])
    assert all(re.search("[Nn]ever before[.]", text) or "First time here: never before." in text for text in texts[6])


def test_a_new_kind_of_place_is_named(life, odd):
    """Bars are of no event that was learnt from; agent 3 was never seen at work, where others were."""
    row = int(np.flatnonzero((odd["agent_id"].to_numpy() == 3) & (odd["poi_id"].to_numpy() == 31))[0])
    at = odd.column_names.index("poi_category")
    kinds = odd["poi_category"].to_pylist()
    agent = life["agent_id"].to_numpy()
    idle = life.filter(pa.array((agent != 3) | (np.array(life["poi_category"].to_pylist()) != "Work")))
    for history, kind, words in (
        (life, "Bar", "A new kind of place for everybody: Bar."),
        (idle, "Work", "A new kind of place for them: Work."),
        (life, "Work", None),
    ):
        learned = learn_from(between(history, 0, 21), between(history, 21, 28), SCHEMA)
        table = odd.set_column(at, "poi_category", pa.array([*kinds[:row], kind, *kinds[row + 1 :]]))
        text = score_by_habits(learned, table, reasons="all")[0]["reason"][row].as_py()
        assert (words in text) if words else ("new kind" not in text)


# ------------------------------------------------------------------------------------------------- live
def test_live_rows_carry_the_same_expectations_as_the_table(life, model, odd, scored):
    live = HabitLive(model, since=int(read_visits(odd, SCHEMA, model.history.frame).day.min()), reasons="all")
    wanted = {row["stay_id"]: row for row in scored.to_pylist()}
    names = [n for n in scored.column_names if n.startswith(("expected_", "observed_", "spread_", "error_"))]
    rows = odd.filter(pa.array(odd["agent_id"].to_numpy() == 4)).sort_by("started_at").to_pylist()
    for event in rows:
        row, stay = live.update(event), wanted[event["stay_id"]]
        for name in names:
            if isinstance(stay[name], float):
                assert row[name] == pytest.approx(stay[name], rel=1e-9, abs=1e-9), name
            else:
                assert row[name] == stay[name], name
        assert row["reason"] == stay["reason"]
    assert json.loads(json.dumps(row["expected_start"], allow_nan=False)) == row["expected_start"]


# --------------------------------------------------------------------------------------------------- days
@pytest.mark.parametrize("zone", ["Pacific/Auckland", "Pacific/Tongatapu", "Pacific/Pago_Pago", "UTC"])
def test_the_local_day_of_a_visit_is_the_calendars_in_zones_far_from_utc(life, zone):
    place = life.column_names.index("timezone")
    table = life.set_column(place, "timezone", pa.array([zone] * life.num_rows))
    visits = read_visits(table, SCHEMA, Frame.fit(table, SCHEMA))
    habits = Habits.fit(visits)
    days = dict(zip(zip(visits.entity_key[visits.entity], visits.time, strict=True), visits.day, strict=True))
    owner = np.repeat(np.arange(len(habits.entity_key)), np.diff(habits.visit_offsets[habits.place_offsets]))
    assert habits.visit_day.tolist() == [
        days[key] for key in zip(habits.entity_key[owner], habits.visit_time, strict=True)
    ]


def test_shares_of_who_joined_late_are_of_the_days_since(life, model, odd):
    early = between(life, 0, 14)
    others = early.filter(pa.array([agent != 4 for agent in early["agent_id"].to_pylist()]))
    late = Habits.fit(read_visits(pa.concat_tables([others, between(life, 14, 28)]), SCHEMA, model.history.frame))
    visits = read_visits(odd, SCHEMA, model.history.frame)
    known, found = (usual(habits, visits, habits.locate(visits)[0], PLAIN) for habits in (model.history.habits, late))
    four = np.array([agent == 4 for agent in visits.entity_ids[visits.entity].tolist()])
    assert four.any()
    assert np.median(found.share[four]) == pytest.approx(np.median(known.share[four]), abs=0.15)


def test_two_thirds_of_what_comes_lie_within_the_spread_for_every_kind_and_any_number_of_visits():
    """Kinds and thin histories that are off by known factors: the factors are found, and hold for other events."""
    rng, spread = np.random.default_rng(3), np.array([1.0, 0.5, 2.0, 4.0])

    def draw(n):
        kind, visits = rng.integers(0, 4, n), rng.choice([1, 2, 4, 7, 12, 30], n)
        return kind, visits, np.abs(rng.normal(size=(2, n))) * spread[kind] * (1 + 3 / visits)

    kind, visits, away = draw(100_000)
    widths = Widths.fit(away, kind, visits, 4)
    kind, visits, away = draw(100_000)
    within = away <= widths.widen(np.ones_like(away), kind, visits)
    for group in [*(kind == k for k in range(4)), *(visits == v for v in (1, 2, 4, 7, 12, 30))]:
        np.testing.assert_allclose(within[:, group].mean(axis=1), 0.683, atol=0.02)
    assert (np.diff(widths.by_visits) < 0).all()  # the fewer visits, the wider
    assert np.array_equal(
        Widths.fit(away[:, :30], kind[:30], visits[:30], 4).by_kind, np.ones((2, 4))
    )  # too few to say


def test_two_thirds_of_the_week_after_the_history_lie_within_the_spreads(life, model):
    week = read_visits(between(life, 28, 35), SCHEMA, model.history.frame)
    habits, last = model.history.habits, np.append(week.entity[1:] != week.entity[:-1], True)
    week = week.take(np.flatnonzero(~last))  # whose length the end of the data cuts
    place, _ = habits.locate(week)
    plain, wide = (usual(habits, week, place, widths) for widths in (PLAIN, model.history.widths))
    known = place >= 0
    inside = np.abs(week.duration - wide.duration) <= wide.duration_spread + 1e-9
    assert inside[known].mean() == pytest.approx(0.683, abs=0.05)
    assert not np.allclose(plain.duration_spread[known], wide.duration_spread[known])


def test_a_kind_of_few_visits_is_drawn_towards_the_others():
    """Of two kinds that are twice as wide, the one with 40 visits gets half of the way (as a factor), the other all."""
    kind = np.r_[np.zeros(4000, int), np.ones(40, int), np.full(1000, 2)]
    away = np.r_[np.linspace(0, 2, 4000), np.linspace(0, 4, 40), np.linspace(0, 4, 1000)]
    factors = Widths.fit(np.tile(away, (2, 1)), kind, np.full(len(kind), 30), 3).by_kind[0]
    np.testing.assert_allclose(factors[1:] / factors[0], [2**0.5, 2], rtol=0.1)


def test_spreads_are_those_of_days_left_out_of_the_history(life, model):
    """By hand: each visit of a whole history by a history without its day, known from the others and from as many more
    as other days of its weekday have on average. Nobody's first visit is among them: nothing says when it began."""
    both = read_visits(between(life, 0, 28), SCHEMA, model.history.frame)
    whole = Habits.fit(both)
    place, known, ratio = days_left_out(whole)
    rows = np.flatnonzero(whole.visit_time > whole.visit_time.min())  # everybody's first stay begins with the data
    has_others = iter(range(len(place)))
    checked = 0
    for row in rows.tolist():
        own = int(np.searchsorted(whole.visit_offsets, row, side="right")) - 1
        first, last = whole.visit_offsets[own : own + 2]
        days_away = whole.visit_day[first:last] - whole.visit_day[row]
        others, like_it = int((days_away != 0).sum()), int(np.isin(days_away, [-21, -14, -7, 7, 14, 21]).sum())
        if not others:
            continue
        at = next(has_others)
        assert (place[at], known[at]) == (own, round(others + like_it / 3))
        if row % 40 == 0:
            mine = both.entity_key[both.entity] == whole.entity_key[whole.place_owner[own]]
            this = both.take(np.flatnonzero(mine & (both.time == whole.visit_time[row])))
            less = Habits.fit(both.take(np.flatnonzero(~mine | (both.day != whole.visit_day[row]))))
            told = usual(less, this, less.locate(this)[0], PLAIN)
            away = abs(this.minute[0] - told.start[0])
            assert ratio[0, at] == pytest.approx(min(away, 1440 - away) / told.start_spread[0])
            assert ratio[1, at] == pytest.approx(abs(this.duration[0] - told.duration[0]) / told.duration_spread[0])
            checked += 1
    assert checked > 5
    assert next(has_others, None) is None
