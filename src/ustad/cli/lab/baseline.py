"""`ustad lab train`, and what `ustad score` does with a model of another method.

In go the same options as for USTAD; what a method has no use for is refused in one line, never dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from ustad.cli.shared import DeviceOption, JsonOption, OnErrorOption, OutOption
from ustad.cli.train import DataArgument, SchemaOption, TimezoneOption, show_model
from ustad.config import Config, ConfigError, read_yaml

#: Options of `train` that only the detector knows.
_DETECTOR_ONLY = {
    "preset": "--preset",
    "base": "--from",
    "resume": "--resume",
    "train_until": "--train-until",
    "test_from": "--test-from",
}


def train(
    data: DataArgument,
    method: Annotated[str, typer.Option("--method", help="What to train: one of `ustad lab methods`.")],
    out_: OutOption = Path("runs/model"),
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A YAML file of the method's settings; what it leaves out has its default."),
    ] = None,
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting of the method: --set width=128. May be repeated."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of every random choice: same seed, same result.")
    ] = None,
    schema: SchemaOption = None,
    timezone: TimezoneOption = None,
    device: DeviceOption = "auto",
    on_error: OnErrorOption = "fail",
    json: JsonOption = False,
) -> None:
    """Train a method that USTAD is compared with. `ustad score` and `ustad lab evaluate` take the model as any other.

    Example: `ustad lab train data --method ctle --set width=128 --out runs/ctle`
    """
    from ustad.mobility.readers import open_data
    from ustad.schema import EventSchema

    settings = method_settings(method, config, set_)
    event_schema = EventSchema.from_yaml(schema) if schema else None
    dataset = open_data(data, schema=event_schema, timezone=timezone, on_error=on_error)
    facts = train_baseline(
        method, dataset, Config().seed if seed is None else seed, device, place=out_, settings=settings
    )
    show_model(facts, data, out_, json)


def read_schema(model: Path) -> dict[str, Any]:
    """The schema that another method was trained with."""
    import json

    from ustad.lab.baselines.storage import METHOD

    return json.loads((model / METHOD).read_text())["schema"]


def given_options(context: Any) -> set[str]:
    """Names of the options that were given on the command line, not left at their defaults."""
    return {name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")}


def refuse_detector_options(method: str, options: set[str]) -> None:
    """An option of the detector that was given for another method: one line that says what to use instead."""
    for name, option in _DETECTOR_ONLY.items():
        if name in options:
            raise ConfigError(
                f"{option} is for the method ustad; {method} has settings of its own: --set NAME=VALUE or --config FILE"
            )


def method_settings(method: str, file: Path | None, changes: list[str] | None) -> dict[str, Any]:
    """A method's settings from a YAML file and single changes, the later ones winning; names are checked."""
    from ustad.lab.baselines.base import read_settings
    from ustad.lab.baselines.protocol import find

    settings = read_yaml(file) if file is not None else {}
    for change in changes or []:
        name, sign, value = change.partition("=")
        if not sign:
            raise ConfigError(f"--set takes NAME=VALUE, got '{change}'")
        settings[name.strip()] = yaml.safe_load(value)
    read_settings(find(method).settings_class, settings, method)
    return settings


def check_searched(method: str) -> None:
    """A search needs a loss to choose by."""
    from ustad.lab.baselines.search import has_loss

    if not has_loss(method):
        raise ConfigError(f"{method} has no validation loss to choose settings by: set them yourself, --set NAME=VALUE")


def train_baseline(
    method: str, dataset: Any, seed: int, device: str, *, place: Path, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Fit and save another detector of `ustad lab methods`; returns what it was made with."""
    import dataclasses

    from ustad.lab.baselines.protocol import find
    from ustad.lab.baselines.storage import save

    detector = find(method)(dataset.schema, seed, device, **(settings or {})).fit(dataset)
    save(detector, place)
    facts = {"method": method, "seed": seed, "settings": dataclasses.asdict(detector.settings)}
    return {**facts, "validation_loss": detector.validation_loss}


def score_baseline(
    model: Path, data: Any, device: str, rule: Any, *, everything: bool, place: Path, explain: bool = False
) -> Any:
    """Scores of another method, its alerts written. It has no p-values, so alerts are its highest scores."""
    from ustad.dataset import event_days
    from ustad.lab.baselines.storage import load
    from ustad.triage.export import write_alerts

    detector: Any = load(model, device)
    if hasattr(detector, "detector"):  # a variant of USTAD: the detector itself
        scores = detector.detector.score(data, rule=rule, everything=everything)
        scores.run.update({"method": detector.name})
        write_alerts(scores.events, data.schema, place)
        return scores
    _check_rule(detector, rule)
    if explain:
        raise ConfigError(f"--explain needs scores made of terms, and those of {detector.name} are not: leave it out")
    events, before = (data.events, None) if everything else detector.scored_part(data)
    scores = detector.score(events, before)
    days = event_days(events, data.schema)
    first, last = int(days.min()), int(days.max())
    scores.run.update({"first_day": first, "last_day": last, "schema": data.schema.to_dict()})
    return _with_alerts(scores, rule, last - first + 1, place)


def _check_rule(detector: Any, rule: Any) -> None:
    if rule.kind == "fdr":
        raise ConfigError(f"--fdr needs p-values, which {detector.name} does not have: use --top or --alerts-per-day")
    if rule.kind != "p_value" and not detector.abilities.scores_events:
        raise ConfigError(f"{detector.name} scores agents only, so there are no events to flag: leave out the option")


def _with_alerts(scores: Any, rule: Any, days: int, place: Path) -> Any:
    """The highest scores flagged, the earlier row among equals; nothing is flagged unless it was asked for."""
    import numpy as np
    import pyarrow as pa

    from ustad.scores import Scores
    from ustad.triage.export import write_alerts_csv

    for name in ("alerts.csv", "alerts.geojson"):  # of an earlier run
        (place / name).unlink(missing_ok=True)
    if rule.kind == "p_value" or scores.events is None:
        return scores
    count = int(rule.value) if rule.kind == "top" else round(rule.value * days)
    values = scores.events["score"].to_numpy()
    highest = np.argsort(-values, kind="stable")[:count]
    is_alert = np.zeros(len(values), bool)
    is_alert[highest] = True
    events = scores.events.append_column("alert", pa.array(is_alert))
    write_alerts_csv(events, place / "alerts.csv")
    notes = {"rule": rule.kind, "value": rule.value, "alerts": len(highest)}
    return Scores(events, scores.agents, {**scores.run, **notes})
