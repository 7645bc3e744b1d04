"""The red team: labels are exactly what changed, training stays clean, anomalous days stay possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
from small_towns import AGENTS, part, rows, seconds, simulation

from ustad.geo import haversine_km
from ustad.simulate.anomalies import choose_agents
from ustad.simulate.assembly import make_part
from ustad.simulate.presets import PRESETS, VARIANTS
from ustad.tables import Complaints, check_overlaps

TEST_DAY = 14


def test_start() -> int:
    return simulation().first_us // 1_000_000 + TEST_DAY * 86_400


test_start.__test__ = False  # type: ignore[attr-defined]  # a helper, whose name says what it returns


def test_labels_are_exactly_the_stays_that_changed() -> None:
    changed, normal = part(), part(anomalous=0.0)
    labelled = changed.stays.filter(pc.is_in(changed.stays["stay_id"], changed.labels["stay_id"].combine_chunks()))
    assert normal.labels.num_rows == 0
    assert rows(labelled) == rows(changed.stays) - rows(normal.stays)
    assert labelled.num_rows == changed.labels.num_rows > 100


def test_labels_carry_times_kind_and_role() -> None:
    labels, stays = part().labels, part().stays
    row = {key: k for k, key in enumerate(stays["stay_id"].to_pylist())}
    at = [row[key] for key in labels["stay_id"].to_pylist()]
    for name in ("agent_id", "started_at", "finished_at"):
        assert labels[name].to_pylist() == stays[name].take(at).to_pylist()
    assert set(labels["role"].to_pylist()) == {"inserted", "changed", "neighbour"}
    assert set(labels["kind"].to_pylist()) <= set(PRESETS["town"].kinds)
    assert len(set(labels["kind"].to_pylist())) >= 5
    assert set(labels["recurring"].to_pylist()) == {True, False}


def test_agent_labels_name_the_agents_of_the_labels() -> None:
    made = part()
    assert set(made.labels["agent_id"].to_pylist()) == set(made.agent_labels["agent_id"].to_pylist())
    assert made.agent_labels.num_rows == round(0.3 * AGENTS)


def test_no_anomaly_lies_in_the_training_period() -> None:
    assert (seconds(part().labels, "started_at") >= test_start()).all()
    before = {row for row in rows(part().stays) if row[2] < test_start()}
    assert before == {row for row in rows(part(anomalous=0.0).stays) if row[2] < test_start()}


def test_the_counterfactual_is_the_normal_life_of_the_anomalous_days() -> None:
    made, normal = part(), rows(part(anomalous=0.0).stays)
    told = rows(made.counterfactual)
    assert told <= normal
    assert normal - rows(made.stays) <= told  # whatever was given up is told


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_variant_stays_possible(variant: str) -> None:
    made = part(variant=variant)
    check_overlaps(made.stays, Complaints("stays"))
    assert made.agent_labels.num_rows > 0.25 * AGENTS
    tables = (made.stays, made.trips, made.gaps)
    total = sum((seconds(t, "finished_at") - seconds(t, "started_at")).sum() for t in tables)
    assert total == AGENTS * 28 * 86_400


def test_recurring_insertions_keep_place_and_time_of_day() -> None:
    simulated = simulation(variant="near-5km")
    preset = replace(simulated.preset, recurring_share=1.0, within_km=0.0)
    made = make_part(replace(simulated, preset=preset), 0, AGENTS)
    inserted = made.labels.filter(pc.equal(made.labels["role"], "inserted"))
    place = dict(zip(made.stays["stay_id"].to_pylist(), made.stays["poi_id"].to_pylist(), strict=True))
    agent, second = inserted["agent_id"].to_numpy(), seconds(inserted, "started_at") % 86_400
    visits = []
    for one in np.unique(agent):
        keys = inserted["stay_id"].filter(pc.equal(inserted["agent_id"], one)).to_pylist()
        assert len({place[key] for key in keys}) == 1
        angle = second[agent == one] / 86_400 * 2 * np.pi
        assert np.hypot(np.cos(angle).mean(), np.sin(angle).mean()) > 0.95
        visits.append(len(keys))
    assert np.median(visits) >= 3


def test_most_inserted_places_are_new_to_the_agent() -> None:
    made, normal = part(variant="near-15km"), part(anomalous=0.0)
    inserted = made.labels.filter(pc.equal(made.labels["role"], "inserted"))
    place = dict(zip(made.stays["stay_id"].to_pylist(), made.stays["poi_id"].to_pylist(), strict=True))
    known = {row[:2] for row in rows(normal.stays)}
    first = {}
    for agent, key in zip(inserted["agent_id"].to_pylist(), inserted["stay_id"].to_pylist(), strict=True):
        first[agent] = (agent, place[key]) in known
    assert 0 <= np.mean(list(first.values())) < 0.35


def test_near_variants_insert_near_home() -> None:
    simulated = simulation(variant="near-5km")
    simulated = replace(simulated, preset=replace(simulated.preset, within_km=2.0, own_share=0.0))
    made = make_part(simulated, 0, AGENTS)
    inserted = made.labels.filter(pc.equal(made.labels["role"], "inserted"))
    stays = made.stays.filter(pc.is_in(made.stays["stay_id"], inserted["stay_id"].combine_chunks()))
    home = simulated.city.place[simulated.people.home[stays["agent_id"].to_numpy()]]
    distance = haversine_km(home[:, 0], home[:, 1], stays["lat"].to_numpy(), stays["lon"].to_numpy())
    assert distance.max() <= 2.01


def test_odd_hours_are_at_night_and_at_own_places() -> None:
    made = part(variant="odd-hours")
    odd = made.labels.filter(pc.equal(made.labels["kind"], "odd hour"))
    odd = odd.filter(pc.equal(odd["role"], "inserted"))
    hour = (seconds(odd, "started_at") - simulation().first_us // 1_000_000) / 3600 % 24
    assert ((hour < 6) | (hour > 21.5)).all()
    assert len(hour) > 20


def test_skipped_routines_leave_fewer_stays() -> None:
    made, normal = part(variant="skipped"), part(anomalous=0.0)
    assert made.stays.num_rows < normal.stays.num_rows
    assert "inserted" not in made.labels.filter(pc.equal(made.labels["kind"], "skipped"))["role"].to_pylist()


def test_dirty_training_data_is_labelled_apart() -> None:
    dirty, clean = part(dirty=0.2), part()
    assert clean.dirty_labels.num_rows == 0
    assert dirty.dirty_labels.num_rows > 20
    assert (seconds(dirty.dirty_labels, "started_at") < test_start()).all()
    assert dirty.labels.equals(clean.labels) or set(dirty.labels["stay_id"].to_pylist()) == set(
        clean.labels["stay_id"].to_pylist()
    )
    after = {row for row in rows(dirty.stays) if row[2] >= test_start()}
    assert after == {row for row in rows(clean.stays) if row[2] >= test_start()}


def test_as_many_agents_are_anomalous_as_the_share_says() -> None:
    for agents, share in ((20_000, 381 / 20_000), (50, 0.1), (3, 0.01)):
        chosen = choose_agents(agents, share, 4)
        assert len(chosen) == max(1, round(agents * share)) == len(set(chosen.tolist()))
    assert len(choose_agents(100, 0.0, 4)) == 0
