"""Values as people say them: clock times, durations, distances, plain numbers with their unit."""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import Any

from ustad.events.observed import UNOBSERVED_MINUTES
from ustad.schema import Feature
from ustad.ties import rounded


def value_words(feature: Feature, value: Any, length: bool = False) -> str:
    """One value of a feature in words; `length` for a spread, which is a span of time and not a clock time."""
    if isinstance(value, str):
        return value
    if feature.display == "clock":
        return minutes_words(float(value)) if length else clock_words(float(value))
    if feature.display == "duration":
        return minutes_words(float(value))
    if feature.display == "distance":
        return distance_words(float(value))
    return f"{number_text(float(value))}{' ' + feature.unit if feature.unit else ''}"


def number_text(value: float) -> str:
    """Three digits, and no fewer than the whole number has.

    >>> number_text(12.345), number_text(4200.4), number_text(0.0123)
    ('12.3', '4,200', '0.0123')
    """
    value = rounded(value)
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.3g}"


def clock_words(minutes: float) -> str:
    """Minutes since midnight as HH:MM.

    >>> clock_words(1090.2)
    '18:10'
    """
    whole = _nearest(minutes) % 1440
    return f"{whole // 60:02d}:{whole % 60:02d}"


def date_words(day: int) -> str:
    """A local date, as days since 1970-01-01.

    >>> date_words(19_750)
    '28 January'
    """
    when = date(1970, 1, 1) + timedelta(days=day)
    return f"{when.day} {when:%B}"


def minutes_words(minutes: float) -> str:
    """
    >>> minutes_words(0.2), minutes_words(25), minutes_words(665), minutes_words(4000)
    ('12 s', '25 min', '11 h 5 min', '2.8 days')
    """
    whole, seconds = _nearest(abs(minutes)), _nearest(abs(minutes) * 60)
    sign = "−" if minutes < 0 and seconds else ""
    if whole == 0 and seconds:
        return f"{sign}{seconds} s"
    if whole < 60:
        return f"{sign}{whole} min"
    if whole < 2880:
        return f"{sign}{whole // 60} h" + (f" {whole % 60} min" if whole % 60 else "")
    return f"{sign}{whole / 1440:.1f} days"


def distance_words(kilometres: float) -> str:
    """
    >>> distance_words(0.65), distance_words(4.21), distance_words(41.4)
    ('650 m', '4.2 km', '41 km')
    """
    kilometres = rounded(kilometres)
    size = abs(kilometres)
    if size < 1:
        return f"{round(kilometres * 100) * 10} m"
    return f"{kilometres:.1f} km" if size < 10 else f"{kilometres:.0f} km"


def times_words(number: int) -> str:
    """
    >>> times_words(1), times_words(2), times_words(12)
    ('once', 'twice', '12 times')
    """
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def unseen_words(minute: float, length: float, early: float, late: float) -> dict[str, str]:
    """When ends that nobody saw may have been: an event at `minute` for `length` minutes that may have begun `early`
    minutes earlier and ended `late` minutes later.

    >>> unseen_words(1420, 480, 330, 0), unseen_words(1420, 480, 0, math.inf)
    ({'start': 'between 18:10 and 23:40'}, {'end': 'after 07:40'})
    """
    spans = {}
    if early > UNOBSERVED_MINUTES:
        span = f"between {clock_words(minute - early)} and" if early < 1440 else "before"
        spans["start"] = f"{span} {clock_words(minute)}"
    if late > UNOBSERVED_MINUTES and math.isfinite(length):
        end = minute + length
        span = (
            f"between {clock_words(end)} and {clock_words(end + late)}" if late < 1440 else f"after {clock_words(end)}"
        )
        spans["end"] = span
    return spans


def _nearest(value: float) -> int:
    """The nearest whole number, a half upwards: so do the pages, which show the same times.

    To hundredths first: what a network read as float32 comes back a little off, and half a minute is a common start.
    """
    return math.floor(round(value, 2) + 0.5)
