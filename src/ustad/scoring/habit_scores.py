"""Scores by habits in two calls: `fit_default` learns habits (and the memory network), `score_default` judges.

In go event tables as the detector has them; out come the two score tables of the design, in which score, p-value,
alert and reason come from history. `save_default` and `load_default` keep the model as Parquet, JSON and
safetensors beside the rest of a model directory.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file as load_numpy
from safetensors.numpy import save_file as save_numpy

from ustad.config import Config
from ustad.dataset import event_days
from ustad.events.encoder import Encoder
from ustad.events.visits import Frame, read_visits
from ustad.files import read_table, write_table
from ustad.habits.entity_tests import AgentReference, distribution_from, distribution_tensors, strongest
from ustad.habits.habit_model import HabitModel, Judged
from ustad.habits.habit_words import sentences
from ustad.habits.history import Habits
from ustad.habits.kinds import DOUBT, NOISE
from ustad.habits.population import Population
from ustad.habits.recurrence import Recurrence
from ustad.habits.usual import usual, usual_columns
from ustad.habits.weights import unit_weights
from ustad.progress import warn
from ustad.schema import plural
from ustad.scoring.alerts import NOTES, AlertRule, alerts
from ustad.scoring.incidents import find_incidents, leading_events
from ustad.tables import agent_codes, identity_hash
from ustad.ties import tied_ranks

if TYPE_CHECKING:
    import torch

    from ustad.network.inference.memory_model import MemoryModel

#: The smallest p-value that is written is ten to the minus this.
SMALLEST = 300.0
HABITS, TENSORS, FACTS, NETWORK = "habits.parquet", "habits.safetensors", "habits.json", "memory.safetensors"


@dataclass
class DefaultModel:
    """Habits, and the memory network where the configuration asks for it."""

    habits: HabitModel
    memory: MemoryModel | None = None


def fit_default(
    train: pa.Table,
    validation: pa.Table,
    encoder: Encoder,
    config: Config,
    device: torch.device,
    memory: MemoryModel | None = None,
    directory: Path | None = None,
    resume: bool = False,
) -> DefaultModel:
    """Learn from the training weeks; the validation week's entities stop the network early (half of them) and
    calibrate (the other half). `memory` is a memory network that was trained already; where it has to be trained,
    its checkpoints go to `directory`, and `resume` goes on from the last one."""
    schema = encoder.schema
    half = calibrating(validation, schema.entity)
    if config.model.network == "memory" and memory is None:
        memory = fit_memory_model(train, validation, encoder, config, device, directory, resume)
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
    )
    return DefaultModel(habits, memory)


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


def calibrating(validation: pa.Table, entity: str) -> np.ndarray:
    """Rows of the entities that calibrate: half of them by a hash, all where a half would be empty. bool [n]."""
    codes, values = agent_codes(validation[entity])
    half = (identity_hash(values) & np.uint64(1)).astype(bool)[codes]
    return np.ones(len(half), bool) if half.all() or not half.any() else half


# ------------------------------------------------------------------------------------------------ scoring
def score_default(
    model: DefaultModel,
    events: pa.Table,
    context: pa.Table | None = None,
    rule: AlertRule | None = None,
    period: tuple[int, int] | None = None,
    reasons: Literal["flagged", "all", "none"] = "flagged",
    tested: tuple[int, int] | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Event scores in the order of `events`, and agent scores.

    What was expected comes from history. `context` is what came before the events. `period` and `tested` are the days
    of `HabitModel.judge`.
    """
    judged = model.habits.judge(events, context, period, tested)
    p_value = p_values(judged.score)
    day = event_days(events, model.habits.schema)
    incidents = find_incidents(events, model.habits.schema, p_value, judged.score)
    days, reference = int(day.max() - day.min()) + 1, model.habits.events.count
    flags = alerts(p_value, judged.score, incidents.echo, rule, days, reference, incidents.order)
    worst = worst_rows(judged)
    told: list[str | None] = [None] * events.num_rows
    rows = np.union1d(np.flatnonzero(flags.flagged), worst)
    if reasons != "flagged":
        rows = np.arange(events.num_rows if reasons == "all" else 0)
    for row, text in zip(rows, sentences(model.habits, judged, events, rows), strict=True):
        told[row] = text
    columns = {
        **_expected_columns(model.habits, judged, events),
        **term_columns(judged),
        **_memory_columns(judged),
        "score": judged.score,
        "p_value": p_value,
        "alert": flags.flagged,
        "incident_id": pa.array(incidents.incident_id.tolist(), pa.string()),
        "echo": incidents.echo,
        "final": np.ones(events.num_rows, bool),
        "kind": pa.array(judged.kind.tolist(), pa.string()),
        "reason": pa.array(told, pa.string()),
    }
    table = _replaced(events, columns)
    notes = {
        "rule": (rule or AlertRule()).kind,
        "value": (rule or AlertRule()).value,
        "threshold": flags.threshold,
        "alerts": int(flags.flagged.sum()),
        "by_chance": flags.by_chance,
        "coverage": None,
        "warnings": list(flags.warnings),
    }
    for text in flags.warnings:
        warn(text)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), NOTES: json.dumps(notes).encode()})
    return table, agent_table(model.habits, judged, table, worst)


def _expected_columns(model: HabitModel, judged: Judged, events: pa.Table) -> dict[str, np.ndarray]:
    """What was expected by each entity's own history."""
    visits = read_visits(events, model.schema, model.frame)
    columns: dict[str, np.ndarray] = {}
    for habits in judged.history:
        mine = np.flatnonzero(judged.end[visits.row] == habits.last_day)
        own = visits if len(mine) == len(visits) else visits.take(mine)
        found = usual(habits, own, judged.compared.place[own.row])
        for name, values in usual_columns(habits, model.frame, model.schema, events, own, found).items():
            columns.setdefault(name, np.empty(len(visits), values.dtype))[own.row] = values
    return columns


def p_values(score: np.ndarray) -> np.ndarray:
    """From -log10 p; never exactly 0, however extreme."""
    return np.power(10.0, -np.minimum(score, SMALLEST))


def term_columns(judged: Judged) -> dict[str, np.ndarray]:
    """What the score is made of: -log10 p and share of every term, and the plain facts behind them."""
    columns = {f"surprise_{name}": values for name, values in judged.surprise.items()}
    columns |= {f"share_{name}": values for name, values in judged.shares.items()}
    return {
        **columns,
        "visits_now": judged.compared.count,
        "km_from_own_places": judged.compared.distance,
        "new_place": judged.compared.place < 0,
    }


def worst_rows(judged: Judged) -> np.ndarray:
    """Row of each entity's most unusual event: int64 [E]."""
    order = np.lexsort((tied_ranks(-judged.score), judged.entity))
    return order[np.searchsorted(judged.entity[order], np.arange(len(judged.entity_ids)))]


def agent_table(model: HabitModel, judged: Judged, scored: pa.Table, worst: np.ndarray) -> pa.Table:
    schema = model.schema
    label = schema.event_id if schema.event_id in scored.column_names else schema.time
    score = judged.agent_score
    return pa.table(
        {
            schema.entity: pa.array(judged.entity_ids.tolist()).cast(scored[schema.entity].type),
            "score": score,
            "p_value": p_values(score),
            "n_events": np.bincount(judged.entity, minlength=len(score)),
            "n_incidents": np.bincount(judged.entity[leading_events(scored)], minlength=len(score)),
            "worst_incident_id": scored["incident_id"].take(pa.array(worst)),
            f"worst_{label}": scored[label].take(pa.array(worst)),
            "reason": _agent_reasons(model, judged, scored["reason"].take(pa.array(worst)).to_pylist()),
            **{f"surprise_{name}": values for name, values in judged.agents.items()},
        }
    )


def _agent_reasons(model: HabitModel, judged: Judged, worst: list[str | None]) -> list[str | None]:
    """The worst event's reason, after what changed on the whole where that is what makes the entity unusual."""
    events = plural(model.schema.event_word)
    words = {
        "shift": f"Its {events} are on the whole more unusual than in its reference week. Most of all: ",
        "profile": f"Its {events} are spread over its places otherwise than before. Most unusual: ",
    }
    found = strongest(judged.agents)
    return [text if text is None else words.get(test, "") + text for test, text in zip(found, worst, strict=True)]


def _memory_columns(judged: Judged) -> dict[str, np.ndarray]:
    """Both uncertainties of the memory network, in nats."""
    names = {"au_memory": NOISE, "eu_memory": DOUBT}
    return {column: judged.doubts[name] for column, name in names.items() if name in judged.doubts}


def _replaced(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    table = table.drop_columns([c for c in table.column_names if c in columns])
    for name, values in columns.items():
        table = table.append_column(
            name, values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
        )
    return table


# ------------------------------------------------------------------------------------------------ storing
def save_default(model: DefaultModel, place: Path) -> None:
    """Write the four files (three without the network) into a directory."""
    habits = model.habits
    write_table(habits.habits.to_table(habits.schema.entity), place / HABITS)
    tensors = {f"population.{n}": getattr(habits.population, n) for n in ("start", "duration", "longer")}
    groups: dict[str, dict[Any, Any]] = {"term": habits.tails, "look": habits.looks}
    for group, held in groups.items():
        for name, distribution in held.items():
            tensors.update(distribution_tensors(distribution, f"{group}.{name}"))
    tensors.update(distribution_tensors(habits.events, "final.none"))
    tensors.update(habits.agents.to_tensors())
    save_numpy({name: np.ascontiguousarray(v) for name, v in tensors.items()}, place / TENSORS)
    facts = {
        "frame": habits.frame.to_dict(),
        "recurrence": list(astuple(habits.recurrence)),
        "terms": list(habits.tails),
        "weights": habits.weights,
        "memory": model.memory is not None,
    }
    (place / FACTS).write_text(json.dumps(facts))
    if model.memory is not None:
        from safetensors.torch import save_file

        state = model.memory.network.state_dict()
        save_file({k: v.detach().cpu().contiguous() for k, v in state.items()}, place / NETWORK)


def load_default(
    place: Path, encoder: Encoder, config: Config, device: torch.device, whole: bool = True
) -> DefaultModel:
    """Read what `save_default` wrote, but for the habits of entities where not the `whole` is asked for. Nothing in
    it is executed."""
    facts = json.loads((place / FACTS).read_text())
    tensors = load_numpy(place / TENSORS)
    frame = Frame.from_dict(facts["frame"])
    memory = None
    if facts["memory"]:
        from safetensors.torch import load_file

        from ustad.network.inference.memory_model import MemoryModel, new_network

        network = new_network(encoder, frame, config)
        network.load_state_dict(load_file(place / NETWORK))
        memory = MemoryModel(network.to(device).eval(), encoder, frame, config, device)
    weights = facts["weights"] if "weights" in facts else unit_weights()
    habits = HabitModel(
        encoder.schema,
        frame,
        Population(*(tensors[f"population.{n}"] for n in ("start", "duration", "longer"))),
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
    )
    return DefaultModel(habits, memory)
