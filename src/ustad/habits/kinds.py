"""What drives a score by habits: each term's share of the look that decides, and the kind of the event.

In go calibrated looks and terms with the facts behind them; out come shares and kinds by row, the same in bulk and
live. Only the terms of the most unusual look speak: the score is that look's, and the others added nothing to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ustad.distribution import UNSURE
from ustad.events.observed import UNOBSERVED_MINUTES
from ustad.events.visits import HasColumns, Visits, place_feature
from ustad.habits.weights import Weights
from ustad.schema import EventSchema
from ustad.ties import first_highest, raised

#: What the memory network's epistemic and aleatoric uncertainty are called among what it answers; they are no terms.
DOUBT, NOISE = "memory_doubt", "memory_noise"
#: Terms that rest on the start of an event, and those that rest on both of its ends; elsewhere is about the time seen.
STARTS, LENGTHS = ("start", "memory_start"), ("duration", "memory_duration")


def driving_shares(
    looks: Mapping[str, np.ndarray], surprise: Mapping[str, np.ndarray], weights: Weights
) -> dict[str, np.ndarray]:
    """Each term's share of the most unusual look, 0 for terms outside it: float64 [N], adding up to 1 (to 0 where no
    term of it says anything)."""
    first = first_highest(list(looks.values()))
    parts = {name: np.zeros(len(first)) for name in surprise}
    for i, look in enumerate(looks):
        for name, weight in weights[look].items():
            if name in parts:
                parts[name] = np.where(first == i, weight * surprise[name], parts[name])
    total = np.sum(list(parts.values()), axis=0)
    return {name: np.divide(v, total, out=np.zeros(len(v)), where=total > 0) for name, v in parts.items()}


def kinds(
    shares: Mapping[str, np.ndarray],
    place: np.ndarray,
    before: np.ndarray,
    count: np.ndarray,
    doubt: np.ndarray | None,
    unseen: Mapping[str, np.ndarray],
) -> np.ndarray:
    """The kind of each event: object [N].

    `novel` at a place without history (`place` -1); `routine` where recurrence leads and there were more visits now
    (`count`, two or more) than in the history (`before`); else `predictable`, or `unsure` where the log10 tail of the
    network's `doubt` is among its reference's highest 5 %. `unobserved` where what leads rests on an end that nobody
    saw, or most of the event is missing (`unseen`: `start`, `end`, `most`, bool [N] each).
    """
    names = np.array(list(shares), dtype=object)
    leads = names[first_highest(list(shares.values()))]
    result = np.full(len(place), "predictable", dtype=object)
    if doubt is not None:
        result[np.nan_to_num(doubt) <= raised(UNSURE)] = "unsure"
    result[place < 0] = "novel"
    result[(leads == "recurrence") & (count > np.maximum(before, 1))] = "routine"
    starts, lengths = np.isin(leads, STARTS), np.isin(leads, LENGTHS)
    lost = unseen["most"] | ((starts | lengths) & unseen["start"]) | (lengths & unseen["end"])
    result[lost] = "unobserved"
    return result


def unseen_parts(table: HasColumns, visits: Visits, schema: EventSchema) -> dict[str, np.ndarray]:
    """What was not observed of each visit: its start, its end, or at least half of place, start and duration."""
    parts = [np.zeros(len(visits), bool)]  # a start is always there
    if schema.habitat is not None or place_feature(table, schema) is not None:
        parts.append((visits.key == 0) & np.isnan(visits.x))
    if schema.end is not None:
        parts.append(np.isnan(visits.duration))
    gaps = {"start": visits.early > UNOBSERVED_MINUTES, "end": visits.late > UNOBSERVED_MINUTES}
    return {**gaps, "most": np.mean(parts, axis=0) >= 0.5}
