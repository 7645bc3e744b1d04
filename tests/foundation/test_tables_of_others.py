"""Tables that people hold in other libraries come in as Arrow, without a copy where that can be, and scores go back.

Libraries that are not installed are skipped; what stands in for them has the same methods and nothing else.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ustad.detector import Detector
from ustad.files import as_table
from ustad.frames import to_arrow, to_geopandas, to_pandas, to_polars, without_index
from ustad.mobility.columns import as_fixes
from ustad.schema_infer import infer
from ustad.scores import Scores
from ustad.simulate import simulate_tables
from ustad.tables import TIMESTAMP, DataError

pd = pytest.importorskip("pandas")


@pytest.fixture
def fixes() -> pa.Table:
    start = dt.datetime(2024, 5, 1, 8, tzinfo=dt.UTC)
    moments = [start + dt.timedelta(minutes=5 * i) for i in range(3)]
    return pa.table(
        {
            "agent_id": ["a"] * 3 + ["b"] * 3,
            "time": pa.array(moments * 2, TIMESTAMP),
            "lat": np.linspace(52.4, 52.5, 6),
            "lon": np.linspace(13.3, 13.4, 6),
        }
    )


def address(table: pa.Table, column: str) -> int:
    return table[column].chunk(0).buffers()[1].address


def same_fixes(source: Any, fixes: pa.Table) -> bool:
    return as_fixes(source).select(fixes.column_names).equals(fixes)


# ---------------------------------------------------------------------------------------------------- in
def test_numbers_of_pandas_and_polars_are_not_copied(fixes):
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(fixes)
    assert address(to_arrow(frame), "lat") == address(fixes, "lat")
    lat = np.linspace(52.4, 52.5, 6)
    assert address(to_arrow(pd.DataFrame({"lat": lat}, copy=False)), "lat") == lat.ctypes.data


def test_a_query_of_polars_is_collected(fixes):
    polars = pytest.importorskip("polars")
    query = polars.from_arrow(fixes).lazy().filter(polars.col("agent_id") == "a")
    assert same_fixes(query, fixes.slice(0, 3))


def test_arrow_comes_as_table_batch_reader_or_dataset(fixes):
    import pyarrow.dataset as pa_dataset

    batch = fixes.to_batches()[0]
    for source in (fixes, batch, pa.RecordBatchReader.from_batches(batch.schema, [batch]), pa_dataset.dataset(fixes)):
        assert as_table(source).equals(fixes)


def test_a_relation_of_duckdb_is_a_table(fixes):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("fixes", fixes)
    assert same_fixes(connection.sql("SELECT * FROM fixes WHERE agent_id = 'b'"), fixes.slice(3))


class LikeHuggingFace:
    """A data set of which some rows are chosen, as `datasets.Dataset.filter` leaves it."""

    def __init__(self, table: pa.Table, rows: list[int]) -> None:
        self.table, self.rows, self.kind = table, rows, "python"

    def with_format(self, kind: str) -> LikeHuggingFace:
        self.kind = kind
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        assert self.kind == "arrow"
        return self.table.take(pa.array(self.rows))[rows]


def test_a_data_set_of_hugging_face_is_the_rows_that_were_chosen(fixes):
    assert same_fixes(LikeHuggingFace(fixes, [0, 1, 2]), fixes.slice(0, 3))
    with pytest.raises(DataError, match=r"several parts \(train, test\); give one"):
        as_table({"train": LikeHuggingFace(fixes, [0]), "test": LikeHuggingFace(fixes, [1])})


def test_a_real_data_set_of_hugging_face_is_taken(fixes):
    datasets = pytest.importorskip("datasets")
    chosen = datasets.Dataset(fixes).filter(lambda row: row["agent_id"] == "b")
    assert same_fixes(chosen, fixes.slice(3))


def trajectory_points(fixes: pa.Table) -> Any:
    """Points with a time as index and no coordinates but their geometry, as MovingPandas wants them."""
    geopandas = pytest.importorskip("geopandas")
    frame = fixes.to_pandas().rename(columns={"agent_id": "traj_id"})
    points = geopandas.GeoDataFrame(frame, geometry=geopandas.points_from_xy(frame.lon, frame.lat), crs=4326)
    return points.drop(columns=["lat", "lon"]).set_index("time").tz_convert("Asia/Tokyo")


@pytest.mark.parametrize("name", ["time", "t", None])
def test_trajectories_of_movingpandas_are_their_points_in_their_zone(fixes, name):
    points = trajectory_points(fixes).rename_axis(name)

    class LikeTrajectories:
        def to_point_gdf(self, return_orig_tz: bool = False) -> Any:
            return points if return_orig_tz else points.tz_localize(None)

    assert same_fixes(LikeTrajectories(), fixes)


def test_real_trajectories_of_movingpandas_are_taken(fixes):
    moving = pytest.importorskip("movingpandas")
    assert same_fixes(moving.TrajectoryCollection(trajectory_points(fixes), "traj_id"), fixes)


def test_a_frame_of_scikit_mobility_is_a_data_frame(fixes):
    class TrajDataFrame(pd.DataFrame):  # what skmob.TrajDataFrame is, with its names
        @property
        def _constructor(self) -> type:
            return TrajDataFrame

    frame = fixes.to_pandas().rename(columns={"agent_id": "uid", "time": "datetime", "lon": "lng"})
    assert same_fixes(TrajDataFrame(frame), fixes)


def test_what_is_no_table_is_refused_in_one_line():
    mixed = pd.DataFrame({"agent_id": ["a", 3, object()]})
    for source, said in ((7, "got int"), ([1, 2], "got list"), (mixed, "a column cannot be read")):
        with pytest.raises(DataError, match=said) as refused:
            as_table(source)
        assert "\n" not in str(refused.value)


# -------------------------------------------------------------------------------------------------- back
@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(6),
        pd.Index(list("uvwxyz")),
        pd.Index(list("uvwxyz"), name="key"),
        pd.MultiIndex.from_product([["u", "v"], [1, 2, 3]], names=["house", None]),
    ],
    ids=["range", "unnamed", "named", "levels"],
)
def test_the_index_of_a_data_frame_comes_back(fixes, index):
    frame = fixes.to_pandas().set_axis(index)
    table = to_arrow(frame).take(pa.array([4, 1]))
    back = to_pandas(table)
    pd.testing.assert_index_equal(back.index, index[[4, 1]])
    assert back["lat"].tolist() == frame["lat"].iloc[[4, 1]].tolist()
    assert list(back.columns) == list(frame.columns)


def test_an_index_without_a_name_is_no_feature(fixes):
    frame = fixes.to_pandas()
    assert without_index(to_arrow(frame)).column_names == fixes.column_names
    assert infer(frame).schema == infer(fixes).schema


def test_scores_join_the_frame_that_was_scored_by_its_index():
    stays = simulate_tables("town", agents=12, seed=3, days=12).events
    frame = stays.to_pandas().sample(frac=1, random_state=1)
    frame["colour"] = np.arange(len(frame))
    by_arrow = Detector("quick").fit(stays).score(stays).events
    scores = Detector("quick").fit(frame).score(frame)
    joined = frame.join(scores.to_pandas()[["score"]], how="inner").set_index("stay_id")
    assert joined["score"].to_dict() == dict(zip(*(by_arrow[c].to_pylist() for c in ("stay_id", "score")), strict=True))
    assert (scores.to_pandas()["colour"] == frame.loc[scores.to_pandas().index, "colour"]).all()
    polars = pytest.importorskip("polars")
    assert scores.to_polars().join(polars.from_arrow(stays), on="stay_id").height == len(joined)


def test_scores_go_back_as_points_in_degrees():
    pytest.importorskip("geopandas")
    table = pa.table({"agent_id": ["a", "b"], "lat": [60.0, 61.0], "lon": [24.0, 25.0], "score": [1.0, 2.0]})
    points = Scores(table).to_geopandas()
    assert points.crs.to_epsg() == 4326
    assert [(p.x, p.y) for p in points.geometry] == [(24.0, 60.0), (25.0, 61.0)]
    with pytest.raises(DataError, match="lat and lon"):
        to_geopandas(table.drop_columns(["lat"]))


def test_a_library_that_is_absent_is_named(monkeypatch):
    import sys

    table = pa.table({"agent_id": ["a"], "score": [1.0]})
    for name, function in (("polars", to_polars), ("geopandas", to_geopandas)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(DataError, match=name):
            function(table)
    assert Scores(agents=table).to_pandas()["score"].tolist() == [1.0]
