"""Simulated cities, people and red teams, and anomalies injected into any data."""

from ustad.simulate.injections import inject
from ustad.simulate.labels import match_labels
from ustad.simulate.presets import PRESETS, VARIANTS, Preset, get_preset
from ustad.simulate.simulation import simulate, simulate_tables

__all__ = [
    "PRESETS",
    "VARIANTS",
    "Preset",
    "get_preset",
    "inject",
    "match_labels",
    "simulate",
    "simulate_tables",
]
