"""`ustad lab tune`: settings chosen by validation loss alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import (
    ConfigOption,
    DeviceOption,
    JsonOption,
    OnErrorOption,
    OutOption,
    PresetOption,
    SetOption,
    out,
    print_json,
    resolve_config,
)
from ustad.cli.train import DataArgument, SchemaOption, TimezoneOption
from ustad.config import Config


def tune(
    context: typer.Context,
    data: DataArgument,
    out_: OutOption = Path("runs/tune"),
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Try so many settings, those of a stopped search included.")
    ] = 50,
    *,
    method: Annotated[str, typer.Option("--method", help="What to search: one of `ustad lab methods`.")] = "ustad",
    preset: PresetOption = "paper",
    config: ConfigOption = None,
    set_: SetOption = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of every random choice: same seed, same result.")
    ] = None,
    schema: SchemaOption = None,
    timezone: TimezoneOption = None,
    device: DeviceOption = "auto",
    on_error: OnErrorOption = "fail",
    json: JsonOption = False,
) -> None:
    """Search mask ratio, width and depth by validation loss alone. A stopped search carries on.

    Another method is searched over the paper's space for it (`ustad lab methods NAME` shows it); what --set or --config
    give is the same in every trial.

    Examples:

    - `ustad lab tune runs/demo/data --trials 20 --out runs/tune`
    - `ustad lab tune runs/demo/data --method gm-vsae --trials 4 --out runs/gm-vsae` (another method, its own space)
    - `ustad lab tune payments.parquet --schema cards.yaml --out runs/tune` (events that are not stays)
    """
    from ustad.cli.lab.baseline import check_searched, given_options, method_settings, refuse_detector_options
    from ustad.detector import Detector
    from ustad.lab.search_network import search as search_network
    from ustad.mobility.readers import open_data
    from ustad.schema import EventSchema

    event_schema = EventSchema.from_yaml(schema) if schema else None
    if method == "ustad":
        detector = Detector(resolve_config(preset, config, set_, seed), device=device)
        dataset = open_data(data, schema=event_schema, timezone=timezone, on_error=on_error)
        best = search_network(detector, dataset, out_, trials)
        settings = {k: v for k, v in best.trials.slice(0, 1).to_pylist()[0].items() if k not in ("trial", "loss")}
        _show_best(data, schema, out_, method, loss=best.loss, settings=settings, json=json)
        return
    from ustad.lab.baselines.search import search

    refuse_detector_options(method, given_options(context))
    constants = method_settings(method, config, set_)
    check_searched(method)
    dataset = open_data(data, schema=event_schema, timezone=timezone, on_error=on_error)
    first = Config().seed if seed is None else seed
    choice = search(
        method, dataset, None, dataset.schema, trials=trials, seed=first, device=device, directory=out_, **constants
    )
    _show_best(data, schema, out_, method, loss=choice.loss, settings=choice.settings, json=json)


def _show_best(
    data: Path, schema: Path | None, out_: Path, method: str, *, loss: float, settings: dict[str, Any], json: bool
) -> None:
    file = out_ / "best.yaml"
    if json:
        print_json({"method": method, "loss": loss, "settings": settings, "config": str(file)})
        return
    values = ", ".join(f"{k} = {v}" for k, v in settings.items())
    out.print(f"best validation loss {loss:.4f} with {values or 'what was given'}")
    options = (f" --schema {schema}" if schema else "") + ("" if method == "ustad" else f" --method {method}")
    verb = "train" if method == "ustad" else "lab train"
    out.print(f"next: ustad {verb} {data}{options} --config {file}")
