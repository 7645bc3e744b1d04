"""Simulated cities, people and red teams, and anomalies injected into any data."""

from ustad.simulate.injections import inject
from ustad.simulate.labels import match_labels
from ustad.simulate.presets import PRESETS, VARIANTS, Preset, get_preset
from ustad.simulate.second_tables import second_red_team
from ustad.simulate.simulation import simulate, simulate_tables

__all__ = [
    "PRESETS",
    "VARIANTS",
    "Preset",
    "get_preset",
    "inject",
    "match_labels",
    "second_red_team",
    "simulate",
    "simulate_tables",
]
