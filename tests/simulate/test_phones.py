"""Phones as they are: what each profile records of the same lives, and how it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small_towns import seconds

from ustad.config import ConfigError
from ustad.dataset import Dataset, load_directory
from ustad.files import read_table
from ustad.geo import haversine_km
from ustad.mobility import extraction
from ustad.simulate import simulate
from ustad.simulate.phones import PHONES
from ustad.tables import FIXES, validate

AGENTS, DAYS, SEED = 40, 7, 103


@dataclass(frozen=True)
class Recorded:
    """Fixes of a profile, each once and in order of agent and time, beside the truth of their moments."""

    table: pa.Table  # as written
    data: Dataset
    agent: np.ndarray
    second: np.ndarray
    accuracy_m: np.ndarray
    error_m: np.ndarray  # distance to the true stay; not a number on the way
    still: np.ndarray


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("phones")

    @lru_cache
    def get(phone: str) -> Recorded:
        simulate("town", AGENTS, SEED, root / phone, days=DAYS, anomalous_share=0.2, phone=phone)
        return compare(read_table(root / phone / "fixes"), load_directory(root / phone))

    return get


def compare(table: pa.Table, data: Dataset) -> Recorded:
    rows = np.stack([table["agent_id"].to_numpy(), seconds(table, "time")], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    fixes, stays = table.take(first), data.events
    key = stays["agent_id"].to_numpy() * 10**11 + seconds(stays, "started_at")
    agent, second = fixes["agent_id"].to_numpy(), seconds(fixes, "time")
    at = np.searchsorted(key, agent * 10**11 + second, side="right") - 1
    still = second <= seconds(stays, "finished_at")[at]
    here = (stays["lat"].to_numpy()[at], stays["lon"].to_numpy()[at], fixes["lat"].to_numpy(), fixes["lon"].to_numpy())
    error = np.where(still, 1000 * haversine_km(*here), np.nan)
    return Recorded(table, data, agent, second, fixes["accuracy_m"].to_numpy(), error, still)


def a_day(fixes: Recorded) -> np.ndarray:
    """Fixes of each agent a day."""
    return np.bincount(fixes.agent, minlength=AGENTS) / DAYS


def steps(fixes: Recorded) -> tuple[np.ndarray, np.ndarray]:
    """Seconds between fixes of an agent, and the row of the first of each two."""
    row = np.flatnonzero(np.diff(fixes.agent) == 0)
    return np.diff(fixes.second)[row], row


@pytest.mark.parametrize("phone", PHONES)
def test_people_stays_and_labels_are_the_same_however_they_are_recorded(recorded, phone: str, tmp_path: Path) -> None:
    simulate("town", AGENTS, SEED, tmp_path, days=DAYS, anomalous_share=0.2)
    plain, own = load_directory(tmp_path), recorded(phone).data
    for name in ("events", "labels", "agent_labels", "pois"):
        assert getattr(plain, name).equals(getattr(own, name)), name


@pytest.mark.parametrize("phone", PHONES)
def test_parts_and_workers_do_not_change_what_a_phone_records(recorded, phone: str, tmp_path: Path) -> None:
    simulate("town", AGENTS, SEED, tmp_path, days=DAYS, anomalous_share=0.2, phone=phone, agents_a_part=7, workers=2)
    assert read_table(tmp_path / "fixes").combine_chunks().equals(recorded(phone).table.combine_chunks())


@pytest.mark.parametrize("phone", PHONES)
def test_errors_are_within_the_stated_accuracy_two_times_in_three(recorded, phone: str) -> None:
    fixes = recorded(phone)
    validate(fixes.table, FIXES)
    within = fixes.error_m[fixes.still] <= fixes.accuracy_m[fixes.still]
    expected = {"logger": (0.4, 0.75), "phone": (0.62, 0.72), "app": (0.62, 0.72), "sparse": (0.6, 0.8)}[phone]
    assert expected[0] < within.mean() < expected[1]


@pytest.mark.parametrize("phone", PHONES)
def test_nothing_is_recorded_while_a_phone_is_off_or_its_battery_is_empty(recorded, phone: str) -> None:
    fixes = recorded(phone)
    gaps = fixes.data.gaps.filter(pc.is_in(fixes.data.gaps["cause"], pa.array(["phone off", "battery empty"])))
    assert set(gaps["cause"].to_pylist()) == {"phone off", "battery empty"}
    key = fixes.agent * 10**11 + fixes.second
    ends = [gaps["agent_id"].to_numpy() * 10**11 + seconds(gaps, name) for name in ("started_at", "finished_at")]
    assert (np.searchsorted(key, ends[0]) == np.searchsorted(key, ends[1])).all()


def test_phones_are_off_at_the_same_times_under_every_profile(recorded) -> None:
    gaps = [recorded(phone).data.gaps for phone in PHONES]
    assert all(table.equals(gaps[0]) for table in gaps[1:])


@pytest.mark.parametrize("phone", PHONES)
def test_some_batches_come_late_and_some_twice(recorded, phone: str) -> None:
    table = recorded(phone).table
    agent, second, received = (table["agent_id"].to_numpy(), seconds(table, "time"), seconds(table, "received_at"))
    same = np.diff(agent) == 0
    assert (np.diff(agent) >= 0).all()
    assert (np.diff(received)[same] >= 0).all()
    assert (received > second).all()
    assert 0.005 < np.mean(received - second > 5_400) < 0.08
    assert (np.diff(second)[same] < 0).any()
    rows = np.stack([agent, second, *(table[n].to_numpy() for n in ("lat", "lon"))], axis=1)
    repeated = len(rows) - len(np.unique(rows, axis=0))
    assert 0.005 < repeated / len(rows) < 0.05


def test_a_logger_is_the_plain_recording_with_reflections_and_losses(recorded, tmp_path: Path) -> None:
    simulate("town", AGENTS, SEED, tmp_path, fixes="60s", days=DAYS, anomalous_share=0.2)
    plain = compare(read_table(tmp_path / "fixes"), load_directory(tmp_path))
    fixes = recorded("logger")
    assert np.median(steps(fixes)[0]) == pytest.approx(60, abs=2)
    known = np.searchsorted(plain.agent * 10**11 + plain.second, fixes.agent * 10**11 + fixes.second)
    assert np.array_equal(plain.second[known], fixes.second)
    moved = np.abs(plain.error_m[known] - fixes.error_m)[fixes.still] > 1
    assert 0.002 < moved.mean() < 0.05
    assert 0.95 < len(fixes.second) / len(plain.second) < 1


def test_a_phone_speaks_every_few_minutes_on_the_way_and_is_silent_while_still(recorded) -> None:
    fixes = recorded("phone")
    step, row = steps(fixes)
    way = ~fixes.still[row] & ~fixes.still[row + 1] & (step < 1200)
    assert 120 <= np.quantile(step[way], 0.05) < np.quantile(step[way], 0.95) <= 420
    still = fixes.still[row] & fixes.still[row + 1] & (step > 400)
    assert np.median(step[still]) > 2 * 3600
    stays = fixes.data.events
    assert len(fixes.second) < 6 * stays.num_rows


def test_one_phone_in_five_speaks_of_significant_changes_only(recorded) -> None:
    fixes = recorded("phone")
    typical = np.array([np.median(fixes.accuracy_m[fixes.agent == agent]) for agent in range(AGENTS)])
    significant = typical > 30
    assert 0.05 < significant.mean() < 0.4
    step, row = steps(fixes)
    own = significant[fixes.agent[row]] & ~fixes.still[row] & ~fixes.still[row + 1]
    assert step[own].min() >= 300
    assert a_day(fixes)[significant].mean() < 0.6 * a_day(fixes)[~significant].mean()


def test_most_longer_stays_have_a_fix_of_a_phone(recorded) -> None:
    fixes = recorded("phone")
    stays = fixes.data.events
    key = fixes.agent * 10**11 + fixes.second
    start, end = (stays["agent_id"].to_numpy() * 10**11 + seconds(stays, n) for n in ("started_at", "finished_at"))
    count = np.searchsorted(key, end, side="right") - np.searchsorted(key, start)
    assert np.mean(count[end - start > 900] > 0) > 0.9  # others fall into times the phone is off


def test_an_app_gives_20_to_100_irregular_fixes_a_day(recorded) -> None:
    fixes = recorded("app")
    every = a_day(fixes)
    assert 18 < np.quantile(every, 0.05) < np.quantile(every, 0.95) < 101
    assert every.max() > 2 * every.min()
    step, _ = steps(fixes)
    assert step.std() > 1.5 * step.mean()  # sessions, where evenly spread ones would have one
    low, middle, high = np.quantile(fixes.accuracy_m, [0.01, 0.5, 0.99])
    assert 5 <= low < 10 < middle < 60 < 200 < high <= 500


def test_calls_give_ten_positions_a_day_at_antennas(recorded) -> None:
    fixes = recorded("sparse")
    assert 7 < a_day(fixes).mean() < 13
    assert fixes.accuracy_m.min() >= 500
    assert fixes.accuracy_m.max() <= 3000
    assert np.quantile(fixes.accuracy_m, 0.9) > 1.5 * np.quantile(fixes.accuracy_m, 0.1)
    table = fixes.table
    sites = np.unique(np.stack([table[n].to_numpy() for n in ("lat", "lon")], axis=1), axis=0)
    assert len(sites) < 0.15 * table.num_rows
    pairs = np.unique(np.stack([table[n].to_numpy() for n in ("lat", "lon", "accuracy_m")], axis=1), axis=0)
    assert len(pairs) == len(sites)  # an antenna's reach is its own, whoever calls


@pytest.mark.parametrize("phone", PHONES)
def test_late_and_repeated_rows_are_what_extraction_reads(recorded, phone: str) -> None:
    """Shuffled, repeated rows with one column more give the stays of the clean ones."""
    table = recorded(phone).table
    rows = np.stack([table["agent_id"].to_numpy(), seconds(table, "time")], axis=1)
    clean = table.take(np.unique(rows, axis=0, return_index=True)[1]).drop_columns(["received_at"])
    found = [extraction.extract_tables(fixes, timezone="Europe/Berlin").events for fixes in (table, clean)]
    assert found[0].num_rows > 0 or phone == "sparse"
    assert found[0].drop_columns(["stay_id"]).equals(found[1].drop_columns(["stay_id"]))


@pytest.mark.parametrize(("fixes", "phone", "what"), [(None, "pigeon", "not a profile"), ("60s", "app", "its own")])
def test_what_no_phone_does_is_refused(fixes: str | None, phone: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=what):
        simulate("town", 5, 1, tmp_path, fixes=fixes, phone=phone, days=4)
