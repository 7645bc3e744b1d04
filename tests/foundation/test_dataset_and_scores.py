"""Data directories, their split by local date, and directories of scores and models on disk."""

import datetime as dt
import json
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ustad import artefact
from ustad.config import Config, SplitConfig
from ustad.dataset import Dataset, load_directory, save_directory
from ustad.files import read_table, write_table
from ustad.mobility.readers import open_data
from ustad.periods import training_periods
from ustad.schema import EventSchema, Feature
from ustad.scores import Scores
from ustad.tables import TIMESTAMP, DataError

UTC = dt.UTC


def stays(days: int, zone: str = "UTC", hour: int = 12) -> pa.Table:
    starts = [dt.datetime(2024, 1, 1, hour, tzinfo=UTC) + dt.timedelta(days=d) for d in range(days)] * 2
    n = len(starts)
    return pa.table(
        {
            "stay_id": list(range(n)),
            "agent_id": ["a"] * days + ["b"] * days,
            "started_at": pa.array(starts, TIMESTAMP),
            "finished_at": pa.array([s + dt.timedelta(hours=1) for s in starts], TIMESTAMP),
            "lat": [1.0] * n,
            "lon": [2.0] * n,
            "poi_category": ["home"] * n,
            "timezone": [zone] * n,
        }
    )


def test_eight_weeks_are_split_three_one_four():
    data = Dataset(stays(56))
    split = data.split(SplitConfig())
    assert split.describe() == "train 2024-01-01 … 2024-01-21, validation … 2024-01-28, test … 2024-02-25"
    parts = [
        data.between(a, b) for a, b in ((0, split.validation_first - 1), (split.validation_first, split.test_first - 1))
    ]
    assert [p.num_rows for p in parts] == [42, 14]


def test_a_short_data_set_is_split_in_the_same_proportions():
    split = Dataset(stays(16)).split(SplitConfig())
    assert (split.validation_first - split.train_first, split.test_first - split.validation_first) == (6, 2)


def test_the_files_may_say_where_the_test_begins():
    split = Dataset(stays(28), meta={"split": {"test_first": "2024-01-15"}}).split(SplitConfig())
    assert split.test_first - split.train_first == 14
    assert split.validation_first == split.test_first - round(14 / 4)


def test_an_event_belongs_to_the_local_date_of_its_start():
    late = Dataset(stays(3, zone="Asia/Tokyo", hour=20))
    assert np.datetime64(int(late.days().min()), "D") == np.datetime64("2024-01-02")


def in_zone(zone: str) -> EventSchema:
    return EventSchema("visits", (Feature("poi_category", "categorical"),), "agent_id", "started_at", timezone=zone)


@pytest.mark.parametrize("zone", ["Japan", "EST", "GMT", "Europe/Paris"])
def test_every_zone_that_zoneinfo_knows_is_taken_with_or_without_a_slash(zone):
    table = stays(3, hour=20).drop_columns(["timezone"])
    theirs = table["started_at"][0].as_py().astimezone(ZoneInfo(zone)).date()
    for data in (Dataset(table, in_zone(zone)), open_data(table, in_zone(zone))):
        assert np.datetime64(int(data.days().min()), "D") == np.datetime64(theirs)


def test_a_column_of_zones_wins_over_a_zone_of_the_same_name():
    table = stays(3, zone="UTC", hour=20).rename_columns({"timezone": "Japan"})
    assert np.datetime64(int(Dataset(table, in_zone("Japan")).days().min()), "D") == np.datetime64("2024-01-01")


def test_a_zone_that_is_neither_known_nor_a_column_is_refused():
    table = stays(30)
    with pytest.raises(DataError, match="'Nippon' is neither a column of the events nor a known zone"):
        open_data(table, in_zone("Nippon"))
    with pytest.raises(DataError, match="name a column or an IANA zone"):
        training_periods(Dataset(table, in_zone("Nippon")), Config())


@pytest.mark.parametrize("days", [1, 2])
def test_too_few_days_are_refused(days):
    with pytest.raises(DataError, match="at least three days"):
        Dataset(stays(days)).split(SplitConfig())


def test_a_directory_keeps_its_tables_and_its_meta(tmp_path):
    labels = pa.table({"stay_id": [3], "anomaly": [True], "kind": ["x"]})
    save_directory(Dataset(stays(4), labels=labels, meta={"name": "small"}), tmp_path / "d")
    data = load_directory(tmp_path / "d")
    assert data.events.equals(stays(4))
    assert data.labels.equals(labels)
    assert data.name == "small"
    assert data.trips is None


def test_a_directory_without_stays_says_how_to_make_them(tmp_path):
    with pytest.raises(DataError, match="ustad extract"):
        load_directory(tmp_path)


def test_some_agents_only():
    few = Dataset(stays(4), agent_labels=pa.table({"agent_id": ["a", "b"], "anomaly": [True, True]})).only(["b"])
    assert set(few.events["agent_id"].to_pylist()) == {"b"}
    assert few.agent_labels["agent_id"].to_pylist() == ["b"]


def test_scores_survive_the_disk_and_are_always_finite(tmp_path):
    table = pa.table({"stay_id": [1, 2], "score": [0.5, 1.5]})
    Scores(table, None, {"method": "x"}).save(tmp_path / "s")
    again = Scores.load(tmp_path / "s")
    assert again.events.equals(table)
    assert again.agents is None
    assert again.run == {"method": "x"}
    with pytest.raises(DataError, match="finite"):
        Scores(pa.table({"score": [float("nan")]}))
    with pytest.raises(DataError, match="ustad score"):
        Scores.load(tmp_path)


def test_scores_replace_scores_and_nothing_else(tmp_path):
    table = pa.table({"stay_id": [1, 2], "score": [0.5, 1.5]})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "events.parquet").write_bytes(b"somebody's data")
    Scores(None, table, {}).save(tmp_path / "data")
    assert (tmp_path / "data" / "events.parquet").read_bytes() == b"somebody's data"
    Scores(table, None, {}).save(tmp_path / "s")
    Scores(None, table, {}).save(tmp_path / "s")
    assert Scores.load(tmp_path / "s").events is None


def make_model(path, text):
    with artefact.writing(path) as place:
        (place / "a.txt").write_text(text)


def test_a_model_directory_appears_whole_or_not_at_all(tmp_path):
    make_model(tmp_path / "m", "one")
    with pytest.raises(TypeError):
        make_model(tmp_path / "m", text=None)
    assert (tmp_path / "m" / "a.txt").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_model_that_cannot_take_the_place_of_another_gives_it_back(tmp_path, monkeypatch):
    make_model(tmp_path / "m", "one")
    rename = Path.rename

    def only_away(path, to):
        if path.name.endswith(".part"):
            raise OSError("no space left on device")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", only_away)
    with pytest.raises(OSError, match="no space left"):
        make_model(tmp_path / "m", "two")
    assert (tmp_path / "m" / "a.txt").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_writing_a_model_again_keeps_what_else_lies_there(tmp_path):
    make_model(tmp_path / "m", "one")
    (tmp_path / "m" / "log.jsonl").write_text("log")
    make_model(tmp_path / "m", "two")
    assert (tmp_path / "m" / "a.txt").read_text() == "two"
    assert (tmp_path / "m" / "log.jsonl").read_text() == "log"
    assert set(artefact.check(tmp_path / "m")) == {"a.txt"}


def test_a_manifest_of_something_else_lets_no_file_be_deleted(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "manifest.json").write_text(json.dumps({"format": "website", "files": ["index.html"]}))
    (tmp_path / "m" / "index.html").write_text("page")
    make_model(tmp_path / "m", "one")
    assert (tmp_path / "m" / "index.html").read_text() == "page"


def test_a_method_named_outside_the_manifest_does_not_outlive_its_model(tmp_path):
    make_model(tmp_path / "m", "one")
    (tmp_path / "m" / "method.json").write_text("{}")
    make_model(tmp_path / "m", "two")
    assert not (tmp_path / "m" / "method.json").exists()


def test_a_damaged_or_foreign_model_is_refused(tmp_path):
    make_model(tmp_path / "m", "one")
    (tmp_path / "m" / "a.txt").write_text("one!")
    with pytest.raises(DataError, match=r"a\.txt is damaged"):
        artefact.check(tmp_path / "m")
    (tmp_path / "m" / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt is missing"):
        artefact.check(tmp_path / "m")
    (tmp_path / "m" / "manifest.json").write_text(json.dumps({"format": 99, "files": {}}))
    with pytest.raises(DataError, match="model format 99"):
        artefact.check(tmp_path / "m")
    with pytest.raises(DataError, match="ustad train"):
        artefact.check(tmp_path)


def test_a_model_that_no_reader_understands_may_be_damaged_or_of_another_version(tmp_path):
    said = r"read \(KeyError: 'terms'\); it is damaged, or of a version that this one cannot read: train it again"
    with pytest.raises(DataError, match=f"m: the model cannot be {said}"), artefact.explaining(tmp_path / "m"):
        raise KeyError("terms")


def test_only_the_companions_asked_for_are_read(tmp_path):
    save_directory(Dataset(stays(3), trips=stays(3)), tmp_path)
    (tmp_path / "trips.parquet").write_bytes(b"no table at all")
    with pytest.raises(DataError, match=r"trips\.parquet: cannot be read"):
        open_data(tmp_path)
    assert open_data(tmp_path, companions=()).trips is None


def test_a_table_comes_back_as_it_was_and_numbers_have_no_dictionary(tmp_path):
    evidence = [[{"name": "start", "surprise": 1.5}], [], None, [{"name": "start", "surprise": 0.5}]]
    table = pa.table({"agent_id": [1, 1, 2, 2], "kind": ["a", "a", "b", None], "score": [0.1, 0.2, 0.1, 0.2]})
    table = table.append_column("evidence", pa.array(evidence))
    write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").equals(table)
    columns = [pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(0).column(i) for i in range(5)]
    by_dictionary = {c.path_in_schema for c in columns if any("DICTIONARY" in e for e in c.encodings)}
    assert by_dictionary == {"agent_id", "kind", "evidence.list.element.name"}
