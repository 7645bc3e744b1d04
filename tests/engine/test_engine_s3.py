"""Fixes and results in a bucket of a real S3 server on this machine.

`make setup-tests` installs the server (moto) in an environment of its own: its libraries do not go with ours.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest
from same_tables import assert_same

from ustad.cli import main
from ustad.engine.extract_job import extract
from ustad.engine.folder import Place
from ustad.mobility.extraction import extract as extract_here
from ustad.scores import Scores
from ustad.simulate import simulate as simulate_here
from ustad.tables import DataError

SERVER = Path(__file__).parent / ".s3" / "bin" / "moto_server"
WHO = "nobody:nothing"  # keys in the address, so that workers have them too
pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="no S3 server: make setup-tests")


@pytest.fixture(scope="module")
def options() -> Iterator[str]:
    """A running server with the bucket `city`: what an address needs to reach it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [str(SERVER), "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        options = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{port}"
        Place.of(f"s3://{WHO}@city?allow_bucket_creation=true&{options}").filesystem.create_dir("city")
        yield options
    finally:
        server.terminate()
        server.wait(20)


def test_stays_of_fixes_in_a_bucket_are_those_of_a_local_run(cluster: object, options: str, tmp_path: Path) -> None:
    simulate_here("town", 40, 5, tmp_path / "town", fixes="600s", days=3)
    local = extract_here(tmp_path / "town" / "fixes", tmp_path / "local", workers=1)
    bucket = Place.of(f"s3://{WHO}@city/fixes?{options}")
    for file in sorted((tmp_path / "town" / "fixes").iterdir()):
        bucket.write_bytes(file.read_bytes(), file.name)
    out = f"s3://{WHO}@city/data?{options}"
    summary = extract(f"s3://{WHO}@city/fixes?{options}", out, workers=2)
    assert (summary.stays, summary.fixes) == (local.stays, local.fixes)
    place = Place.of(out)
    for name, keys in {"stays": ["stay_id"], "trips": ["trip_id"]}.items():
        assert_same(place.read_table(name), Place.of(tmp_path / "local").read_table(f"{name}.parquet"), keys)
    everything = [info.path for info in place.filesystem.get_file_info(pa_fs.FileSelector(place.root, recursive=True))]
    assert not [path for path in everything if path.endswith(".part") or ".extract-job" in path]


def test_labels_exports_and_stays_of_archives_come_to_a_bucket_too(
    cluster: object, options: str, tmp_path: Path
) -> None:
    simulate_here("town", 40, 5, tmp_path / "town", fixes="600s", days=20)
    for out in (str(tmp_path / "here"), f"s3://{WHO}@city/labelled?{options}"):
        with pytest.raises(SystemExit) as done:
            main(["extract", str(tmp_path / "town"), "--out", out, "--export", "csv", "--engine", "ray"])
        assert done.value.code == 0
    here, there = Place.of(tmp_path / "here"), Place.of(f"s3://{WHO}@city/labelled?{options}")
    for name, keys in {"labels": ["stay_id"], "agent_labels": ["agent_id"]}.items():
        assert_same(here.read_table(f"{name}.parquet"), there.read_table(f"{name}.parquet"), keys)
    assert there.names("export") == here.names("export") != set()
    archive = shutil.make_archive(str(tmp_path / "phones"), "zip", tmp_path / "town" / "fixes")
    summary = extract(archive, f"s3://{WHO}@city/archive?{options}")
    extract_here(archive, tmp_path / "archive")
    stays = Place.of(tmp_path / "archive").read_table("stays.parquet")
    assert summary.stays == stays.num_rows > 0
    assert_same(Place.of(f"s3://{WHO}@city/archive?{options}").read_table("stays.parquet"), stays, ["stay_id"])


def test_new_tables_in_a_bucket_take_the_place_of_old_ones(options: str) -> None:
    place = Place.of(f"s3://{WHO}@city/replaced?{options}")
    work = place / "work"
    for number in (1, 2):
        work.write_table(pa.table({"n": [number]}), "one.parquet")
        work.write_table(pa.table({"n": [number]}), "many/000.parquet")
        place.replace_tables(["one", "many"], work, "done.json", {"n": number})
        assert place.read_table("one.parquet")["n"].to_pylist() == [number]
        assert place.names("many") == {"part-000.parquet"}
        assert place.read_table("many")["n"].to_pylist() == [number]
        assert place.read_json("done.json") == {"n": number}
    assert work.files() == []


def test_a_file_in_a_bucket_appears_whole_is_replaced_and_goes(options: str) -> None:
    place = Place.of(f"s3://{WHO}@city/small?{options}")
    place.write_json({"a": 1}, "folder/one.json")
    place.write_json({"a": 2}, "folder/one.json")
    assert place.read_json("folder/one.json") == {"a": 2}
    assert place.names("folder", ".json") == {"one.json"}
    place.remove("folder")
    assert place.names("folder") == set()
    assert not place.exists("folder/one.json")
    with pytest.raises(DataError, match="no such file"):
        place.read_bytes("folder/one.json")
    assert "nothing" not in str(place), "a key is shown"


def test_scores_in_a_bucket_have_all_that_local_ones_have(
    cluster: object, options: str, model_directory: Path, town_directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "weights.json").write_text(json.dumps({"weights": {"start": 0.3, "distance": 2.0}}))
    (tmp_path / "days.csv").write_text("date,name\n2024-05-22,fair\n")
    flags = [
        "--top",
        "25",
        "--weights",
        tmp_path / "weights.json",
        "--calendar",
        tmp_path / "days.csv",
        "--explain",
        "3",
    ]
    for name, engine in (("", "local"), ("ray", "ray"), ("local", "local")):
        out = f"s3://{WHO}@city/scores-{name}?{options}" if name else tmp_path / "here"
        verb = ["score", model_directory, town_directory, "--out", out, *flags, "--engine", engine]
        with pytest.raises(SystemExit) as done:
            main([*map(str, verb), *(["--workers", "2"] if engine == "ray" else [])])
        assert done.value.code == 0
    here = Scores.load(tmp_path / "here")
    for name in ("ray", "local"):
        place = Place.of(f"s3://{WHO}@city/scores-{name}?{options}")
        events = place.read_table("events" if place.is_folder("events") else "events.parquet")
        columns = ["agent_id", "started_at", "alert", "learned_score", "reason"]
        assert_same(here.events.select(columns), events.select(columns), ["agent_id", "started_at"])
        run = place.read_json("run.json")
        assert (run["calendar"], run["learned"]) == (here.run["calendar"], here.run["learned"])
        made = {file.name for file in (tmp_path / "here").iterdir() if file.suffix != ".parquet"}
        assert made <= place.names() | {"events"}
        assert {"company.parquet", "alerts.csv", "explained.csv"} <= place.names()
