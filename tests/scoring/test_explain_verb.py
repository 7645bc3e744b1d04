"""`ustad score --explain`: what the highest scores are made of."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from ustad.cli import main
from ustad.schema import mobility_schema
from ustad.scoring.evidence import most_unusual

TINY = {"model.width": 16, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 2, "scoring.neighbours": 5}


def run(*arguments: object) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    assert stop.value.code in (0, None)


@pytest.fixture(scope="module")
def trained(town_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("explained") / "model"
    run("train", town_directory, "--preset", "quick", "--out", place)
    return place


def test_the_highest_scores_are_told_apart_by_term(
    trained: Path, town_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("score", trained, town_directory, "--explain", 4, "--out", tmp_path / "scores")
    shown = capsys.readouterr().out
    assert "made of" in shown
    lines = pa_csv.read_csv(tmp_path / "scores" / "explained.csv")
    events = pq.read_table(tmp_path / "scores" / "events.parquet").sort_by([("score", "descending")])
    assert len(lines["stay_id"].unique()) == 4
    first = lines.filter(pa.compute.equal(lines["stay_id"], lines["stay_id"][0]))
    assert first["score"][0].as_py() == pytest.approx(events["score"][0].as_py())
    assert sum(first["share"].to_pylist()) == pytest.approx(1.0)
    leading = first["term"][0].as_py()
    assert f"{leading} {100 * first['share'][0].as_py():.0f} %" in " ".join(shown.split())


def neighbours(events: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """The stay before and the stay after of the same agent, itself between them."""
    own = sorted((e for e in events if e["agent_id"] == row["agent_id"]), key=lambda e: e["started_at"])
    at = [e["stay_id"] for e in own].index(row["stay_id"])
    return own[max(at - 1, 0) : at + 2]


def test_explanations_come_as_json_too(
    trained: Path, town_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("score", trained, town_directory, "--explain", 2, "--json", "--out", tmp_path / "scores")
    told = json.loads(capsys.readouterr().out)["explained"]
    assert len(told) == 2
    assert told[0]["score"] >= told[1]["score"]
    assert {"surprise", "share"} == set(next(iter(told[0]["terms"].values())))


def test_without_habits_every_part_says_its_percentile() -> None:
    columns = {"agent_id": [1, 2], "score": [0.2, 0.9], "pct_start": [0.2, 0.9], "pct_knn": [0.1, None]}
    (row,) = most_unusual(pa.table(columns), mobility_schema(), 1)
    assert row["agent_id"] == 2
    assert row["terms"] == {"start": {"surprise": pytest.approx(1.0), "share": pytest.approx(1.0)}}


def test_shares_of_older_scores_come_from_their_percentiles_also_where_these_end() -> None:
    schema = mobility_schema()
    percentiles = {f"pct_{t.name}": 0.5 for t in schema.terms() if t.scored} | {"pct_start": 1 - 1e-12, "pct_knn": 1.0}
    table = pa.table({"agent_id": [1], "score": [0.9]} | {name: [value] for name, value in percentiles.items()})
    (row,) = most_unusual(table, schema, 1)
    shares = {name: term["share"] for name, term in row["terms"].items()}
    surprise = {name.removeprefix("pct_"): -math.log10(max(1 - value, 1e-16)) for name, value in percentiles.items()}
    total = sum(surprise.values())
    assert shares == pytest.approx({name: value / total for name, value in surprise.items()})
    assert shares["knn"] > shares["start"] > 0.3
