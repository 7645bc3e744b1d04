"""No leakage: labels turned round, put on other events or taken away change nothing but the figures of `evaluate`.

Labels lie in the data directory beside the events, so every fit and every score here begins at that directory.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ustad import artefact
from ustad.config import Config
from ustad.dataset import Dataset, save_directory
from ustad.detector import Detector
from ustad.lab.evaluation.detection_metrics import evaluate
from ustad.mobility.readers import open_data
from ustad.scores import Scores
from ustad.scoring.alerts import AlertRule
from ustad.simulate import simulate_tables

PRESETS = ("best", "quick", "paper")
CHANGED = ("inverted", "permuted", "removed")
SMALLEST = {
    "model.width": 16,
    "model.event_blocks": 1,
    "training.epochs": 2,
    "training.batch_size": 64,
    "scoring.samples": 2,
    "scoring.neighbours": 10,
}
#: So loose that each flags some of the town's few events.
RULES = (AlertRule("p_value", 0.3), AlertRule("alerts_per_day", 9.0), AlertRule("top", 7))
#: Files of a model that say how long training took.
TIMED = {"facts.json", "card.md"}


def labelled(ids: pa.ChunkedArray, key: str, unusual: np.ndarray) -> pa.Table:
    return pa.table({key: ids, "anomaly": unusual, "kind": np.where(unusual, "made up", "")})


def relabelled(ids: pa.ChunkedArray, key: str, labels: pa.Table) -> dict[str, pa.Table | None]:
    """Labels of all events (or agents), training included: each turned round, and all of them dealt anew."""
    truth = np.isin(ids.to_numpy(), labels.filter(labels["anomaly"])[key].to_numpy())
    dealt = np.random.default_rng(5).permutation(truth)
    return {"inverted": labelled(ids, key, ~truth), "permuted": labelled(ids, key, dealt), "removed": None}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One town of twelve people, four of them unusual, with its labels as they are and changed."""
    town = simulate_tables("town", agents=12, seed=3, days=14, anomalous_share=0.3)
    assert town.labels is not None
    assert town.agent_labels is not None
    agents = town.events["agent_id"].unique()
    stays = relabelled(town.events["stay_id"], "stay_id", town.labels)
    people = relabelled(pa.chunked_array([agents]), "agent_id", town.agent_labels)
    towns = {"true": town}
    for how in CHANGED:
        towns[how] = dataclasses.replace(town, labels=stays[how], agent_labels=people[how])
    return {how: written(data, tmp_path_factory.mktemp(how) / "data") for how, data in towns.items()}


def written(data: Dataset, path: Path) -> Path:
    save_directory(data, path)
    return path


def learned(preset: str, directory: Path) -> Detector:
    return Detector(Config.preset(preset).replace(SMALLEST), device="cpu").fit(directory)


@pytest.fixture(scope="module")
def models(directories: dict[str, Path]) -> dict[str, Detector]:
    """A detector of each preset, fitted with the true labels in its directory."""
    return {preset: learned(preset, directories["true"]) for preset in PRESETS}


def test_the_four_directories_differ_in_their_labels_alone(directories: dict[str, Path]) -> None:
    towns = {how: open_data(path) for how, path in directories.items()}
    true = towns["true"]
    assert towns["removed"].labels is None
    assert towns["removed"].agent_labels is None
    for how in CHANGED:
        assert towns[how].events.equals(true.events)
        assert towns[how].meta == true.meta
    for how in ("inverted", "permuted"):
        marked = towns[how].labels.filter(towns[how].labels["anomaly"])
        assert set(marked["stay_id"].to_pylist()) != set(true.labels["stay_id"].to_pylist())
        assert marked.num_rows > 20


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
@pytest.mark.parametrize("preset", PRESETS)
def test_labels_change_no_bit_of_scores_thresholds_and_alerts(
    models: dict[str, Detector], directories: dict[str, Path], preset: str, rule: AlertRule
) -> None:
    scores = {how: models[preset].score(path, rule=rule) for how, path in directories.items()}
    assert sum(scores["true"].events["alert"].to_pylist()) == scores["true"].run["alerts"] > 0
    for how in CHANGED:
        check_same(scores[how], scores["true"])


def check_same(found: Scores, wanted: Scores) -> None:
    """Equal to the bit: every column of both tables, the rule, the threshold, warnings and facts."""
    for a, b in ((found.events, wanted.events), (found.agents, wanted.agents)):
        assert a.column_names == b.column_names
        assert [name for name in a.column_names if not same_bits(a[name], b[name])] == []
    assert found.run == wanted.run


def same_bits(a: pa.ChunkedArray, b: pa.ChunkedArray) -> bool:
    """As `equals`, but a missing number (NaN) is the same as another."""
    if pa.types.is_floating(a.type):
        return bool(np.array_equal(a.to_numpy(), b.to_numpy(), equal_nan=True))
    return bool(a.equals(b))


@pytest.mark.parametrize("preset", PRESETS)
def test_scores_in_parts_do_not_see_labels_either(
    models: dict[str, Detector], directories: dict[str, Path], preset: str
) -> None:
    def found(how: str) -> tuple[list[float], list[float]]:
        parts = list(models[preset].score_parts(directories[how], rule=RULES[0], entities=5))
        assert len(parts) > 1
        events, agents = (pa.concat_tables([getattr(part, name) for part in parts]) for name in ("events", "agents"))
        return events["score"].to_pylist(), agents["score"].to_pylist()

    assert found("inverted") == found("true") == found("removed")


@pytest.mark.parametrize("preset", PRESETS)
def test_training_sees_no_labels(
    models: dict[str, Detector], directories: dict[str, Path], preset: str, tmp_path: Path
) -> None:
    def files(detector: Detector, name: str) -> dict[str, str]:
        detector.save(tmp_path / name)
        return {n: total for n, total in artefact.check(tmp_path / name).items() if n not in TIMED}

    wanted = files(models[preset], "true")
    assert ("model.safetensors" if preset == "paper" else "habits.parquet") in wanted
    for how in CHANGED if preset == "best" else ["permuted"]:
        assert files(learned(preset, directories[how]), how) == wanted
    if preset == "best":
        changed = Config.preset(preset).replace({**SMALLEST, "seed": 8})
        other = files(Detector(changed, device="cpu").fit(directories["true"]), "other")
        assert other != wanted, "the sums would be the same whatever was learned"


def test_evaluate_does_see_them(models: dict[str, Detector], directories: dict[str, Path]) -> None:
    scores = models["quick"].score(directories["true"])

    def figures(how: str) -> tuple[float, float]:
        town = open_data(directories[how])
        measured = evaluate(scores.events, scores.agents, town.labels, town.agent_labels, bootstrap=0)
        return measured["events"]["auroc"], measured["agents"]["auroc"]

    true, inverted, permuted = figures("true"), figures("inverted"), figures("permuted")
    assert np.allclose(np.add(true, inverted), 1.0), "turned round, what was ranked first is ranked last"
    assert true[0] != permuted[0]
    assert true[0] > 0.55
