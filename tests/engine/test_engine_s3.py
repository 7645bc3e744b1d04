"""Fixes and results in a bucket of a real S3 server on this machine.

`make setup-tests` installs the server (moto) in an environment of its own: its libraries do not go with ours.
"""

from __future__ import annotations

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

from ustad.engine.extract_job import extract
from ustad.engine.folder import Place
from ustad.mobility.extraction import extract as extract_here
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
