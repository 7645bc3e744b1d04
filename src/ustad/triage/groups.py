"""Groups: several people at one time at a place that is new to them and that few people go to, told once.

In go event scores, whole or in parts of whole entities, and how rare pairs are in a normal week. Out comes a table with
a row and a p-value for each group. It has no part in anybody's score: any one of these visits is like the many first
visits that everybody makes, and only both together stand out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ustad.clock import local_time
from ustad.dataset import zone_of
from ustad.events.templates import place_words, say
from ustad.events.together import FEW, PairTails, SharedVisits, first_ways, list_people, place_keys, sort_visits
from ustad.events.visits import kind_feature, place_feature
from ustad.events.words import clock_words, date_words
from ustad.schema import EventSchema
from ustad.scores import read_answer, read_answers
from ustad.tables import TIMESTAMP, agent_codes

#: The column that says whether a place is new to the entity.
NEW = "new_place"
_COLUMNS = {
    "group_id": pa.string(), "started_at": TIMESTAMP, "finished_at": TIMESTAMP, "agent_ids": pa.list_(pa.string()),
    "new_to": pa.int64(), "people": pa.int64(), "incident_ids": pa.list_(pa.string()),
    "event_ids": pa.list_(pa.string()), "score": pa.float64(), "p_value": pa.float64(), "reason": pa.string(),
}  # fmt: skip


Pairs = tuple[np.ndarray, np.ndarray]  # positions of the two visits of each pair


def find_groups(parts: Iterable[pa.Table], schema: EventSchema, tails: PairTails) -> pa.Table:
    """Groups among event scores, the rarest first, and of equally rare ones the most unusual: `group_id`, `started_at`,
    `finished_at` (from when to when two of them were there), `agent_ids`, `new_to` (how many of them were there for the
    first time), `people` (how many go there at all), `incident_ids`, `event_ids`, `score` and `p_value` (of the rarest
    pair), `reason`."""
    finder = GroupFinder(schema, tails)
    for part in parts:
        finder.look(part)
    return finder.table()


class GroupFinder:
    """Looks at event scores part by part, then knows the groups of all."""

    def __init__(self, schema: EventSchema, tails: PairTails) -> None:
        self.schema, self.tails = schema, tails
        self._known: list[np.ndarray] = []  # places, each as often as it has people
        self._visits: list[pa.Table] = []

    def look(self, part: pa.Table) -> None:
        """A part of whole entities. Where events have no end or no places of their own there is nothing to see."""
        names = part.column_names
        if self.schema.end not in names or (NEW not in names and "evidence" not in names):
            return
        part = mark_new_places(part, self.schema)
        place = place_keys(part, self.schema)
        self._known.append(list_people(place, agent_codes(part[self.schema.entity])[0]))
        self._visits.append(self._choose(part, place))

    def _choose(self, part: pa.Table, place: np.ndarray) -> pa.Table:
        """The visits that may be part of a group, in few columns: beside one that is somewhere new it would be rare."""
        schema, kind = self.schema, kind_feature(part, self.schema)
        is_new = part[NEW].to_numpy(zero_copy_only=False).astype(bool)
        may_be = np.any(self.tails.is_rare, axis=1).take(1 + is_new)
        rows = np.flatnonzero((place != 0) & may_be)
        chosen = part.take(pa.array(rows))
        clock = local_time(chosen[schema.time], zone_of(chosen, schema))
        name = schema.event_id if schema.event_id in part.column_names else schema.time
        words = chosen[kind.columns[0]].cast(pa.string()) if kind is not None else pa.nulls(len(rows), pa.string())
        return pa.table(
            {
                "place": place[rows],
                "agent": chosen[schema.entity].cast(pa.string()),
                "start": chosen[schema.time].cast(pa.int64()),
                "end": chosen[schema.end or schema.time].cast(pa.int64()),
                "score": chosen["score"],
                "new": is_new[rows],
                "event": chosen[name].cast(pa.string()),
                "incident": chosen["incident_id"],
                "kind": words,
                "day": clock.day.astype(np.int64),
                "minute": clock.minute,
            }
        )

    def table(self) -> pa.Table:
        """The groups of all parts that were looked at."""
        return as_table(self.groups())

    def groups(self) -> list[dict[str, Any]]:
        """The same as rows, times in µs, with `least`: the score of the less unusual event of the rarest pair."""
        rows = pa.concat_tables(self._visits, promote_options="permissive") if self._visits else None
        if rows is None or not rows.num_rows:
            return []
        place = rows["place"].to_numpy()
        places, people = np.unique(np.concatenate(self._known), return_counts=True)
        here = people[np.searchsorted(places, place)]
        rows = rows.append_column("people", pa.array(here))
        start, end = (rows[name].to_numpy() for name in ("start", "end"))
        visits = sort_visits(place, agent_codes(rows["agent"])[0], start, end, is_chosen=here <= FEW)
        return [_describe(rows, visits, pairs, p_value) for pairs, p_value in self._join(rows, visits)]

    def _join(self, rows: pa.Table, visits: SharedVisits) -> Iterator[tuple[Pairs, float]]:
        """Of each group its pairs (positions of both visits), and the p-value of the rarest."""
        one, other = first_ways(visits)
        is_new, people = (rows[name].to_numpy(zero_copy_only=False)[visits.row] for name in ("new", "people"))
        like = is_new[one].astype(np.int64) + is_new[other], people[one]
        p_value, chosen = self.tails.p_value[like], np.flatnonzero(self.tails.is_rare[like])
        one, other, p_value = one[chosen], other[chosen], p_value[chosen]
        edges = coo_array((np.ones(len(one)), (one, other)), shape=(len(visits.row), len(visits.row)))
        number = connected_components(edges, directed=False)[1][one]
        for group in np.unique(number):
            pairs = np.flatnonzero(number == group)
            yield (one[pairs], other[pairs]), float(p_value[pairs].min())


def is_new_place(evidence: Sequence[Mapping[str, Any]], has_places: bool) -> bool:
    """The same of one event as `mark_new_places` says of many."""
    if read_answer(evidence, "recurrence", "expected") != 0:
        return False
    return not has_places or read_answer(evidence, "distance", "observed") is not None


def mark_new_places(event_scores: pa.Table, schema: EventSchema) -> pa.Table:
    """With `NEW`, whether the entity was never there before as far as its history goes, instead of the evidence that
    says so. Of an entity without a history nobody can tell. Scores of older versions have the column already."""
    if NEW in event_scores.column_names:
        return event_scores
    is_new = read_answers(event_scores["evidence"], "recurrence", "expected") == 0
    if place_feature(event_scores, schema) is not None:  # who has no own places is at no distance from them
        is_new &= np.isfinite(read_answers(event_scores["evidence"], "distance", "observed"))
    return event_scores.drop_columns(["evidence"]).append_column(NEW, pa.array(is_new))


def _rank(group: dict[str, Any]) -> tuple[Any, ...]:
    return (group["p_value"], -group["least"], group["started_at"], group["agent_ids"])


def _describe(rows: pa.Table, visits: SharedVisits, pairs: Pairs, p_value: float) -> dict[str, Any]:
    """A group as a row of the table; `least` is the score of the less unusual event of its most unusual pair."""
    one, other = pairs
    began, left = np.maximum(visits.start[one], visits.start[other]), np.minimum(visits.end[one], visits.end[other])
    members = rows.take(pa.array(visits.row[np.unique(np.r_[one, other])]))
    later = np.where(visits.start[one] >= visits.start[other], one, other)[np.argmin(began)]
    score = rows["score"].to_numpy()
    group = {
        "started_at": int(began.min()) * 1_000_000,
        "finished_at": int(left.max()) * 1_000_000,
        "agent_ids": sorted(pc.unique(members["agent"]).to_pylist()),
        "new_to": len(pc.unique(members["agent"].filter(members["new"]))),
        "people": members["people"][0].as_py(),
        "incident_ids": sorted(set(members["incident"].drop_null().to_pylist())),
        "event_ids": members["event"].to_pylist(),
        "score": float(-np.log10(p_value)),
        "p_value": p_value,
        "least": float(np.minimum(score[visits.row[one]], score[visits.row[other]]).max()),
    }
    return {**group, "reason": _words(group, rows.slice(int(visits.row[later]), 1).to_pylist()[0])}


def _words(group: dict[str, Any], second: dict[str, Any]) -> str:
    """A sentence, with the hour at which the second of them came."""
    people, new = group["agent_ids"], group["new_to"]
    return say(
        "group",
        who=f"{', '.join(people[:-1])} and {people[-1]}",
        place=place_words(second["kind"]) if second["kind"] else "one place",
        clock=clock_words(float(second["minute"])),
        date=date_words(int(second["day"])),
        new="each of them" if new == len(people) else f"{new} of them",
        people=group["people"],
    )


def as_table(groups: Iterable[dict[str, Any]]) -> pa.Table:
    """A table of groups in the order of their rank, which is their id."""
    lines = [{"group_id": f"group-{n}", **group} for n, group in enumerate(sorted(groups, key=_rank), 1)]
    return pa.table({name: pa.array([line[name] for line in lines], kind) for name, kind in _COLUMNS.items()})
