"""How unusual it was to leave the place before: against a plain loop over rows, and silent where nobody saw it."""

import math
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from routine_stays import FIRST_DAY, between, insert_visit, make_routine, with_gaps

from ustad.events.visits import Frame, read_visits
from ustad.habits import kernels
from ustad.habits.history import Habits
from ustad.habits.leaving import LONGEST_WAY, Left, ask_ends, rows_before
from ustad.habits.one_comparison import was_left_alone
from ustad.habits.population import Population
from ustad.habits.questions import compare
from ustad.habits.recurrence import Recurrence
from ustad.judges import learn_from
from ustad.schema import mobility_schema

SCHEMA = mobility_schema("none", 16, True)
KNOWN = 14


class World:
    """Two weeks that are known, in plain rows and as habits, and a third to ask about."""

    def __init__(self, table):
        # A Tuesday off: in it places are left as on a Sunday.
        self.days_off = (FIRST_DAY + KNOWN + 1,)
        frame = Frame.fit(table, SCHEMA, days_off=self.days_off)
        self.known = between(table, 0, KNOWN).to_pylist()
        learnt = read_visits(between(table, 0, KNOWN), SCHEMA, frame)
        self.kinds = list(frame.categories)
        self.habits, self.population = Habits.fit(learnt), Population.fit(learnt, len(self.kinds) + 1)
        self.frame = frame

    def ask(self, table):
        """What is said of each stay, by its identifier, and the own place and moment that is said to have been left."""
        visits = read_visits(table, SCHEMA, self.frame)
        comparison = compare(self.habits, self.population, Recurrence(), visits, period=(0, 0))
        ids = table["stay_id"].to_numpy()[visits.row].tolist()
        facts = (comparison.terms["left_before"], comparison.left_place, comparison.left_at)
        return {one: tuple(float(values[i]) for values in facts) for i, one in enumerate(ids)}

    def naive(self, row, before):
        """-log density of leaving the place before, from plain rows; NaN where that says nothing."""
        if before is None or before["agent_id"] != row["agent_id"]:
            return math.nan
        if (row["started_at"] - before["finished_at"]).total_seconds() > 60 * LONGEST_WAY:
            return math.nan
        if before["poi_id"] == row["poi_id"]:  # a stay in two pieces
            return math.nan
        earlier = [r for r in self.known if (r["agent_id"], r["poi_id"]) == (row["agent_id"], before["poi_id"])]
        if not earlier or self.minute(before["finished_at"]) == 0:  # a new place, or a table that was cut
            return math.nan
        end, kind = self.minute(before["finished_at"]), self.is_off(before["finished_at"])
        total = mass = 0.0
        for one in earlier:
            if self.minute(one["finished_at"]) == 0:
                continue
            weight = 1.0 if self.is_off(one["finished_at"]) == kind else kernels.OTHER_DAY
            gap = abs(self.minute(one["finished_at"]) - end)
            gap = min(gap, 1440 - gap) / kernels.START_WIDTH
            total += weight
            mass += weight * math.exp(-0.5 * gap * gap) / kernels.START_WIDTH / math.sqrt(2 * math.pi)
        code = self.kinds.index(before["poi_category"]) + 1
        share = self.population.end[int(len(earlier) < 4), int(kind), code, int(end / 30)]
        return -math.log((mass + 2.0 * share) / (total + 2.0))

    @staticmethod
    def minute(moment):
        return moment.hour * 60 + moment.minute + moment.second / 60

    def is_off(self, moment):
        return moment.weekday() >= 5 or (moment.date() - type(moment.date())(1970, 1, 1)).days in self.days_off


@pytest.fixture(scope="module")
def table():
    """Somebody is at a new place on two evenings; one stays long at work; one is not seen for a day."""
    life = make_routine(seed=10, agents=4, days=21)
    for day in (KNOWN + 2, KNOWN + 4):
        life = insert_visit(life, 1, day, 1350, minutes=40)
    rows = life.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist()
    late = next(r for r in rows if r["agent_id"] == 2 and r["poi_id"] == 21 and r["started_at"].day == KNOWN + 4)
    late["finished_at"] += timedelta(hours=2, minutes=7)
    lost = [r for r in rows if r["agent_id"] == 3 and r["started_at"].day == KNOWN + 3]
    return pa.Table.from_pylist([r for r in rows if r not in lost], schema=life.schema)


@pytest.fixture(scope="module")
def world(table):
    return World(table)


def rows_of(table):
    rows = table.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist()
    return list(zip(rows, [None, *rows[:-1]], strict=True))


def test_the_term_is_that_of_a_loop_over_rows(world, table):
    week = between(table, KNOWN, 21)
    answers, is_told, places = world.ask(week), 0, {}
    for row, before in rows_of(week):
        value, place, at = answers[row["stay_id"]]
        expected = world.naive(row, before)
        assert value == pytest.approx(expected, nan_ok=True), (before, row)
        if expected == expected:
            assert (
                timedelta(minutes=at) + type(row["started_at"])(1970, 1, 1, tzinfo=row["started_at"].tzinfo)
                == (before["finished_at"])
            )
            assert places.setdefault(place, before["poi_id"]) == before["poi_id"]
            is_told += 1
    firsts = 4
    assert 40 < is_told < week.num_rows - firsts, "new places, silence and first stays have no answer"


def test_leaving_two_hours_late_makes_the_next_stay_unusual_and_no_other(world, table):
    week = between(table, KNOWN, 21)
    changed = {s: v[0] for s, v in world.ask(week).items()}
    rows = [row for row, _ in rows_of(week) if row["agent_id"] == 2]
    late = max(range(len(rows)), key=lambda i: (rows[i]["poi_id"] == 21, rows[i]["finished_at"].time()))
    values = [changed[row["stay_id"]] for row in rows]
    assert int(np.nanargmax(values)) == late + 1


def gap_table(table, **seconds):
    """The table with nothing unseen but these: column → (row, seconds)."""
    zeros = {name: np.zeros(table.num_rows) for name in ("start_gap_s", "end_gap_s")}
    for name, (row, value) in seconds.items():
        zeros[name][row] = value
    length = [(r["finished_at"] - r["started_at"]).total_seconds() for r in table.to_pylist()]
    columns = {name: table[name] for name in table.column_names}
    return pa.table({**columns, **zeros, "observed_s": np.array(length)})


@pytest.mark.parametrize(("name", "shift"), [("start_gap_s", 0), ("end_gap_s", -1)])
def test_an_end_or_a_start_that_nobody_saw_says_nothing_of_leaving(world, table, name, shift):
    week = between(table, KNOWN, 21)
    week = week.sort_by([("agent_id", "ascending"), ("started_at", "ascending")])
    plain = world.ask(gap_table(week))
    at = next(i for i, one in enumerate(week["stay_id"].to_pylist()) if math.isfinite(plain[one][0]))
    one = week["stay_id"][at].as_py()
    short = world.ask(gap_table(week, **{name: (at + shift, 1800.0)}))[one][0]
    assert math.isfinite(short)
    assert short <= plain[one][0] + 1e-12, "what was not seen can only lower a term"
    assert math.isnan(world.ask(gap_table(week, **{name: (at + shift, 1801.0)}))[one][0])


def test_an_end_within_a_gap_is_the_most_usual_that_it_may_have_been(world, table):
    week = between(table, KNOWN, 21).sort_by([("agent_id", "ascending"), ("started_at", "ascending")])
    rows = week.to_pylist()
    at = next(i for i, r in enumerate(rows) if r["poi_id"] == 21 and r["finished_at"].hour < 17)
    one = rows[at + 1]["stay_id"]
    least = world.ask(gap_table(week, end_gap_s=(at, 1200.0)))[one][0]
    tried = []
    for minutes in (0, 20):
        rows[at]["finished_at"] += timedelta(minutes=minutes)
        tried.append(world.ask(gap_table(pa.Table.from_pylist(rows, schema=week.schema)))[one][0])
    assert least == pytest.approx(min(tried))


def test_one_visit_and_the_next_are_judged_as_among_many(world, table):
    visits = read_visits(with_gaps(table, seed=4), SCHEMA, world.frame)
    visits.key[3::7] = 0
    visits.x[3::14] = np.nan
    before = rows_before(visits, FIRST_DAY + KNOWN - 1)
    assert 10 < (before >= 0).sum() < len(visits) / 2
    for i in range(1, len(visits)):
        earlier, later = visits.take(np.array([i - 1])), visits.take(np.array([i]))
        is_left = earlier.entity[0] == later.entity[0] and was_left_alone(earlier, later, FIRST_DAY + KNOWN - 1)
        assert before[i] == (i - 1 if is_left else -1)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_stay_in_two_pieces_is_no_departure(world, table, is_named):
    """Every stay is cut in the middle: nobody left where the first piece ends, and no departure is lost."""
    visits = read_visits(table, SCHEMA, world.frame)
    whole = rows_before(visits, FIRST_DAY + KNOWN - 1)
    rows = []
    for row in table.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist():
        middle = row["started_at"] + (row["finished_at"] - row["started_at"]) / 2
        rows += [{**row, "finished_at": middle}, {**row, "started_at": middle}]
    pieces = read_visits(pa.Table.from_pylist(rows, schema=table.schema), SCHEMA, world.frame)
    if not is_named:
        pieces.key[:] = 0
    before = rows_before(pieces, FIRST_DAY + KNOWN - 1)
    place = [rows[row]["poi_id"] for row in pieces.row]
    pairs = [(place[at], place[i]) for i, at in enumerate(before) if at >= 0]
    assert len(pairs) >= (whole >= 0).sum() > 20
    assert all(left != reached for left, reached in pairs)


def test_nobody_is_asked_about_what_the_history_holds(world, table):
    visits = read_visits(table, SCHEMA, world.frame)
    before = rows_before(visits, FIRST_DAY + KNOWN - 1)
    assert (visits.day[before[before >= 0]] >= FIRST_DAY + KNOWN).all()
    assert (before[visits.day < FIRST_DAY + KNOWN] == -1).all()
    assert len(Left.unknown(0).surprise) == len(rows_before(visits.take(np.arange(0)), 0)) == 0


def test_a_history_that_moves_on_is_asked_about_the_visit_before_as_about_the_visit():
    """Nine weeks after the history: of each event the visit before, by the history that the event is compared with."""
    life = with_gaps(make_routine(seed=5, agents=3, days=91), seed=1)
    model = learn_from(between(life, 0, 21), between(life, 21, 28), SCHEMA).history
    inquiry = model.open_inquiry(between(life, 28, 91))
    assert inquiry.history.moves
    comparison, _ = model.compare_inquiry(inquiry)
    visits, told = inquiry.visits, 0
    ends = {habits.last_day: habits for habits in inquiry.history}
    row_of = {int(row): i for i, row in enumerate(visits.row)}
    for row in range(inquiry.table.num_rows):
        i = row_of[row]
        found = comparison.terms["left_before"][row]
        if i == 0 or visits.entity[i - 1] != visits.entity[i] or visits.late[i - 1] > 30 or visits.early[i] > 30:
            assert math.isnan(found)
            continue
        habits, one = ends[int(inquiry.history.end[i])], visits.take(np.array([i - 1]))
        place = habits.locate(one)[0]
        assert found == pytest.approx(float(ask_ends(habits, model.population, one, place)[0]), nan_ok=True)
        told += math.isfinite(found)
    assert told > 100
