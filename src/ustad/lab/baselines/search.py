"""Settings of a baseline by validation loss: the paper's search space, the same number of trials for each.

In go a method's name and the training and validation events; out comes the choice with the lowest validation loss.
No label and no test event is seen. A method without a validation loss (IBAT, the trivial ones) keeps its defaults.
With a directory every trial is kept there: a search that is stopped goes on where it was, and another one is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from ustad.config import ConfigError
from ustad.files import read_json, write_json, write_table
from ustad.lab.baselines.base import fitting_parts, read_settings
from ustad.lab.baselines.fitting import Budget
from ustad.lab.baselines.protocol import find, make
from ustad.lab.search_settings import METHOD_STUDY, STUDY, check_own, data_digest, same_search
from ustad.progress import say
from ustad.schema import EventSchema, mobility_schema

Trial = tuple[dict[str, Any], float]


@dataclass(frozen=True)
class Choice:
    """The best settings found, their loss, and every trial as (settings, loss)."""

    settings: dict[str, Any]
    loss: float
    trials: tuple[Trial, ...]


def space(name: str) -> dict[str, tuple[Any, ...]]:
    """What is searched for a method: setting → choices."""
    fields = dataclasses.fields(find(name).settings_class)
    return {f.name: f.metadata["search"] for f in fields if "search" in f.metadata}


def has_loss(name: str) -> bool:
    """Whether a method has a validation loss to choose by: the deep ones."""
    return issubclass(find(name).settings_class, Budget)


def search(
    name: str,
    train: Any,
    validation: Any = None,
    schema: EventSchema | None = None,
    *,
    trials: int = 8,
    seed: int = 7,
    device: str = "auto",
    directory: Path | None = None,
    **constants: Any,
) -> Choice:
    """Try `trials` settings (all of them where there are no more) and keep the one with the lowest loss.

    `constants` are settings that are the same in every trial. The defaults are always among the trials. With a
    `directory`, trials that are in it already are not run again, and `best.yaml`, `trials.json` and `trials.parquet`
    are written there.
    """
    read_settings(find(name).settings_class, constants, name)
    if trials < 1:
        raise ConfigError(f"a search needs at least 1 trial, got {trials}")
    if not has_loss(name):
        return Choice({}, float("nan"), ())
    schema = schema or mobility_schema()
    parts = fitting_parts(train, validation, schema, True)
    without_ids = [_told_apart(part, schema) for part in parts]
    about = {
        "method": name,
        "seed": seed,
        "fixed": constants,
        "events": without_ids,
        "data": data_digest(parts, schema),
    }
    candidates = draw(name, trials, seed, constants)
    with nullcontext() if directory is None else _alone(directory):
        results = _read_trials(directory, about)
        for settings in candidates[len(results) :]:
            detector: Any = make(name, schema, seed, device=device, **{**settings, **constants}).fit(*parts)
            loss = float(detector.validation_loss)
            results.append((settings, loss))
            say(f"{name}, trial {len(results)} of {len(candidates)}: validation loss {loss:.4f} with {settings}")
            _keep(directory, about, results)
        return _finish(directory, results, constants)


def _told_apart(events: pa.Table, schema: EventSchema) -> str:
    """A short name of a table by when its events were, so that a search goes on with the data it began with."""
    times = events[schema.time].cast(pa.int64()).to_numpy()
    return f"{len(times)}-{hashlib.sha256(times.tobytes()).hexdigest()[:12]}"


def draw(name: str, trials: int, seed: int, constants: dict[str, Any]) -> list[dict[str, Any]]:
    """Distinct settings to try: the defaults first, then others at random; more trials begin with the same ones."""
    choices = {key: values for key, values in space(name).items() if key not in constants}
    every = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    kind = find(name).settings_class
    usual = {f.name: f.default for f in dataclasses.fields(kind) if f.name in choices}
    others = [settings for settings in every if settings != usual]
    order = np.random.default_rng(seed).permutation(len(others))[: max(0, trials - 1)]
    return [usual, *(others[i] for i in order)]


# ------------------------------------------------------------------------------------------------ on disk
@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process at a time in a search's directory; the next one finds the trials of the first."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: two processes would do the same work, to the same end
        yield
        return
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read_trials(directory: Path | None, about: dict[str, Any]) -> list[Trial]:
    """Trials of the same search that are in the directory."""
    if directory is None:
        return []
    check_own(directory, STUDY)
    if not (directory / METHOD_STUDY).exists():
        return []
    content = read_json(directory / METHOD_STUDY)
    if not same_search(content["about"], about, directory):
        raise ConfigError(
            f"{directory}: holds a search of another method, seed, data or fixed settings; give another --out"
        )
    return [(trial["settings"], trial["loss"]) for trial in content["trials"]]


def _keep(directory: Path | None, about: dict[str, Any], trials: list[Trial]) -> None:
    if directory is not None:
        lines = [{"settings": settings, "loss": loss} for settings, loss in trials]
        write_json({"about": about, "trials": lines}, directory / METHOD_STUDY)


def _finish(directory: Path | None, trials: list[Trial], constants: dict[str, Any]) -> Choice:
    """The best trial, the earlier one among equals; a table of all of them, the best first."""
    by_loss = sorted(enumerate(trials), key=lambda pair: pair[1][1])
    settings, loss = by_loss[0][1]
    if directory is not None:
        rows = [{"trial": number, "loss": trial_loss, **values} for number, (values, trial_loss) in by_loss]
        (directory / "best.yaml").write_text(yaml.safe_dump({**constants, **settings}, sort_keys=False))
        write_json(rows, directory / "trials.json")
        write_table(pa.Table.from_pylist(rows), directory / "trials.parquet")
    return Choice(settings, loss, tuple(trials))
