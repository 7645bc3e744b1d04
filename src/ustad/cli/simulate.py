"""`ustad simulate`: data with known anomalies."""

from __future__ import annotations

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


def simulate(
    out_dir: OutOption,
    preset: Annotated[str, typer.Option("--preset", help="numosim-la, simla, simjordan or town.")] = "town",
    agents: Annotated[int | None, typer.Option("--agents", help="How many people. By default the preset's.")] = None,
    seed: SeedOption = 7,
    *,
    days: Annotated[int | None, typer.Option("--days", help="How many days. By default the preset's.")] = None,
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
    paths: Annotated[bool, typer.Option("--paths", help="Write the path of each trip along the roads.")] = False,
    variant: Annotated[
        str,
        typer.Option("--variant", help="The red team: standard, near-15km, near-5km, odd-hours, skipped, long-stays."),
    ] = "standard",
    red_team: Annotated[
        str, typer.Option("--red-team", help="Who misbehaves: first (by NUMOSIM's rules) or second (plans, and hides).")
    ] = "first",
    red_team_kind: Annotated[
        str, typer.Option("--red-team-kind", help="One kind of the second red team, such as scouting, or all.")
    ] = "all",
    red_team_size: red_teams.SizeOption = 1.0,
    anomalous: Annotated[
        float | None, typer.Option("--anomalous-share", help="Share of anomalous agents. By default the preset's.")
    ] = None,
    dirty: Annotated[
        float, typer.Option("--dirty", help="Share of agents with an anomaly in the training period.")
    ] = 0.0,
    osm: Annotated[
        Path | None, typer.Option("--osm", help="Streets and places of a real city: an .osm.pbf extract.")
    ] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="Time zone of the city, an IANA name.")] = None,
    workers: Annotated[
        int, typer.Option("--workers", help="How many parts of the people are simulated at the same time.")
    ] = 2,
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
