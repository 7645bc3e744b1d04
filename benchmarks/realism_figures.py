"""How real a data set of stays looks, and how hard: the distributions that are published, and what visit rate finds.

In: a data set with POIs and trips. Out: `Realism`, plain numbers and histograms, from which realism.py makes its page;
and AUROC and average precision of NUMOSIM's published baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import local_time
from ustad.config import SplitConfig
from ustad.dataset import Dataset, zone_of
from ustad.geo import Projection
from ustad.lab.baselines.protocol import make
from ustad.lab.evaluation.detection_metrics import evaluate
from ustad.tables import agent_codes

RANKS = 20  # places per person that enter the visit frequencies


@dataclass(frozen=True)
class Target:
    """What is published about a data set; NaN where nothing is."""

    stays_per_day: float
    stay_minutes: float
    start_minute: float
    half_width_km: float
    half_height_km: float
    classes: int
    anomalous_agents: float  # share
    anomalous_per_agent: float


#: NUMOSIM and the two private sets of the paper, from their published tables (20,000 agents each). The days of
#: SimJordan are not published; its mean stay needs more than eight weeks, so nine are simulated.
PUBLISHED = {
    "numosim-la": Target(3_428_714 / 20_000 / 56, 455, 776, 59, 60, 28, 381 / 20_000, 3_468 / 381),
    "simla": Target(3_111_712 / 20_000 / 56, 509, 850, 57, 40, 39, 162 / 20_000, 892 / 162),
    "simjordan": Target(3_656_233 / 20_000 / 63, 484, 835, 11, 10, 7, 370 / 20_000, float("nan")),
}
ZIPF_SLOPE = 1.2  # González, Hidalgo, Barabási 2008: visits of the k-th place fall as k^-1.2


@dataclass(frozen=True)
class Realism:
    """The figures of one data set."""

    stays_per_day: float
    stay_minutes: float
    start_minute: float
    half_width_km: float
    half_height_km: float
    classes: int
    anomalous_agents: float
    anomalous_per_agent: float
    zipf_slope: float
    gyration_km: np.ndarray  # [agents]
    commute_km: np.ndarray  # [agents with an anchor]: from the most to the second most used place, by time
    trip_minutes: np.ndarray
    stay_hours: np.ndarray
    start_hours: np.ndarray
    stays_a_day: np.ndarray  # [agents]
    rank_share: np.ndarray  # [RANKS]: share of visits at the k-th place
    home_workday: np.ndarray  # [24]: share of people at home by hour
    home_weekend: np.ndarray


def look_at(data: Dataset, weekend: tuple[int, int] = (5, 6)) -> Realism:
    """All figures of a data set whose meta says the first day, the days and the zone."""
    stays = data.events
    agent, agents = agent_codes(stays["agent_id"])
    place, _ = agent_codes(stays["poi_id"])
    start, end = (stays[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    minutes = (end - start) / 60e6
    local = local_time(stays["started_at"], zone_of(stays, data.schema))
    x, y = Projection.fit(stays["lat"].to_numpy(), stays["lon"].to_numpy()).forward(
        stays["lat"].to_numpy(), stays["lon"].to_numpy()
    )
    days = int(data.meta["days"])
    home, second = _main_places(agent, place, minutes, len(agents))
    is_home = place == home[agent]
    labels = len(data.labels) if data.labels is not None else float("nan")
    label_count = len(data.agent_labels) if data.agent_labels is not None else 0
    share, slope = _visit_ranks(agent, place, len(agents))
    first = int(local.day.min())
    wall = local.day.astype(np.int64) * 1440 + local.minute - first * 1440
    workday, free = _at_home(wall[is_home], minutes[is_home], first, days, agents=len(agents), weekend=weekend)
    return Realism(
        stays_per_day=len(agent) / len(agents) / days,
        stay_minutes=float(minutes.mean()),
        start_minute=float(local.minute.mean()),
        half_width_km=float(np.ptp(x)) / 2,
        half_height_km=float(np.ptp(y)) / 2,
        classes=len(pc.unique(stays["poi_category"])),
        anomalous_agents=label_count / len(agents),
        anomalous_per_agent=labels / max(label_count, 1),
        zipf_slope=slope,
        gyration_km=_gyration(agent, x, y, minutes, agents=len(agents)),
        commute_km=_commutes(place, x, y, home, second=second),
        trip_minutes=_trip_minutes(data),
        stay_hours=minutes / 60,
        start_hours=local.minute / 60,
        stays_a_day=np.bincount(agent) / days,
        rank_share=share,
        home_workday=workday,
        home_weekend=free,
    )


def _main_places(
    agent: np.ndarray, place: np.ndarray, minutes: np.ndarray, agents: int
) -> tuple[np.ndarray, np.ndarray]:
    """The two places where each agent spends most time: int64 [agents] each, -1 where there is no second."""
    keys, which = np.unique(agent * (place.max() + 1) + place, return_inverse=True)
    pairs, minutes_there = np.divmod(keys, place.max() + 1), np.bincount(which, minutes)
    order = np.lexsort((-minutes_there, pairs[0]))
    first = np.searchsorted(pairs[0][order], np.arange(agents))
    last = np.searchsorted(pairs[0][order], np.arange(agents), side="right")
    home = pairs[1][order[first]]
    second = np.where(last - first > 1, pairs[1][order[np.minimum(first + 1, len(order) - 1)]], -1)
    return home, second


def _visit_ranks(agent: np.ndarray, place: np.ndarray, agents: int) -> tuple[np.ndarray, float]:
    """Mean share of visits at each agent's k-th place, and the slope of its fall from the first to the 15th."""
    keys, visits = np.unique(agent * (place.max() + 1) + place, return_counts=True)
    pairs = np.divmod(keys, place.max() + 1)
    order = np.lexsort((-visits, pairs[0]))
    who = pairs[0][order]
    rank = np.arange(len(order)) - np.searchsorted(who, who)
    shares = visits[order] / np.bincount(agent)[who]
    is_ranked = rank < RANKS
    share = np.bincount(rank[is_ranked], shares[is_ranked], minlength=RANKS) / agents
    slope = -np.polyfit(np.log(np.arange(1, 16)), np.log(np.maximum(share[:15], 1e-9)), 1)[0]
    return share, float(slope)


def _gyration(agent: np.ndarray, x: np.ndarray, y: np.ndarray, minutes: np.ndarray, *, agents: int) -> np.ndarray:
    """Radius of gyration, weighted by time: km [agents]."""
    total = np.bincount(agent, minutes, agents)
    centre_x, centre_y = (np.bincount(agent, minutes * v, agents) / total for v in (x, y))
    square = (x - centre_x[agent]) ** 2 + (y - centre_y[agent]) ** 2
    return np.sqrt(np.bincount(agent, minutes * square, agents) / total)


def _commutes(place: np.ndarray, x: np.ndarray, y: np.ndarray, home: np.ndarray, *, second: np.ndarray) -> np.ndarray:
    where_x, where_y = np.zeros(place.max() + 1), np.zeros(place.max() + 1)
    where_x[place], where_y[place] = x, y
    has_second = second >= 0
    a, b = home[has_second], second[has_second]
    return np.hypot(where_x[a] - where_x[b], where_y[a] - where_y[b])


def _trip_minutes(data: Dataset) -> np.ndarray:
    if data.trips is None:
        return np.empty(0)
    start, end = (data.trips[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    return (end - start) / 60e6


def _at_home(
    wall: np.ndarray, minutes: np.ndarray, first: int, days: int, *, agents: int, weekend: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Share of people at home in the middle of each hour, on workdays and on weekends."""
    moments = np.arange(days * 24) * 60.0 + 30.0
    starts = np.searchsorted(np.sort(wall), moments, side="right")
    ends = np.searchsorted(np.sort(wall + minutes), moments, side="right")
    share = ((starts - ends) / agents).reshape(days, 24)
    free = np.isin((np.arange(days) + first + 3) % 7, weekend)
    return share[~free].mean(axis=0), share[free].mean(axis=0)


def measure_visit_rate(data: Dataset) -> dict[str, float]:
    """What visit rate reaches on the test period of a data set with labels; higher means that it is easier."""
    split = data.split(SplitConfig())
    baseline = make("visit-rate", data.schema, 7).fit(data.between(split.train_first, split.test_first - 1))
    scores = baseline.score(data.between(split.test_first, split.test_last))
    levels = evaluate(scores.events, scores.agents, data.labels, data.agent_labels, bootstrap=0)
    words = (("stay", "events"), ("agent", "agents"))
    return {f"{word}_{figure}": levels[level][figure] for word, level in words for figure in ("auroc", "ap")}
