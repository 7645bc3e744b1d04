"""`ustad inject`, and the red team that `ustad simulate --red-team second` lets act: both are made by the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import JsonOption, OutOption, SeedOption, choose, out, print_json

SizeOption = Annotated[
    float,
    typer.Option("--red-team-size", help="Size of the second red team's anomalies: 1 is usual, 0 changes nothing."),
]


def make_team(kind: str, size: float) -> Any:
    """For a simulation: one kind of the second red team or all, of that size."""
    from ustad.lab.red_team import SecondTeam

    return SecondTeam(kind, size)


def inject(
    data: Annotated[Path, typer.Argument(help="A data directory, a NUMOSIM directory or a file of stays.")],
    out_dir: OutOption,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="spatial, temporal, spatial_temporal, swap, permutation, high_density or all; with --red-team second "
            "one of its kinds or all.",
        ),
    ] = "all",
    share: Annotated[float, typer.Option("--share", help="Share of the agents that are changed.")] = 0.01,
    *,
    seed: SeedOption = 7,
    first_day: Annotated[
        str | None, typer.Option("--first-day", help="First local date that may change; the test period by default.")
    ] = None,
    last_day: Annotated[str | None, typer.Option("--last-day", help="Last local date that may change.")] = None,
    red_team: Annotated[
        str, typer.Option("--red-team", help="second: the kinds of the second red team instead of the paper's six.")
    ] = "none",
    red_team_size: SizeOption = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Inject the paper's six kinds of anomalies, or the second red team's, into any data set, with labels.

    Examples:

    - `ustad inject town --kind swap --share 0.02 --seed 7 --out town-swapped`
    - `ustad inject stays.parquet --kind all --first-day 2024-02-01 --out injected`
    - `ustad inject stays.parquet --red-team second --kind scouting --share 0.05 --out scouted`
    """
    from ustad.dataset import save_directory
    from ustad.lab.red_team import KINDS as SECOND_KINDS
    from ustad.lab.red_team import inject as run
    from ustad.lab.red_team import second_red_team
    from ustad.lab.red_team.injections import KINDS
    from ustad.mobility.readers import open_data

    choose(red_team, ("none", "second"), "--red-team")
    choose(kind, (*(SECOND_KINDS if red_team == "second" else KINDS), "all"), "--kind")
    if out_dir.resolve() == data.resolve():
        raise typer.BadParameter("the injected data needs a directory of its own", param_hint="--out")
    first, last = _day(first_day, "--first-day"), _day(last_day, "--last-day")
    if red_team == "second":
        result = second_red_team(
            open_data(data), share, seed, kind=kind, size=red_team_size, first_day=first, last_day=last
        )
    else:
        result = run(open_data(data), kind, share, seed, first_day=first, last_day=last)
    save_directory(result, out_dir)
    facts = {"out": str(out_dir), "kind": kind, "labels": len(result.labels or ()), "events": result.events.num_rows}
    if as_json:
        print_json(facts)
        return
    out.print(f"{facts['labels']:,} labelled of {facts['events']:,} stays")
    out.print(f"written to {out_dir}")


def _day(text: str | None, option: str) -> int | None:
    """Days since 1970-01-01 of an ISO date."""
    if text is None:
        return None
    from ustad.clock import day_number

    try:
        return day_number(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is not a date such as 2024-02-01", param_hint=option) from error
