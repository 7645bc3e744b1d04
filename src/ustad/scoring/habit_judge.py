"""Our judge: what speaks together against an event adds up, and its most unusual look is the score.

The sources are each entity's own history (`habits`) and, where the configuration asks for it, the network that attends
to the entity's places. `fit_habit_judge` learns both from event tables as the detector has them; a judge is kept as
Parquet, JSON and safetensors beside the rest of a model directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors.numpy import load_file as load_numpy
from safetensors.numpy import save_file as save_numpy

from ustad.config import Config, ConfigError
from ustad.dataset import event_days
from ustad.distribution import Tail
from ustad.events.encoder import Encoder
from ustad.events.templates import say
from ustad.events.visits import Frame
from ustad.files import read_table, write_table
from ustad.habits.entity_tests import AgentReference, distribution_from, distribution_tensors, strongest
from ustad.habits.habit_model import HabitModel, Judged
from ustad.habits.habit_words import sentences
from ustad.habits.history import Habits
from ustad.habits.kinds import DOUBT, NOISE
from ustad.habits.measurements import expected_columns, fact_columns
from ustad.habits.population import Population
from ustad.habits.recurrence import Recurrence
from ustad.habits.weights import unit_weights
from ustad.habits.widths import Widths
from ustad.schema import EventSchema, plural
from ustad.scoring.absence_table import absence_column
from ustad.scoring.alerts import flag_events
from ustad.scoring.evidence import evidence_column
from ustad.scoring.incident_rate import Count, count_incidents
from ustad.scoring.incidents import find_incidents, leading_events, order_by_time, rows_with_reason
from ustad.scoring.judge import Span, Wanted, worst_rows
from ustad.scoring.score_table import add_measurements, set_columns
from ustad.tables import agent_codes, identity_hash

if TYPE_CHECKING:
    import torch

    from ustad.network.inference.memory_model import MemoryModel

#: The smallest p-value that is written is ten to the minus this.
SMALLEST = 300.0
#: Days that calibrate at least, where there are twice as many.
WEEK = 7
HABITS, TENSORS, FACTS, NETWORK = "habits.parquet", "habits.safetensors", "habits.json", "memory.safetensors"


@dataclass(frozen=True)
class HabitJudge:
    """Habits, and the memory network where the configuration asks for it."""

    habits: HabitModel
    memory: MemoryModel | None = None
    counts: tuple[Count, ...] = ()  # how many incidents unusual events of normal people make

    @classmethod
    def of(
        cls, habits: HabitModel, validation: pa.Table, calibrates: np.ndarray | None, memory: MemoryModel | None
    ) -> HabitJudge:
        """From fitted habits and the week that they were calibrated on (`calibrates`: bool by row, all by default)."""
        week = validation if calibrates is None else validation.filter(pa.array(calibrates))
        counts = count_incidents(week, habits.schema, habits.week_score)
        return cls(replace(habits, week_score=np.zeros(0)), memory, tuple(counts))

    @property
    def schema(self) -> EventSchema:
        return self.habits.schema

    @property
    def reference(self) -> int:
        return self.habits.events.count

    @property
    def known_until(self) -> int | None:
        return self.habits.habits.last_day

    @property
    def ranked(self) -> tuple[str, ...]:
        return ()

    # ------------------------------------------------------------------------------------ scoring
    def measure(
        self, events: pa.Table, context: pa.Table | None, span: Span, wanted: Wanted
    ) -> tuple[pa.Table, pa.Table | None]:
        """Everything but the alerts. Events that may become alerts have their reason already."""
        if wanted.coverage is not None:
            raise ConfigError("prediction intervals come from the paper's network; train with the preset paper")
        judgement = self.habits.judge(events, context, span.counted, (span.first, span.last))
        p_value = p_values(judgement.score)
        incidents = find_incidents(events, self.schema, p_value, judgement.score)
        worst = worst_rows(judgement.score, judgement.entity)
        rows = np.arange(events.num_rows if wanted.reasons == "all" else 0)
        if wanted.reasons == "flagged":
            rule = wanted.rule.widest(span.days)
            likely, _ = flag_events(
                p_value, judgement.score, incidents.echo, rule, days=span.days, order=incidents.order
            )
            rows = np.union1d(rows_with_reason(incidents.incident_id, incidents.order, likely), worst)
        texts: list[str | None] = [None] * events.num_rows
        for row, text in zip(rows, sentences(self.habits, judgement, events, rows), strict=True):
            texts[row] = text
        expected = expected_columns(self.habits, judgement, events)
        columns = {
            **_uncertainty_columns(judgement),
            "evidence": evidence_column(
                judgement.surprise, judgement.shares, numbers_asked(self.schema, expected, judgement)
            ),
            "score": judgement.score,
            "p_value": p_value,
            "incident_id": pa.array(incidents.incident_id.tolist(), pa.string()),
            "echo": incidents.echo,
            "final": np.ones(events.num_rows, bool),
            "kind": pa.array(judgement.kind.tolist(), pa.string()),
            "reason": pa.array(texts, pa.string()),
        }
        table = set_columns(events.drop_columns([c for c in events.column_names if c in columns]), columns)
        table = add_measurements(table, {**expected, **fact_columns(judgement)})
        return table, agent_table(self.habits, judgement, table, worst)

    def stand(self, ranks: Sequence[Tail] | None) -> None:
        """Scores rest on the reference alone."""

    def settle(self, measurements: pa.Table, standing: None) -> pa.Table:
        return measurements

    def tell(
        self, event_scores: pa.Table, agents: pa.Table | None, standing: None, span: Span, wanted: Wanted
    ) -> tuple[pa.Table, pa.Table]:
        assert agents is not None
        if wanted.reasons != "flagged":
            return event_scores, agents
        codes, _ = agent_codes(event_scores[self.schema.entity])
        alert = event_scores["alert"].to_numpy(zero_copy_only=False).astype(bool)
        incident_id = np.array(event_scores["incident_id"].to_pylist(), object)
        has_reason = np.zeros(len(codes), bool)
        has_reason[rows_with_reason(incident_id, order_by_time(event_scores, self.schema), alert)] = True
        has_reason[worst_rows(event_scores["score"].to_numpy(), codes)] = True
        reason = pc.if_else(pa.array(has_reason), event_scores["reason"], pa.scalar(None, pa.string()))
        return set_columns(event_scores, {"reason": reason}), agents

    # ------------------------------------------------------------------------------------ keeping
    def knows(self, entities: np.ndarray) -> np.ndarray:
        return np.r_[self.habits.habits.entity_key, self.habits.agents.entity_key]

    def forget(self, entities: Sequence[Any]) -> HabitJudge:
        return replace(self, habits=self.habits.forget(list(entities)))

    def with_histories(self, table: pa.Table) -> HabitJudge:
        """The same with the histories of these entities alone, as `habits.parquet` has them."""
        return replace(self, habits=replace(self.habits, habits=Habits.from_table(table)))

    def save(self, place: Path) -> None:
        """Write the four files (three without the network) into a directory."""
        habits = self.habits
        write_table(habits.habits.to_table(habits.schema.entity), place / HABITS)
        tensors = {f"population.{n}": getattr(habits.population, n) for n in ("start", "duration")}
        final = {"none": habits.events} | ({"absences": habits.absences} if habits.absences is not None else {})
        groups: dict[str, dict[Any, Any]] = {"term": habits.tails, "look": habits.looks, "final": final}
        for group, distributions in groups.items():
            for name, distribution in distributions.items():
                tensors.update(distribution_tensors(distribution, f"{group}.{name}"))
        tensors |= {"widths.kind": habits.widths.by_kind, "widths.visits": habits.widths.by_visits}
        tensors.update(habits.agents.to_tensors())
        save_numpy({name: np.ascontiguousarray(v) for name, v in tensors.items()}, place / TENSORS)
        facts = {
            "frame": habits.frame.to_dict(),
            "recurrence": list(astuple(habits.recurrence)),
            "terms": list(habits.tails),
            "weights": habits.weights,
            "memory": self.memory is not None,
            "incidents": self.counts,
        }
        (place / FACTS).write_text(json.dumps(facts))
        if self.memory is not None:
            from safetensors.torch import save_file

            state = self.memory.network.state_dict()
            save_file({k: v.detach().cpu().contiguous() for k, v in state.items()}, place / NETWORK)


def fit_habit_judge(
    train: pa.Table,
    validation: pa.Table,
    encoder: Encoder,
    config: Config,
    device: torch.device,
    memory: MemoryModel | None = None,
    directory: Path | None = None,
    resume: bool = False,
    days_off: tuple[int, ...] = (),
) -> HabitJudge:
    """Learn from the training weeks; the validation week's entities stop the network early (half of them) and
    calibrate (the other half; all of them where no network has to be stopped). `memory` is a memory network that was
    trained already; where it has to be trained, its checkpoints go to `directory`, and `resume` goes on from the last
    one. `days_off` are local dates that habits take for weekend days."""
    schema = encoder.schema
    if config.model.network == "memory" and memory is None:
        memory = fit_memory_model(train, validation, encoder, config, device, directory, resume)
    if memory is None:
        train, validation = take_whole_week(train, validation, schema)
    half = calibrating(validation, schema.entity) if memory is not None else None
    habits = HabitModel.fit(
        train,
        validation,
        schema,
        half,
        counting=config.scoring.counting,
        extra=memory.terms if memory is not None else None,
        weighing=config.scoring.weights,
        seed=config.seed,
        absorb_after=config.scoring.absorb_after,
        silence=config.scoring.silence,
        days_off=days_off,
    )
    return HabitJudge.of(habits, validation, half, memory)


def fit_memory_model(
    train: pa.Table,
    validation: pa.Table,
    encoder: Encoder,
    config: Config,
    device: torch.device,
    directory: Path | None = None,
    resume: bool = False,
    start: MemoryModel | None = None,
) -> MemoryModel:
    """The memory network alone, beginning at the weights of `start` where that fits."""
    half = calibrating(validation, encoder.schema.entity)
    stopping = validation.filter(pa.array(~half)) if not half.all() else validation
    from ustad.network.inference.memory_model import MemoryModel

    return MemoryModel.fit(train, stopping, encoder, config, device, directory, resume, start)


def take_whole_week(train: pa.Table, validation: pa.Table, schema: EventSchema) -> tuple[pa.Table, pa.Table]:
    """Where less than a week calibrates and there are two weeks in all, the last of them: weekends are not as weekdays.
    Not where a network has learnt from those days."""
    days = [event_days(table, schema) for table in (train, validation)]
    first, last = (int(days[0].min()), int(days[1].max())) if len(days[0]) and len(days[1]) else (0, 0)
    if last - int(days[1].min(initial=last)) + 1 >= WEEK or last - first + 1 < 2 * WEEK:
        return train, validation
    both = pa.concat_tables([train, validation], promote_options="permissive")
    late = np.concatenate(days) > last - WEEK
    return both.filter(pa.array(~late)), both.filter(pa.array(late))


def calibrating(validation: pa.Table, entity: str) -> np.ndarray:
    """Rows of the entities that calibrate: half of them by a hash, all where a half would be empty. bool [n]."""
    codes, values = agent_codes(validation[entity])
    half = (identity_hash(values) & np.uint64(1)).astype(bool)[codes]
    return np.ones(len(half), bool) if half.all() or not half.any() else half


# ------------------------------------------------------------------------------------------------ columns
def p_values(score: np.ndarray) -> np.ndarray:
    """From -log10 p; never exactly 0, however extreme."""
    return np.power(10.0, -np.minimum(score, SMALLEST))


def numbers_asked(schema: EventSchema, expected: Mapping[str, Any], judgement: Judged) -> dict[str, dict[str, Any]]:
    """Of the questions about a number: what was expected and observed, and the spread where it is known."""
    numbers: dict[str, dict[str, Any]] = {
        "recurrence": {"expected": judgement.compared.before, "observed": judgement.compared.count},
        "distance": {"observed": judgement.compared.distance},
    }
    questions = {"@minute_of_day": ("start", "memory_start"), "@duration": ("duration", "memory_duration")}
    for feature in schema.features:
        for question in questions.get(feature.source[0], ()) if len(feature.source) == 1 else ():
            facts = {what: expected.get(f"{what}_{feature.name}") for what in ("expected", "observed", "spread")}
            numbers[question] = {what: values for what, values in facts.items() if values is not None}
    return numbers


def agent_table(model: HabitModel, judgement: Judged, event_scores: pa.Table, worst: np.ndarray) -> pa.Table:
    schema = model.schema
    label = schema.event_id if schema.event_id in event_scores.column_names else schema.time
    score = judgement.agent_score
    return pa.table(
        {
            schema.entity: pa.array(judgement.entity_ids.tolist()).cast(event_scores[schema.entity].type),
            "score": score,
            "p_value": p_values(score),
            "n_events": np.bincount(judgement.entity, minlength=len(score)),
            "n_incidents": np.bincount(judgement.entity[leading_events(event_scores)], minlength=len(score)),
            "worst_incident_id": event_scores["incident_id"].take(pa.array(worst)),
            f"worst_{label}": event_scores[label].take(pa.array(worst)),
            "reason": pa.array(
                _agent_reasons(model, judgement, event_scores["reason"].take(pa.array(worst)).to_pylist()), pa.string()
            ),
            **{f"surprise_{name}": values for name, values in judgement.agents.items()},
            **_change_columns(judgement),
            **absence_column(model, judgement, event_scores),
        }
    )


def _change_columns(judgement: Judged) -> dict[str, pa.Array]:
    """The day that a lasting change began on, and a sentence."""
    changes = judgement.changes
    assert changes is not None
    days = pa.array(changes.since.astype(np.int32), mask=changes.told == 0)
    return {"changed_since": days.cast(pa.date32()), "change": pa.array(judgement.change_words, pa.string())}


def _agent_reasons(model: HabitModel, judgement: Judged, worst: list[str | None]) -> list[str | None]:
    """The worst event's reason, after what changed on the whole where that is what makes the entity unusual."""
    events = plural(model.schema.event_word)
    tests = strongest(judgement.agents)
    changes = judgement.change_words
    return [
        say(test, events=events, reason=text, change=change)
        if text is not None and (test in ("shift", "profile") or (test == "lasting" and change))
        else text
        for test, text, change in zip(tests, worst, changes, strict=True)
    ]


def _uncertainty_columns(judgement: Judged) -> dict[str, Any]:
    """Both uncertainties of the memory network, in nats; null without one."""
    unknown = pa.nulls(len(judgement.score), pa.float64())
    names = {"uncertainty_noise": NOISE, "uncertainty_model": DOUBT}
    return {
        column: np.asarray(judgement.doubts[name], np.float64) if name in judgement.doubts else unknown
        for column, name in names.items()
    }


# ------------------------------------------------------------------------------------------------ storing
def load_habit_judge(
    place: Path, encoder: Encoder, config: Config, device: torch.device, whole: bool = True
) -> HabitJudge:
    """Read what `HabitJudge.save` wrote, but for the habits of entities where not the `whole` is asked for. Nothing in
    it is executed."""
    facts = json.loads((place / FACTS).read_text())
    tensors = load_numpy(place / TENSORS)
    frame = Frame.from_dict(facts["frame"])
    memory = None
    if facts["memory"]:
        from safetensors.torch import load_file

        from ustad.network.inference.memory_model import MemoryModel, new_network
        from ustad.network.place_memory import read_older

        network = new_network(encoder, frame, config)
        network.load_state_dict(read_older(load_file(place / NETWORK)))
        memory = MemoryModel(network.to(device).eval(), encoder, frame, config, device)
    weights = facts["weights"] if "weights" in facts else unit_weights()
    plain = astuple(Widths.plain(1))  # of models of before
    habits = HabitModel(
        encoder.schema,
        frame,
        Population(*(tensors[f"population.{n}"] for n in ("start", "duration"))),
        Recurrence(*facts["recurrence"]),
        Habits.from_table(read_table(place / HABITS) if whole else pq.read_schema(place / HABITS).empty_table()),
        {name: distribution_from(tensors, f"term.{name}") for name in facts["terms"]},
        {name: distribution_from(tensors, f"look.{name}") for name in weights},
        distribution_from(tensors, "final.none"),
        AgentReference.from_tensors(tensors),
        config.scoring.counting,
        memory.terms if memory is not None else None,
        weights=weights,
        absorb_after=config.scoring.absorb_after,
        absences=distribution_from(tensors, "final.absences") if "final.absences.values" in tensors else None,
        widths=Widths(*(tensors.get(f"widths.{n}", one) for n, one in zip(("kind", "visits"), plain, strict=True))),
    )
    return HabitJudge(habits, memory, tuple((p, n, k) for p, n, k in facts.get("incidents", ())))
