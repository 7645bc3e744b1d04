"""`ustad score --rules` on scores that are written in one file or in parts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ustad.agent_order import order_note
from ustad.cli.after_scores import hide_explained
from ustad.files import write_json, write_table
from ustad.schema import mobility_schema
from ustad.scores import Scores
from ustad.scoring.alerts import mostly_chance
from ustad.triage.hiding import HidingRule

RULE = HidingRule("nights", 4_000_000_000_000_000, "night shift", agent="a")


def tables() -> tuple[pa.Table, pa.Table]:
    moment = pa.array([datetime(2024, 3, 1, hour, tzinfo=UTC) for hour in range(4)], pa.timestamp("us", tz="UTC"))
    events = pa.table({
        "agent_id": ["a", "a", "b", "b"], "started_at": moment, "finished_at": moment, "lat": [60.0] * 4,
        "lon": [25.0] * 4, "timezone": ["UTC"] * 4, "score": [4.0, 3.0, 2.0, 1.0], "alert": [True, False, True, False],
        "incident_id": ["i", "i", "j", None], "kind": ["novel"] * 4,
    })  # fmt: skip
    return events, pa.table({"incident_id": ["i", "j"], "score": [4.0, 2.0], "alert": [True, True]})


@pytest.mark.parametrize("in_parts", [False, True])
def test_rules_take_alerts_off_every_list_and_leave_scores(tmp_path: Path, in_parts: bool) -> None:
    events, incidents = tables()
    if in_parts:
        for number, rows in enumerate((events.slice(0, 2), events.slice(2))):
            write_table(rows, tmp_path / "events" / f"part-{number:05d}.parquet")
    else:
        write_table(events, tmp_path / "events.parquet")
    write_table(incidents, tmp_path / "incidents.parquet")
    agents = pa.table({"agent_id": ["a", "b"], "n_incidents": [1, 1], "n_alerts": [1, 1], "p_value": [0.3, 0.3]})
    agents = agents.append_column("score", pa.array([0.5, 0.5]))
    write_table(agents.append_column("reason", pa.array(["", ""])), tmp_path / "agents.parquet")
    write_json({"alerts": 2, "by_chance": 3.0, "warnings": mostly_chance(2, 3.0)}, tmp_path / "run.json")
    run = hide_explained(tmp_path, [RULE], mobility_schema())
    after = Scores.load(tmp_path)
    assert after.events is not None
    assert after.incidents is not None
    assert after.events["score"].to_pylist() == events["score"].to_pylist()
    assert after.events["alert"].to_pylist() == [False, False, True, False]
    assert after.events["hidden_by"].to_pylist() == ["nights", None, None, None]
    assert after.incidents["alert"].to_pylist() == [False, True]
    assert (run["alerts"], run["hidden"]) == (1, {"nights": 1})
    agents = pq.read_table(tmp_path / "agents.parquet")
    assert agents["n_alerts"].to_pylist() == [0, 1]
    assert agents["order_note"].to_pylist() == [None, order_note(1, 0.3)]
    assert run["by_chance"] == 1.5
    assert run["warnings"][0].startswith("1 alert, and normal behaviour alone would raise about 2 ")
    assert "1 alert is hidden by rules" in run["warnings"][1]
    assert len(run["warnings"]) == 2
    assert len((tmp_path / "alerts.csv").read_text().splitlines()) == 2
