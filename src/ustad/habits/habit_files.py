"""The files of a habit model: histories as Parquet, distributions as safetensors, the rest as JSON.

Nothing in them is executed when they are read. Models of earlier versions lack some of it and are read all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

from ustad.config import Config
from ustad.events.visits import Frame
from ustad.files import read_table, write_table
from ustad.habits.entity_tests import AgentReference, distribution_from, distribution_tensors
from ustad.habits.habit_model import Extra, HabitModel
from ustad.habits.history import Habits
from ustad.habits.population import Population
from ustad.habits.recurrence import Recurrence
from ustad.habits.weights import unit_weights
from ustad.habits.widths import Widths
from ustad.schema import EventSchema

HABITS, TENSORS, FACTS = "habits.parquet", "habits.safetensors", "habits.json"


def save_habits(model: HabitModel, place: Path, facts: Mapping[str, Any]) -> None:
    """Write the three files into a directory; `facts` are what somebody else keeps beside those of the model."""
    write_table(model.habits.to_table(model.schema.entity), place / HABITS)
    tensors = {f"population.{n}": getattr(model.population, n) for n in ("start", "duration")}
    final = {"none": model.events} | ({"absences": model.absences} if model.absences is not None else {})
    groups: dict[str, dict[Any, Any]] = {"term": model.tails, "look": model.looks, "final": final}
    for group, distributions in groups.items():
        for name, distribution in distributions.items():
            tensors.update(distribution_tensors(distribution, f"{group}.{name}"))
    tensors |= {"widths.kind": model.widths.by_kind, "widths.visits": model.widths.by_visits}
    tensors.update(model.agents.to_tensors())
    save_file({name: np.ascontiguousarray(v) for name, v in tensors.items()}, place / TENSORS)
    own = {
        "frame": model.frame.to_dict(),
        "recurrence": list(astuple(model.recurrence)),
        "terms": list(model.tails),
        "weights": model.weights,
    }
    (place / FACTS).write_text(json.dumps({**own, **facts}))


def read_facts(place: Path) -> dict[str, Any]:
    """What `save_habits` was given, and what the model says of itself; `frame` as it is used."""
    facts = json.loads((place / FACTS).read_text())
    return {**facts, "frame": Frame.from_dict(facts["frame"])}


def load_habits(
    place: Path, schema: EventSchema, config: Config, *, extra: Extra | None = None, whole: bool = True
) -> HabitModel:
    """Read what `save_habits` wrote, but for the histories of entities where not the `whole` is asked for."""
    facts, tensors = read_facts(place), load_file(place / TENSORS)
    weights = facts["weights"] if "weights" in facts else unit_weights()
    plain = astuple(Widths.plain(1))  # of models of before
    return HabitModel(
        schema,
        facts["frame"],
        Population(*(tensors[f"population.{n}"] for n in ("start", "duration"))),
        Recurrence(*facts["recurrence"]),
        Habits.from_table(read_table(place / HABITS) if whole else pq.read_schema(place / HABITS).empty_table()),
        {name: distribution_from(tensors, f"term.{name}") for name in facts["terms"]},
        {name: distribution_from(tensors, f"look.{name}") for name in weights},
        distribution_from(tensors, "final.none"),
        AgentReference.from_tensors(tensors),
        config.scoring.counting,
        extra,
        weights=weights,
        absorb_after=config.scoring.absorb_after,
        absences=distribution_from(tensors, "final.absences") if "final.absences.values" in tensors else None,
        widths=Widths(*(tensors.get(f"widths.{n}", one) for n, one in zip(("kind", "visits"), plain, strict=True))),
    )
