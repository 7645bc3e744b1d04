"""Who was together: pairs of people at one time at a place that few people go to, and how rare such a pair is.

In go events; out come pairs of events. Pairs of a normal week say what is usual: most are people who live together. In
a supermarket everybody is with everybody, so places that many go to say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.events.visits import place_feature
from ustad.schema import EventSchema
from ustad.tables import agent_codes, identity_hash
from ustad.ties import raised

#: More people than this at a place, and company there says nothing.
FEW = 10
#: Two are together from so many minutes on.
MINUTES = 5
#: Without a named place: positions to so many digits of a degree, about 100 m, are one place.
DIGITS = 3
#: A pair that is no rarer than one in a thousand makes no group.
P_VALUE = 1e-3
_SECOND = 1_000_000


@dataclass(frozen=True)
class SharedVisits:
    """Events at places that few people go to, in the order of place and start."""

    row: np.ndarray  # [n] of the table they come from
    place: np.ndarray  # [n] uint64
    agent: np.ndarray  # [n] code
    start: np.ndarray  # [n] s
    end: np.ndarray  # [n] s


def compared_columns(schema: EventSchema) -> set[str]:
    """The columns by which people's events are compared, as far as a table has them."""
    names = (schema.entity, schema.event_id, schema.time, schema.end, schema.timezone, schema.habitat)
    return {name for name in names if name} | {column for feature in schema.features for column in feature.columns}


def place_keys(events: pa.Table, schema: EventSchema) -> np.ndarray:
    """What each event's place is called everywhere: uint64 [N], 0 where it is not known."""
    where = place_feature(events, schema)
    if schema.habitat in events.column_names:
        column = events[schema.habitat].cast(pa.string())
        codes, names = agent_codes(pc.fill_null(column, ""))
        return np.where(pc.is_null(column).to_numpy(zero_copy_only=False), 0, identity_hash(names)[codes])
    if where is None:
        return np.zeros(events.num_rows, np.uint64)
    degrees = np.stack([events[c].cast(pa.float64()).to_numpy(zero_copy_only=False) for c in where.source])
    spots, codes = np.unique(np.round(degrees, DIGITS), axis=1, return_inverse=True)
    corners = [f"{lat:.{DIGITS}f},{lon:.{DIGITS}f}" for lat, lon in spots.T.tolist()]
    return np.where(np.isfinite(degrees).all(axis=0), identity_hash(corners)[codes.ravel()], 0)


def name_place(columns: Mapping[str, Any], schema: EventSchema) -> str | None:
    """What the place of one event is called, as `place_keys` calls it; None where it is not known."""
    if schema.habitat is not None:
        name = columns.get(schema.habitat)
        return None if name is None else str(name)
    where = next((feature for feature in schema.features if feature.kind == "place"), None)
    degrees = [columns.get(name) for name in where.source] if where is not None else [None]
    if any(value is None or not math.isfinite(value) for value in degrees):
        return None
    scale = 10**DIGITS  # as numpy rounds
    return ",".join(f"{round(value * scale) / scale:.{DIGITS}f}" for value in degrees if value is not None)


def list_people(place: np.ndarray, agent: np.ndarray) -> np.ndarray:
    """Places, each as often as it has people: ascending."""
    order = np.lexsort((agent, place))
    in_order, person = place[order], agent[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (in_order[1:] != in_order[:-1]) | (person[1:] != person[:-1])
    return in_order[is_first]


def few_visits(place: np.ndarray, agent: np.ndarray, start: np.ndarray, end: np.ndarray) -> SharedVisits:
    """Visits [n] (times in µs) at places with two to `FEW` people."""
    places, people = np.unique(list_people(place, agent), return_counts=True)
    is_few = np.isin(place, places[(people >= 2) & (people <= FEW) & (places != 0)])
    return sort_visits(place, agent, start, end, is_chosen=is_few)


def sort_visits(
    place: np.ndarray, agent: np.ndarray, start: np.ndarray, end: np.ndarray, *, is_chosen: np.ndarray
) -> SharedVisits:
    """The chosen visits (times in µs) by place and start."""
    rows = np.flatnonzero(is_chosen)
    rows = rows[np.lexsort((agent[rows], start[rows], place[rows]))]
    return SharedVisits(rows, place[rows], agent[rows], start[rows] // _SECOND, end[rows] // _SECOND)


def overlaps(visits: SharedVisits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of visits of two people who were together for `MINUTES` or more, both ways round: positions, seconds."""
    if not len(visits.row):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, code = np.unique(visits.place, return_inverse=True)
    first = visits.start.min()
    width = int(max(visits.start.max(), visits.end.max()) - first) + 2
    keys = code * width + (visits.start - first)
    after = np.searchsorted(keys, code * width + (visits.end - first))  # the first that begins when it has ended
    number = np.maximum(after - np.arange(len(keys)) - 1, 0)
    one = np.repeat(np.arange(len(keys)), number)
    other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(number) - number, number)
    seconds = np.minimum(visits.end[one], visits.end[other]) - visits.start[other]
    keep = (visits.agent[one] != visits.agent[other]) & (seconds >= 60 * MINUTES)
    one, other, seconds = one[keep], other[keep], seconds[keep]
    return np.r_[one, other], np.r_[other, one], np.r_[seconds, seconds]


def first_ways(visits: SharedVisits) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of `overlaps`, each once: positions."""
    one, other, _ = overlaps(visits)
    is_first = visits.agent[one] < visits.agent[other]
    return one[is_first], other[is_first]


@dataclass(frozen=True)
class PairTails:
    """How rare pairs of people at such places are, by what pairs of a normal week are like.

    A pair is the rarer the more of the two are there for the first time, and the fewer people go there at all.
    """

    p_value: np.ndarray  # float64 [3, FEW + 1] by the number of both to whom it is new, and of people who go there
    #: uint64 [K]: places that too many people of that week went to for a pair there to be rare
    crowd_places: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    @classmethod
    def of_week(cls, events: pa.Table, schema: EventSchema, is_new: np.ndarray | None) -> PairTails | None:
        """From events of a normal week, and whether each is somewhere new: bool [N]. None where nothing is known of
        places or ends, or nobody was together."""
        if is_new is None or schema.end not in events.column_names:
            return None
        start, end = (events[name].cast(pa.int64()).to_numpy() for name in (schema.time, schema.end))
        place, agent = place_keys(events, schema), agent_codes(events[schema.entity])[0]
        visits = few_visits(place, agent, start, end)
        one, other = (visits.row[pair] for pair in first_ways(visits))
        tails = cls.fit(is_new[one].astype(np.int64) + is_new[other], count_people(place, agent)[one])
        return tails and replace(tails, crowd_places=list_crowd_places(place, agent, tails.most_people))

    @classmethod
    def fit(cls, new: np.ndarray, people: np.ndarray) -> PairTails | None:
        """From the number of both to whom the place is new, and of people who go there: int64 [n] each."""
        if not len(new):
            return None
        count = np.zeros((3, FEW + 1), np.int64)
        np.add.at(count, (new, people), 1)
        as_rare = count[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)  # new to as many, and no more people go there
        rarer = np.array([count[as_rare <= number].sum() for number in as_rare.ravel()])
        return cls((1 + rarer.reshape(count.shape)) / (1 + len(new)))

    @cached_property
    def is_rare(self) -> np.ndarray:
        """Whether such a pair makes a group: bool, as `p_value`."""
        rare: np.ndarray = self.p_value <= raised(P_VALUE, floor=0.0)
        return rare

    @cached_property
    def most_people(self) -> int:
        """The most people who may go to a place so that a pair there can be rare; 0 where none can."""
        return max((people for people in range(2, FEW + 1) if self.is_rare[2, people]), default=0)

    def weigh(self, new: np.ndarray, people: np.ndarray) -> np.ndarray:
        """-log10 of how many pairs of a normal week are as rare: float64 [n]."""
        return -np.log10(self.p_value[new, people])


def list_crowd_places(place: np.ndarray, agent: np.ndarray, most: int) -> np.ndarray:
    """Known places of visits [n] that more than `most` people go to; none where `most` is 0."""
    places, people = np.unique(list_people(place, agent), return_counts=True)
    return places[(people > most) & (places != 0) & (most > 0)]


def count_people(place: np.ndarray, agent: np.ndarray) -> np.ndarray:
    """How many people go to the place of each visit: int64 [n]."""
    places, people = np.unique(list_people(place, agent), return_counts=True)
    return people[np.searchsorted(places, place)]
