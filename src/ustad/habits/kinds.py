"""What sort of unusual an event is, as far as its entity's history can say.

In go the question that makes it unusual and the facts behind the answers; out come kinds by row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ustad.events.observed import UNOBSERVED_MINUTES
from ustad.events.visits import HasColumns, Visits, place_feature
from ustad.habits.questions import Comparison
from ustad.schema import EventSchema


def find_kinds(
    comparison: Comparison, leads: np.ndarray, about: np.ndarray, unseen: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The kind of each event, None where history has nothing to say: object [N].

    `novel` at a place without history; `routine` where recurrence leads and there were more visits now (two or more)
    than in the history. `unobserved` where what leads rests on an end that nobody saw, or most of the event is missing
    (`unseen`: `start`, `end`, `most`, bool [N] each).
    """
    result = np.full(len(leads), None, dtype=object)
    result[comparison.place < 0] = "novel"
    result[(leads == "recurrence") & (comparison.count > np.maximum(comparison.before, 1))] = "routine"
    starts, lengths, ends = (about == part for part in ("start", "length", "end"))
    is_unobserved = unseen["most"] | ((starts | lengths) & unseen["start"]) | ((lengths | ends) & unseen["end"])
    result[is_unobserved] = "unobserved"
    return result


def find_kind(comparison: Comparison, lead: str, about: str | None, unseen: Mapping[str, np.ndarray]) -> str | None:
    """The same of the only event, in plain numbers."""
    start, end, most = (bool(unseen[part][0]) for part in ("start", "end", "most"))
    if most or (start and about in ("start", "length")) or (end and about in ("length", "end")):
        return "unobserved"
    if lead == "recurrence" and comparison.count[0] > max(comparison.before[0], 1):
        return "routine"
    return "novel" if comparison.place[0] < 0 else None


def unseen_parts(table: HasColumns, visits: Visits, schema: EventSchema) -> dict[str, np.ndarray]:
    """What was not observed of each visit: its start, its end, or at least half of place, start and duration."""
    parts = [np.zeros(len(visits), bool)]  # a start is always there
    if schema.habitat is not None or place_feature(table, schema) is not None:
        parts.append((visits.key == 0) & np.isnan(visits.x))
    if schema.end is not None:
        parts.append(np.isnan(visits.duration))
    gaps = {"start": visits.early > UNOBSERVED_MINUTES, "end": visits.late > UNOBSERVED_MINUTES}
    return {**gaps, "most": 2 * np.sum(parts, axis=0) >= len(parts)}
