"""`ustad train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import (
    AddressOption,
    ConfigOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    OnErrorOption,
    OutOption,
    SetOption,
    WorkersOption,
    check_engine,
    out,
    print_json,
    resolve_config,
)
from ustad.config import Config, ConfigError

DataArgument = Annotated[Path, typer.Argument(help="A data directory, or a file of stays or events.")]
SchemaOption = Annotated[Path | None, typer.Option("--schema", help="A YAML schema, for events that are not stays.")]
TrainUntilOption = Annotated[
    str | None,
    typer.Option("--train-until", help="The last day to learn from (2024-03-31), instead of a number of weeks."),
]
TestFromOption = Annotated[
    str | None,
    typer.Option("--test-from", help="The first day to score (2024-04-01). By default the one after training."),
]
TimezoneOption = Annotated[
    str | None, typer.Option("--timezone", help="Time zone of times without one: Europe/Berlin.")
]


def train(
    data: DataArgument,
    out_: OutOption = Path("runs/model"),
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="A named configuration: best, quick, paper.",
            show_default="best, or with --from that model's own configuration",
        ),
    ] = None,
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of every random choice: same seed, same result.")
    ] = None,
    base: Annotated[Path | None, typer.Option("--from", help="Carry on from this model with newer weeks.")] = None,
    schema: SchemaOption = None,
    timezone: TimezoneOption = None,
    train_until: TrainUntilOption = None,
    test_from: TestFromOption = None,
    holidays: Annotated[
        str | None,
        typer.Option(
            "--holidays",
            help="Treat public holidays as weekend days: of a country (DE, DE-BY), or of the data's `zone`.",
        ),
    ] = None,
    calendar: Annotated[
        Path | None, typer.Option("--calendar", help="Days of your own that are like weekend days (CSV or ICS).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Carry on where a killed run stopped.")] = False,
    device: DeviceOption = "auto",
    on_error: OnErrorOption = "fail",
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = 0,
    json: JsonOption = False,
) -> None:
    """Learn what is usual from a data set's training weeks.

    Examples:

    - `ustad train runs/demo/data --preset quick --out runs/demo/model`
    - `ustad train data --train-until 2024-03-31 --out model` (learn from everything until that day)
    - `ustad train newer --from model --out model-2` (carry on from a model, with its settings, on newer weeks)
    - `ustad train data --engine ray --address head:6379 --workers 4 --out model` (four workers of a cluster)
    """
    from ustad.calendar_days import Calendar
    from ustad.carrying_on import check_shape
    from ustad.detector import Detector
    from ustad.mobility.readers import open_data
    from ustad.schema import EventSchema
    from ustad.trip_features import needed_companions

    check_engine(engine, address, workers=workers)
    event_schema = EventSchema.from_yaml(schema) if schema else None
    start = _load_base(base, "cpu" if engine == "ray" else device) if base else None
    settings = resolve_config(_first_config(preset, start), config, set_, seed)
    settings = settings.replace(split_dates(train_until, test_from))
    if start is not None:
        check_shape(settings, start.config)
        event_schema = event_schema or start.schema
    days = Calendar.read(holidays, calendar)  # what is wrong with it is said before the work
    if engine == "ray":
        from ustad.engine.train_job import train as train_on_ray

        model = train_on_ray(
            data, out_, settings, workers, address=address, device=device, schema=event_schema, timezone=timezone,
            on_error=on_error, resume=resume, start=start, calendar=days,
        )  # fmt: skip
        show_model(model.facts, data, out_, json)
        return
    dataset = open_data(
        data, schema=event_schema, timezone=timezone, on_error=on_error, companions=needed_companions(settings)
    )
    detector = Detector(settings, device=device)
    detector.fit(dataset, directory=out_, resume=resume, start=start, calendar=days)
    detector.save(out_)
    show_model(detector.facts, data, out_, json)


def split_dates(train_until: str | None, test_from: str | None) -> dict[str, str]:
    """The settings of the dates that were given."""
    dates = {"split.train_until": train_until, "split.test_from": test_from}
    return {name: value for name, value in dates.items() if value is not None}


def _load_base(base: Path, device: str) -> Any:
    """The model to carry on from."""
    from ustad.artefact import is_baseline
    from ustad.detector import Detector
    from ustad.versions import find_model

    base = find_model(base)
    if is_baseline(base):
        raise ConfigError(f"{base}: a model of another method; --from carries on models of the method ustad")
    return Detector.load(base, device=device)


def _first_config(preset: str | None, start: Any) -> Config:
    """What the settings begin with: the preset that was named, else the model carried on from, else `best`."""
    if start is None:
        return Config.preset(preset or "best")
    if preset is None:
        return start.config
    return Config.preset(preset).replace({"model.trips": start.config.model.trips})


def show_model(facts: dict[str, Any], data: Path, out_: Path, json: bool) -> None:
    """Say where the model is and what comes next."""
    if json:
        print_json(facts)
    else:
        out.print(f"model: {out_}")
        out.print(f"next:  ustad score {out_} {data} --out runs/scores")
