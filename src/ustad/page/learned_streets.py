"""Streets learned from everybody's trips, for a map without a network.

In: trips of many people as points. Out: lines along the cells of a grid that at least `LEAST_PEOPLE` people passed, so
that no line shows where one person, a family or a few colleagues went.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from ustad.page.world import Box, Layer

LEAST_PEOPLE = 5
CELL = 0.0009  # degrees of latitude: 100 m
LONGEST = 0.02  # degrees: a longer jump between two points is no street
SIZES = (15, 60)  # people from whom on a street is drawn wider
MOST_LINES = 4_000  # of one answer, the busiest first


@dataclass(frozen=True)
class Streets:
    """Lines of (lon, lat), and how large each street is: 0 a small one, 2 a large one."""

    layer: Layer
    size: np.ndarray

    @classmethod
    def of(cls, lines: list[np.ndarray], size: Any) -> Streets:
        return cls(Layer.of_lines(lines), np.asarray(size, np.int64))

    def near(self, box: Box) -> list[dict[str, Any]]:
        """The largest streets that touch a box, as paths with their size."""
        rows = self.layer.touching(box)
        rows = rows[np.argsort(-self.size[rows], kind="stable")][:MOST_LINES]
        return [{"size": int(self.size[i]), "path": np.round(self.layer.lines[i], 5).tolist()} for i in rows]


def learn_streets(agents: np.ndarray, starts: np.ndarray, points: np.ndarray) -> Streets:
    """Streets of trips. `agents` has one code for each trip, `starts` where its points begin, `points` (lon, lat)."""
    trip = np.repeat(np.arange(len(agents)), np.diff(np.r_[starts, len(points)]))
    trip, points = _fill(trip, points)
    cells, code = np.unique(_cells(points), return_inverse=True)
    follows = (trip[1:] == trip[:-1]) & (code[1:] != code[:-1]) & (_gap(points) < LONGEST)
    before, after, who = code[:-1][follows], code[1:][follows], agents[trip[1:][follows]]
    edges, edge = np.unique(np.minimum(before, after) * len(cells) + np.maximum(before, after), return_inverse=True)
    n_agents = int(agents.max(initial=0)) + 1
    people = np.bincount(np.unique(edge * n_agents + who) // n_agents, minlength=len(edges))  # each person once
    edges, people = edges[people >= LEAST_PEOPLE], people[people >= LEAST_PEOPLE]
    count = np.maximum(np.bincount(code, minlength=len(cells)), 1)
    middle = np.c_[tuple(np.bincount(code, points[:, i], len(cells)) / count for i in (0, 1))]
    chains, busy = _join(np.c_[edges // max(len(cells), 1), edges % max(len(cells), 1)], people)
    return Streets.of([middle[chain] for chain in chains], np.searchsorted(SIZES, busy, side="right"))


def _gap(points: np.ndarray) -> np.ndarray:
    return np.abs(np.diff(points, axis=0)).max(axis=1) if len(points) else np.zeros(0)


def _cells(points: np.ndarray) -> np.ndarray:
    """The number of each point's cell; cells are about as wide as they are high."""
    narrow = np.maximum(np.cos(np.radians(np.floor(points[:, 1]))), 0.05)
    column, row = (np.floor(v / CELL).astype(np.int64) + 2**20 for v in (points[:, 0] * narrow, points[:, 1]))
    return column * 2**21 + row


def _fill(trip: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points between the points of a trip, so that no cell on the way is jumped over."""
    gap = _gap(points)
    same = trip[1:] == trip[:-1]
    pieces = np.where(same & (gap < LONGEST), np.ceil(gap / (CELL / 2)), 1).astype(np.int64).clip(1)
    pieces = np.r_[pieces, 1]
    row = np.repeat(np.arange(len(points)), pieces)
    share = (np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) / pieces[row]
    following = np.minimum(row + 1, len(points) - 1)
    return trip[row], points[row] + share[:, None] * np.where(
        (trip[following] == trip[row])[:, None], points[following] - points[row], 0.0
    )


def _join(edges: np.ndarray, people: np.ndarray) -> tuple[list[list[int]], list[int]]:
    """Edges as few long chains, each with the number of people of its least busy edge."""
    beside: dict[int, dict[int, int]] = defaultdict(dict)
    for (a, b), n in zip(edges.tolist(), people.tolist(), strict=True):
        beside[a][b] = beside[b][a] = n
    chains, busy = [], []
    for start in sorted(beside, key=lambda node: (len(beside[node]) == 2, node)):  # from junctions and ends first
        while beside[start]:
            chain, least, node = [start], 10**9, start
            while beside[node]:
                following = max(beside[node], key=lambda other: (beside[node][other], other))
                least = min(least, beside[node].pop(following))
                del beside[following][node]
                chain.append(following)
                node = following
                if len(beside[node]) != 1:
                    break
            chains.append(chain)
            busy.append(least)
    return chains, busy
