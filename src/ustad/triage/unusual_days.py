"""Unusual days of everybody (snow, a strike, a holiday): a test of whole days, one note instead of many alerts.

In go for every event its local day, its entity, its p-value and the question that leads; out come the days on which far
more entities than on other days had something unusual, and the questions that made it so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from ustad.clock import iso_date

#: An entity's day is unusual where one of its events has a p-value up to this.
LEVEL = 0.05
#: A day needs so many entities, and so many other days to be compared with.
ENTITIES, DAYS = 30, 6
#: The chance that any of the days is called unusual where nothing is, and how many times as unusual it must be.
CHANCE, TIMES = 0.01, 2.0
#: A question made the day where so many entities were unusual in it, and so many times as many as usual.
LEAST, OFTENER = 5, 2.0


@dataclass(frozen=True)
class UnusualDay:
    """A day, the share of entities that were unusual on it and usually are, and the questions that led more often."""

    day: int
    entities: int
    share: float
    usual: float
    p_value: float
    questions: tuple[str, ...]


def find_unusual_days(day: np.ndarray, entity: np.ndarray, p_value: np.ndarray, lead: np.ndarray) -> list[UnusualDay]:
    """Of events [N]; `lead` are names of questions. The days in order."""
    days, code = np.unique(day, return_inverse=True)
    return judge_days(days, *_count(code, entity, p_value, lead))


def judge_days(
    days: np.ndarray, people: np.ndarray, unusual: np.ndarray, leads: dict[str, np.ndarray]
) -> list[UnusualDay]:
    """The same from counts by day [D]: entities, those with something unusual, and those by the question that led.

    Shares are compared on the scale where a share's variance does not depend on it. What varies from day to day is
    measured by the median deviation of the other days, and is no less than chance alone gives.
    """
    enough = people >= ENTITIES
    if enough.sum() <= DAYS:
        return []
    scale = np.arcsin(np.sqrt((unusual + 0.375) / (people + 0.75)))
    result = []
    for i in np.flatnonzero(enough).tolist():
        others = enough & (np.arange(len(days)) != i)
        middle = np.median(scale[others])
        spread = 1.4826 * np.median(np.abs(scale[others] - middle))
        width = np.hypot(max(spread, 0.5 / np.sqrt(people[i])), 0.5 / np.sqrt(np.median(people[others]) * others.sum()))
        tail = float(stdtr(others.sum() - 1, (middle - scale[i]) / width)) * int(enough.sum())
        share, usual = unusual[i] / people[i], float(np.median(unusual[others] / people[others]))
        if tail <= CHANCE and share >= TIMES * usual:
            questions = _ask(leads, people, i, others)
            result.append(UnusualDay(int(days[i]), int(people[i]), share, usual, min(tail, 1.0), questions))
    return result


def _count(
    code: np.ndarray, entity: np.ndarray, p_value: np.ndarray, lead: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """By day: entities seen, entities with an unusual event, and of those how many were led by each question."""
    order = np.lexsort((p_value, entity, code))
    code, entity, p_value, lead = (values[order] for values in (code, entity, p_value, lead))
    first = np.r_[True, (code[1:] != code[:-1]) | (entity[1:] != entity[:-1])]  # the most unusual event of each
    code, p_value, lead = code[first], p_value[first], lead[first]
    number, is_unusual = int(code.max(initial=-1)) + 1, p_value <= LEVEL
    leads = {str(name): np.bincount(code[is_unusual & (lead == name)], minlength=number) for name in np.unique(lead)}
    return np.bincount(code, minlength=number), np.bincount(code[is_unusual], minlength=number), leads


def _ask(leads: dict[str, np.ndarray], people: np.ndarray, i: int, others: np.ndarray) -> tuple[str, ...]:
    """The questions that led more often on day i, most first."""
    usual = {name: float(np.median(count[others] / people[others])) for name, count in leads.items()}
    more = [n for n, count in leads.items() if count[i] >= LEAST and count[i] / people[i] >= OFTENER * usual[n]]
    return tuple(sorted(more, key=lambda name: -leads[name][i]))


def describe_day(one: UnusualDay, name: str | None, event_word: str) -> str:
    """What is said of such a day; `name` is what the calendar calls it."""
    what = f"{iso_date(one.day)}{f' ({name})' if name else ''} was unusual for everybody"
    share = f"{100 * one.share:.0f} % of {one.entities:,} people had an unusual {event_word}"
    return f"{what}: {share}, on other days {100 * one.usual:.0f} %"
