"""What a case says each part contributes to the score: the same as the score table's own breakdown."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from service_example import PlainScorer, a_stay

from ustad.schema import mobility_schema


class NeighbourScorer(PlainScorer):
    """One that looks at everything: each term has the percentiles of a batch of rows, and so has the distance."""

    def __init__(self, percentiles: list[dict[str, float | None]]) -> None:
        super().__init__()
        self.percentiles = percentiles

    def score(self, rows: Any) -> Any:
        made = super().score(rows)
        given = [{f"pct_{name}": v for name, v in self.percentiles.pop(0).items()} for _ in rows]
        return replace(made, rows=[{**row, **more, "knn": 0.7} for row, more in zip(made.rows, given, strict=True)])


def shares_of(percentiles: dict[str, Any], schema: Any) -> dict[str, float]:
    """Of the scored terms and the distance: each one's surprise over the sum of all."""
    names = [*(t.name for t in schema.terms() if t.scored), "knn"]
    tails = {name: max(1 - percentiles[name], 1e-16) for name in names if percentiles[name] is not None}
    surprise = {name: -math.log10(tails[name]) if name in tails else 0.0 for name in names}
    return {name: value / sum(surprise.values()) for name, value in surprise.items()}


def test_the_shares_of_a_case_are_those_of_the_surprises_and_count_the_distance_to_known_events(
    open_client: Any,
) -> None:
    schema = mobility_schema()
    usual = {t.name: 0.4 for t in schema.terms()}
    given: list[dict[str, Any]] = [
        {**usual, "duration": 0.9, "knn": 0.99999}, {**usual, "lat": 0.999, "lon": 1 - 1e-9, "knn": 0.5},
        {**usual, "start": 1.0, "knn": 1.0}, {**usual, "lat": None, "knn": None},
    ]  # fmt: skip
    client = open_client(NeighbourScorer([dict(g) for g in given]))
    for i, percentiles in enumerate(given):
        sent = client.post("/v1/events", json={"events": [a_stay(hour=9 * i, hours=4)]}).json()["events"][0]
        case = client.get(f"/v1/events/{sent['id']}").json()
        parts = shares_of(percentiles, schema)
        for f in case["features"]:
            own = sum(parts[t.name] for t in schema.feature(f["name"]).terms() if t.scored)
            assert f["share"] == pytest.approx(own, abs=1e-9)
        assert case["knn"]["share"] == pytest.approx(parts["knn"], abs=1e-9)
        assert case["knn"]["share"] + sum(f["share"] for f in case["features"]) == pytest.approx(1.0)
        if i == 0:
            assert case["knn"]["share"] > max(f["share"] for f in case["features"])
