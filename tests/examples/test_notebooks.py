"""The notebooks run from the first cell to the last, say what their text promises, and are kept with light outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NAMES = ("own_gps", "comparing_detectors", "any_events")
pytest.importorskip("pandas")


def code_cells(name: str) -> list[dict[str, Any]]:
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """All cells of a notebook in one namespace, as a kernel would run them; figures are not shown."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)

    def run_cells(name: str) -> dict[str, Any]:
        space: dict[str, Any] = {}
        for number, cell in enumerate(code_cells(name)):
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), space)
        space["plt"].close("all")
        return space

    return run_cells


def test_there_are_no_others():
    assert {p.stem for p in FOLDER.glob("*.ipynb")} == set(NAMES)


@pytest.mark.filterwarnings("ignore")
def test_own_gps_leads_to_a_sentence(run, capsys):
    space = run("own_gps")
    assert space["stays"].agent_id.nunique() == space["fixes"].agent_id.nunique()
    assert capsys.readouterr().out.strip().endswith(".")
    assert set(space["theirs"].agent_id) == {space["person"]}


@pytest.mark.filterwarnings("ignore")
def test_ustad_is_ahead_of_the_simpler_detectors(run):
    pytest.importorskip("torch", reason="other methods need torch")
    table = run("comparing_detectors")["table"]
    assert table["ap"].idxmax() == "ustad quick"
    assert table.loc["ustad quick", "auroc"] > table.loc["random", "auroc"]


@pytest.mark.filterwarnings("ignore")
def test_the_archive_at_night_is_what_stands_out(run):
    top = run("any_events")["top"]
    assert (top["badge_id"].iloc[0], top["door"].iloc[0]) == ("p07", "archive")
    assert "archive" in top["reason"].iloc[0]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_kept_light_and_without_warnings(name):
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < 100_000
    outputs = [output for cell in code_cells(name) for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
