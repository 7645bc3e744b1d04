"""From alerts a day to a threshold of events: how many of the unusual events of normal people lead an incident.

In go the calibrating events with their scores; out comes, for some p-values, how many of the events up to it there are
and how many incidents they make. It is stored with the model, so that live scoring knows which p-value gives as many
alerts a day as are asked for: events that belong together raise one alert.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ustad.schema import EventSchema
from ustad.scoring.incidents import UNUSUAL, find_incidents
from ustad.ties import raised

#: p-values that are counted, the largest first.
LEVELS = (UNUSUAL, 0.02, 0.01, 0.005, 0.002, 0.001)
#: Fewer events than so many do not say which share of them leads; a larger p-value does.
FEWEST = 30

#: A p-value, events up to it, incidents that they make.
Count = tuple[float, int, int]


def count_incidents(events: pa.Table, schema: EventSchema, scores: np.ndarray) -> list[Count]:
    """Of normal events and their scores (-log10 p), at each level."""
    p_values = np.power(10.0, -scores)
    leads = ~find_incidents(events, schema, p_values, scores).echo
    small = [p_values <= raised(level) for level in LEVELS]
    return [(level, int(mask.sum()), int((mask & leads).sum())) for level, mask in zip(LEVELS, small, strict=True)]


def leading_share(p_value: float, counts: Sequence[Count]) -> float:
    """Which share of normal events up to a p-value leads an incident; 1 where the model does not say."""
    shares = [
        (level, incidents / events)
        for level, events, incidents in counts
        if incidents and (events >= FEWEST or level == UNUSUAL)
    ]
    if not shares:
        return 1.0
    levels, values = np.array(shares[::-1]).T
    return float(np.interp(np.log10(p_value), np.log10(levels), values))


def incident_share(p_value: float, counts: Sequence[Count]) -> float:
    """How many incidents, as a share of all normal events, come up to a p-value. Above `UNUSUAL` every event raises an
    alert of its own."""
    unusual = min(p_value, UNUSUAL)
    return unusual * leading_share(unusual, counts) + p_value - unusual


def threshold_for(share: float, counts: Sequence[Count]) -> float:
    """The p-value up to which as many incidents come as are a `share` of all normal events."""
    low, high = share, 1.0
    for _ in range(60):  # the number of incidents rises with the p-value
        middle = (low + high) / 2
        low, high = (middle, high) if incident_share(middle, counts) < share else (low, middle)
    return high
