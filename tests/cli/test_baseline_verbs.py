"""`train` and `score` for other methods: their own settings, alerts by rank, and no option dropped in silence."""

import json

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from test_verbs import run

from ustad.cli.lab.baseline import train_baseline
from ustad.config import SplitConfig
from ustad.dataset import Dataset, load_directory, save_directory


@pytest.fixture(scope="module")
def rated(town_directory, tmp_path_factory):
    """A model of the distance to own places."""
    place = tmp_path_factory.mktemp("distance") / "model"
    train_baseline("distance", load_directory(town_directory), 7, "cpu", place=place)
    return place


def test_settings_of_a_method_come_from_the_command_line(capsys, town_directory, tmp_path):
    file = tmp_path / "ibat.yaml"
    file.write_text("trials: 5\ncell_km: 0.5\n")
    code, out, err = run(
        capsys, "lab", "train", town_directory, "--method", "ibat", "--config", file, "--set", "trials=7",
        "--json", "--out", tmp_path / "m",
    )  # fmt: skip
    assert code == 0, err
    settings = json.loads(out)["settings"]
    assert (settings["trials"], settings["cell_km"]) == (7, 0.5)
    assert json.loads((tmp_path / "m" / "method.json").read_text())["settings"] == settings


@pytest.mark.parametrize(
    ("verb", "options", "word"),
    [
        (["lab", "train"], ["--set", "trails=7"], "did you mean 'trials'"),
        (["lab", "train"], ["--set", "model.width=32"], "unknown setting 'model.width'"),
    ],
)
def test_options_a_method_has_no_use_for_are_refused(capsys, town_directory, tmp_path, verb, options, word):
    code, _, err = run(capsys, *verb, town_directory, "--method", "ibat", *options, "--out", tmp_path / "m")
    assert code == 1
    assert word in " ".join(err.split())
    assert not (tmp_path / "m").exists()


def test_the_top_events_of_a_method_are_flagged_and_listed(capsys, town_directory, rated, tmp_path):
    assert run(capsys, "score", rated, town_directory, "--top", "5", "--out", tmp_path)[0] == 0
    events = pq.read_table(tmp_path / "events.parquet")
    flagged = events.filter(events["alert"])
    assert flagged.num_rows == 5
    assert pc.min(flagged["score"]).as_py() >= pc.max(events.filter(pc.invert(events["alert"]))["score"]).as_py()
    assert len((tmp_path / "alerts.csv").read_text().splitlines()) == 6


def test_so_many_alerts_a_day_are_that_many_over_the_test_days(capsys, town_directory, rated, tmp_path):
    assert run(capsys, "score", rated, town_directory, "--alerts-per-day", "2", "--out", tmp_path)[0] == 0
    told = json.loads((tmp_path / "run.json").read_text())
    assert told["alerts"] == 2 * (told["last_day"] - told["first_day"] + 1)


def test_a_rate_of_false_alarms_needs_p_values_and_that_is_said(capsys, town_directory, rated, tmp_path):
    code, _, err = run(capsys, "score", rated, town_directory, "--fdr", "0.1", "--out", tmp_path / "s")
    assert code == 1
    assert "--top or --alerts-per-day" in " ".join(err.split())


def test_a_method_of_agents_has_no_events_to_flag(capsys, town_directory, tmp_path):
    assert run(capsys, "lab", "train", town_directory, "--method", "ibat", "--out", tmp_path / "m")[0] == 0
    code, _, err = run(capsys, "score", tmp_path / "m", town_directory, "--top", "3", "--out", tmp_path / "s")
    assert code == 1
    assert "scores agents only" in err


@pytest.mark.parametrize("method", ["distance", "ibat"])
def test_new_weeks_are_scored_whole_as_by_the_detector(capsys, town, fitted, town_directory, tmp_path, method):
    """Data from after training have no test part: a method scores all of them, and so does USTAD."""
    first = town.split(SplitConfig()).test_first
    weeks = Dataset(town.between(first, first + 30), town.schema)
    save_directory(weeks, tmp_path / "weeks")
    assert run(capsys, "lab", "train", town_directory, "--method", method, "--out", tmp_path / "m")[0] == 0
    code, _, err = run(capsys, "score", tmp_path / "m", tmp_path / "weeks", "--out", tmp_path / "s")
    assert code == 0, err
    told = json.loads((tmp_path / "s" / "run.json").read_text())
    assert (told["first_day"], told["last_day"]) == (weeks.days().min(), weeks.days().max())
    agents = pq.read_table(tmp_path / "s" / "agents.parquet")
    assert set(agents["agent_id"].to_pylist()) == set(weeks.events["agent_id"].to_pylist())
    assert fitted.scored_days(weeks) is None
    if method == "distance":
        assert pq.read_metadata(tmp_path / "s" / "events.parquet").num_rows == weeks.events.num_rows


def test_a_single_day_is_scored_whole_and_everything_needs_no_split(capsys, town, rated, tmp_path):
    first = int(town.days().min())
    save_directory(Dataset(town.between(first, first), town.schema), tmp_path / "day")
    for name, options in (("plain", []), ("all", ["--all"])):
        code, _, err = run(capsys, "score", rated, tmp_path / "day", *options, "--out", tmp_path / name)
        assert code == 0, err
        assert pq.read_metadata(tmp_path / name / "events.parquet").num_rows == town.between(first, first).num_rows


def test_a_data_set_with_the_training_weeks_is_still_scored_in_its_test_part(
    capsys, town, town_directory, rated, tmp_path
):
    assert run(capsys, "score", rated, town_directory, "--out", tmp_path)[0] == 0
    split = town.split(SplitConfig())
    scored = pq.read_metadata(tmp_path / "events.parquet").num_rows
    assert scored == town.between(split.test_first, split.test_last).num_rows < town.events.num_rows


def test_help_names_the_lab_and_not_its_verbs(capsys):
    words = run(capsys, "--help")[1].split()
    assert "lab" in words
    assert not {"methods", "tune", "experiment"} & set(words)
