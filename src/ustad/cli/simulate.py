"""`ustad simulate` and `ustad inject`: data with known anomalies."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.lab import red_teams
from ustad.cli.shared import (
    AddressOption,
    EngineOption,
    JsonOption,
    OutOption,
    SeedOption,
    check_engine,
    choose,
    out,
    print_json,
)

_EPOCH = date(1970, 1, 1)
RedTeamOption = Annotated[
    str, typer.Option("--red-team", help="Who misbehaves: first (by NUMOSIM's rules) or second (plans, and hides).")
]
RedTeamSizeOption = Annotated[
    float,
    typer.Option("--red-team-size", help="Size of the second red team's anomalies: 1 is usual, 0 changes nothing."),
]


def simulate(
    out_dir: OutOption,
    preset: Annotated[str, typer.Option("--preset", help="numosim-la, simla, simjordan or town.")] = "town",
    agents: Annotated[int | None, typer.Option("--agents", help="How many people; the preset's by default.")] = None,
    seed: SeedOption = 7,
    *,
    days: Annotated[int | None, typer.Option("--days", help="How many days; the preset's by default.")] = None,
    fixes: Annotated[
        str | None, typer.Option("--fixes", help="Also write raw GPS, one fix per interval: 60s, 2min.")
    ] = None,
    phone: Annotated[
        str | None,
        typer.Option(
            "--phone",
            help="Also write raw GPS as such a device sends it: logger (a fix a minute), phone (silent while still), "
            "app (20 to 100 fixes a day) or sparse (calls at antennas).",
        ),
    ] = None,
    paths: Annotated[bool, typer.Option("--paths", help="Trips with their way along the roads.")] = False,
    variant: Annotated[
        str,
        typer.Option("--variant", help="The red team: standard, near-15km, near-5km, odd-hours, skipped, long-stays."),
    ] = "standard",
    red_team: RedTeamOption = "first",
    red_team_kind: Annotated[
        str, typer.Option("--red-team-kind", help="One kind of the second red team, such as scouting, or all.")
    ] = "all",
    red_team_size: RedTeamSizeOption = 1.0,
    anomalous: Annotated[
        float | None, typer.Option("--anomalous-share", help="Share of anomalous agents; the preset's by default.")
    ] = None,
    dirty: Annotated[
        float, typer.Option("--dirty", help="Share of agents with an anomaly in the training period.")
    ] = 0.0,
    osm: Annotated[
        Path | None, typer.Option("--osm", help="Streets and places of a real city: an .osm.pbf extract.")
    ] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="Time zone of the city, an IANA name.")] = None,
    workers: Annotated[int, typer.Option("--workers", help="Parts of the agents made at the same time.")] = 2,
    engine: EngineOption = "local",
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a city, its people and a red team: POIs, stays, trips, labels, and raw fixes on request.

    Examples:

    - `ustad simulate --preset town --fixes 60s --out town`
    - `ustad simulate --preset town --phone phone --out town`
    - `ustad simulate --preset numosim-la --agents 20000 --seed 7 --out la`
    - `ustad simulate --preset numosim-la --variant near-5km --out la-hard`
    - `ustad simulate --preset town --red-team second --red-team-size 0.5 --out town-hidden`
    - `ustad simulate --preset town --agents 2000 --osm baltimore.osm.pbf --out baltimore`
    - `ustad simulate --preset numosim-la --agents 200000 --engine ray --address head:6379 --out s3://bucket/la`
    """
    check_engine(engine, address)
    choose(red_team, ("first", "second"), "--red-team")
    if red_team == "first" and (red_team_kind != "all" or red_team_size != 1.0):
        raise typer.BadParameter("kind and size are of the second red team; ask for it (--red-team second)")
    settings: dict[str, Any] = {
        "fixes": fixes, "days": days, "paths": paths, "variant": variant, "dirty": dirty, "workers": workers,
        "anomalous_share": anomalous, "osm": osm, "timezone": timezone, "phone": phone,
    }  # fmt: skip
    if red_team == "second":
        settings["red_team"] = red_teams.make_team(red_team_kind, red_team_size)
    if engine == "ray":
        from ustad.engine.simulate_job import simulate as run_on_ray

        meta = run_on_ray(preset, agents, seed, out_dir, **settings, address=address)
    else:
        from ustad.simulate import simulate as run

        meta = run(preset, agents, seed, out_dir, **settings)
    if as_json:
        print_json({**meta, "out": str(out_dir)})
        return
    out.print(
        f"{meta['agents']:,} agents, {meta['days']} days, {meta['events']:,} stays; {meta['anomalous_agents']:,} "
        f"anomalous agents, {meta['anomalous_events']:,} anomalous stays from {meta['split']['test_first']} on",
    )
    out.print(f"written to {out_dir}")


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
    red_team_size: RedTeamSizeOption = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Inject the paper's six kinds of anomalies, or the second red team's, into any data set, with labels.

    Examples:

    - `ustad inject town --kind swap --share 0.02 --seed 7 --out town-swapped`
    - `ustad inject stays.parquet --kind all --first-day 2024-02-01 --out injected`
    - `ustad inject stays.parquet --red-team second --kind scouting --share 0.05 --out scouted`
    """
    from ustad.dataset import save_directory
    from ustad.mobility.readers import open_data
    from ustad.simulate import inject as run
    from ustad.simulate.injections import KINDS

    choose(red_team, ("none", "second"), "--red-team")
    if out_dir.resolve() == data.resolve():
        raise typer.BadParameter("the injected data needs a directory of its own", param_hint="--out")
    first, last = _day(first_day, "--first-day"), _day(last_day, "--last-day")
    if red_team == "second":
        result = red_teams.inject_second(data, kind, share, seed, size=red_team_size, first_day=first, last_day=last)
    else:
        choose(kind, (*KINDS, "all"), "--kind")
        result = run(open_data(data), kind, share, seed, first, last)
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
    try:
        return (date.fromisoformat(text) - _EPOCH).days
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is not a date such as 2024-02-01", param_hint=option) from error
