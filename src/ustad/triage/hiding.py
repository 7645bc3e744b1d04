"""Rules that hide alerts which somebody has explained: this person, this place, these hours, this kind, until a date.

A rule hides an alert and nothing else: the score stays as it is, and what is hidden is counted and can be listed. In go
rules from a YAML or CSV file, or from the service's store; `covers` says whether a rule speaks of an event.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import yaml

from ustad.clock import is_zone, microseconds, moment_at
from ustad.geo import haversine_km
from ustad.schema import EventSchema
from ustad.tables import DataError

NEAR_KM = 0.5
COLUMN = "hidden_by"
_NAMES = ("name", "agent", "lat", "lon", "radius_km", "category", "hours", "kind", "until", "reason")


@dataclass(frozen=True)
class HidingRule:
    """What a rule speaks of; what is None does not narrow it. `until` is in microseconds since 1970: events that begin
    later are not hidden. `hours` are local minutes from and to, past midnight where the first is the larger."""

    name: str
    until: int
    reason: str
    agent: str | None = None
    lat: float | None = None
    lon: float | None = None
    radius_km: float = NEAR_KM
    category: str | None = None
    hours: tuple[int, int] | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.agent is None and self.lat is None:
            raise DataError(f"rule '{self.name}': needs a person (agent) or a place (lat, lon)")
        if (self.lat is None) != (self.lon is None):
            raise DataError(f"rule '{self.name}': a place needs both lat and lon")
        if not self.reason.strip():
            raise DataError(f"rule '{self.name}': needs a reason")
        if not 0 < self.radius_km <= 100:
            raise DataError(f"rule '{self.name}': radius_km must be above 0 and at most 100, got {self.radius_km:g}")

    def covers(self, event: Mapping[str, Any]) -> bool:
        """Whether the rule hides an event with agent, started_at (microseconds), timezone, lat, lon, category, kind."""
        if event["started_at"] >= self.until or (self.agent is not None and event["agent"] != self.agent):
            return False
        for name, mine in (("category", self.category), ("kind", self.kind)):
            if mine is not None and event[name] != mine:
                return False
        return self._is_near(event) and self._is_then(event)

    def _is_near(self, event: Mapping[str, Any]) -> bool:
        if self.lat is None or self.lon is None:
            return True
        if event["lat"] is None or event["lon"] is None:
            return False
        here = (np.asarray(event["lat"], float), np.asarray(event["lon"], float))
        return bool(haversine_km(*here, np.asarray(self.lat), np.asarray(self.lon)) <= self.radius_km)

    def _is_then(self, event: Mapping[str, Any]) -> bool:
        if self.hours is None:
            return True
        begin, end = self.hours
        minute = local_minute(event["started_at"], event["timezone"])
        return begin <= minute < end if begin <= end else minute >= begin or minute < end


def local_minute(moment: int, zone: str) -> float:
    """Minutes since local midnight of a moment in microseconds since 1970."""
    local = moment_at(moment).astimezone(_zone(zone))
    return local.hour * 60 + local.minute + local.second / 60


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name if is_zone(name) else "UTC")


def first_that_covers(rules: Sequence[HidingRule], event: Mapping[str, Any]) -> HidingRule | None:
    return next((rule for rule in rules if rule.covers(event)), None)


# -------------------------------------------------------------------------------------------------- files
def read_rules(path: Path) -> list[HidingRule]:
    """Rules of a YAML list or of a CSV table with the columns name, agent, lat, lon, radius_km, category, hours, kind,
    until and reason. What is empty does not narrow a rule."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--rules: {path} cannot be read ({error})") from error
    rows = list(csv.DictReader(text.splitlines())) if path.suffix.lower() == ".csv" else _yaml_rows(text, path)
    return [parse_rule(row, f"{path.name}, rule {number}", str(number)) for number, row in enumerate(rows, 1)]


def _yaml_rows(text: str, path: Path) -> list[dict[str, Any]]:
    try:
        rows = yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        raise DataError(f"--rules: {path} is not YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"--rules: {path} must hold a list of rules, each with until and reason")
    return rows


def parse_rule(row: Mapping[str, Any], where: str, name: str) -> HidingRule:
    """One rule from words; every mistake is said with its place."""
    fields = {str(k): v for k, v in row.items() if v not in (None, "")}
    unknown = sorted(set(fields) - set(_NAMES))
    if unknown:
        raise DataError(f"{where}: '{unknown[0]}' is not known; a rule has {', '.join(_NAMES)}")
    for field_name in ("until", "reason"):
        if field_name not in fields:
            raise DataError(f"{where}: needs {field_name}")
    parts: dict[str, Any] = {n: str(fields[n]) for n in ("agent", "category", "kind") if n in fields}
    parts |= {n: _number(fields[n], f"{where}: {n}") for n in ("lat", "lon", "radius_km") if n in fields}
    if "hours" in fields:
        parts["hours"] = parse_hours(str(fields["hours"]), where)
    until = parse_until(fields["until"], where)
    return HidingRule(name=str(fields.get("name", name)), until=until, reason=str(fields["reason"]), **parts)


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} must be a number, got '{value}'") from error


def parse_hours(text: str, where: str) -> tuple[int, int]:
    """`22:00-06:00` as minutes since midnight."""
    match = re.fullmatch(r"\s*([0-2]?\d):([0-5]\d)\s*[-–]\s*([0-2]?\d):([0-5]\d)\s*", text)
    begin, end = (60 * int(match[i]) + int(match[i + 1]) for i in (1, 3)) if match else (1441, 1441)
    if begin > 1440 or end > 1440:
        raise DataError(f"{where}: hours must look like 22:00-06:00, got '{text}'")
    return begin, end


def parse_until(value: Any, where: str) -> int:
    """A day, to its end in UTC, or a moment with its zone."""
    try:
        moment = value if isinstance(value, date) else datetime.fromisoformat(str(value))
    except ValueError as error:
        raise DataError(f"{where}: until must be a date such as 2026-12-31, got '{value}'") from error
    if not isinstance(moment, datetime) or re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC) + timedelta(days=1)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return microseconds(moment)


# ----------------------------------------------------------------------------------------------- in bulk
def hide_alerts(events: pa.Table, rules: Sequence[HidingRule], schema: EventSchema) -> pa.Table:
    """The score table with the column `hidden_by`: the name of the rule, where one hides an alert, which then is none.
    Scores, p-values and reasons stay."""
    alert = events["alert"].to_numpy(zero_copy_only=False).astype(bool)
    names: list[str | None] = [None] * len(alert)
    rows = np.flatnonzero(alert)
    for at, event in zip(rows.tolist(), _events(events.take(pa.array(rows)), schema), strict=True):
        rule = first_that_covers(rules, event)
        if rule is not None:
            names[at], alert[at] = rule.name, False
    table = events.drop_columns([COLUMN]) if COLUMN in events.column_names else events
    table = table.set_column(table.column_names.index("alert"), "alert", pa.array(alert))
    return table.append_column(COLUMN, pa.array(names, pa.string()))


def _events(table: pa.Table, schema: EventSchema) -> list[dict[str, Any]]:
    """Rows as `covers` takes them."""
    place = next((f.source for f in schema.features if f.kind == "place"), (None, None))
    category = next((f.source[0] for f in schema.features if f.kind == "categorical" and f.columns), None)
    columns = {"agent": schema.entity, "lat": place[0], "lon": place[1], "category": category, "kind": "kind"}
    values = {n: table[c].to_pylist() if c in table.column_names else [None] * len(table) for n, c in columns.items()}
    values["agent"] = [str(name) for name in values["agent"]]
    values["started_at"] = table[schema.time].cast(pa.int64()).to_pylist()
    in_column = schema.timezone in table.column_names
    values["timezone"] = table[schema.timezone].to_pylist() if in_column else [schema.timezone] * len(table)
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
