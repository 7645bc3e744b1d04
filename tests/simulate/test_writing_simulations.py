"""Data directories: the same bytes whatever the workers, bounded parts, fixes as a phone records them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small_towns import seconds
from typer.testing import CliRunner

from ustad.cli import app
from ustad.config import ConfigError, SplitConfig
from ustad.dataset import Dataset, load_directory
from ustad.files import find_table, read_table
from ustad.geo import haversine_km
from ustad.simulate import simulate, simulate_tables
from ustad.simulate.fixes import parse_interval
from ustad.tables import FIXES, validate

AGENTS, DAYS = 60, 7


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("town")
    simulate("town", AGENTS, 3, out, fixes="120s", days=DAYS, anomalous_share=0.2)
    return out


def digest(out: Path) -> dict[str, str]:
    files = sorted(p for p in out.rglob("*") if p.is_file())
    return {str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_same_bytes_come_from_one_worker_and_from_three(tmp_path: Path) -> None:
    for workers in (1, 3):
        simulate(
            "town",
            AGENTS,
            3,
            tmp_path / str(workers),
            fixes="300s",
            days=DAYS,
            dirty=0.1,
            workers=workers,
            agents_a_part=17,
        )
    assert digest(tmp_path / "1") == digest(tmp_path / "3")


def test_partitions_do_not_change_the_tables(tmp_path: Path) -> None:
    for size in (7, 1_000):
        simulate(
            "town", AGENTS, 3, tmp_path / str(size), fixes="300s", days=DAYS, agents_a_part=size, anomalous_share=0.3
        )
    for name in ("stays", "trips", "gaps", "labels", "agent_labels", "counterfactual", "pois", "fixes"):
        a, b = (read_table(find_table(tmp_path / str(size), name)) for size in (7, 1_000))  # type: ignore[arg-type]
        assert a.combine_chunks().equals(b.combine_chunks()), name


def test_what_is_written_is_what_is_made_in_memory(directory: Path) -> None:
    made = simulate_tables("town", AGENTS, 3, DAYS, anomalous_share=0.2)
    data = load_directory(directory)
    assert data.events.equals(made.events)
    assert data.labels.equals(made.labels)
    assert data.pois.equals(made.pois)


def test_meta_says_span_zone_and_split(directory: Path) -> None:
    meta = json.loads((directory / "meta.json").read_text())
    assert meta["preset"] == "town"
    assert meta["agents"] == AGENTS
    assert meta["days"] == DAYS
    assert meta["seed"] == 3
    assert meta["timezone"] == "Europe/Berlin"
    assert meta["first_day"] == "2024-05-06"
    assert meta["events"] == load_directory(directory).events.num_rows
    split = load_directory(directory).split(SplitConfig())
    assert split.test_first - split.train_first == 4  # the preset's half of seven days


def test_a_second_run_leaves_nothing_of_the_first(directory: Path, tmp_path: Path) -> None:
    simulate("town", 30, 1, tmp_path, fixes="600s", days=DAYS, dirty=0.5, agents_a_part=10)
    simulate("town", 20, 2, tmp_path, days=DAYS)
    names = {p.name for p in tmp_path.iterdir()}
    assert "fixes" not in names
    assert "stays" not in names
    assert "dirty_labels.parquet" not in names
    assert set(load_directory(tmp_path).events["agent_id"].to_pylist()) == set(range(20))


def fixes_and_truth(directory: Path) -> tuple[pa.Table, Dataset]:
    return read_table(directory / "fixes"), load_directory(directory)


def test_fixes_keep_their_contract_and_order(directory: Path) -> None:
    fixes, _ = fixes_and_truth(directory)
    validate(fixes, FIXES)
    agent, time = fixes["agent_id"].to_numpy(), seconds(fixes, "time")
    assert (np.diff(agent) >= 0).all()
    assert (np.diff(time)[np.diff(agent) == 0] > 0).all()


def test_fixes_come_at_about_the_interval(directory: Path) -> None:
    fixes, _ = fixes_and_truth(directory)
    same = np.diff(fixes["agent_id"].to_numpy()) == 0
    step = np.diff(seconds(fixes, "time"))[same]
    assert np.median(step) == pytest.approx(120, abs=3)
    assert step.std() > 3
    expected = AGENTS * DAYS * 86_400 / 120
    assert 0.8 * expected < fixes.num_rows < expected


def test_fixes_lie_within_receiver_noise_of_the_true_stay(directory: Path) -> None:
    fixes, data = fixes_and_truth(directory)
    stays = data.events
    key = stays["agent_id"].to_numpy() * 10**11 + seconds(stays, "started_at")
    at = np.searchsorted(key, fixes["agent_id"].to_numpy() * 10**11 + seconds(fixes, "time"), side="right") - 1
    inside = seconds(fixes, "time") <= seconds(stays, "finished_at")[at]
    lat, lon = stays["lat"].to_numpy()[at[inside]], stays["lon"].to_numpy()[at[inside]]
    metres = 1000 * haversine_km(lat, lon, fixes["lat"].to_numpy()[inside], fixes["lon"].to_numpy()[inside])
    assert 5 < np.median(metres) < 20
    assert np.quantile(metres, 0.99) < 60
    assert 0.005 < np.mean(~inside) < 0.05  # some are on the way


def test_switched_off_phones_record_nothing_and_are_told_as_gaps(directory: Path) -> None:
    fixes, data = fixes_and_truth(directory)
    gaps = data.gaps.filter(pc.equal(data.gaps["cause"], "phone off"))
    assert gaps.num_rows > AGENTS * DAYS * 0.05
    agent, time = fixes["agent_id"].to_numpy(), seconds(fixes, "time")
    for gap in gaps.to_pylist()[::5]:
        own = time[agent == gap["agent_id"]]
        start, end = gap["started_at"].timestamp(), gap["finished_at"].timestamp()
        assert not ((own >= start) & (own < end)).any()


@pytest.mark.parametrize(("text", "expected"), [("60s", 60), ("2min", 120), ("90", 90), (" 1.5 min", 90), ("1h", 3600)])
def test_intervals_are_read(text: str, expected: float) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize("text", ["", "fast", "0s", "-5s", "60 parsecs"])
def test_nonsense_is_not_an_interval(text: str) -> None:
    with pytest.raises(ConfigError, match="not an interval"):
        parse_interval(text)


def test_the_verbs_write_what_they_say(tmp_path: Path) -> None:
    run = CliRunner().invoke
    made = run(
        app, ["simulate", "--preset", "town", "--agents", "40", "--days", "9", "--out", str(tmp_path / "a"), "--json"]
    )
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["events"] == load_directory(tmp_path / "a").events.num_rows
    told = run(
        app, ["inject", str(tmp_path / "a"), "--kind", "spatial", "--share", "0.1", "--out", str(tmp_path / "b")]
    )
    assert told.exit_code == 0, told.output
    assert "labelled of" in told.stdout
    assert "spatial" in load_directory(tmp_path / "b").labels["kind"].to_pylist()


def test_the_verbs_refuse_what_makes_no_sense(tmp_path: Path) -> None:
    run = CliRunner().invoke
    simulate("town", 20, 1, tmp_path / "a", days=6)
    where = str(tmp_path / "a")
    assert run(app, ["inject", where, "--out", where]).exit_code == 2
    assert run(app, ["inject", where, "--kind", "magic", "--out", str(tmp_path / "b")]).exit_code == 2
    assert run(app, ["inject", where, "--first-day", "soon", "--out", str(tmp_path / "b")]).exit_code == 2
