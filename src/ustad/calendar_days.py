"""Days that are not like others: public holidays of a country, and events that somebody gives as a CSV or ICS file.

Days are local dates as days since 1970-01-01. Holidays come from the library `holidays` (extra `calendar`).
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import re
import zoneinfo
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import resources
from pathlib import Path

from ustad.clock import EPOCH, day_number, iso_date
from ustad.tables import DataError, first_line

MISSING = "public holidays need the library holidays: pip install 'ustad[calendar]'"
#: How far an event with a place reaches where nothing is said, km.
RADIUS_KM = 1.0
#: A model knows holidays for so many years after its training weeks.
YEARS_AHEAD = 5


@dataclass(frozen=True)
class CalendarEvent:
    """Something that somebody knows of: from the first to the last day, everywhere or around a place."""

    first: int
    last: int
    name: str
    lat: float | None = None
    lon: float | None = None
    radius_km: float = RADIUS_KM


def _read_day(text: str) -> int:
    """The day of a date as 2024-05-20 or 20240520, with or without a time."""
    return day_number(text.strip().replace("-", "")[:8])


# ------------------------------------------------------------------------------------------------ holidays
@cache
def _countries() -> dict[str, str]:
    """Zone → country, from the zone data's own table; empty where a machine lacks it."""
    places = [Path(folder) / "zone.tab" for folder in zoneinfo.TZPATH]
    with contextlib.suppress(ModuleNotFoundError):
        places.append(Path(str(resources.files("tzdata") / "zoneinfo" / "zone.tab")))
    for place in places:
        if place.is_file():
            rows = [line.split("\t") for line in place.read_text().splitlines() if line and line[0] != "#"]
            return {row[2]: row[0] for row in rows}
    return {}


def country_of_zone(zone: str) -> str | None:
    """The country of a zone, as two letters; none for UTC and other zones of no country."""
    return _countries().get(zone)


def public_holidays(country: str, first: int, last: int) -> dict[int, str]:
    """Names of a country's public holidays by day, both ends included."""
    try:
        holidays = importlib.import_module("holidays")
    except ImportError as error:
        raise DataError(MISSING) from error
    years = range((EPOCH + timedelta(days=first)).year, (EPOCH + timedelta(days=last)).year + 1)
    code, _, part = country.partition("-")
    try:
        names = holidays.country_holidays(code.upper(), subdiv=part or None, years=years, language="en_US")
    except NotImplementedError as error:
        raise DataError(f"no public holidays are known of '{country}'; give letters such as DE or DE-BY") from error
    days = {(day - EPOCH).days: name for day, name in names.items()}
    return {day: name for day, name in sorted(days.items()) if first <= day <= last}


# --------------------------------------------------------------------------------------------------- files
def read_calendar(path: Path) -> list[CalendarEvent]:
    """Events of a CSV file (`date, name`, and `until, lat, lon, radius_km` where wanted) or of an ICS file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {first_line(error)}") from error
    events = _from_ics(text, path) if "BEGIN:VCALENDAR" in text[:200] else _from_csv(text, path)
    if not events:
        raise DataError(f"{path}: no event was found; expected a CSV file with columns date and name, or an ICS file")
    return sorted(events, key=lambda event: (event.first, event.last, event.name))


def _from_csv(text: str, path: Path) -> list[CalendarEvent]:
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or not {"date", "name"} <= set(rows[0]):
        return []
    events = []
    for number, row in enumerate(rows, start=2):
        values = {name: (row.get(name) or "").strip() for name in ("date", "name", "until", "lat", "lon", "radius_km")}
        try:
            events.append(_make_event(values))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}; dates are as 2024-05-20") from error
    return events


def _make_event(values: dict[str, str]) -> CalendarEvent:
    first = _read_day(values["date"])
    last = _read_day(values["until"]) if values["until"] else first
    if last < first:
        raise ValueError(f"it ends ({values['until']}) before it begins ({values['date']})")
    if bool(values["lat"]) != bool(values["lon"]):
        raise ValueError("a place needs both lat and lon")
    lat, lon = (float(values[name]) if values[name] else None for name in ("lat", "lon"))
    return CalendarEvent(first, last, values["name"], lat, lon, float(values["radius_km"] or RADIUS_KM))


def _from_ics(text: str, path: Path) -> list[CalendarEvent]:
    """Whole days of every VEVENT; an end at midnight is the day before. Rules of repetition are not followed."""
    plain = re.sub(r"\r?\n[ \t]", "", text)
    events = []
    for block in re.findall(r"BEGIN:VEVENT\r?\n(.*?)END:VEVENT", plain, re.DOTALL):
        fields = dict(re.findall(r"^([A-Z-]+)[^:\r\n]*:(.*?)\r?$", block, re.MULTILINE))
        if "DTSTART" not in fields:
            continue
        try:
            first = _read_day(fields["DTSTART"])
            end = fields.get("DTEND")
            last = max(first, _read_day(end) - _ends_at_midnight(end)) if end else first
            lat, lon = (float(v) for v in fields["GEO"].split(";")) if "GEO" in fields else (None, None)
        except ValueError as error:
            raise DataError(f"{path}: an event's DTSTART, DTEND or GEO cannot be read ({error})") from error
        name = re.sub(r"\\([,;\\])", r"\1", fields.get("SUMMARY", "event"))
        events.append(CalendarEvent(first, last, name, lat, lon))
    return events


def _ends_at_midnight(text: str) -> bool:
    return "T" not in text or "T000000" in text


@dataclass(frozen=True)
class Calendar:
    """Days that are like weekend days: public holidays of a country, and events that are not of one area alone."""

    country: str | None = None  # two letters, with a part of the country where wanted, or `zone`: that of the data
    events: tuple[CalendarEvent, ...] = ()

    @classmethod
    def read(cls, country: str | None, path: Path | None) -> Calendar | None:
        """None where neither is given; a country of which no holidays are known is refused."""
        if country is None and path is None:
            return None
        if country:
            public_holidays("US" if country == "zone" else country, 0, 0)
        return cls(country, tuple(read_calendar(path)) if path is not None else ())

    def days_off(self, zones: list[str], first: int, last: int) -> tuple[int, ...]:
        """Holidays from the first day on until some years after the last, and days of events."""
        country = self.country
        if country == "zone":
            country = next((name for name in map(country_of_zone, zones) if name), None)
            if country is None:
                raise DataError(f"no country is known of the zone {', '.join(zones) or 'UTC'}; give one, such as DE")
        days = set(public_holidays(country, first, last + YEARS_AHEAD * 366)) if country else set()
        for event in self.events:
            days |= set(range(event.first, event.last + 1)) if event.lat is None else set()
        return tuple(sorted(days))


def name_days(first: int, last: int, holidays: dict[int, str], events: list[CalendarEvent]) -> dict[str, str]:
    """What a calendar says of each day from first to last, by date; days of which it says nothing are left out."""
    words: dict[int, list[str]] = {day: [name] for day, name in holidays.items() if first <= day <= last}
    for event in events:
        for day in range(max(first, event.first), min(last, event.last) + 1):
            words.setdefault(day, []).append(event.name if event.lat is None else f"{event.name} (in one area)")
    return {iso_date(day): ", ".join(names) for day, names in sorted(words.items())}
