"""Own places keep their names: as weeks are added, and from one extraction to the next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from town import START, minutes, walks
from typer.testing import CliRunner

from ustad.cli.extract import extract as extract_verb
from ustad.files import find_table, read_table
from ustad.mobility.extraction import extract, extract_tables
from ustad.mobility.own_places import KnownPlaces, own_places
from ustad.tables import TIMESTAMP, DataError

HALF = datetime.fromtimestamp(START / 1e6, UTC) + timedelta(hours=120)


def random_stays(seed: int, n: int = 60) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = np.arange(n) * 100
    columns = {
        "agent_id": pa.array(np.sort(rng.integers(0, 3, n))),
        "started_at": pa.array(minutes(start), TIMESTAMP),
        "finished_at": pa.array(minutes(start + 90), TIMESTAMP),
        "lat": pa.array(50 + rng.normal(0, 0.002, n)),
        "lon": pa.array(8 + rng.normal(0, 0.002, n)),
    }
    return pa.table({**columns, "timezone": pa.array(["UTC"] * n)})


def halves(stays: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Which stays are in the first half of their agent's, and which in the second."""
    agent = stays["agent_id"].to_numpy()
    turn = np.arange(len(agent)) - np.searchsorted(agent, agent)
    early = turn < np.bincount(agent)[agent] // 2
    return pa.array(early), pa.array(~early)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999))
def test_later_stays_leave_the_names_of_places_as_they_are(seed):
    stays = random_stays(seed)
    early, _ = halves(stays)
    assert (
        own_places(stays.filter(early))["poi_id"].to_pylist() == own_places(stays)["poi_id"].filter(early).to_pylist()
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999))
def test_with_the_earlier_stays_given_the_later_ones_are_named_as_if_all_were_together(seed):
    stays = random_stays(seed)
    early, late = halves(stays)
    known = KnownPlaces.of([own_places(stays.filter(early))])
    assert own_places(stays.filter(late), earlier_places=known)["poi_id"].to_pylist() == (
        own_places(stays)["poi_id"].filter(late).to_pylist()
    )


def test_places_of_extractions_apart_have_no_name_in_common():
    stays = random_stays(3)
    early, late = halves(stays)
    names = [set(own_places(stays.filter(rows))["poi_id"].to_pylist()) for rows in (early, late)]
    assert not names[0] & names[1]
    assert len(names[0]) > 3


def test_home_and_work_stay_what_they_were_and_other_agents_get_theirs():
    start = np.arange(10) * 1440
    columns = {
        "started_at": pa.array(minutes(start), TIMESTAMP),
        "finished_at": pa.array(minutes(start + 480), TIMESTAMP),
        "lat": pa.array([50.0] * 4 + [50.5] * 6),  # moves house on the fifth day
        "lon": pa.array([8.0] * 10),
        "timezone": pa.array(["UTC"] * 10),
    }
    stays = pa.table({"agent_id": pa.array(["mover"] * 10), **columns})
    known = KnownPlaces.of([own_places(stays.slice(0, 4))])
    assert own_places(stays, earlier_places=known)["poi_category"].to_pylist() == ["home"] * 4 + ["other"] * 6
    stranger = stays.set_column(0, "agent_id", pa.array(["stranger"] * 10))
    assert own_places(stranger, earlier_places=known).equals(own_places(stranger))


def by_moment(stays: pa.Table) -> dict[tuple[int, int], str]:
    """Names of places by agent and the quarter of an hour in which the stay began."""
    quarter = stays["started_at"].cast(pa.int64()).to_numpy() // 900_000_000
    return dict(
        zip(zip(stays["agent_id"].to_pylist(), quarter.tolist(), strict=True), stays["poi_id"].to_pylist(), strict=True)
    )


def run(fixes: pa.Table, out: Path, *options: str | Path) -> tuple[dict[tuple[int, int], str], str]:
    """Extract as a user would: the names of places by moment, and what was said."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(extract_verb)
    pq.write_table(fixes, out.with_suffix(".parquet"))
    arguments = [out.with_suffix(".parquet"), "--timezone", "UTC", "--out", out, *options]
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return by_moment(read_table(find_table(out, "stays"))), result.output


def test_weeks_extracted_apart_agree_with_weeks_extracted_together(tmp_path: Path):
    fixes = walks(agents=3, hours=240, step_s=300)
    together, _ = run(fixes, tmp_path / "all")
    early, _ = run(fixes.filter(pc.less(fixes["time"], pa.scalar(HALF))), tmp_path / "early")
    rest = fixes.filter(pc.greater_equal(fixes["time"], pa.scalar(HALF)))
    late, said = run(rest, tmp_path / "late", "--places", tmp_path / "early")
    assert "own places of 3 agents are known from before" in said
    for part in (early, late):
        both = part.keys() & together.keys()
        assert len(both) > 0.95 * len(part), "all but the stay that the cut divides"
        assert all(part[k] == together[k] for k in both)
    assert len(set(late.values()) & set(early.values())) > 3, "places are visited again"


def test_places_that_pois_name_are_refused_in_one_line(tmp_path: Path):
    fixes = walks(agents=1, hours=20, step_s=300)
    pois = pa.table({"poi_id": [1], "lat": [52.5], "lon": [13.4], "category": ["shop"]})
    named = extract_tables(fixes, pois=pois, timezone="UTC").events
    with pytest.raises(DataError, match="no stay is at a place of the agent's own"):
        extract_tables(fixes, timezone="UTC", places=[named])
    own = extract_tables(fixes, timezone="UTC").events
    with pytest.raises(DataError, match="POIs name the places"):
        extract_tables(fixes, pois=pois, timezone="UTC", places=[own])
    with pytest.raises(DataError, match="holds no table of stays"):
        extract_tables(fixes, timezone="UTC", places=[tmp_path])
    with pytest.raises(DataError, match="without poi_id, poi_category"):
        extract_tables(fixes, timezone="UTC", places=[own.drop_columns(["poi_id", "poi_category"])])


def test_an_extraction_does_not_replace_the_one_whose_places_it_knows(tmp_path: Path):
    early = tmp_path / "early"
    run(walks(agents=1, hours=48, step_s=300), early)
    held = read_table(find_table(early, "stays"))
    for places in (early, tmp_path / "x" / ".." / "early", early / "stays.parquet"):
        with pytest.raises(DataError, match="is where --places comes from"):
            extract(early.with_suffix(".parquet"), early, timezone="UTC", places=[places])
    assert read_table(find_table(early, "stays")).equals(held)
