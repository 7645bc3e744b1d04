"""`ustad schema infer` and `ustad schema check`: the file that says which column means what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ustad.cli.shared import JsonOption, fail, out, print_json

schema = typer.Typer(name="schema", no_args_is_help=True, help="Propose or check a schema for any events.")
EventsArgument = Annotated[Path, typer.Argument(help="A Parquet or CSV file of events.")]


@schema.command()
def infer(
    events: EventsArgument,
    out_: Annotated[Path | None, typer.Option("--out", "-o", help="Write the file here, not to the screen.")] = None,
    json: JsonOption = False,
) -> None:
    """Propose a schema with a reason for each choice, for you to edit.

    Example: `ustad schema infer payments.parquet --out cards.yaml`
    """
    from ustad.schema_infer import infer as propose

    proposal = propose(events, events.name.split(".")[0])
    if out_ is not None:
        out_.parent.mkdir(parents=True, exist_ok=True)
        out_.write_text(proposal.to_yaml())
    if json:
        print_json({"schema": proposal.schema.to_dict(), "reasons": proposal.reasons, "left_out": proposal.left_out})
    elif out_ is None:
        typer.echo(proposal.to_yaml(), nl=False)
    else:
        out.print(f"schema: {out_}; edit it, then")
        out.print(f"next:   ustad train {events} --schema {out_} --out runs/model")


@schema.command()
def check(
    file: Annotated[Path, typer.Argument(help="A YAML schema.")],
    events: Annotated[Path | None, typer.Argument(help="The events it is meant for.")] = None,
    json: JsonOption = False,
) -> None:
    """Say what is wrong with a schema, by itself or for a file of events. Exit code 1 where something is.

    Example: `ustad schema check cards.yaml payments.parquet`
    """
    from ustad.schema import EventSchema
    from ustad.schema_infer import check as find_problems

    event_schema = EventSchema.from_yaml(file)
    problems = find_problems(event_schema, events)
    if json:
        print_json({"problems": problems})
        raise typer.Exit(1 if problems else 0)
    if problems:
        for line in problems[:-1]:
            out.print(f"- {line}", markup=False)
        fail(problems[-1])
    features = len(event_schema.features)
    out.print(f"{file}: {features} feature{'s' if features != 1 else ''}, nothing wrong")
