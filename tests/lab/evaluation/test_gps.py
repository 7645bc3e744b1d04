"""Detection from GPS beside true stays: what is missed counts, and the page shows one table of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from ustad.config import Config
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.lab.evaluation.experiments import BUDGETS, plan, read_results
from ustad.lab.evaluation.gps import compare_scores
from ustad.lab.evaluation.gps_tables import gps_tables, kept_share
from ustad.lab.evaluation.page import page_text
from ustad.lab.evaluation.recordings import TRUE_STAYS, record_people
from ustad.lab.evaluation.runner import run
from ustad.lab.evaluation.sources import Source, open_source
from ustad.mobility.readers import open_data
from ustad.scores import Scores
from ustad.simulate import simulate_tables
from ustad.tables import DataError

TOWN = Source("town", agents=40, seed=104, days=14, anomalous_share=0.3)
RECORDED = (TRUE_STAYS, "app", "logger")  # with the first seed; without the last with the second


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visit rate on true stays, an app and a logger: a work directory with the result files in it."""
    place = tmp_path_factory.mktemp("gps")
    cells = plan(["gps"], [TOWN], (104, 105), BUDGETS["tiny"], methods=["visit-rate"])
    run([c for c in cells if c.options["phone"] in RECORDED[: 107 - c.seed]], place / "results", place, "cpu")
    return place


def test_a_recording_has_the_agents_labels_and_split_of_its_people(work: Path) -> None:
    truth = open_source(TOWN, work / "data")
    data = open_source(replace(TOWN, phone="logger"), work / "data")
    assert data.agent_labels.equals(truth.agent_labels)
    assert data.meta["split"] == truth.meta["split"]
    assert set(data.labels.column_names) == set(truth.labels.column_names)
    assert set(data.labels["agent_id"].to_pylist()) <= set(truth.labels["agent_id"].to_pylist())
    recording = data.meta["recording"]
    assert recording["positives"] == truth.labels.num_rows
    assert 0 <= recording["missed"] < 0.3 * truth.labels.num_rows
    assert recording["stays_found"] > 0.9
    assert recording["places_right"] > 0.9


def test_missed_stays_and_agents_count_as_found_last() -> None:
    score = np.array([0.9, 0.2, 0.5, 0.1])
    events = pa.table({"stay_id": [1, 2, 3, 4], "agent_id": [1, 1, 2, 3], "score": score})
    agents = pa.table({"agent_id": [1, 2, 3], "score": [0.9, 0.5, 0.1]})
    labels = pa.table({"stay_id": [1, 4], "agent_id": [1, 3]})
    data = Dataset(
        simulate_tables("town", 3, 104, 4).events,
        labels=labels,
        agent_labels=pa.table({"agent_id": [1, 9]}),
        meta={"recording": {"missed": 2, "positives": 4}},
    )
    found = compare_scores(data, Scores(events, agents))
    truth, extended = np.array([1, 0, 0, 1, 1, 1]), np.r_[score, -1.0, -1.0]
    assert found["events"]["auroc"] == pytest.approx(roc_auc_score(truth, extended))
    assert found["events"]["ap"] == pytest.approx(average_precision_score(truth, extended))
    assert found["agents"]["missed"] == 1
    assert found["agents"]["auroc"] == pytest.approx(roc_auc_score([1, 0, 0, 1], [0.9, 0.5, 0.1, -1]))
    assert found["true_of_most_unusual"] == 2


def test_every_recording_has_a_line_and_their_table_follows_the_verdicts(work: Path) -> None:
    results = read_results(work / "results")
    assert len(results["gps"]) == 5
    page = page_text(results, "results", "figures")
    assert (
        page.index("## In one screen")
        < page.index("## What remains with raw GPS?")
        < page.index("## Data, seeds and budgets")
    )
    detection, quality = gps_tables(results["gps"])
    assert [row[1] for row in detection.rows] == [TRUE_STAYS, "logger", "app"]
    assert [row[0] for row in quality.rows] == ["logger", "app"]


def test_a_town_counts_once_in_the_table_of_its_stays_however_many_methods_read_it(work: Path) -> None:
    every_line = read_results(work / "results")["gps"]
    lines = [line for line in every_line if line["seed"] == every_line[0]["seed"]]
    again = [{**line, "method": "distance"} for line in lines]
    for line in again:
        if recording := line["result"]["recording"]:
            line["result"] = {**line["result"], "recording": {**recording, "end_error_95_s": 1e6}}
    tables = [gps_tables(part)[1] for part in (lines, [*lines, *again])]
    assert all("±" not in cell for table in tables for row in table.rows for cell in row)


def test_visit_rate_is_called_what_its_scores_are(work: Path) -> None:
    """NUMOSIM publishes the neighbours' maximum; here an event has its own score, and the maximum is by incident."""
    lines = read_results(work / "results")["gps"]
    assert BUDGETS["tiny"].settings("visit-rate")["spread"] is False
    assert {row[0] for row in gps_tables(lines)[0].rows} == {"visit rate by place, own score of each event"}
    assert any(line["result"]["events"]["auroc"] != line["result"]["incidents"]["auroc"] for line in lines)


def test_what_is_kept_is_a_share_of_the_same_seeds_figures() -> None:
    def line(seed: int, area: float, precision: float) -> dict:
        return {"seed": seed, "result": {"events": {"auroc": area, "ap": precision}}}

    truth = [line(7, 0.9, 0.4), line(8, 0.7, 0.2), line(9, 0.5, 0.9)]
    kept = kept_share(truth, [line(7, 0.8, 0.3), line(8, 0.6, 0.1)], "events")
    assert kept == pytest.approx((0.4 / 0.6, 0.4 / 0.6))
    assert kept_share(truth, [line(12, 0.8, 0.3)], "events") is None


def test_each_seed_is_another_town(work: Path) -> None:
    made = {p.name for p in (work / "data").iterdir()}
    assert any("-104-" in name for name in made)
    lines = read_results(work / "results")["gps"]
    for seed in {line["seed"] for line in lines}:
        assert any(f"-{seed}-" in name for name in made), seed


def test_scores_by_habits_do_not_depend_on_the_network(work: Path) -> None:
    data = open_source(TOWN, work / "data")
    smallest = Config.preset("quick", seed=3)
    other = smallest.replace({"model.width": 32, "training.epochs": 2, "scoring.samples": 3, "seed": 4})
    scores = [Detector(config, "cpu").fit(data).score(data).events["score"].to_numpy() for config in (smallest, other)]
    np.testing.assert_array_equal(*scores)


def test_phones_record_no_data_of_others(tmp_path: Path) -> None:
    record_people("town", tmp_path / "town", "phone", 5, seed=104, days=4)
    source = Source("town", str(tmp_path / "town"))
    assert open_data(tmp_path / "town").events.num_rows > 0
    with pytest.raises(DataError, match="simulated people only"):
        run(
            plan(["gps"], [source], 1, BUDGETS["tiny"], methods=["visit-rate"])[:1],
            tmp_path / "r",
            tmp_path / "w",
            "cpu",
        )
