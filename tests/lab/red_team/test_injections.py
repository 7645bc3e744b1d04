"""The paper's six injections: valid data, exact labels, nothing outside the period."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "simulate"))
from small_towns import rows, seconds, town

from ustad.config import ConfigError
from ustad.dataset import Dataset
from ustad.lab.red_team import inject
from ustad.lab.red_team.injections import KINDS
from ustad.tables import STAYS, Complaints, DataError, check_overlaps, validate

TEST_FIRST = (date(2024, 5, 20) - date(1970, 1, 1)).days


def clean() -> Dataset:
    return replace(town(anomalous=0.0), labels=None, agent_labels=None)


def full_rows(table: pa.Table) -> set[tuple[object, ...]]:
    columns = ["agent_id", "started_at", "finished_at", "lat", "lon", "poi_id", "poi_category"]
    return set(zip(*(table[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("kind", [*KINDS, "all"])
def test_labels_are_exactly_what_was_changed(kind: str) -> None:
    data = clean()
    result = inject(data, kind, 0.15, 3)
    assert result.labels is not None
    assert result.labels.num_rows > 0
    labelled = pc.is_in(result.events["stay_id"], result.labels["stay_id"].combine_chunks())
    assert full_rows(result.events.filter(labelled)) == full_rows(result.events) - full_rows(data.events)
    assert set(result.labels["kind"].to_pylist()) == (set(KINDS) if kind == "all" else {kind})


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([*KINDS, "all"]), st.floats(0.02, 0.6), st.integers(0, 2**31))
def test_injected_data_is_valid(kind: str, share: float, seed: int) -> None:
    data = clean()
    result = inject(data, kind, share, seed)
    validate(result.events, STAYS)
    assert check_overlaps(result.events, Complaints("stays")).equals(result.events)  # sorted already
    ids = result.events["stay_id"].to_pylist()
    assert len(set(ids)) == len(ids)
    assert result.trips is not None
    for name in ("origin_stay_id", "destination_stay_id"):
        assert set(result.trips[name].to_pylist()) <= set(ids)
    assert set(result.labels["stay_id"].to_pylist()) <= set(ids)
    assert set(result.labels["agent_id"].to_pylist()) == set(result.agent_labels["agent_id"].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_period_is_left_alone(kind: str) -> None:
    data = clean()
    result = inject(data, kind, 0.3, 1)
    before, after = (d.events.filter(pa.array(d.days() < TEST_FIRST)) for d in (data, result))
    assert after.equals(before)


def test_injections_go_where_they_are_asked_to() -> None:
    data = clean()
    result = inject(data, "spatial", 0.3, 1, first_day=TEST_FIRST - 10, last_day=TEST_FIRST - 5)
    labelled = result.events.filter(pc.is_in(result.events["stay_id"], result.labels["stay_id"].combine_chunks()))
    days = replace(data, events=labelled).days()
    assert days.min() >= TEST_FIRST - 10
    assert days.max() <= TEST_FIRST - 5


def test_the_same_seed_injects_the_same() -> None:
    a, b, c = (inject(clean(), "all", 0.2, seed) for seed in (4, 4, 5))
    assert a.events.equals(b.events)
    assert a.labels.equals(b.labels)
    assert not a.events.equals(c.events)


def test_spatial_changes_go_to_rare_categories_and_keep_the_times() -> None:
    data = clean()
    result = inject(data, "spatial", 0.4, 2)
    visits = dict(
        zip(*(pc.value_counts(data.events["poi_category"]).field(k).to_pylist() for k in (0, 1)), strict=True)
    )
    offered = sorted(set(data.pois["category"].to_pylist()), key=lambda name: visits.get(name, 0))
    rare = set(offered[: len(offered) // 2])
    labelled = result.events.filter(pc.is_in(result.events["stay_id"], result.labels["stay_id"].combine_chunks()))
    assert set(labelled["poi_category"].to_pylist()) <= rare
    assert {r[2:] for r in rows(labelled)} <= {r[2:] for r in rows(data.events)}
    places = set(zip(*(data.pois[n].to_pylist() for n in ("poi_id", "lat", "lon", "category")), strict=True))
    moved = set(zip(*(labelled[n].to_pylist() for n in ("poi_id", "lat", "lon", "poi_category")), strict=True))
    assert moved <= places


def test_temporal_changes_keep_the_place() -> None:
    data = clean()
    result = inject(data, "temporal", 0.4, 2)
    assert sorted(r[:2] for r in rows(result.events)) == sorted(r[:2] for r in rows(data.events))
    assert set(result.labels["role"].to_pylist()) == {"changed", "neighbour"}


def test_a_swap_exchanges_whole_days() -> None:
    data = clean()
    result = inject(data, "swap", 0.2, 6)
    moved = result.labels.filter(pc.equal(result.labels["role"], "changed"))
    places = {(int(r[1]), int(r[2])) for r in rows(data.events)}
    table = result.events.filter(pc.is_in(result.events["stay_id"], moved["stay_id"].combine_chunks()))
    own = {r[:3] for r in rows(data.events)}
    assert all((r[1], r[2]) in places and r[:3] not in own for r in rows(table))
    assert len(set(moved["agent_id"].to_pylist())) % 2 == 0


def test_a_permutation_keeps_the_times_and_the_places_of_six_days() -> None:
    data = clean()
    result = inject(data, "permutation", 0.2, 6)
    times = [sorted((r[0], r[2], r[3]) for r in rows(d.events)) for d in (data, result)]
    visits = [
        sorted(zip(d.events["agent_id"].to_pylist(), d.events["poi_id"].to_pylist(), strict=True))
        for d in (data, result)
    ]
    assert times[0] == times[1]
    assert visits[0] == visits[1]


def test_high_density_days_have_many_short_visits() -> None:
    result = inject(clean(), "high_density", 0.1, 6)
    minutes = (seconds(result.labels, "finished_at") - seconds(result.labels, "started_at")) / 60
    per_agent = np.bincount(np.unique(result.labels["agent_id"].to_numpy(), return_inverse=True)[1])
    assert minutes.max() <= 41
    assert minutes.min() >= 9
    assert np.median(per_agent) > 40


def test_data_with_text_ids_and_without_pois_or_trips_can_be_injected() -> None:
    data = clean()
    names = pa.array([f"person-{a}" for a in data.events["agent_id"].to_pylist()])
    keep = ["agent_id", "started_at", "finished_at", "lat", "lon", "timezone"]
    bare = Dataset(events=data.events.set_column(1, "agent_id", names).select(keep), meta=data.meta)
    for kind in KINDS:
        result = inject(bare, kind, 0.1, 1)
        check_overlaps(result.events, Complaints("stays"))
        assert result.labels.num_rows > 0
        assert result.trips is None


def test_labels_that_were_there_before_are_kept() -> None:
    data = town()
    result = inject(data, "spatial", 0.1, 1)
    assert set(data.labels["stay_id"].to_pylist()) <= set(result.labels["stay_id"].to_pylist())
    assert result.agent_labels.num_rows > data.agent_labels.num_rows
    new = result.labels.filter(pc.equal(result.labels["kind"], "spatial"))
    assert not set(new["agent_id"].to_pylist()) & set(data.agent_labels["agent_id"].to_pylist())


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown kind 'teleport'"):
        inject(clean(), "teleport", 0.1, 1)
    with pytest.raises(ConfigError, match="share"):
        inject(clean(), "swap", 0.0, 1)
    with pytest.raises(DataError, match="unlabelled agents are needed"):
        inject(clean(), "swap", 0.5, 1, first_day=10, last_day=12)
