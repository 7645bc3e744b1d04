"""Models that were stored before a question was asked are read, and answer what they did."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from plain_days import SCHEMA, learn_town

from ustad.config import Config
from ustad.evidence_source import ModelContent
from ustad.habits.habit_source import HabitSource
from ustad.habits.population import Population


def test_a_model_of_before_knows_neither_seldom_visited_places_nor_first_visits(tmp_path: Path) -> None:
    """Its histograms are of all places, and it asks nothing of the kind of a new one."""
    source = learn_town().history
    tensors, facts = source.save(tmp_path)
    old = {name: values[0] if name.startswith("population.") else values for name, values in tensors.items()}
    del old["population.new_kind"]
    encoder = SimpleNamespace(schema=SCHEMA)
    today, before = (
        HabitSource.load(ModelContent(tmp_path, encoder, Config(), None, (), arrays, facts)).population
        for arrays in (tensors, old)
    )
    for field in fields(Population):
        np.testing.assert_array_equal(getattr(today, field.name), getattr(source.population, field.name))
    for name in ("start", "duration", "end"):
        both = getattr(before, name)
        np.testing.assert_array_equal(both, np.stack([tensors[f"population.{name}"][0]] * 2))
    assert (np.log(before.new_kind) == 0).all()
    assert len(before.new_kind) == len(today.new_kind)
