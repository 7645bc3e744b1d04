"""The search asks for validation loss only and goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from ustad.config import Config, ConfigError
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.training.search import SPACE, tune

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


def test_the_space_is_the_papers() -> None:
    assert SPACE == {
        "training.mask_ratio": (0.05, 0.3),
        "model.width": [32, 64, 128],
        "model.event_blocks": [3, 4, 5],
    }
