"""`ustad train` and `ustad tune`."""

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
    PresetOption,
    SetOption,
    WorkersOption,
    check_engine,
    out,
    print_json,
    resolve_config,
)

DataArgument = Annotated[Path, typer.Argument(help="A data directory, or a file of stays or events.")]
SchemaOption = Annotated[Path | None, typer.Option("--schema", help="A YAML schema, for events that are not stays.")]
TimezoneOption = Annotated[str | None, typer.Option("--timezone", help="The zone of times that carry none.")]


def train(
    context: typer.Context,
    data: DataArgument,
    out_: OutOption = Path("runs/model"),
    preset: PresetOption = "fast",
    config: ConfigOption = None,
    set_: SetOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Every random choice follows from it.")] = None,
    method: Annotated[str, typer.Option("--method", help="A detector of `ustad methods`.")] = "ustad",
    base: Annotated[Path | None, typer.Option("--from", help="Carry on from this model with newer weeks.")] = None,
    schema: SchemaOption = None,
    timezone: TimezoneOption = None,
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

    - `ustad train runs/demo/data --preset fast --out runs/demo/model`
    - `ustad train data --method ctle --set width=128 --out model` (another method, with settings of its own)
    - `ustad train data --engine ray --address head:6379 --workers 4 --out model` (four workers of a cluster)
    """
    from ustad.cli.baseline import given_options, method_settings, refuse_detector_options, train_baseline
    from ustad.config import Config
    from ustad.detector import Detector
    from ustad.mobility.readers import open_data
    from ustad.schema import EventSchema

    described = EventSchema.from_yaml(schema) if schema else None
    check_engine(engine, address, workers=workers)
    if method != "ustad":
        if engine == "ray":
            raise typer.BadParameter("trains the method ustad only", param_hint="--engine ray")
        refuse_detector_options(method, given_options(context))
        chosen = method_settings(method, config, set_)
        dataset = open_data(data, schema=described, timezone=timezone, on_error=on_error)
        facts = train_baseline(method, dataset, Config().seed if seed is None else seed, device, out_, chosen)
        _show(facts, data, out_, json)
        return
    settings = resolve_config(preset, config, set_, seed)
    if engine == "ray":
        from ustad.engine.training import train as train_on_ray

        begun = Detector.load(base, device="cpu") if base else None
        made = train_on_ray(
            data, out_, settings, workers, address, device, described, timezone, on_error, resume, begun
        )  # fmt: skip
        _show(made.facts, data, out_, json)
        return
    dataset = open_data(data, schema=described, timezone=timezone, on_error=on_error)
    start = Detector.load(base, device=device) if base else None
    detector = Detector(settings, device=device)
    detector.fit(dataset, directory=out_, resume=resume, start=start)
    detector.save(out_)
    _show(detector.facts, data, out_, json)


def _show(facts: dict[str, Any], data: Path, out_: Path, json: bool) -> None:
    if json:
        print_json(facts)
    else:
        out.print(f"model: {out_}", highlight=False)
        out.print(f"next:  ustad score {out_} {data} --out runs/scores", highlight=False)


def tune(
    data: DataArgument,
    out_: OutOption = Path("runs/tune"),
    trials: Annotated[int, typer.Option("--trials", help="How many settings to try.")] = 50,
    preset: PresetOption = "paper",
    config: ConfigOption = None,
    set_: SetOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Every random choice follows from it.")] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Search mask ratio, width and depth by validation loss alone. A stopped search carries on.

    Example: `ustad tune runs/demo/data --trials 20 --out runs/tune`
    """
    from ustad.detector import Detector
    from ustad.mobility.readers import open_data

    detector = Detector(resolve_config(preset, config, set_, seed), device=device)
    best = detector.search(open_data(data), out_, trials)
    settings = {k: v for k, v in best.trials.slice(0, 1).to_pylist()[0].items() if k not in ("trial", "loss")}
    if json:
        print_json({"loss": best.loss, "settings": settings, "config": str(out_ / "best.yaml")})
        return
    chosen = ", ".join(f"{k} = {v}" for k, v in settings.items())
    out.print(f"best validation loss {best.loss:.4f} with {chosen}", highlight=False)
    out.print(f"next: ustad train {data} --config {out_ / 'best.yaml'}", highlight=False)
