"""`ustad lab methods`: the detectors that can be compared, and their settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Column, Table

from ustad.cli.shared import JsonOption, out, print_json

#: What a detector can be able to do, and the word for it.
ABILITIES = {"scores_events": "events", "scores_agents": "agents", "predicts": "predicts", "causal": "causal"}
#: What `ustad train` makes without --method, as `describe` tells of the others.
OURS = {
    "name": "ustad",
    "about": "USTAD itself, with trips, presets and reasons; causal with --set window.mode=past.",
    "scores_events": True,
    "scores_agents": True,
    "predicts": True,
    "causal": False,
}


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show one detector: its settings, and what a search tries.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the detectors and what each can do, or one with its settings.

    Examples:

    - `ustad lab methods`
    - `ustad lab methods ctle` (what `--set` takes with `--method ctle`, and what `ustad lab tune` tries)
    """
    from ustad.lab.baselines.protocol import REGISTRY, describe, describe_settings

    if name is not None:
        ours = name == "ustad"
        about, settings = (OURS, _our_settings()) if ours else (describe(name), describe_settings(name))
        _show_method({**about, "settings": settings}, json)
        return
    rows = [OURS, *(describe(method) for method in REGISTRY)]
    if json:
        print_json(rows)
        return
    table = Table("method", *ABILITIES.values(), "what it is")
    for row in rows:
        table.add_row(row["name"], *("yes" if row[k] else "–" for k in ABILITIES), row["about"])
    out.print(table, soft_wrap=False)


def _our_settings() -> list[dict[str, Any]]:
    """The detector's settings by their dotted names, as `describe_settings` tells those of the others."""
    from ustad.config import describe_settings
    from ustad.lab.search_settings import SPACE

    choices = {n: [f"{c[0]} … {c[1]}"] if isinstance(c, tuple) else c for n, c in SPACE.items()}  # a tuple is a range
    return [
        {"name": row["name"], "default": row["default"], "about": row["about"], "search": choices.get(row["name"])}
        for row in describe_settings()
    ]


def _show_method(content: dict[str, Any], json: bool) -> None:
    if json:
        print_json(content)
        return
    out.print(content["about"])
    out.print("can: " + ", ".join(word for key, word in ABILITIES.items() if content[key]))
    if not content["settings"]:
        out.print("nothing to set")
        return
    widest = max(len(row["name"]) for row in content["settings"])
    table = Table(Column("setting", min_width=widest), "default", "a search tries", "what it is")
    for row in content["settings"]:
        choices = ", ".join(str(choice) for choice in row["search"] or ())
        table.add_row(row["name"], str(row["default"]), choices or "–", row["about"])
    out.print(table, soft_wrap=False)
