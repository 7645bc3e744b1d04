"""Search over the paper's space: mask ratio, width and depth, judged by masked validation loss alone.

In go the same windows and questions as in training; out come the best configuration and a table of all trials. The
study is a file in the out directory. A stopped search goes on where it was. A search with other settings, other data or
another method is refused there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from ustad.config import Config, ConfigError
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.files import write_json, write_table
from ustad.network.dual_transformer import build_network
from ustad.network.training.masked_task import fit
from ustad.progress import say
from ustad.schema import EventSchema

#: The study in its directory, and the file of a search of another method (`ustad.lab.baselines.search`).
STUDY, METHOD_STUDY = "study.log", "search.json"
#: The paper's space: a range (low, high) or a list of choices.
SPACE: dict[str, tuple[float, float] | list[Any]] = {
    "training.mask_ratio": (0.05, 0.3),
    "model.width": [32, 64, 128],
    "model.event_blocks": [3, 4, 5],
}


@dataclass(frozen=True)
class SearchResult:
    """`trials`: one row each with its number, its loss and its settings, the best first."""

    config: Config
    loss: float
    trials: pa.Table


def tune(
    tensors: EventTensors,
    windows: Windows,
    validation: tuple[EventTensors, Queries],
    config: Config,
    *,
    trials: int,
    directory: Path,
    device: torch.device | str = "cpu",
    space: Mapping[str, tuple[float, float] | list[Any]] | None = None,
    data: str | None = None,
) -> SearchResult:
    """Run trials until there are `trials` of them in all; writes `best.yaml`, `trials.parquet` and `trials.json`.

    `data` is the `data_digest` of the events that the tensors were made of: a search goes on with those alone.
    """
    space = SPACE if space is None else space
    about = {"settings": config.to_dict(), "windows": len(windows), "questions": len(validation[1])}
    about |= {} if data is None else {"data": data}
    study = _open_study(directory, config.seed, about)
    while _count_trials(study) < trials:
        trial = study.ask()
        trial_config = config.replace({name: _suggest(trial, name, options) for name, options in space.items()})
        network = build_network(tensors.fields, trial_config)
        result = fit(network, tensors, windows, validation, config=trial_config, device=device)
        loss = result.validation.total
        study.tell(trial, loss)
        say(f"trial {_count_trials(study)} of {trials}: validation loss {loss:.4f} with {trial.params}")
    return _finish(study, config, directory)


def check_own(directory: Path, others: str) -> None:
    """Two kinds of search in one directory would write over each other's best settings: refuse the second."""
    if (directory / others).exists():
        raise ConfigError(f"{directory}: holds a search of another method ({others}); give another --out")


def same_search(earlier: Mapping[str, Any], about: Mapping[str, Any], directory: Path) -> bool:
    """Whether a directory's search is the one asked for. An older one did not write down what its data were."""
    if "data" in earlier or {**earlier, "data": about.get("data")} != about:
        return earlier == about
    say(f"{directory}: this search does not say what its data were; going on as if they were these")
    return True


def data_digest(tables: Iterable[pa.Table], schema: EventSchema) -> str:
    """A short name of what the events say, in all columns that are read. A trip's vectors are left out: they are made
    here, and learned ones may differ in their last digit."""
    vector_columns = (
        {c for f in schema.features if f.kind == "vector" for c in f.columns} if schema.name == "mobility" else set()
    )
    digest = hashlib.sha256()
    for table in tables:
        for name in (*schema.columns, schema.habitat):
            if name in table.column_names and name not in vector_columns:
                digest.update(f"{name} {table.num_rows}".encode())
                digest.update(_content(table[name]))
    return digest.hexdigest()[:16]


def _content(column: pa.ChunkedArray) -> bytes:
    """The values of a column, the same bytes however they are stored."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()).to_numpy().tobytes()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.cast(pa.float64(), safe=False).to_numpy().tobytes()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _content(pc.list_value_length(column)) + _content(pc.list_flatten(column))
    return hashlib.sha256(json.dumps(column.to_pylist(), default=str).encode()).digest()


def _open_study(directory: Path, seed: int, about: dict[str, Any]) -> Any:
    """The study in the directory, which is about the same settings and data, or a new one."""
    check_own(directory, METHOD_STUDY)
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise ImportError("the search needs Optuna: pip install 'ustad[lab]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directory.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(directory / STUDY)))
    study = optuna.create_study(study_name="ustad", storage=storage, direction="minimize", load_if_exists=True)
    about = json.loads(json.dumps(about))  # as it comes back from the file
    if not same_search(study.user_attrs.get("about", about), about, directory):
        raise ConfigError(f"{directory}: holds a search of other settings, seed or data; give another --out")
    study.set_user_attr("about", about)
    # The sampler's seed moves on with the trials, so that a resumed search does not repeat its first suggestions.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    return study


def _suggest(trial: Any, name: str, options: tuple[float, float] | list[Any]) -> Any:
    if isinstance(options, tuple):
        return trial.suggest_float(name, *options)
    return trial.suggest_categorical(name, options)


def _count_trials(study: Any) -> int:
    return sum(trial.value is not None for trial in study.trials)


def _finish(study: Any, config: Config, directory: Path) -> SearchResult:
    trials = sorted((t for t in study.trials if t.value is not None), key=lambda t: t.value)
    rows = [{"trial": t.number, "loss": float(t.value), **t.params} for t in trials]
    best = config.replace(trials[0].params)
    best.to_yaml(directory / "best.yaml")
    write_json(rows, directory / "trials.json")
    table = pa.Table.from_pylist(rows)
    write_table(table, directory / "trials.parquet")
    return SearchResult(best, float(trials[0].value), table)
