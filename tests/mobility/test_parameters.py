"""Extraction settings that fit the data: devices are known by their fixes, and what the user says goes first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from town import fixes, minutes, walks

from ustad.config import ConfigError, ExtractionConfig
from ustad.dataset import load_directory
from ustad.mobility.extraction import extract, extract_tables
from ustad.mobility.parameters import PROFILES, Wish, choose_config
from ustad.simulate import simulate


@pytest.mark.parametrize("phone", ["logger", "phone", "app", "sparse"])
def test_each_simulated_device_is_recognised_by_its_fixes(phone, tmp_path):
    simulate("town", 12, 103, tmp_path / "town", days=4, phone=phone)
    data = load_directory(tmp_path / "town")
    table = pq.read_table(tmp_path / "town" / "fixes")
    config, line = choose_config([table], None)
    assert line.startswith(f"profile {phone} ")
    assert config.distance_m == PROFILES[phone].get("distance_m", 100.0)
    assert data.events.num_rows > 0


def test_positions_without_error_tell_buildings_next_to_each_other_apart():
    lat = 52.5 + np.repeat(np.arange(100) % 2, 12) * 50 / 111_195.0  # an hour each, 50 m apart
    table = fixes(np.zeros(1200, int), minutes(np.arange(1200) * 5), lat, np.full(1200, 13.4))
    data = extract_tables(table, timezone="UTC")
    assert data.meta["extraction"]["distance_m"] == 10.0
    assert data.events.num_rows == 100
    assert extract_tables(table, ExtractionConfig(), timezone="UTC").events.num_rows == 1


def test_a_stay_goes_from_the_door_to_the_room_and_ends_at_the_next_building():
    """Visits of two fixes, one at the door and one in the room 8 to 19 m further; buildings 50 m apart."""
    rng = np.random.default_rng(5)
    visits = 400
    north = np.repeat(50.0 * rng.permutation(visits), 2)
    north[1::2] += rng.uniform(8, 19, visits)
    east = np.zeros(2 * visits)
    rest = np.repeat(np.arange(2 * visits), np.tile([1, 3], visits))  # two more fixes at the room
    table = fixes(np.zeros(len(rest), int), minutes(np.arange(len(rest)) * 5), 52.5 + north[rest] / 111_195.0,
                  13.4 + east[rest])  # fmt: skip
    data = extract_tables(table, timezone="UTC")
    assert data.meta["extraction"]["distance_m"] == 20.0
    assert data.events.num_rows == visits
    started = data.events["started_at"].cast(pa.int64()).to_numpy()
    assert np.array_equal(started, minutes(np.arange(visits) * 20))


def test_what_is_given_goes_before_what_the_data_suggests(tmp_path):
    pq.write_table(walks(agents=2), tmp_path / "f.parquet")
    wanted = Wish("phone", {"distance_m": 70.0})
    summary = extract(tmp_path / "f.parquet", tmp_path / "out", wanted, timezone="UTC")
    config = load_directory(tmp_path / "out").meta["extraction"]
    assert (config["distance_m"], config["minutes"]) == (70.0, PROFILES["phone"]["minutes"])
    assert any("distance_m as given" in note for note in summary.notes)


def test_few_fixes_are_extracted_with_the_ordinary_settings():
    table = walks(agents=1, hours=1)
    assert choose_config([table], None)[0] == ExtractionConfig()
    assert choose_config([table], ExtractionConfig(minutes=7)) == (ExtractionConfig(minutes=7), "")
    assert choose_config([], None)[0] == ExtractionConfig()


def test_the_order_of_fixes_and_repeats_do_not_change_the_choice():
    table = walks(agents=2, hours=24)
    mixed = np.random.default_rng(0).permutation(np.r_[np.arange(table.num_rows), np.arange(500)])
    assert choose_config([table.take(pa.array(mixed))], None) == choose_config([table], None)


def test_an_unknown_profile_is_an_error_that_names_the_known_ones():
    with pytest.raises(ConfigError, match="logger, phone, app, sparse"):
        Wish("tablet")
