"""Scores from each entity's own history: terms, looks, entities.

In go training events, the validation week and which entities calibrate; out comes a `HabitModel` that judges later
events. A *term* asks one question and is calibrated to -log p on normal data. A *look* adds up terms that belong
together, because an inserted visit shows in several; the event's score is its most unusual look. Works without a
network; the memory network adds terms of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import event_days
from ustad.distribution import Distribution
from ustad.events.visits import Frame, Visits, read_visits
from ustad.habits.absences import Expected, fit_absences, judge_visits
from ustad.habits.entity_tests import AgentReference, combined
from ustad.habits.history import Habits
from ustad.habits.kernels import count_so_far
from ustad.habits.kinds import DOUBT, NOISE, driving_shares, kinds, unseen_parts
from ustad.habits.lasting import Changes, find_changes
from ustad.habits.lasting_words import describe_changes
from ustad.habits.population import Population
from ustad.habits.questions import Compared, Counting, compare, nothing_compared
from ustad.habits.recurrence import Recurrence
from ustad.habits.reference import Fitted, Groups, minus_log10_p, surprise_of
from ustad.habits.stages import MovingHistory
from ustad.habits.usual import fit_widths
from ustad.habits.weights import Weights, look_sum, unit_weights
from ustad.habits.widths import Widths
from ustad.schema import EventSchema
from ustad.tables import DataError

#: More terms from elsewhere (the memory network): (history, events, what came before) -> name → raw values by row.
Extra = Callable[[Habits, pa.Table, pa.Table | None], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Judged:
    """N scored events in the order of their table, and E entities."""

    surprise: dict[str, np.ndarray]  # term → -log10 p, float64 [N]
    looks: dict[str, np.ndarray]  # look → -log10 p, float64 [N]
    score: np.ndarray  # float64 [N] -log10 p of the event by itself
    compared: Compared  # in the order of the table
    entity_ids: np.ndarray
    entity: np.ndarray  # int64 [N] index into entity_ids
    agents: dict[str, np.ndarray]  # test → -log10 p, float64 [E]
    shares: dict[str, np.ndarray]  # term → its share of the look that decides, float64 [N]
    kind: np.ndarray  # object [N], see `habits/kinds.py`
    doubts: dict[str, np.ndarray] = field(default_factory=dict)  # both uncertainties of the memory network, [N]
    end: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # int64 [N], see `habits/stages.py`
    history: Iterable[Habits] = ()  # the histories that events were compared with, by `end`
    changes: Changes | None = None  # lasting changes of the entities, and a sentence for each that is told
    change_words: list[str | None] = field(default_factory=list)
    expected: Expected | None = None  # nearly certain visits and whether they came, by row of the table (-1: context)

    @property
    def agent_score(self) -> np.ndarray:
        return combined(self.agents)


@dataclass(frozen=True)
class HabitModel:
    """Everything that judging needs. `habits` are those of training and validation together, which later weeks enter
    once they lie `absorb_after` days back (0: never; with `counting: whole` neither)."""

    schema: EventSchema
    frame: Frame
    population: Population
    recurrence: Recurrence
    habits: Habits
    tails: dict[str, Distribution]
    looks: dict[str, Distribution]
    events: Distribution  # of the highest look of normal events
    agents: AgentReference
    counting: Counting = "past"
    extra: Extra | None = field(default=None, repr=False)
    without: tuple[str, ...] = ()  # terms that are left out
    weights: Weights = field(default_factory=unit_weights)  # of each term, by look
    absorb_after: int = 28
    widths: Widths = field(default_factory=lambda: Widths.plain(1))  # of the expectations that are shown
    absences: Distribution | None = None  # of how surprising it is that a nearly certain visit did not come
    #: Of the calibrating events as their table has them, -log10 p by what others did; kept nowhere.
    week_score: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)

    # ---------------------------------------------------------------------------------------- fitting
    @classmethod
    def fit(
        cls,
        train: pa.Table,
        validation: pa.Table,
        schema: EventSchema,
        calibrating: np.ndarray | None = None,
        *,
        counting: Counting = "past",
        extra: Extra | None = None,
        without: tuple[str, ...] = (),
        absorb_after: int = 28,
        silence: bool = False,
        days_off: tuple[int, ...] = (),
    ) -> HabitModel:
        """Learn habits and calibrate. `calibrating`: bool by row of `validation`, whose entities calibrate; all
        by default. The history that the validation week is compared with is the training weeks alone. What people do
        on the whole comes from the calibrating weeks too; nobody's own is part of what it is compared with. `days_off`
        are local dates that are learnt, and compared, as weekend days."""
        frame = Frame.fit(train, schema, days_off)
        before, week = (read_visits(t, schema, frame) for t in (train, validation))
        both = read_visits(pa.concat_tables([train, validation], promote_options="permissive"), schema, frame)
        habits, recurrence = Habits.fit(before), Recurrence.fit_halves(before)
        period, kinds_known = (int(week.day.min()), int(week.day.max())), len(frame.categories) + 1
        calibrates = np.ones(validation.num_rows, bool) if calibrating is None else calibrating
        learnt = both.take(np.r_[np.ones(train.num_rows, bool), calibrates][both.row])

        def compare_week(visits: Visits) -> dict[str, np.ndarray]:
            """Terms of the calibration week, of each group of people by what the others did in it."""
            comparisons = nothing_compared(len(visits))
            for rows, population in Population.fit_others(learnt, visits, period[0], kinds_known):
                some = compare(habits, population, recurrence, visits.take(rows), period=period, counting=counting)
                comparisons.put(rows, some)
            return comparisons.terms

        raw = {**compare_week(week), **_more(extra, habits, week, validation, before=train)}
        normal = calibrates[week.row]
        if normal.sum() < 2:
            raise DataError("habits: fewer than two events of the validation week are there to calibrate on")
        raw = {name: values for name, values in raw.items() if name not in (*without, NOISE)}
        weights = unit_weights(silence)
        fitted = Fitted.fit(raw, normal, weights)
        alone = Groups.of(week.entity, week.entity_key, normal).scores(raw, weights, fitted)
        events = Distribution.fit(alone[normal])
        chosen = np.bincount(week.entity[normal], minlength=len(week.entity_ids)) > 0
        score = minus_log10_p(events, alone)
        agents = AgentReference.fit(score, habits, week, chosen)
        place, key = habits.locate(week)
        return cls(
            schema,
            frame,
            Population.fit(learnt, kinds_known),
            recurrence,
            Habits.fit(both),
            fitted.tails,
            fitted.looks,
            events,
            agents,
            counting,
            extra,
            without,
            weights,
            absorb_after,
            fit_widths(habits, week.take(normal), place[normal], kinds_known),
            fit_absences(habits, week, key, normal) if schema.end is not None else None,
            score[_order(week.row, 0)][calibrates],
        )

    # ---------------------------------------------------------------------------------------- judging
    def judge(
        self,
        events: pa.Table,
        context: pa.Table | None = None,
        period: tuple[int, int] | None = None,
        tested: tuple[int, int] | None = None,
    ) -> Judged:
        """Scores of every row of `events` and of their entities. Rows of `context` after the history ends are counted,
        not scored.

        `period` are the first and last local day that visits are counted in, by default those of events and counted
        context; `tested` those that entities are judged over, by default the events' own (`period`, where no context
        is counted). Give both when entities are scored in parts, so that no part differs from the whole.
        """
        table, first, earlier, days = self._joined(events, context)
        visits = read_visits(table, self.schema, self.frame)
        scored = visits.row >= first
        own = visits.day[scored]
        if tested is None:
            tested = period if period is not None and first == 0 else (int(own.min()), int(own.max()))
        period = period or (min([tested[0], *days]), max([tested[1], *days]))
        absorb = self.absorb_after if self.counting == "past" else 0
        history = MovingHistory.of(self.habits, visits, period[0], absorb)
        if history.moves:
            compared, more, expected = self._in_stages(history, table, earlier, period, mask=scored)
        else:
            compared = compare(
                self.habits, self.population, self.recurrence, visits, period=period, counting=self.counting
            )
            more = _more(self.extra, self.habits, visits, table, before=earlier)
            expected = self._expect(self.habits, visits, compared.key, scored)
        raw = {**compared.terms, **more}
        surprise, looks, alone = self.weigh(raw)
        shares, kind = self.driven(compared, raw, surprise, looks, unseen=unseen_parts(table, visits, self.schema))
        score = self.calibrated(alone)
        agents = self.agents.judge(score[scored], self.habits, visits.take(scored), tested)
        changes = find_changes(self.habits, visits)
        agents["lasting"] = changes.evidence
        back = _order(visits.row, first)
        return Judged(
            {name: values[back] for name, values in surprise.items()},
            {name: values[back] for name, values in looks.items()},
            score[back],
            compared.take(back),
            visits.entity_ids,
            visits.entity[back],
            agents,
            {name: values[back] for name, values in shares.items()},
            kind[back],
            {name: raw[name][back] for name in (DOUBT, NOISE) if name in raw},
            history.end[back],
            history,
            changes,
            describe_changes(self.schema, self.frame, self.habits, visits, changes=changes),
            expected.of_rows(np.maximum(visits.row - first, -1)) if expected is not None else None,
        )

    def _expect(self, habits: Habits, visits: Visits, key: np.ndarray, closes: np.ndarray) -> Expected | None:
        """Nearly certain visits, see `judge_visits`; None where the model was not calibrated for that."""
        return judge_visits(habits, visits, key, closes) if self.absences is not None else None

    def _in_stages(
        self,
        history: MovingHistory,
        table: pa.Table,
        earlier: pa.Table | None,
        period: tuple[int, int],
        *,
        mask: np.ndarray,
    ) -> tuple[Compared, dict[str, np.ndarray], Expected | None]:
        """Every visit of the `mask` (bool [N]) compared with its own history, the extra terms of it, and the nearly
        certain visits whose time has passed with it."""
        visits, comparisons = history.visits, nothing_compared(len(history.visits))
        more: dict[str, np.ndarray] = {}
        parts = []
        for habits in history:
            rows = np.flatnonzero(mask & (history.end == habits.last_day))
            if not len(rows):
                continue
            counted_rows = history.counted(habits)
            key = habits.locate(visits.take(counted_rows))[1]
            at = np.searchsorted(counted_rows, rows)
            counts = count_so_far(visits.entity[counted_rows], key)[at]
            own_visits = replace(visits.take(rows), key=key[at])
            days = (history.since(habits, period[0]), period[1])
            comparison = compare(
                habits, self.population, self.recurrence, own_visits, period=days, counting="past", counts=counts
            )
            comparisons.put(rows, comparison)
            closes = np.isin(np.arange(len(counted_rows)), at)
            expected = self._expect(habits, visits.take(counted_rows), key, closes)
            parts += [expected.of_rows(counted_rows)] if expected is not None else []
            is_context = history.day <= history.day[rows].max()
            for name, values in self._asked(
                habits, table, earlier, visits.row[rows], context_rows=visits.row[is_context]
            ).items():
                more.setdefault(name, np.full(len(visits), np.nan, values.dtype))[rows] = values
        return comparisons, more, Expected.join(parts) if parts else None

    def _asked(
        self, habits: Habits, table: pa.Table, earlier: pa.Table | None, rows: np.ndarray, *, context_rows: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The extra terms of some rows of the table, in their order; `context_rows` are what else is known."""
        if self.extra is None:
            return {}
        ascending = np.sort(rows)
        before = table.take(pa.array(np.setdiff1d(context_rows, ascending)))
        if earlier is not None:
            before = pa.concat_tables([earlier, before], promote_options="permissive")
        answers = self.extra(habits, table.take(pa.array(ascending)), before if before.num_rows else None)
        return {name: values[np.searchsorted(ascending, rows)] for name, values in answers.items()}

    def weigh(self, raw: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
        """From raw terms: -log10 p of every term and of every look, and the highest look: float64 [N] each."""
        surprise = surprise_of(self.tails, raw)
        looks = {n: minus_log10_p(self.looks[n], look_sum(surprise, own)) for n, own in self.weights.items()}
        return surprise, looks, np.max(list(looks.values()), axis=0)

    def driven(
        self,
        compared: Compared,
        raw: Mapping[str, np.ndarray],
        surprise: Mapping[str, np.ndarray],
        looks: Mapping[str, np.ndarray],
        *,
        unseen: Mapping[str, np.ndarray],
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """What makes each event unusual: shares by term, and its kind."""
        shares = driving_shares(looks, surprise, self.weights)
        doubt = self.tails[DOUBT].log10_tail(raw[DOUBT]) if DOUBT in self.tails and DOUBT in raw else None
        return shares, kinds(shares, compared.place, compared.before, compared.count, doubt, unseen)

    def calibrated(self, highest: np.ndarray) -> np.ndarray:
        """-log10 p of events' highest looks."""
        return minus_log10_p(self.events, highest)

    def _joined(
        self, events: pa.Table, context: pa.Table | None
    ) -> tuple[pa.Table, int, pa.Table | None, tuple[int, ...]]:
        """Counted context and events in one table, the row where the events begin, the context before that, and the
        first and last day of anybody's counted context. Context of entities without an event is left out."""
        if context is None or context.num_rows == 0:
            return events, 0, None, ()
        entity, day = self.schema.entity, event_days(context, self.schema)
        later = day > self.habits.last_day
        days = (int(day[later].min()), int(day[later].max())) if later.any() else ()
        entities = pc.unique(events[entity]).cast(context[entity].type)
        mine = pc.is_in(context[entity], entities).to_numpy(zero_copy_only=False)
        later_context = context.filter(pa.array(later & mine))
        table = pa.concat_tables([later_context, events], promote_options="permissive")
        return table, later_context.num_rows, context.filter(pa.array(~later & mine)), days

    def forget(self, entities: list[object]) -> HabitModel:
        """Without the history and the reference week of some entities."""
        return replace(self, habits=self.habits.forget(entities), agents=self.agents.forget(entities))


def _more(
    extra: Extra | None, habits: Habits, visits: Visits, table: pa.Table, *, before: pa.Table | None
) -> dict[str, np.ndarray]:
    """The extra terms in the order of the visits."""
    if extra is None:
        return {}
    return {name: values[visits.row] for name, values in extra(habits, table, before).items()}


def _order(row: np.ndarray, first: int) -> np.ndarray:
    """Positions that bring sorted visits back into the order of their table, without the rows before `first`."""
    back = np.empty(len(row), np.int64)
    back[row] = np.arange(len(row))
    return back[first:]
