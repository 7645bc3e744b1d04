"""The verbs extract, pois and info, run as a user would."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import typer
from town import walks
from typer.testing import CliRunner

from ustad import progress
from ustad.cli.extract import extract, info, pois
from ustad.cli.inspect import bar, sparkline
from ustad.dataset import load_directory
from ustad.tables import DataError


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    for verb in (extract, pois, info):
        app.command()(verb)
    return app


@pytest.fixture
def fixes(tmp_path):
    pq.write_table(walks(agents=3, hours=100, step_s=300, gaps=True), tmp_path / "fixes.parquet")
    return tmp_path / "fixes.parquet"


def run(app: typer.Typer, *arguments) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_extract_then_info_tells_what_there_is(app, fixes, tmp_path):
    said = run(
        app, "extract", fixes, "--out", tmp_path / "d", "--timezone", "UTC", "--gap", 30, "--export", "geoparquet"
    )
    assert "stays" in said
    assert "of 3 agents" in said
    assert pq.read_metadata(tmp_path / "d" / "export" / "stays.parquet").num_rows > 0
    shown = run(app, "info", tmp_path / "d")
    assert "agents     3" in shown
    assert "█" in shown
    assert "gaps" in shown
    content = json.loads(run(app, "info", tmp_path / "d", "--json"))
    assert content["agents"] == 3
    assert content["quality"]["fixes"] == content_fixes(tmp_path)
    assert content["split"].startswith("train 2024-01-01")  # local days of where the stays are


def content_fixes(tmp_path) -> int:
    return json.loads((tmp_path / "d" / "meta.json").read_text())["counts"]["fixes"]


def test_labels_of_a_simulated_town_travel_to_the_extracted_stays(app, tmp_path):
    from ustad.simulate.simulation import simulate

    simulate("town", 12, 4, tmp_path / "town", fixes="120s", days=28, anomalous_share=0.5)
    said = run(app, "extract", tmp_path / "town", "--out", tmp_path / "d")
    assert "labels, by overlap in time" in said
    truth, data = load_directory(tmp_path / "town"), load_directory(tmp_path / "d")
    assert data.agent_labels.equals(truth.agent_labels)
    assert data.labels.num_rows >= 0.5 * truth.labels.num_rows > 0
    assert set(data.labels["stay_id"].to_pylist()) <= set(data.events["stay_id"].to_pylist())
    assert data.meta["split"] == truth.meta["split"]


def test_json_is_all_that_json_prints(app, fixes, tmp_path):
    progress.enable()  # as the command line does
    command = ["extract", str(fixes), "--out", str(tmp_path / "d"), "--timezone", "UTC", "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert json.loads(result.stdout)["agents"] == 3
    assert "stays of 3 agents" in result.stderr


def test_help_shows_an_example_of_every_format(app):
    said = run(app, "extract", "--help")
    for word in ("parquet", "csv", "ndjson", ".plt", "gpx", "geoparquet"):
        assert word in said


def test_a_wrong_choice_is_a_usage_error(app, fixes, tmp_path):
    result = CliRunner().invoke(app, ["extract", str(fixes), "--out", str(tmp_path / "d"), "--times", "martian"])
    assert result.exit_code == 2


def test_info_of_a_model_prints_its_card(app, tmp_path):
    (tmp_path / "card.md").write_text("# A model\ntrained on nothing\n")
    assert run(app, "info", tmp_path) == "# A model\ntrained on nothing\n"


def test_info_of_data_without_a_stay_shows_its_quality(app, tmp_path):
    pq.write_table(walks(agents=2, hours=200, step_s=6 * 3600), tmp_path / "f.parquet")
    run(app, "extract", tmp_path / "f.parquet", "--out", tmp_path / "d", "--timezone", "UTC", "--no-join")
    shown = run(app, "info", tmp_path / "d")
    assert "0 stays" in shown
    assert "2 agents cannot tell stays" in shown
    assert json.loads(run(app, "info", tmp_path / "d", "--json"))["quality"]["too_sparse"] == 2


def test_info_says_what_was_bridged(app, tmp_path):
    rows = walks(agents=1, hours=1).slice(0, 12)
    night = rows.set_column(1, "time", pc.add(rows["time"], pa.scalar(8 * 3600 * 10**6, pa.duration("us"))))
    pq.write_table(pa.concat_tables([rows, night.set_column(2, "lat", rows["lat"])]), tmp_path / "f.parquet")
    run(app, "extract", tmp_path / "f.parquet", "--out", tmp_path / "d", "--timezone", "UTC")
    assert "1 silences at one place are part of a stay, 8 h together" in run(app, "info", tmp_path / "d")
    quality = json.loads(run(app, "info", tmp_path / "d", "--json"))["quality"]
    assert quality["gaps_by_cause"]["bridged"]["gaps"] == 1
    assert quality["observed_share"] < 0.1


def test_info_of_a_baseline_or_of_scores_shows_their_record(app, tmp_path):
    record = {"method": "time-lof", "seed": 3, "settings": {"neighbours": 20}, "facts": {}}
    (tmp_path / "method.json").write_text(json.dumps(record))
    shown = run(app, "info", tmp_path)
    assert "kind       baseline" in shown
    assert "method     time-lof" in shown
    assert "neighbours 20" in shown
    (tmp_path / "method.json").rename(tmp_path / "run.json")
    assert json.loads(run(app, "info", tmp_path, "--json"))["kind"] == "scores"


def test_info_of_nothing_is_an_error(app, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        run(app, "info", tmp_path / "nothing")


def test_pois_writes_a_table_and_can_show_its_categories(app, tmp_path):
    pytest.importorskip("osmium")
    node = '<node id="1" lat="60.0" lon="25.0" version="1"><tag k="amenity" v="cafe"/></node>'
    (tmp_path / "t.osm").write_text(f'<osm version="0.6">{node}</osm>')
    said = run(app, "pois", tmp_path / "t.osm", "--out", tmp_path / "pois.parquet")
    assert "1 POIs" in said
    assert "OpenStreetMap contributors" in said
    assert pq.read_table(tmp_path / "pois.parquet")["category"].to_pylist() == ["EatOut"]
    assert "EatOut:" in run(app, "pois", "--show-categories")


def test_bars_and_sparklines_follow_their_values():
    assert bar(0.5, 4) == "██··"
    assert sparkline([0.0, 0.5, 1.0]) == " ▄█"
    assert len(sparkline([1.0] * 500)) == 56
