"""Extraction settings that fit the data: what kind of device made the fixes, and which settings suit it.

In: a sample of fixes and what the user asked for. Out: an `ExtractionConfig`, and one line that says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.config import ConfigError, ExtractionConfig
from ustad.mobility.core import Fixes, fix_arrays
from ustad.mobility.fix_store import order_fixes
from ustad.mobility.sphere import sphere_points
from ustad.tables import agent_codes

#: Settings of each kind of device, where they differ from the defaults.
PROFILES: dict[str, dict[str, Any]] = {
    # A fix every minute or so, wherever the agent is.
    "logger": {},
    # Minutes apart on the way, silent while it lies still: its last fix before the silence is where it lies.
    "phone": {"minutes": 3.0, "reach_m": 500.0},
    # Some fixes whenever an app is used, many of them imprecise.
    "app": {"minutes": 3.0, "gap_minutes": 180.0, "max_accuracy_m": 150.0},
    # Calls and messages at antennas.
    "sparse": {"distance_m": 300.0, "minutes": 15.0, "gap_minutes": 360.0, "poi_radius_m": 1000.0},
    # Positions without any error, as simulations have them: two fixes in one building are a stay.
    "exact": {"distance_m": 10.0, "poi_radius_m": 50.0, "end_rule": "last-inside"},
}
SAMPLE_ROWS = 100_000  # fixes that are looked at
LEAST_ROWS = 200  # with fewer nothing can be said: as a logger
SILENT_S = 600.0  # no fix for longer than this is silence
SILENT_SHARE = 0.4  # of the time; above it the device is silent while it lies still
ANTENNA_M, ROUGH_M = 300.0, 120.0  # median accuracy of antennas; what one fix of an app in twenty is worse than
SPARSE_S = 1800.0  # where accuracy is not said: a median interval as long as between calls
STILL_M, EXACT_M = 100.0, 0.5  # fixes this near to each other: at one place; median step there of data without error
#: How wide a building may be in data without error, metres; the next steps beyond it are rarer than this share.
WIDTHS_M, BEYOND, RARE = (10.0, 15.0, 20.0, 30.0, 40.0, 50.0), 1.5, 0.05
LONGEST_MINUTES = 30.0
DENSE_S, DENSE_REACH_M = 120.0, 1500.0  # fixes on the way this near in time; how far one gets between two of them


@dataclass(frozen=True)
class Wish:
    """What the user asks for: a kind of device, or `auto`, and settings that go before what suits it."""

    profile: str = "auto"
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.profile not in ("auto", *PROFILES):
            raise ConfigError(f"profile: '{self.profile}' is unknown (known: auto, {', '.join(PROFILES)})")


@dataclass(frozen=True)
class Look:
    """What a sample of fixes looks like."""

    fixes: int
    interval_s: float  # median
    silent: float  # share of the time
    step_m: float  # median, of fixes at one place
    accuracy_m: float  # median; 0: not said
    rough_m: float  # one fix in twenty is worse
    building_m: float = WIDTHS_M[0]  # steps from the door to the room are shorter; only of use where there is no error


def choose_config(tables: Iterable[pa.Table], wish: ExtractionConfig | Wish | None) -> tuple[ExtractionConfig, str]:
    """The settings to extract with, and a line about them; a whole configuration is taken as it is, without a line.

    Of `tables` (valid fixes) as many are looked at as are needed; none, where a profile is named.
    """
    if isinstance(wish, ExtractionConfig):
        return wish, ""
    wish = wish or Wish()
    profile, changes, reason = wish.profile, PROFILES.get(wish.profile, {}), "as asked for"
    if profile == "auto":
        look = look_at(take_sample(tables))
        profile = recognise(look)
        changes, reason = _settings(profile, look), _describe(look)
    config = replace(ExtractionConfig(), **{**changes, **wish.changes})
    line = f"profile {profile} ({reason}): stays within {config.distance_m:g} m for {config.minutes:g} min"
    own = [name for name in ("distance_m", "minutes") if name in wish.changes]
    return config, f"{line}, {' and '.join(own)} as given" if own else line


def take_sample(tables: Iterable[pa.Table]) -> Fixes:
    """The first fixes of some tables."""
    parts: list[pa.Table] = []
    for table in tables:
        parts.append(table.slice(0, SAMPLE_ROWS))
        if sum(p.num_rows for p in parts) >= SAMPLE_ROWS:
            break
    if not parts:
        return fix_arrays(pa.table({"time": pa.array([], pa.int64()), "lat": [], "lon": []}), np.zeros(0, np.int64))
    parts = [p.set_column(p.column_names.index("agent_id"), "agent_id", p["agent_id"].cast(pa.string())) for p in parts]
    sample = pa.concat_tables(parts, promote_options="default")
    return fix_arrays(sample, agent_codes(sample["agent_id"])[0])


def look_at(fixes: Fixes) -> Look:
    """What fixes look like, in order of agent and time; repeats do not count."""
    if len(fixes) < 2:
        return Look(len(fixes), 0.0, 0.0, 0.0, 0.0, 0.0)
    order, _, _ = order_fixes(fixes.agent, fixes.time, int(fixes.agent.max()) + 1)
    fixes = fixes.take(order)
    points = sphere_points(fixes.lat, fixes.lon)
    step_s, step_m = np.diff(fixes.time) / 1e6, 6_371_009.0 * np.linalg.norm(np.diff(points, axis=0), axis=1)
    pair = (np.diff(fixes.agent) == 0) & (step_s > 0)
    step_s, step_m = step_s[pair], step_m[pair]
    still = step_m[(step_m < STILL_M) & (step_s <= SILENT_S)]
    claims = fixes.accuracy[fixes.accuracy > 0]
    return Look(
        fixes=len(step_s),
        interval_s=float(np.median(step_s)) if len(step_s) else 0.0,
        silent=float(step_s[step_s > SILENT_S].sum() / max(step_s.sum(), 1.0)),
        step_m=float(np.median(still)) if len(still) >= LEAST_ROWS else STILL_M,
        accuracy_m=float(np.median(claims)) if len(claims) else 0.0,
        rough_m=float(np.quantile(claims, 0.95)) if len(claims) else 0.0,
        building_m=_width_of_buildings(step_m[step_m > EXACT_M]),
    )


def _width_of_buildings(step_m: np.ndarray) -> float:
    """The least width beyond which hardly any step ends soon: steps inside a building are shorter, ways are longer.

    The least of all where steps of every length are alike, which says nothing of buildings.
    """
    step_m = np.sort(step_m)
    for width in WIDTHS_M:
        within, beyond = np.searchsorted(step_m, (width, BEYOND * width), side="right")
        if beyond - within <= RARE * within:
            return width
    return WIDTHS_M[0]


def recognise(look: Look) -> str:
    """The kind of device that makes such fixes."""
    if look.fixes < LEAST_ROWS:
        return "logger"
    if look.accuracy_m >= ANTENNA_M or (look.accuracy_m == 0 and look.interval_s >= SPARSE_S):
        return "sparse"
    if look.silent >= SILENT_SHARE:
        return "app" if look.rough_m >= ROUGH_M else "phone"
    return "exact" if look.step_m < EXACT_M and look.accuracy_m < EXACT_M else "logger"


def _settings(profile: str, look: Look) -> dict[str, Any]:
    """Those of the profile, with what the fixes say beside.

    Where there is no error, a stay is as wide as a building. With a device that is not silent, a stay lasts at least
    the usual time between two fixes. A device that is silent only while still is left alone: its fixes on the way lie
    close in time, so silence tells more.
    """
    changes = dict(PROFILES[profile])
    if profile == "phone" and look.interval_s <= DENSE_S:
        changes["reach_m"] = DENSE_REACH_M
    if profile == "exact":
        changes["distance_m"] = look.building_m
    if profile in ("logger", "exact") and look.interval_s > 60.0 * ExtractionConfig().minutes:
        changes["minutes"] = min(round(look.interval_s / 60.0, 1), LONGEST_MINUTES)
    return changes


def _describe(look: Look) -> str:
    if look.fixes < LEAST_ROWS:
        return "too few fixes to tell"
    claim = f", accuracy {look.accuracy_m:.0f} m" if look.accuracy_m else ""
    return f"a fix every {look.interval_s:.0f} s, silent {look.silent:.0%} of the time{claim}"
