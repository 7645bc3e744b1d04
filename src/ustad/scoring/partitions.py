"""Scores in parts of whole entities: what `score_events` gives, with memory bounded by the part.

Every part is measured on its own and laid aside in a file: the network, the neighbours and the habits look at
one entity at a time. What depends on all events (ranks within the batch, the threshold of the alerts) comes from a few
numbers per event that are kept; then the parts are read again, one after the other, judged and handed out.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import event_days
from ustad.distribution import Distribution, Ranks, Tail
from ustad.files import as_table
from ustad.progress import silence, track, warn
from ustad.schema import EventSchema
from ustad.scoring.alerts import AlertRule, Alerts, alerts, refuse_everything
from ustad.scoring.calibration import Parts, apply_tails, highest
from ustad.scoring.drift_alarm import DayCounts, count_p_values, join_counts
from ustad.scoring.explain import kinds
from ustad.scoring.habit_scores import DefaultModel, score_default
from ustad.scoring.incidents import find_incidents
from ustad.scoring.network_model import ScoringModel
from ustad.scoring.network_scores import Judged, agent_scores, judge, reasons_of, score_events, worst_events
from ustad.tables import DataError, agent_codes
from ustad.ties import tied_ranks

if TYPE_CHECKING:
    import torch

#: Entities of one part.
ENTITIES = 2_000
Reasons = Literal["flagged", "all", "none"]


@dataclass(frozen=True)
class Request:
    """How everything is scored."""

    schema: EventSchema
    model: ScoringModel | None = None  # the paper's network, or
    habits: DefaultModel | None = None
    device: torch.device | str = "cpu"
    rule: AlertRule = AlertRule()
    reasons: Reasons = "flagged"
    coverage: float | None = None
    without: tuple[str, ...] = ()  # columns of the events that the scores do not carry

    @property
    def network(self) -> ScoringModel:
        if self.model is None:
            raise ValueError("scores by habits ask no network of the paper")
        return self.model

    @property
    def by_ranks(self) -> bool:
        """Whether scores are ranks among all scored events."""
        return self.habits is None and self.network.config.scoring.percentiles == "batch"


@dataclass(frozen=True)
class _Kept:
    """What is kept of a part: its file and, in the order of entities and times, a few numbers per event."""

    file: Path
    agents: pa.Table
    p_value: np.ndarray
    score: np.ndarray
    echo: np.ndarray  # bool
    columns: np.ndarray  # losses and distance [n, K + 1], where scores are ranks; else [n, 0]


class ScoredParts:
    """Iterate over (event scores, agent scores) of each part; `notes` holds rule, threshold and warnings.

    >>> for events, agents in ScoredParts(Request(model), stays, context):  # doctest: +SKIP
    ...     writer.write_table(events)
    """

    def __init__(self, request: Request, events: Any, context: Any = None, entities: int | None = None) -> None:
        entities = ENTITIES if entities is None else entities
        if entities < 1:
            raise ValueError(f"entities must be at least 1, got {entities}")
        self.request, self.entities = request, entities
        self.events = as_table(events, "events")
        self.context = as_table(context, "context") if context is not None else None
        if not self.events.num_rows:
            raise DataError(f"{request.schema.name}: the table of events is empty")
        days = event_days(self.events, request.schema)
        self.first_day, self.last_day = int(days.min()), int(days.max())
        self.notes: dict[str, Any] = {}
        self.day_counts: DayCounts = {}  # of the p-values so far, for the drift alarm

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        with tempfile.TemporaryDirectory(prefix="ustad-parts-") as place:
            kept = self._measure(Path(place))
            judge_part, kept = self._judgement(kept)
            flags = self._flags(kept)
            at, self.day_counts = 0, {}
            for one in kept:
                n = len(one.p_value)
                events, agents = self._tell(one, judge_part, Alerts(flags.flagged[at : at + n], flags.threshold))
                days = event_days(events, self.request.schema)
                self.day_counts = join_counts([self.day_counts, count_p_values(days, events["p_value"].to_numpy())])
                yield events, agents
                one.file.unlink()
                at += n

    # ------------------------------------------------------------------------------------------ measuring
    def _measure(self, place: Path) -> list[_Kept]:
        kept = []
        with track("scoring, parts", self.events.num_rows) as advance:
            for part in self._scored_parts(place):
                kept.append(part)
                advance(len(part.score))
        return kept

    def _scored_parts(self, place: Path) -> Iterator[_Kept]:
        """Parts in their order. Beside a GPU two are on their way: while it works on one, the CPU does the other."""
        at_once = 2 if str(self.request.device).startswith("cuda") else 1
        with silence(), ThreadPoolExecutor(at_once) as pool:
            waiting: deque[Future[_Kept]] = deque()
            for i, part in enumerate(self._divided()):
                waiting.append(pool.submit(self._keep_scored, place / f"{i:05d}.arrow", *part))
                if len(waiting) > at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _keep_scored(self, file: Path, events: pa.Table, context: pa.Table | None) -> _Kept:
        scored, agents = self._score(events, context)
        scored = scored.drop_columns([c for c in self.request.without if c in scored.column_names])
        return self._keep(scored, agents, file)

    def _divided(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Events and context of so many entities at a time, in the order of the entities."""
        entity = self.request.schema.entity
        codes, names = agent_codes(self.events[entity])
        order = np.argsort(codes, kind="stable")
        before, known = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.context is not None:
            found = pc.index_in(self.context[entity], pa.array(names.tolist(), self.context[entity].type))
            known = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            before = np.argsort(known, kind="stable")
        for first in range(0, len(names), self.entities):
            bounds = (first, first + self.entities)
            low, high = np.searchsorted(codes[order], bounds)
            part = self.events.take(pa.array(np.sort(order[low:high])))
            context = None
            if self.context is not None:
                low, high = np.searchsorted(known[before], bounds)
                context = self.context.take(pa.array(np.sort(before[low:high]))) if high > low else None
            yield part, context

    def _score(self, events: pa.Table, context: pa.Table | None) -> tuple[pa.Table, pa.Table]:
        """Everything of a part that does not depend on other entities."""
        request = self.request
        if request.habits is None:
            return score_events(request.network, events, context, None, request.device, None, "none", request.coverage)
        tested = (self.first_day, self.last_day)
        return score_default(
            request.habits, events, context, self._widest_rule(), self._period(), request.reasons, tested
        )

    def _widest_rule(self) -> AlertRule:
        """A rule that flags, within any part, every event that the asked one may flag among all: those get a reason."""
        rule, days = self.request.rule, self.last_day - self.first_day + 1
        most = rule.most(days)
        return AlertRule("top", most) if most is not None else AlertRule("p_value", rule.value)

    def _period(self) -> tuple[int, int]:
        """Local days in which visits are counted: those of all events, not only of a part's."""
        assert self.request.habits is not None
        known = self.request.habits.habits.habits.last_day
        days = event_days(self.context, self.request.schema) if self.context is not None else np.zeros(0, np.int64)
        between = days[days > known]
        return int(min([self.first_day, *between])), int(max([self.last_day, *between]))

    def _keep(self, scored: pa.Table, agents: pa.Table, file: Path) -> _Kept:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, scored.schema) as writer:
            writer.write_table(scored)
        order = self._order(scored)
        columns = np.zeros((len(order), 0), np.float32)
        if self.request.by_ranks:
            columns = parts_of(scored, self.request.network.scored).columns("loss_knn")[order]
        p_value, score = (scored[c].to_numpy()[order] for c in ("p_value", "score"))
        echo = scored["echo"].to_numpy(zero_copy_only=False)[order]
        return _Kept(file, agents, p_value, score, echo, columns)

    def _order(self, table: pa.Table) -> np.ndarray:
        """Rows by entity and time, which decides between events that tie."""
        codes, _ = agent_codes(table[self.request.schema.entity])
        return np.lexsort((table[self.request.schema.time].cast(pa.int64()).to_numpy(), codes))

    # -------------------------------------------------------------------------------------------- judging
    def _judgement(self, kept: list[_Kept]) -> tuple[Any, list[_Kept]]:
        """How a part is judged, and what is kept of all parts once their p-values are known."""
        if not self.request.by_ranks:
            return (lambda parts: judge(self.request.network, parts, batch=False)), kept
        model = self.request.network
        columns = np.concatenate([k.columns for k in kept])
        ranks: list[Tail] = [Ranks.of(c) for c in columns.T]
        normal = highest(apply_tails(ranks, model.calibration.parts.columns("loss_knn")))
        tail = Distribution.fit(normal)

        def judge_part(parts: Parts) -> Judged:
            tails = apply_tails(ranks, parts.columns("loss_knn"))
            score = highest(tails)
            return Judged(tails, score, tail.log10_tail(score), tail.log10_tail(normal))

        return judge_part, [self._ranked_part(one, ranks, tail) for one in kept]

    def _ranked_part(self, one: _Kept, ranks: list[Tail], tail: Distribution) -> _Kept:
        """With scores by ranks among all events, and the incidents that follow from them."""
        score = highest(apply_tails(ranks, one.columns))
        p_value = np.power(10.0, tail.log10_tail(score))
        schema = self.request.schema
        table = _read(one.file)
        order = self._order(table)
        incidents = find_incidents(table.take(pa.array(order)), schema, p_value, score)
        return replace(one, p_value=p_value, score=score, echo=incidents.echo)

    def _flags(self, kept: list[_Kept]) -> Alerts:
        request = self.request
        p_value, score, echo = (np.concatenate([getattr(k, c) for k in kept]) for c in ("p_value", "score", "echo"))
        habits = request.habits.habits if request.habits is not None else None
        reference = habits.events.count if habits is not None else len(request.network.calibration.parts)
        days = self.last_day - self.first_day + 1
        flags = alerts(p_value, score, echo, request.rule, days, reference)
        refuse_everything(int(flags.flagged.sum()), len(p_value), request.rule, days)
        self.notes = {
            "rule": request.rule.kind,
            "value": request.rule.value,
            "threshold": flags.threshold,
            "alerts": int(flags.flagged.sum()),
            "by_chance": flags.by_chance,
            "coverage": request.coverage,
            "warnings": list(flags.warnings),
        }
        for text in flags.warnings:
            warn(text)
        return flags

    def _tell(self, kept: _Kept, judge_part: Any, ordered: Alerts) -> tuple[pa.Table, pa.Table]:
        """The final rows of a part, in the order of the events given."""
        table, request = _read(kept.file), self.request
        flagged = np.zeros(len(ordered.flagged), bool)
        flagged[self._order(table)] = ordered.flagged
        table = _set(table, "alert", pa.array(flagged))
        codes, names = agent_codes(table[request.schema.entity])
        if request.habits is not None:
            if request.reasons == "flagged":
                shown = flagged | np.isin(np.arange(len(table)), _worst(table, codes))
                table = _set(
                    table, "reason", pc.if_else(pa.array(shown), table["reason"], pa.scalar(None, pa.string()))
                )
            return table, kept.agents
        parts = parts_of(table, request.network.scored)
        judged = judge_part(parts)
        if request.by_ranks:
            table = _ranked(request.network, table, parts, judged)
        worst = worst_events(judged, codes)
        told = reasons_of(request.network, table, judged, Alerts(flagged, ordered.threshold), worst, request.reasons)
        table = _set(table, "reason", pa.array(told, pa.string()))
        days = self.last_day - self.first_day + 1
        return table, agent_scores(request.network, names, table, judged, codes, worst, days)


def parts_of(table: pa.Table, names: tuple[str, ...]) -> Parts:
    """What judging needs, read back from a score table (errors are in people's units there, so they are left out)."""

    def column(name: str) -> np.ndarray:
        return table[name].cast(pa.float32()).to_numpy(zero_copy_only=False).astype(np.float32)

    loss, au, eu = (
        np.stack([column(f"{what}_{n}") for n in names], axis=1) if names else np.zeros((len(table), 0), np.float32)
        for what in ("loss", "au", "eu")
    )
    return Parts(names, np.full_like(loss, np.nan), loss, au, eu, column("knn"))


def _ranked(model: ScoringModel, table: pa.Table, parts: Parts, judged: Judged) -> pa.Table:
    """The columns that follow from ranks among all scored events."""
    shares = 1 - np.power(10.0, judged.tails)
    for i, name in enumerate((*parts.names, "knn")):
        table = _set(table, f"pct_{name}", pa.array(shares[:, i], from_pandas=True))
    doubts = apply_tails(model.calibration.uncertainty_tails, parts.au + parts.eu)
    kind = kinds(model.encoder, judged.tails, doubts, np.isnan(parts.loss), table)
    table = _set(table, "kind", pa.array(kind.tolist(), pa.string()))
    p_value = np.power(10.0, judged.log10_p)
    incidents = find_incidents(table, model.encoder.schema, p_value, judged.score)
    table = _set(table, "incident_id", pa.array(incidents.incident_id.tolist(), pa.string()))
    table = _set(table, "echo", pa.array(incidents.echo))
    table = _set(table, "score", pa.array(judged.score))
    return _set(table, "p_value", pa.array(p_value))


def _worst(table: pa.Table, codes: np.ndarray) -> np.ndarray:
    """Row of each entity's most unusual event."""
    order = np.lexsort((tied_ranks(-table["score"].to_numpy()), codes))
    return order[np.flatnonzero(np.diff(codes[order], prepend=-1))]


def _read(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


def _set(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
