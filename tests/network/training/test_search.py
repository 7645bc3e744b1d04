"""The search asks for validation loss only and goes on where it was stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ustad.config import Config, ConfigError
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.lab.search_network import search
from ustad.lab.search_settings import SPACE, data_digest, tune
from ustad.schema import mobility_schema

pytest.importorskip("optuna")
SMALL_SPACE = {"training.mask_ratio": (0.05, 0.3), "model.width": [8, 16]}


def test_a_search_is_resumed_and_its_best_configuration_is_written(
    world: tuple[EventTensors, Windows, Queries], config: Config, tmp_path: Path
) -> None:
    tensors, windows, queries = world
    config = config.replace({"training.epochs": 1, "model.event_blocks": 1})
    given = tensors, windows, (tensors, queries), config
    first = tune(*given, trials=1, directory=tmp_path, space=SMALL_SPACE)
    second = tune(*given, trials=3, directory=tmp_path, space=SMALL_SPACE)
    assert (len(first.trials), len(second.trials)) == (1, 3)
    losses = second.trials["loss"].to_pylist()
    assert losses == sorted(losses)
    assert second.loss == losses[0] <= first.loss
    assert first.trials["loss"][0].as_py() in losses
    best = Config.from_yaml(tmp_path / "best.yaml")
    assert best.model.width == second.trials["model.width"][0].as_py()
    assert best == second.config


def test_a_search_of_other_settings_or_data_is_refused(
    world: tuple[EventTensors, Windows, Queries], config: Config, tmp_path: Path
) -> None:
    tensors, windows, queries = world
    config = config.replace({"training.epochs": 1, "model.event_blocks": 1})
    given = {"trials": 1, "directory": tmp_path, "space": SMALL_SPACE}
    tune(tensors, windows, (tensors, queries), config, **given)
    best = (tmp_path / "best.yaml").read_bytes()
    fewer = Queries(queries.start[:-1], queries.stop[:-1], queries.target[:-1])
    for asked, settings in ((queries, {"seed": 8}), (queries, {"training.epochs": 2}), (fewer, {})):
        with pytest.raises(ConfigError, match="other settings, seed or data; give another --out"):
            tune(tensors, windows, (tensors, asked), config.replace(settings), **given)
    assert (tmp_path / "best.yaml").read_bytes() == best


def permuted_places(stays: pa.Table) -> pa.Table:
    """Everybody's times stay as they are; where they were is somebody else's."""
    order = pa.array(np.random.default_rng(1).permutation(stays.num_rows))
    for name in ("lat", "lon", "poi_id", "poi_category"):
        stays = stays.set_column(stays.column_names.index(name), name, stays[name].take(order))
    return stays


def test_the_same_times_at_other_places_are_other_data(
    town: Dataset, network_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr("ustad.lab.search_network.tune", lambda *_, **named: given.append(named))
    other = dataclasses.replace(town, events=permuted_places(town.events))
    for data in (town, town, other):
        search(Detector(network_config, device="cpu"), data, tmp_path, 1)
    first, again, elsewhere = (named["data"] for named in given)
    assert first == again != elsewhere


def test_a_digest_depends_on_what_is_said_not_on_how_it_is_stored(town: Dataset) -> None:
    schema, stays = mobility_schema(), town.events
    whole = data_digest([stays], schema)
    words = stays["poi_category"].dictionary_encode()
    stored = stays.set_column(stays.column_names.index("poi_category"), "poi_category", words)
    halves = pa.concat_tables([stored.slice(0, 7), stored.slice(7)])
    assert data_digest([halves.append_column("note", pa.nulls(len(halves)))], schema) == whole
    for name in ("agent_id", "started_at", "lat", "poi_category"):
        changed = stays.set_column(
            stays.column_names.index(name), name, stays[name].take(pa.array(range(len(stays)))[::-1])
        )
        assert data_digest([changed], schema) != whole, name


def test_a_search_goes_on_with_its_own_data_and_an_older_one_with_what_is_given(
    world: tuple[EventTensors, Windows, Queries], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, windows, queries = world
    config = config.replace({"training.epochs": 1, "model.event_blocks": 1})
    said: list[str] = []
    monkeypatch.setattr("ustad.lab.search_settings.say", said.append)

    def search(trials: int, **data: str) -> int:
        asked = tensors, windows, (tensors, queries), config
        return len(tune(*asked, trials=trials, directory=tmp_path, space=SMALL_SPACE, **data).trials)

    assert search(1) == 1  # as searches were begun before they wrote down their data
    assert search(1, data="town") == 1
    assert [line for line in said if "does not say what its data were" in line] == said[1:]
    assert search(2, data="town") == 2
    with pytest.raises(ConfigError, match="other settings, seed or data; give another --out"):
        search(2, data="city")
    assert sum("does not say what its data were" in line for line in said) == 1


def test_the_space_is_the_papers() -> None:
    assert SPACE == {
        "training.mask_ratio": (0.05, 0.3),
        "model.width": [32, 64, 128],
        "model.event_blocks": [3, 4, 5],
    }
