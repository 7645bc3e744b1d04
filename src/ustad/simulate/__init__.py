"""Simulated cities and people, what their phones record, and a red team."""

from ustad.simulate.labels import match_labels
from ustad.simulate.presets import PRESETS, VARIANTS, Preset, get_preset
from ustad.simulate.simulation import simulate, simulate_tables

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "anomalies",
    "chance",
    "days",
    "edits",
    "phones",
    "rows",
    "setting",
    "simulation",
)

__all__ = [
    "PRESETS",
    "VARIANTS",
    "Preset",
    "get_preset",
    "match_labels",
    "simulate",
    "simulate_tables",
]
