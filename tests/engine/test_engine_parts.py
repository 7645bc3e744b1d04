"""The pieces of the engine without a cluster: buckets, places, merged neighbours, ranks and verdicts."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_tables import assert_same

from ustad.cli import main
from ustad.config import ConfigError
from ustad.distribution import Ranks
from ustad.engine import buckets, cluster
from ustad.engine.folder import Place, is_uri
from ustad.engine.sharded_reference import ShardedReference, merge_nearest
from ustad.network.inference.neighbours import Reference
from ustad.scoring.alerts import BINS, AlertRule, drift, drift_of_bins, flag_events, raise_alerts, report_part
from ustad.tables import DataError

RULES = [AlertRule(), AlertRule("top", 17), AlertRule("fdr", 0.2), AlertRule("alerts_per_day", 3)]


# -------------------------------------------------------------------------------------- the tests' own measure
@pytest.mark.parametrize(
    ("column", "number", "same", "other"),
    [
        ("score", 0.5, 5e-6, 1e-4),
        ("expected_start", 600.0, 1e-2, 0.2),
        ("lat", 52.0, 1e-9, 1e-6),
        ("p_value", 1e-6, 1e-11, 1e-9),
    ],
)
def test_tables_are_the_same_by_what_their_columns_are(column, number, same, other):
    def table(value: float) -> pa.Table:
        return pa.table({"id": [1, 2], column: [0.25, value]})

    assert_same(table(number), table(number + same), ["id"])
    with pytest.raises(AssertionError, match=column):
        assert_same(table(number), table(number + other), ["id"])


# ------------------------------------------------------------------------------------------------- buckets
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=80), st.integers(1, 9), st.integers(1, 80))
def test_an_agent_lies_in_one_bucket_however_the_rows_are_cut(agents, number, cut):
    table = pa.table({"agent_id": agents, "row": np.arange(len(agents))})
    found: dict[int, set[int]] = {}
    for piece in (table.slice(0, cut), table.slice(cut)):
        for bucket, rows in buckets.divide(piece, "agent_id", number) if piece.num_rows else ():
            assert rows["row"].to_pylist() == sorted(rows["row"].to_pylist())
            for agent in rows["agent_id"].to_pylist():
                found.setdefault(agent, set()).add(bucket)
    assert all(len(where) == 1 for where in found.values())
    assert set(found) == set(agents)


def test_an_identifier_is_the_same_agent_as_number_and_as_text():
    numbers = pa.array([7, 12, 7])
    assert buckets.bucket_of(numbers, 64).tolist() == buckets.bucket_of(numbers.cast(pa.string()), 64).tolist()


def test_what_pieces_wrote_to_buckets_comes_back_in_order_with_types_and_missing_values(tmp_path):
    table = pa.table(
        {
            "agent_id": ["b", "a", "b", "d", "c"],
            "time": pa.array([1, 2, 3, 4, None], pa.timestamp("us", "UTC")),
            "kind": pa.array(["x", None, "y", "x", "y"]).dictionary_encode(),
            "vector": pa.array([[1.0, 2.0], [], None, [3.0], [4.0]], pa.list_(pa.float32())),
        }
    ).replace_schema_metadata({"entity": "agent_id"})
    place = Place.of(tmp_path)
    written = [(piece, buckets.write(place, table, piece, "agent_id", buckets=2)) for piece in ("000000", "000001")]
    for number, pieces in buckets.contents(written).items():
        assert pieces == buckets.pieces_in(place, number) == ["000000", "000001"]
        (rows,) = (rows for bucket, rows in buckets.divide(table, "agent_id", 2) if bucket == number)
        for back in buckets.read(place, number, pieces):
            assert back.equals(rows, check_metadata=True)
    assert buckets.pieces_in(place, 7) == []


def test_a_piece_that_was_cut_short_or_is_not_there_is_refused_in_one_line(tmp_path):
    place = Place.of(tmp_path)
    (number,) = buckets.write(place, pa.table({"agent_id": [1] * 50}), "000000", "agent_id", buckets=1)
    (file,) = tmp_path.glob("bucket-*/*.arrow")
    file.write_bytes(file.read_bytes()[:-20])
    for piece in ("000000", "000001"):
        with pytest.raises(DataError, match=f"{piece}.arrow: cannot be read"):
            buckets.read(place, number, [piece])


# -------------------------------------------------------------------------------------------------- places
def test_uris_are_told_from_paths_also_after_a_path_took_a_slash():
    assert is_uri("s3://bucket/x")
    assert is_uri(Path("s3://bucket/x"))
    assert not is_uri("/data/x")
    assert not is_uri("data:x")
    assert Place.of(Path("file:///tmp/x")).root == "/tmp/x"
    with pytest.raises(DataError, match="no file system"):
        Place.of("nowhere://bucket/x")


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path, monkeypatch):
    place = Place(pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem()), "folder")
    place.write_table(pa.table({"a": [1, 2]}), "x.parquet")
    assert place.read_table("x.parquet")["a"].to_pylist() == [1, 2]

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyarrow.parquet.write_table", stop)
    with pytest.raises(KeyboardInterrupt):
        place.write_table(pa.table({"a": [3]}), "y.parquet")
    assert place.names() == {"x.parquet"}


# ---------------------------------------------------------------------------------------------- neighbours
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 20), st.integers(1, 20), st.integers(0, 1000))
def test_the_nearest_of_two_shards_are_the_nearest_of_all(k, left, right, seed):
    distances = np.random.default_rng(seed).random((5, left + right)).astype(np.float32)
    parts = [np.sort(part, axis=1)[:, :k] for part in (distances[:, :left], distances[:, left:])]
    assert np.array_equal(merge_nearest(*parts, k), np.sort(distances, axis=1)[:, :k])


@pytest.mark.parametrize("scope", ["all", "own"])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_distances_to_a_sharded_reference_are_those_to_the_whole(scope, k):
    rng = np.random.default_rng(3)
    points, owner = rng.normal(size=(300, 8)).astype(np.float32), rng.integers(0, 9, 300)
    queries, asked = rng.normal(size=(40, 8)).astype(np.float32), rng.integers(0, 11, 40)
    edges = [0, 11, 12, 170, 300]
    shards = [lambda a=a, b=b: Reference(points[a:b], owner[a:b]) for a, b in itertools.pairwise(edges)]
    whose = asked if scope == "own" else None
    expected = Reference(points, owner).mean_distance(queries, k, "cpu", whose)
    found = ShardedReference(shards, 300).mean_distance(queries, k, "cpu", whose)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


# --------------------------------------------------------------------------------------------------- ranks
def test_merged_ranks_are_the_ranks_of_all_values():
    rng = np.random.default_rng(1)
    parts = [np.round(rng.normal(size=n), 1).astype(np.float32) for n in (50, 1, 0, 400)]
    parts[0][3] = np.nan
    whole = np.concatenate(parts)
    merged = Ranks.of(whole, np.float32)
    assert np.array_equal(merged.log10_tail(whole), Ranks.of(whole).log10_tail(whole), equal_nan=True)


def test_thinned_ranks_are_off_by_no_more_than_what_a_kept_value_stands_for():
    values = np.random.default_rng(2).exponential(size=20_000).astype(np.float32)
    thin = Ranks.of(values, np.float32, most=500)
    assert len(thin.values) == 500
    error = np.abs(10 ** thin.log10_tail(values) - 10 ** Ranks.of(values).log10_tail(values))
    assert error.max() <= 1.5 / 500


# -------------------------------------------------------------------------------------------------- alerts
def flagged_slowly(p, score, echo, rule, days):
    """Every rule in plain words, one event at a time."""
    leading = [i for i in range(len(p)) if not echo[i]]
    by_p = sorted(leading, key=lambda i: (p[i], -score[i], i))
    if rule.kind in ("top", "alerts_per_day"):
        chosen = by_p[: int(rule.value if rule.kind == "top" else rule.value * days)]
    elif rule.kind == "p_value":
        chosen = [i for i in leading if p[i] <= rule.value]
    else:
        passed = [k for k, i in enumerate(by_p, 1) if p[i] <= rule.value * k / len(p)]
        chosen = by_p[: max(passed, default=0)]
    return np.isin(np.arange(len(p)), chosen)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.kind)
@pytest.mark.parametrize("shape", [1.0, 0.4, 3.0])
def test_parts_are_judged_as_the_whole_is(rule, shape):
    rng = np.random.default_rng(5)
    p = np.round(rng.random(2_000) ** shape, 3)
    p[p == 0] = 1e-6
    score = -np.log10(p)
    echo = rng.random(2_000) < 0.1
    flagged, expected = flag_events(p, score, echo, rule, days=7.0, reference=900)
    assert np.array_equal(flagged, flagged_slowly(p, score, echo, rule, 7.0))
    edges = [0, 3, 700, 2_000]
    told = {}
    for a, b in itertools.pairwise(edges):
        told[str(a)] = report_part(p[a:b], score[a:b], echo[a:b], np.arange(b - a), rule=rule, days=7.0)
    found = raise_alerts(rule, told, 7.0, 900, rank=lambda task, row: int(task) + row)
    flags = np.concatenate([found.flags(str(a), p[a:b], echo[a:b]) for a, b in itertools.pairwise(edges)])
    assert np.array_equal(flags, flagged)
    assert found.threshold == expected.threshold
    assert found.by_chance == pytest.approx(expected.by_chance)
    assert found.warnings == expected.warnings
    assert any("differ from the reference" in warning for warning in found.warnings) == (shape != 1.0)


def test_false_discoveries_beyond_the_reference_are_warned_about_over_parts():
    p = np.r_[1e-7, np.linspace(0.01, 0.99, 300)]
    rule = AlertRule("fdr", 0.05)
    none = np.zeros(len(p), bool)
    told = {
        str(a): report_part(p[a::2], -np.log10(p[a::2]), none[a::2], np.arange(len(p[a::2])), rule=rule, days=7.0)
        for a in (0, 1)
    }
    found = raise_alerts(rule, told, 7.0, 300)
    assert found.warnings == flag_events(p, -np.log10(p), none, rule, days=7.0, reference=300)[1].warnings
    assert "rarer than one in the 300 reference events" in found.warnings[0]


def test_drift_from_a_histogram_is_off_by_less_than_a_bin():
    p = np.random.default_rng(6).beta(0.7, 1.2, 5_000)
    counts = np.bincount(np.minimum((p * BINS).astype(int), BINS - 1), minlength=BINS)
    assert abs(drift_of_bins(counts) - drift(p)) <= 1 / BINS + 1e-12


# ------------------------------------------------------------------------------------------------- clusters
def test_local_work_does_not_import_ray(tmp_path):
    code = f"""
import sys
from ustad.cli import main
import ustad.engine.extract_job, ustad.engine.score_job, ustad.engine.simulate_job, ustad.engine.train_job
try:
    main(["simulate", "--agents", "3", "--days", "4", "--fixes", "300s", "--out", r"{tmp_path / "town"}"])
except SystemExit as stop:
    assert stop.code == 0
try:
    main(["extract", r"{tmp_path / "town"}", "--out", r"{tmp_path / "data"}"])
except SystemExit as stop:
    assert stop.code == 0
print("ray" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip().endswith("False"), done.stderr[-1000:]


def test_without_ray_the_engine_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'ustad\[ray\]'"):
        cluster.import_ray()


def test_an_address_where_nothing_answers_is_refused_in_seconds(monkeypatch):
    tried = []

    def nobody(address: tuple[str, int], seconds: float) -> None:
        tried.append((address, seconds))
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", nobody)
    with pytest.raises(ConfigError, match="nothing answers there"):
        cluster._reachable("ray://[::1]:10001")
    assert tried == [(("::1", 10001), cluster.CONNECT_SECONDS)]


def test_a_port_that_nobody_listens_at_is_refused():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(ConfigError, match="nothing answers there"):
            cluster._reachable(f"127.0.0.1:{closed.getsockname()[1]}")


@pytest.mark.parametrize("free", [False, True])
def test_a_cluster_that_starts_nothing_is_given_up_with_the_seconds_that_were_waited(monkeypatch, free):
    waited: list[float] = []

    class Ray:
        exceptions = SimpleNamespace(RayError=RuntimeError)

        def nodes(self) -> list[dict[str, object]]:
            return [{"Alive": True, "Resources": {"CPU": 3.0}}]

        def available_resources(self) -> dict[str, float]:
            return {"CPU": 3.0 * free}

        def cluster_resources(self) -> dict[str, float]:
            return {"CPU": 3.0}

        def remote(self, **needs: float):
            return lambda work: SimpleNamespace(remote=lambda: "task")

        def wait(self, tasks: list[str], timeout: float) -> tuple[list[str], list[str]]:
            waited.append(timeout)
            return [], tasks

        def cancel(self, task: str, force: bool) -> None:
            waited.append(0.0)

    def no_core_comes_free(ray: Ray, cpus: float, seconds: float) -> bool:
        waited.append(0.0 if free else seconds)
        return free

    monkeypatch.setattr(cluster, "_free", no_core_comes_free)
    with pytest.raises(ConfigError, match="did not start a task within") as refused:
        cluster._probe(Ray(), cluster.Cluster(), seconds=8.0)
    assert f"within {sum(waited):g} seconds: {3 * free} of its 3 CPUs are free" in str(refused.value)
    assert sum(waited) == (cluster.START_SECONDS if free else 8.0)


@pytest.mark.parametrize("option", ["--address=head:6379", "--partitions=3", "--workers=2"])
def test_options_of_a_cluster_need_the_engine(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["score", "model", "data", option])
    assert stop.value.code == 2
    assert "needs --engine ray" in " ".join(capsys.readouterr().err.split())


def test_a_folder_that_is_no_table_is_never_removed(tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "diary.txt").write_text("mine")
    with pytest.raises(DataError, match="choose another --out"):
        Place.of(tmp_path).remove_table("events")
    assert (tmp_path / "events" / "diary.txt").exists()
