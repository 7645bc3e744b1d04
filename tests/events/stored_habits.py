"""Scores of the preset `quick` for a small seeded town, as the tests store them.

Habits give these scores; no network has a part in them, so they depend neither on torch nor on the processor's
rounding in training. After a change of the habits that is meant:

    python tests/events/stored_habits.py         writes tests/events/habit_scores.json anew
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.scores import Scores

STORED = Path(__file__).with_name("habit_scores.json")
EVERY = 12  # stays, by their identifier
NAMES = ("score", "p_value")


def told(scores: Scores) -> dict[str, Any]:
    """Every 12th stay's score, p-value and surprises; every agent's score and p-value."""
    assert scores.events is not None
    assert scores.agents is not None
    events, agents = scores.events.sort_by("stay_id"), scores.agents.sort_by("agent_id")
    every = events.take(pa.array(range(0, events.num_rows, EVERY)))
    evidence = [{one["name"]: one["surprise"] for one in row} for row in every["evidence"].to_pylist()]
    surprises = {f"surprise_{name}": [row.get(name) for row in evidence] for name in sorted(evidence[0])}
    return {
        "rows": events.num_rows,
        "events": {**{n: every[n].to_pylist() for n in NAMES}, **surprises},
        "agents": {n: agents[n].to_pylist() for n in NAMES},
    }


def store() -> None:
    """The town and the settings of the tests' own fixtures, but for the network, which has no part in it."""
    from ustad.config import Config
    from ustad.detector import Detector
    from ustad.simulate import simulate_tables

    town = simulate_tables("town", agents=24, seed=3, days=14)
    small = {"model.width": 8, "training.epochs": 1, "scoring.samples": 2, "scoring.neighbours": 20}
    found = told(Detector(Config.preset("quick").replace(small), device="cpu").fit(town).score(town))
    STORED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    store()
