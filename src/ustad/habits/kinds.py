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


def unseen_parts(table: HasColumns, visits: Visits, schema: EventSchema) -> dict[str, np.ndarray]:
    """What was not observed of each visit: its start, its end, or at least half of place, start and duration."""
    parts = [np.zeros(len(visits), bool)]  # a start is always there
    if schema.habitat is not None or place_feature(table, schema) is not None:
        parts.append((visits.key == 0) & np.isnan(visits.x))
    if schema.end is not None:
        parts.append(np.isnan(visits.duration))
    gaps = {"start": visits.early > UNOBSERVED_MINUTES, "end": visits.late > UNOBSERVED_MINUTES}
    return {**gaps, "most": 2 * np.add.reduce(parts, axis=0, dtype=np.int64) >= len(parts)}
