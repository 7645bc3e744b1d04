"""Places of an agent's own, where no POIs name them: found in its stays, named once, known again later.

In: stays, and stays of earlier extractions. Out: the same stays with `poi_id` and `poi_category` (home, work, other).
A place is named after the stay that founded it, so that what comes later leaves the name as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import MICROSECONDS_PER_DAY, local_time, localise
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.files import find_table, read_table, set_columns
from ustad.geo import EARTH_RADIUS_KM
from ustad.mobility.sphere import sphere_points
from ustad.tables import TIMESTAMP, DataError, agent_codes, event_keys

KINDS = OTHER, HOME, WORK = "other", "home", "work"
NIGHT = (22.0, 6.0)  # local hours that speak for home
OFFICE = (9.0, 17.0)  # local hours of a weekday that speak for work
LEAST_NIGHT_HOURS = 8.0  # a home needs this much time there by night in all
ENOUGH_DAYS = 7  # with stays before the test part: they say what an agent's places are
RECENT_DAYS = 182  # of years of stays only so many days before the test part say it, because people move
OWN_DAYS = 28  # else the first half of the agent's own days with stays, at most so many
LEAST_WORK_HOURS = 12.0  # a place of work needs this much time there in office hours in all
#: What stays say of the places they are at.
PLACE_COLUMNS = {
    "agent_id": pa.string(),
    "lat": pa.float64(),
    "lon": pa.float64(),
    "poi_id": pa.string(),
    "poi_category": pa.string(),
}
SIGNS = np.frombuffer(b"0123456789abcdefghjkmnpqrstvwxyz", np.uint8)  # five bits each, none easily mistaken
SIGNS_OF_A_NAME = 8


# ---------------------------------------------------------------------------------------- known from before
@dataclass(frozen=True)
class KnownPlaces:
    """Own places of earlier extractions: P places of O agents."""

    agents: pa.Array  # string [O]
    offsets: np.ndarray  # int64 [O + 1]: where each agent's places begin
    names: pa.Array  # string [P]
    kinds: np.ndarray  # int64 [P], of KINDS
    sums: np.ndarray  # float64 [P, 3]: of the stays' points on the unit sphere
    counts: np.ndarray  # float64 [P]: stays

    @classmethod
    def of(cls, sources: Sequence[Path | str | pa.Table]) -> KnownPlaces:
        """Of the stays in data directories, files or tables, oldest first: the last says what a place is."""
        tables = [_stays_at_own_places(source) for source in sources]
        stays = pa.concat_tables(tables or [pa.schema(PLACE_COLUMNS).empty_table()])
        place, names = agent_codes(stays["poi_id"])
        agent, agents = agent_codes(stays["agent_id"])
        owner, kinds = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        owner[place] = agent
        kinds[place] = pc.fill_null(pc.index_in(stays["poi_category"], pa.array(KINDS)), 0).to_numpy()
        points = sphere_points(np.array(stays["lat"]), np.array(stays["lon"]))
        sums = np.stack([np.bincount(place, points[:, axis], len(names)) for axis in range(3)], axis=1)
        counts = np.bincount(place, minlength=len(names)).astype(np.float64)
        order = np.argsort(owner, kind="stable")
        return cls(
            agents=pa.array(agents.tolist(), pa.string()),
            offsets=np.searchsorted(owner[order], np.arange(len(agents) + 1)).astype(np.int64),
            names=pa.array(names[order].tolist(), pa.string()),
            kinds=kinds[order],
            sums=np.ascontiguousarray(sums[order]),
            counts=counts[order],
        )

    def ranges(self, agents: np.ndarray) -> np.ndarray:
        """First place of each agent and the one behind its last, the same where it has none: int64 [n, 2]."""
        texts = pa.array([str(agent) for agent in agents.tolist()], pa.string())
        at = pc.fill_null(pc.index_in(texts, value_set=self.agents), -1).to_numpy().astype(np.int64)
        edges = np.append(self.offsets, 0)  # an agent not known: from the 0 at the end to the 0 at the beginning
        return np.stack([edges[at], edges[at + 1]], axis=1)


def _stays_at_own_places(source: Path | str | pa.Table) -> pa.Table:
    where = "places" if isinstance(source, pa.Table) else str(source)
    table = source if isinstance(source, pa.Table) else _read_stays(Path(source))
    missing = [name for name in PLACE_COLUMNS if name not in table.column_names]
    if missing:
        raise DataError(f"{where}: stays without {', '.join(missing)} name no places; give what `ustad extract` wrote")
    table = table.select(list(PLACE_COLUMNS)).cast(pa.schema(PLACE_COLUMNS))
    owner = pc.struct_field(pc.extract_regex(table["poi_id"], r"^(?P<owner>.*):[^:]*$"), "owner")
    table = table.filter(pc.fill_null(pc.equal(owner, table["agent_id"]), False))
    if not table.num_rows:
        raise DataError(f"{where}: no stay is at a place of the agent's own; where POIs name places, give --pois")
    return table


def _read_stays(path: Path) -> pa.Table:
    file = find_table(path, "stays") if path.is_dir() else path
    if file is None:
        raise DataError(f"{path}: holds no table of stays")
    return read_table(file)


# --------------------------------------------------------------------------------------------------- naming
def own_places(
    stays: pa.Table, radius_m: float = 150.0, until: Any = None, earlier_places: KnownPlaces | None = None
) -> pa.Table:  # fmt: skip
    """Stays with each agent's own places as `poi_id` and what they are to the agent as `poi_category`.

    In order of time a stay joins the nearest of the agent's places within `radius_m`, else founds one, which is called
    after the agent and that stay (`AGENT:7k2m9qxw`). Home is where the agent spends the most hours of the night, work
    the most office hours of weekdays elsewhere, each above a least amount; any other place is `other`. With `until` (a
    time), only stays that begin in the half year before it say what a place is. For an agent with hardly any stay by
    then, the stays of its own first days do. `earlier_places` are there from the beginning, and their agents' home and
    work stay what they were. Needs `timezone`; stays have to be in order of agent and time.
    """
    earlier_places = earlier_places or KnownPlaces.of([])
    codes, agents = agent_codes(stays["agent_id"])
    starts = np.searchsorted(codes, np.arange(len(agents) + 1))
    points = sphere_points(np.array(stays["lat"]), np.array(stays["lon"]))
    chord = 2.0 * np.sin(radius_m / 1000.0 / EARTH_RADIUS_KM / 2.0)
    ranges = earlier_places.ranges(agents)
    anchor = _cluster(starts, points, chord * chord, ranges, earlier_places.sums, earlier_places.counts)
    anchors, which = np.unique(anchor, return_inverse=True)
    old, founders = -1 - anchors[anchors < 0], anchors[anchors >= 0]
    names = pa.concat_arrays([earlier_places.names.take(pa.array(old)), _names(stays.take(pa.array(founders)))])
    owner = np.searchsorted(starts, anchors, side="right") - 1  # of founded places
    kinds = _kinds(stays, owner, which, until)
    kinds[ranges[owner, 0] < ranges[owner, 1]] = 0
    kinds[: len(old)] = earlier_places.kinds[old]
    categories = pa.array(KINDS).take(pa.array(kinds))
    rows = pa.array(which)
    return set_columns(stays, poi_id=names.take(rows), poi_category=categories.take(rows))


def _names(founding: pa.Table) -> pa.Array:
    """What places are called that these stays founded."""
    keys = event_keys(founding["agent_id"], founding["started_at"])
    signs = SIGNS[(keys[:, None] >> (5 * np.arange(SIGNS_OF_A_NAME))) & 31]
    own = pa.array(np.ascontiguousarray(signs).view(f"S{SIGNS_OF_A_NAME}")[:, 0]).cast(pa.string())
    agents = founding["agent_id"].cast(pa.string()).combine_chunks()
    return pc.binary_join_element_wise(agents, own, ":")


@numba.njit(cache=True, nogil=True)
def _cluster(starts: Any, points: Any, limit: Any, ranges: Any, known_sums: Any, known_counts: Any) -> Any:
    """What founded the place of each stay: the row of a stay, or -1 - p for the known place p. A place's point is the
    mean of its stays so far."""
    anchor = np.zeros(len(points), np.int64)
    for agent in range(len(starts) - 1):
        places = ranges[agent, 1] - ranges[agent, 0]
        most = places + starts[agent + 1] - starts[agent]
        sums, counts, founder = np.zeros((most, 3)), np.zeros(most), np.zeros(most, np.int64)
        for p in range(places):
            earlier = ranges[agent, 0] + p
            founder[p], counts[p] = -1 - earlier, known_counts[earlier]
            for axis in range(3):
                sums[p, axis] = known_sums[earlier, axis]
        for k in range(starts[agent], starts[agent + 1]):
            best, nearest = places, limit
            for p in range(places):
                distance = 0.0
                for axis in range(3):
                    distance += (sums[p, axis] / counts[p] - points[k, axis]) ** 2
                if distance <= nearest:
                    best, nearest = p, distance
            if best == places:
                founder[best] = k
                places += 1
            for axis in range(3):
                sums[best, axis] += points[k, axis]
            counts[best] += 1
            anchor[k] = founder[best]
    return anchor


# ------------------------------------------------------------------------------------------- home and work
def first_of_test(span: tuple[int, int], timezone: str | None, split: dict[str, Any] | None) -> datetime | None:
    """When the test part of fixes between two moments (µs) begins: as `split` says, else by the default proportions,
    at midnight of `timezone` (UTC without one). None where the data is too short to be split.

    Stays are split by the days they begin on, and perhaps none begins on the last day of the fixes. That leaves two
    possible beginnings; the earlier one is taken.
    """
    zone = timezone or "UTC"
    begins = []
    for last in (span[1], span[1] - MICROSECONDS_PER_DAY):
        daily = np.append(np.arange(span[0], last, MICROSECONDS_PER_DAY), last)
        ends = pa.table({"started_at": pa.array(daily, TIMESTAMP), "timezone": [zone] * len(daily)})
        try:
            begins.append(Dataset(ends, meta={"split": split} if split else {}).split(SplitConfig()).test_first)
        except DataError:
            continue
    if not begins:
        return None
    midnight = pa.chunked_array([pa.array([min(begins) * MICROSECONDS_PER_DAY], pa.timestamp("us"))])
    return localise(midnight, zone)[0].as_py()


def _kinds(stays: pa.Table, owner: np.ndarray, which: np.ndarray, until: Any) -> np.ndarray:
    """0 other, 1 home, 2 work for each place; `which` is the place of each stay, `owner` the agent of each place."""
    starts, ends = (stays[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    clock = local_time(stays["started_at"], stays["timezone"])
    night, office = _hours(clock.minute / 60.0, clock.weekday, (ends - starts) / 3.6e9)
    if until is not None:
        limit = pa.scalar(until).cast(stays["started_at"].type).cast(pa.int64()).as_py()
        recent = starts >= limit - RECENT_DAYS * MICROSECONDS_PER_DAY
        counts = _tell_places(agent_codes(stays["agent_id"])[0], clock.day, starts < limit, recent)
        night, office = np.where(counts, night, 0.0), np.where(counts, office, 0.0)
    home = _best_place(owner, np.bincount(which, night, len(owner)), LEAST_NIGHT_HOURS)
    office_hours = np.where(home, 0.0, np.bincount(which, office, len(owner)))
    work = _best_place(owner, office_hours, LEAST_WORK_HOURS)
    return home * 1 + work * 2


@numba.njit(cache=True, nogil=True)
def _tell_places(agent: Any, day: Any, before: Any, recent: Any) -> Any:
    """Which stays say what a place is: those `before` the test part, and of these only `recent` ones where they are
    enough. For an agent with too few days there (it joined late, or its clock was wrong once), the first half of its
    own days, at most `OWN_DAYS`."""
    tells = before.copy()
    begin = 0
    while begin < len(agent):
        end, days, early, late = begin, 0, 0, 0
        while end < len(agent) and agent[end] == agent[begin]:
            new = end == begin or day[end] != day[end - 1]
            days, early = days + new, early + (new and before[end])
            late += new and before[end] and recent[end]
            end += 1
        if early < min(ENOUGH_DAYS, days // 2):
            days_so_far = 0
            for k in range(begin, end):
                days_so_far += k == begin or day[k] != day[k - 1]
                tells[k] = days_so_far <= max(1, min(OWN_DAYS, days // 2))
        elif late >= ENOUGH_DAYS:
            for k in range(begin, end):
                tells[k] = before[k] and recent[k]
        begin = end
    return tells


def _best_place(agent: np.ndarray, hours: np.ndarray, least: float) -> np.ndarray:
    """Per agent the place with the most hours, where they are enough: bool [places]."""
    order = np.lexsort((np.arange(len(agent)), -hours, agent))
    first = np.r_[True, np.diff(agent[order]) > 0] if len(order) else np.zeros(0, bool)
    is_home = np.zeros(len(agent), bool)
    is_home[order[first]] = hours[order[first]] >= least
    return is_home


@numba.njit(cache=True, nogil=True)
def _hours(start: Any, weekday: Any, duration: Any) -> Any:
    """Hours of each stay by night and in the office hours of weekdays; stays of more than 14 days count 14."""
    night, office = np.zeros(len(start)), np.zeros(len(start))
    for k in range(len(start)):
        end = start[k] + min(duration[k], 336.0)
        day = 0
        while day * 24.0 < end:
            a, b = max(start[k] - day * 24.0, 0.0), min(end - day * 24.0, 24.0)
            night[k] += max(0.0, min(b, NIGHT[1]) - a) + max(0.0, b - max(a, NIGHT[0]))
            if (weekday[k] + day) % 7 < 5:
                office[k] += max(0.0, min(b, OFFICE[1]) - max(a, OFFICE[0]))
            day += 1
    return night, office
