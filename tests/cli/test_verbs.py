"""Every verb from the command line: it does its job, or says in one line what is wrong."""

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import torch
from one_call import run
from typer.main import get_command
from typer.testing import CliRunner

from ustad.cli import app
from ustad.config import Config

TINY = [
    "--set", "model.width=16", "--set", "model.event_blocks=2", "--set", "training.epochs=2",
    "--set", "scoring.samples=4",
]  # fmt: skip


def test_the_whole_way_by_verbs(capsys, town_directory, tmp_path):
    model, scores, page = tmp_path / "model", tmp_path / "scores", tmp_path / "report.html"
    assert run(capsys, "train", town_directory, "--out", model, *TINY)[0] == 0
    code, out, _ = run(capsys, "score", model, town_directory, "--top", 10, "--out", scores, "--json")
    assert code == 0
    assert json.loads(out)["alerts"] == 10
    assert len(pa_csv.read_csv(scores / "alerts.csv")) == 10
    assert len(json.loads((scores / "alerts.geojson").read_text())["features"]) == 10
    code, out, _ = run(capsys, "lab", "evaluate", scores, "--json")
    figures = json.loads(out)
    assert code == 0
    assert set(figures) == {"ustad", "random", "visit-rate"}
    assert 0 <= figures["ustad"]["events"]["auroc"] <= 1
    assert run(capsys, "report", scores, "--out", page)[0] == 0
    text = page.read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert "visit-rate" in text
    assert run(capsys, "info", model)[0] == 0


def test_simulate_inject_extract_and_info(capsys, tmp_path):
    town, changed, data = tmp_path / "town", tmp_path / "changed", tmp_path / "data"
    code, _, err = run(
        capsys, "simulate", "--preset", "town", "--agents", 6, "--days", 8, "--fixes", "120s", "--out", town
    )
    assert code == 0, err
    assert run(capsys, "inject", town, "--kind", "swap", "--share", "0.5", "--out", changed)[0] == 0
    code, _, err = run(capsys, "extract", town, "--out", data)
    assert code == 0, err
    code, out, _ = run(capsys, "info", data, "--json")
    assert code == 0
    assert json.loads(out)


def test_a_search_leaves_a_configuration_to_train_with(capsys, town_directory, tmp_path):
    pytest.importorskip("optuna")
    short = [
        "--preset",
        "paper",
        "--set",
        "training.epochs=1",
        "--set",
        "model.event_blocks=1",
        "--set",
        "model.trips=none",
    ]
    code, out, err = run(
        capsys, "lab", "tune", town_directory, "--trials", 1, "--out", tmp_path / "t", *short, "--json"
    )
    assert code == 0, err
    chosen = json.loads(out)["settings"]
    assert set(chosen) == {"training.mask_ratio", "model.width", "model.event_blocks"}
    assert Config.from_yaml(tmp_path / "t" / "best.yaml").model.width == chosen["model.width"]


@pytest.mark.parametrize("verb", ["train", "score", "lab evaluate", "report", "info", "extract", "inject"])
def test_a_missing_file_is_one_line_and_a_failure(capsys, tmp_path, verb):
    nowhere = tmp_path / "nowhere"
    extra = [nowhere] if verb == "score" else []
    out = [] if verb in ("lab evaluate", "info") else ["--out", tmp_path / "out"]
    code, _, err = run(capsys, *verb.split(), nowhere, *extra, *out)
    assert code == 1
    assert err.count("error:") == 1
    assert "nowhere" in err
    assert "Traceback" not in err


def bad_stays(town, change):
    return change(town.events)


BAD = {
    "empty": (lambda t: t.slice(0, 0), "empty"),
    "no latitude": (lambda t: t.drop_columns(["lat"]), "lat"),
    "naive times": (
        lambda t: t.set_column(
            t.column_names.index("started_at"), "started_at", t["started_at"].cast(pa.timestamp("us"))
        ),
        "time zone",
    ),
    "nan": (lambda t: t.set_column(t.column_names.index("lat"), "lat", pa.array([float("nan")] * t.num_rows)), "lat"),
    "swapped": (lambda t: t.set_column(t.column_names.index("lat"), "lat", pa.array([118.2] * t.num_rows)), "lat"),
    "one event": (lambda t: t.slice(0, 1), "day"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("verb", ["train", "score"])
def test_bad_stays_are_refused_in_one_line(capsys, town, model_directory, tmp_path, verb, name):
    change, word = BAD[name]
    pq.write_table(change(town.events), tmp_path / "stays.parquet")
    first = [model_directory] if verb == "score" else []
    code, _, err = run(capsys, verb, *first, tmp_path / "stays.parquet", "--out", tmp_path / "out")
    if verb == "score" and name == "one event":
        assert code == 0, err  # one stay can be scored, only not learned from
        return
    assert code == 1
    assert word in err
    assert "Traceback" not in err
    assert "unexpected" not in err


def test_a_broken_parquet_file_is_named(capsys, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nonsense")
    code, _, err = run(capsys, "train", tmp_path / "broken.parquet", "--out", tmp_path / "m")
    assert code == 1
    assert "broken.parquet" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--preset", "papper"], "did you mean 'paper'"),
        (["--set", "model.widht=8"], "did you mean 'model.width'"),
        (["--set", "model.width"], "NAME=VALUE"),
        (["--config", "none.yaml"], "none.yaml"),
    ],
)
def test_unknown_settings_are_refused_with_a_suggestion(capsys, town_directory, tmp_path, arguments, word):
    code, _, err = run(capsys, "train", town_directory, "--out", tmp_path / "m", *arguments)
    assert code == 1
    assert word in " ".join(err.split())


def test_two_alert_rules_at_once_are_refused(capsys, town_directory, model_directory, tmp_path):
    code, _, err = run(
        capsys, "score", model_directory, town_directory, "--top", 5, "--fdr", 0.1, "--out", tmp_path / "s"
    )
    assert code == 1
    assert "one of" in err


def test_scores_without_labels_cannot_be_evaluated_and_that_is_said(capsys, town, model_directory, tmp_path):
    pq.write_table(town.events, tmp_path / "stays.parquet")
    assert run(capsys, "score", model_directory, tmp_path / "stays.parquet", "--out", tmp_path / "s")[0] == 0
    code, _, err = run(capsys, "lab", "evaluate", tmp_path / "s")
    assert code == 1
    assert "--labels" in err


def find_verbs(group=get_command(app), words=()):
    """The words that call each verb, those of groups such as `lab` too."""
    for name, command in group.commands.items():
        yield from find_verbs(command, (*words, name)) if hasattr(command, "commands") else [(*words, name)]


@pytest.mark.parametrize("words", list(find_verbs()), ids=" ".join)
def test_every_verb_has_help_with_an_example_of_itself(words):
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"ustad {' '.join(words)}" in " ".join(result.output.split("Example")[1].split())


def test_help_is_quick_because_nothing_heavy_is_imported():
    code = "import sys, ustad.cli; print(sorted({'torch', 'numba', 'pandas', 'faiss'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"


def test_debug_shows_where_it_failed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "ustad", "--debug", "info", str(tmp_path / "nowhere")],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode != 0
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("method", ["visit-rate", "ibat"])
def test_other_methods_train_score_and_evaluate_the_same_way(capsys, town_directory, tmp_path, method):
    model, scores = tmp_path / "model", tmp_path / "scores"
    assert run(capsys, "lab", "train", town_directory, "--method", method, "--out", model)[0] == 0
    assert run(capsys, "score", model, town_directory, "--out", scores)[0] == 0
    code, out, err = run(capsys, "lab", "evaluate", scores, "--json")
    assert code == 0, err
    assert "agents" in json.loads(out)[method]


def test_unknown_methods_are_refused_with_a_suggestion(capsys, town_directory, tmp_path):
    code, _, err = run(capsys, "lab", "train", town_directory, "--method", "visit-rat", "--out", tmp_path / "m")
    assert code == 1
    assert "visit-rate" in err


def test_methods_lists_what_each_can_do(capsys):
    code, out, _ = run(capsys, "lab", "methods", "--json")
    assert code == 0
    assert {"random", "visit-rate"} <= {row["name"] for row in json.loads(out)}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"), "not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory"),
        (RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be"), "the GPU failed"),
    ],
)
def test_a_full_memory_or_a_lost_gpu_is_said_in_one_line(capsys, monkeypatch, error, words):
    def fail(**_):
        raise error

    monkeypatch.setattr("ustad.cli.app", fail)
    code, _, err = run(capsys, "train", "data")
    assert code == 1
    assert words in err
    assert len(err.strip().splitlines()) == 1
