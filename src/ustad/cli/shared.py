"""What every verb shares: one console, one way to fail, options that mean the same everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console

from ustad.config import Config, ConfigError

#: Lines as they are, however long: programs read them too. A table is fitted to the width (`soft_wrap=False`).
out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, stderr=True)  # also of bars, which are fitted to the width

OutOption = Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of every random choice: same seed, same result.")]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute; auto: on a GPU if there is one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
OnErrorOption = Annotated[
    Literal["fail", "skip"], typer.Option("--on-error", help="fail: stop at bad rows; skip: drop and count them.")
]
PresetOption = Annotated[str, typer.Option("--preset", help="A named configuration: best, quick, paper.")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A YAML file of settings; what it leaves out comes from the preset.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change one setting: --set model.width=32. May be repeated.")
]

EngineOption = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="local: this process; ray: the workers of a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="With --engine ray: address of a running cluster. By default one is started here."),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--partitions", min=1, help="With --engine ray: how many parts the agents are divided into. By default by size."
    ),
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=0, help="With --engine ray: tasks at the same time; 0: as many as fit.")
]


def check_engine(engine: str, address: str | None, partitions: int | None = None, workers: int = 0) -> None:
    """Options of a cluster mean nothing without one."""
    options = {"--address": address, "--partitions": partitions, "--workers": workers or None}
    for option, value in options.items():
        if engine == "local" and value is not None:
            raise typer.BadParameter("needs --engine ray", param_hint=option)


def resolve_config(preset: str | Config, file: Path | None, changes: list[str] | None, seed: int | None) -> Config:
    """Preset (or a configuration to begin with), then file, then single settings, then the seed."""
    first = preset if isinstance(preset, Config) else Config.preset(preset)
    config = Config.from_yaml(file, first) if file is not None else first
    for change in changes or []:
        name, sign, value = change.partition("=")
        if not sign:
            raise ConfigError(f"--set takes NAME=VALUE, got '{change}'")
        config = config.replace({name.strip(): _literal(value.strip())})
    config.refuse_unused(change.partition("=")[0].strip() for change in changes or [])
    return config if seed is None else config.replace({"seed": seed})


def print_json(content: Any) -> None:
    """Plain JSON on standard output, NaN as null."""
    typer.echo(json.dumps(_finite(content), indent=2, ensure_ascii=False, default=str))


def choose(value: str, choices: tuple[str, ...], option: str) -> str:
    """The value when it is among the choices, else a usage error that lists them."""
    if value not in choices:
        raise typer.BadParameter(f"'{value}' is not one of {', '.join(choices)}", param_hint=option)
    return value


def fail(message: str) -> NoReturn:
    err.print(f"[bold red]error:[/] {message}", soft_wrap=True)
    raise typer.Exit(1)


def _literal(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {k: _finite(v) for k, v in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(v) for v in content]
    if isinstance(content, float) and content != content:
        return None
    return content


def count_words(number: int, word: str) -> str:
    """Such as "1 alert" and "2 facts about company"."""
    first, *others = word.split(" ")
    return " ".join([f"{number:,}", first if number == 1 else f"{first}s", *others])
