"""Presets: the city, the people, the calendar and the red team of each simulated data set, with their figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from ustad.config import ConfigError
from ustad.simulate.catalogue import CATEGORIES, COARSE_CLASSES, NUMOSIM_CLASSES, TOWN_CLASSES


def _as_named(names: tuple[str, ...]) -> dict[str, str]:
    return {name: name for name in names}


#: Kinds of anomalies and how often the red team uses each, when it may choose.
MIXED_KINDS = {
    "new place": 3.0, "odd hour": 2.0, "left early": 1.0, "left late": 1.0,
    "skipped": 1.5, "swapped order": 0.5, "frequency": 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """Everything that makes a simulated data set, except its seed and size."""

    name: str
    lat: float
    lon: float
    half_width_km: float
    half_height_km: float
    columns: int  # junctions of the street grid from west to east
    rows: int
    centres: int
    timezone: str
    first_day: date
    days: int
    test_day: int  # first day of the test period, counted from the first day
    agents: int
    anomalous_share: float
    classes: Mapping[str, str]  # category → name in the tables
    places: int  # places that are not homes
    commute_km: float  # scale of the distance from home to work
    errand_km: float  # scale of the distance to places of free choice
    outings: float = 1.0  # multiplies the number of outings of free choice
    explore: float = 0.25  # chance of a new place on an outing, before it falls with the places known
    drift: float = 0.014  # chance a day that a new weekly habit begins
    tempo_min: float = 0.0  # shifts the hours of free choice
    weekend: tuple[int, int] = (5, 6)
    holidays: tuple[date, ...] = ()
    kinds: Mapping[str, float] = field(default_factory=lambda: {"new place": 1.0})
    recurring_share: float = 0.38
    recurring_days: tuple[int, int] = (5, 8)
    own_share: float = 0.1  # inserted places that the agent has visited before
    within_km: float = 0.0  # inserted places lie at most this far from home; 0: anywhere
    event_labels: bool = True

    def __post_init__(self) -> None:
        unknown = set(self.classes) - {category.name for category in CATEGORIES}
        if unknown:
            raise ConfigError(f"preset '{self.name}': unknown category '{sorted(unknown)[0]}'")


_HOLIDAYS_LA = (date(2024, 1, 1), date(2024, 1, 15), date(2024, 2, 19))
PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "numosim-la", 34.05, -118.25, 59.0, 60.0, 76, 76, 14, "America/Los_Angeles", date(2024, 1, 1), 56, 28,
            20_000, 381 / 20_000, _as_named(NUMOSIM_CLASSES), 24_000, commute_km=11.0, errand_km=4.5,
            outings=1.02, tempo_min=-8.0, holidays=_HOLIDAYS_LA,
        ),
        Preset(
            "simla", 34.05, -118.25, 57.0, 40.0, 84, 60, 12, "America/Los_Angeles", date(2024, 1, 1), 56, 28,
            20_000, 162 / 20_000, _as_named(tuple(c.name for c in CATEGORIES)), 20_000, commute_km=7.0, errand_km=3.0,
            outings=0.72, tempo_min=95.0, holidays=_HOLIDAYS_LA, kinds=MIXED_KINDS, recurring_days=(3, 5),
        ),
        Preset(
            "simjordan", 31.95, 35.93, 11.0, 10.0, 46, 42, 5, "Asia/Amman", date(2024, 1, 7), 63, 35,
            20_000, 370 / 20_000, COARSE_CLASSES, 6_000, commute_km=4.0, errand_km=2.0, outings=0.81,
            tempo_min=76.0, weekend=(4, 5),
            kinds=MIXED_KINDS, event_labels=False,
        ),
        Preset(
            "town", 51.32, 9.50, 6.0, 5.0, 40, 34, 4, "Europe/Berlin", date(2024, 5, 6), 28, 14,
            300, 0.05, _as_named(TOWN_CLASSES), 900, commute_km=2.6, errand_km=1.3,
            holidays=(date(2024, 5, 9), date(2024, 5, 20)), kinds=MIXED_KINDS, recurring_days=(3, 5),
        ),
    )
}  # fmt: skip

#: Harder red teams: the same city and people, other anomalies.
VARIANTS: dict[str, dict[str, object]] = {
    "standard": {},
    "near-15km": {"kinds": {"new place": 1.0}, "within_km": 15.0},
    "near-5km": {"kinds": {"new place": 1.0}, "within_km": 5.0},
    "odd-hours": {"kinds": {"odd hour": 1.0}},
    "skipped": {"kinds": {"skipped": 1.0}},
    "long-stays": {"kinds": {"long stay": 1.0}},
}


def get_preset(name: str, variant: str = "standard") -> Preset:
    """The preset with the red team of the variant, or a ConfigError that lists what there is."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset '{name}'; choose one of {', '.join(PRESETS)}")
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant '{variant}'; choose one of {', '.join(VARIANTS)}")
    return dataclasses.replace(PRESETS[name], **VARIANTS[variant])  # type: ignore[arg-type]  # names of its fields
