"""`ustad watch`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import DeviceOption, JsonOption, OnErrorOption, err, out, print_json
from ustad.cli.train import SchemaOption, TimezoneOption
from ustad.config import ConfigError
from ustad.data_error import DataError

HOURS = {"h": 1, "d": 24, "w": 168}


def watch(
    models: Annotated[Path, typer.Argument(help="A directory of model versions; it is made where there is none.")],
    data: Annotated[
        Path | None, typer.Argument(help="All weeks to learn from, the latest included. Without: show the versions.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--from", help="The first time: a model to begin with, copied as version 1.")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="The first time, without --from: what to train: best, quick, paper.")
    ] = "best",
    *,
    alerts_per_day: Annotated[
        float, typer.Option("--alerts-per-day", help="Compare both models' alerts at this many a day.")
    ] = 5.0,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Keep this many versions beside the one in use.")] = 8,
    every: Annotated[
        str | None, typer.Option("--every", help="Repeat at this interval: 7d, 2w, 36h. By default once.")
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="Use the version before the one in use.")] = False,
    use: Annotated[int | None, typer.Option("--use", min=1, help="Use this version, also a refused one.")] = None,
    schema: SchemaOption = None,
    timezone: TimezoneOption = None,
    device: DeviceOption = "auto",
    on_error: OnErrorOption = "fail",
    json: JsonOption = False,
) -> None:
    """Keep a model in step: train the next version, compare it with the one in use, and swap if it is sound.

    Training carries on from the version in use. Neither learns from the last week, on which both are compared. The new
    version is used if four things hold. The week has about as many events as others. The new version knows nine tenths
    of the people that the old one knows. Its p-values are what they say. It keeps a fifth of the old alerts. Otherwise
    the old version stays in use, and the exit is 1. `score`, `serve` and `train --from` take the directory of versions
    as they take a model.

    Examples:

    - `ustad watch models runs/mine --from runs/model` (the first time)
    - `ustad watch models runs/mine` (once a week, by a timer)
    - `ustad watch models --back` (one version back)
    """
    from ustad.versions import ModelVersions

    versions = ModelVersions(models)
    if sum((data is not None, back, use is not None)) > 1:
        raise typer.BadParameter("give one of DATA, --back and --use")
    if back or use is not None:
        _choose(versions, use, json)
    elif data is None:
        _show_versions(versions, json)
    else:
        plan = _Plan(base, preset, schema, timezone, on_error, device, alerts_per_day, keep)
        seconds = _seconds(every) if every else None
        while True:
            is_sound = _cycle(versions, data, plan, json, going_on=seconds is not None)
            if seconds is None:
                raise typer.Exit(0 if is_sound else 1)
            plan = replace(plan, first=None)
            time.sleep(seconds)


@dataclass(frozen=True)
class _Plan:
    """How a cycle reads the data, trains and compares."""

    first: Path | None  # a model to begin with
    preset: str
    schema: Path | None
    timezone: str | None
    on_error: Any
    device: str
    alerts_per_day: float
    keep: int  # versions beside the one in use


def _cycle(versions: Any, data: Path, plan: _Plan, json: bool, *, going_on: bool) -> bool:
    """One cycle; whether nothing was refused. Going on, an error is said and the next cycle tries again."""
    try:
        return _renew(versions, data, plan, json=json)
    except (DataError, ConfigError, OSError) as error:
        if not going_on:
            raise
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        return False


def _renew(versions: Any, data: Path, plan: _Plan, *, json: bool) -> bool:
    from ustad.mobility.readers import open_data
    from ustad.renewal import renew
    from ustad.schema import EventSchema
    from ustad.scoring.alerts import AlertRule

    rule = AlertRule("alerts_per_day", plan.alerts_per_day)
    event_schema = EventSchema.from_yaml(plan.schema) if plan.schema else _known_schema(versions, plan.first)
    dataset = open_data(data, schema=event_schema, timezone=plan.timezone, on_error=plan.on_error)
    result = renew(versions, dataset, first=plan.first, preset=plan.preset, rule=rule, device=plan.device)
    oldest = versions.prune(plan.keep)
    if json:
        print_json({**result.to_dict(), "in_use": versions.current, "versions": versions.numbers(), "deleted": oldest})
    elif result.old is not None:
        _show_comparison(result)
    if result.is_swapped or result.new is None:
        if not json:
            out.print(result.words)
        return True
    stays = f"version {versions.current} stays in use (take the new one nevertheless with --use {result.new.version})"
    err.print(f"[bold red]error:[/] {result.words}; {stays}", soft_wrap=True)
    return False


def _known_schema(versions: Any, first: Path | None) -> Any:
    """What the model in use was trained with; none where there is none yet."""
    from ustad.files import read_json
    from ustad.schema import EventSchema

    model = first if versions.current is None else versions[versions.current]
    file = model / "schema.json" if model is not None else None
    return EventSchema.from_dict(read_json(file)) if file is not None and file.exists() else None


def _show_comparison(result: Any) -> None:
    """What both models say of the last week, and the checks."""
    from rich.table import Table

    old, new = result.old, result.new
    table = Table(title=f"{result.first_day} to {result.last_day}: {result.events:,} events of {result.entities:,}")
    for name in ("", f"in use ({old.version})", f"new ({new.version})"):
        table.add_column(name, justify="left" if not name else "right")
    rows = (
        ("learnt until", "learned_until", "{}"),
        ("known of them", "n_known", "{:,}"),
        ("p ≤ 0.05", "share_05", "{:.1%}"),
        ("p ≤ 0.01", "share_01", "{:.1%}"),
        ("gap to uniform p-values", "gap", "{:.2f}"),
        ("alerts", "alerts", "{:,}"),
    )
    for words, name, form in rows:
        table.add_row(words, *(form.format(getattr(one, name)) for one in (old, new)))
    table.add_row(
        "alerts that stay, go, come",
        f"{result.alerts_in_both}, {result.alerts_only_old}",
        f"{result.alerts_in_both}, {result.alerts_only_new}",
    )
    out.print(table, soft_wrap=False)
    for check in result.checks:
        out.print(f"{'ok ' if check.passed else 'NOT'} {check.words}", markup=False)


def _choose(versions: Any, number: int | None, json: bool) -> None:
    with versions.alone():
        if number is None:
            number = versions.go_back()
        else:
            versions.use(number)
    if json:
        print_json({"in_use": number})
        return
    out.print(f"version {number} is in use now; restart the service to load it")


def _show_versions(versions: Any, json: bool) -> None:
    """Each version: what became of it and until when it learnt."""
    from ustad.files import read_json

    numbers, records, current = versions.numbers(), versions.records(), versions.current
    if not numbers:
        raise DataError(f"{versions.path}: holds no versions; make the first with `ustad watch {versions.path} DATA`")
    rows = []
    for number in numbers:
        facts = read_json(versions[number] / "facts.json")
        state = "in use" if number == current else records.get(str(number), {}).get("state", "not compared")
        rows.append({"version": number, "state": state, "learned_until": facts.get("learned_until")})
    if json:
        print_json({"in_use": current, "versions": rows})
        return
    for row in rows:
        line = f"{row['version']:>4}  learnt until {row['learned_until']}  {row['state']}"
        out.print(line, markup=False)


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if unit not in HOURS or not number.replace(".", "", 1).isdigit() or float(number) <= 0:
        raise ConfigError(f"--every takes a number of hours, days or weeks such as 36h, 7d or 2w, got '{text}'")
    return float(number) * HOURS[unit] * 3600
