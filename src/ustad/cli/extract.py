"""`ustad extract`, `ustad pois`, `ustad info`: from raw data to a data directory, and a look at what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import (
    AddressOption,
    EngineOption,
    JsonOption,
    OnErrorOption,
    OutOption,
    PartitionsOption,
    check_engine,
    choose,
    out,
    print_json,
)


def extract(
    fixes: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders or globs: .parquet, .csv, .ndjson, .plt, .gpx, exports of phones, or a data directory."
        ),
    ],
    out_dir: OutOption = Path("runs/data"),
    pois: Annotated[
        Path | None,
        typer.Option("--pois", help="A table of places and their categories; a stay takes the nearest one's."),
    ] = None,
    places: Annotated[
        list[Path] | None,
        typer.Option("--places", help="An earlier extraction whose own places keep their names. May be repeated."),
    ] = None,
    *,
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="Time zone of times without one. A stay has the zone of its place.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", help="Which column is which: agent_id=device,time=ts,lat=y,lon=x (or their numbers)."
        ),
    ] = None,
    sep: Annotated[
        str | None, typer.Option("--sep", help="Column separator: one sign, tab or pipe. Found by itself by default.")
    ] = None,
    decimal: Annotated[
        str | None, typer.Option("--decimal", help="Decimal sign, . or , (found by itself by default).")
    ] = None,
    time_format: Annotated[
        str | None, typer.Option("--time-format", help="How times are written, such as '%d.%m.%Y %H:%M:%S'.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be read, with a small map, and write nothing.")
    ] = False,
    times: Annotated[
        str, typer.Option("--times", help="What epoch numbers count: utc, or local, the clock of --timezone.")
    ] = "utc",
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", help="Whose fixes: file, folder, a column, or a REGEX of the path with the agent in parentheses."
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="Device: logger, phone, app, sparse or exact; auto looks at the fixes.")
    ] = "auto",
    distance: Annotated[
        float | None, typer.Option("--distance", help="Radius of a stay in metres. By default the profile's.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Shortest stay in minutes. By default the profile's.")
    ] = None,
    gap: Annotated[
        float | None, typer.Option("--gap", help="More minutes without a fix than this are a gap; 0: none is.")
    ] = None,
    join: Annotated[
        bool,
        typer.Option("--join/--no-join", help="Join pieces at one place unless a fix between them lies elsewhere."),
    ] = True,
    bridge: Annotated[
        float, typer.Option("--bridge", help="Up to so many hours of silence at one place count as being there.")
    ] = 36.0,
    end_rule: Annotated[
        str | None, typer.Option("--end-rule", help="A stay ends at the first-outside or the last-inside fix.")
    ] = None,
    include_last: Annotated[
        bool,
        typer.Option(
            "--include-last/--no-include-last", help="Keep each agent's last stay, whose end was not observed."
        ),
    ] = True,
    max_accuracy: Annotated[
        float | None,
        typer.Option("--max-accuracy", help="Ignore fixes less accurate than this, in metres; 0: keep all."),
    ] = None,
    max_speed: Annotated[
        float, typer.Option("--max-speed", help="Ignore fixes that need a higher speed, in km/h; 0: keep all.")
    ] = 0.0,
    drop_outliers: Annotated[
        bool,
        typer.Option(
            "--drop-outliers/--keep-outliers", help="Ignore a single fix that jumps away and back (GPS errors)."
        ),
    ] = True,
    poi_radius: Annotated[
        float | None, typer.Option("--poi-radius", help="Farthest POI that may name a stay, in metres.")
    ] = None,
    export_as: Annotated[
        list[str] | None, typer.Option("--export", help="Also write DIR/export as geoparquet or csv. May be repeated.")
    ] = None,
    on_error: OnErrorOption = "fail",
    workers: Annotated[int, typer.Option("--workers", help="How many threads, or tasks on Ray; 0: one per core.")] = 0,
    engine: EngineOption = "local",
    address: AddressOption = None,
    partitions: PartitionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn GPS fixes into stays, trips and gaps.

    Columns are found by name: agent_id (user_id, uid, agent …), time (tracked_at, datetime, timestamp, t …), lat and
    lon (latitude, lng, longitude, lat_e6, geometry …). What was mapped, guessed or dropped is said.

    Examples:

    - `ustad extract fixes.parquet --out data` (Parquet or GeoParquet)
    - `ustad extract 'phones/*.csv.gz' --timezone Europe/Berlin --out data` (CSV with naive local times)
    - `ustad extract points.ndjson --on-error skip --out data` (NDJSON; bad rows are dropped and counted)
    - `ustad extract Takeout --dry-run` (an export of Google: what would be read, writing nothing)
    - `ustad extract log.txt --columns agent_id=1,time=2,lat=4,lon=3 --out data` (no heading, columns by number)
    - `ustad extract Geolife/Data --out data` (GeoLife's tree of .plt files)
    - `ustad extract phones --agent folder --out data` (GPX of several people, one folder each)
    - `ustad extract town --out data` (the fixes, POIs and labels of a data directory)
    - `ustad extract fixes.parquet --pois pois.parquet --export geoparquet --out data`
    - `ustad extract may.parquet --places april --out may` (without POIs: own places are called as in `april`)
    - `ustad extract s3://bucket/fixes --engine ray --address head:6379 --out s3://bucket/data` (on a cluster)
    """
    from dataclasses import asdict

    from ustad.config import ExtractionConfig
    from ustad.engine.folder import on_this_machine
    from ustad.mobility.extraction import extract as run
    from ustad.mobility.layout import Layout
    from ustad.mobility.parameters import PROFILES, Wish
    from ustad.mobility.reading import Reading

    choose(on_error, ("fail", "skip"), "--on-error")
    choose(times, ("utc", "local"), "--times")
    choose(profile, ("auto", *PROFILES), "--profile")
    if end_rule is not None:
        choose(end_rule, ("first-outside", "last-inside"), "--end-rule")
    for form in export_as or []:
        choose(form, ("geoparquet", "csv"), "--export")
    options = {
        "distance_m": distance, "minutes": minutes, "gap_minutes": gap, "join": join, "bridge_hours": bridge,
        "include_last": include_last, "end_rule": end_rule, "max_accuracy_m": max_accuracy,
        "max_speed_kmh": max_speed, "drop_outliers": drop_outliers, "poi_radius_m": poi_radius,
    }  # fmt: skip
    config = Wish(profile, {name: value for name, value in options.items() if value is not None})
    ExtractionConfig(**config.changes)  # refuses what cannot be before any file is read
    check_engine(engine, address, partitions)
    layout = Layout.of(columns, sep, decimal, time_format)
    if dry_run:
        _show_preview(fixes, config, Reading(timezone, times, on_error, layout=layout), agent, as_json=as_json)  # type: ignore[arg-type]  # checked above
        return
    if engine == "ray":
        from ustad.engine.extract_job import extract as run_on_ray

        summary = run_on_ray(
            fixes, out_dir, config, pois, timezone=timezone, places=places or [], agent=agent, layout=layout,
            on_error=on_error, times=times,  # type: ignore[arg-type]  # checked above
            workers=workers, address=address, partitions=partitions,
        )  # fmt: skip
    else:
        summary = run(
            fixes, out_dir, config, pois, timezone=timezone, places=places or [], agent=agent, layout=layout,
            on_error=on_error, times=times,  # type: ignore[arg-type]  # checked above
            workers=workers,
        )  # fmt: skip
    exports = []
    if export_as or _find_labels(fixes):  # results on another file system are brought here for that
        with on_this_machine(out_dir, "meta.json") as place:
            summary.notes += _carry_labels(_find_labels(fixes), place)
            exports = [out_dir / path.relative_to(place) for path in _export(place, export_as or [])]
    if as_json:
        print_json({**asdict(summary), "out": str(summary.out), "exported": [str(p) for p in exports]})
        return
    _show_summary(summary, exports)


def _show_preview(sources: list[str], config: Any, reading: Any, agent: str | None, *, as_json: bool) -> None:
    from ustad.mobility.preview import draw_map, preview

    sample = preview(sources, config, reading, agent)
    if as_json:
        print_json(sample.describe())
        return
    for file, kind in sample.kinds.items():
        out.print(f"{file}: {kind}", markup=False)
    for note in reading.notes:
        out.print(f"  {note}", markup=False)
    for line in sample.lines():
        out.print(line, markup=False)
    out.print(draw_map(sample.lat, sample.lon), markup=False)
    out.print("nothing was written (--dry-run)")


def _find_labels(sources: list[str]) -> dict[str, Path]:
    """The tables of labels of a data directory, by name."""
    from ustad.files import find_table

    source = Path(sources[0])
    if len(sources) != 1 or not source.is_dir():
        return {}
    files = {name: find_table(source, name) for name in ("labels", "agent_labels")}
    return {name: file for name, file in files.items() if file is not None}


def _carry_labels(files: dict[str, Path], directory: Path) -> list[str]:
    """Labels of a data directory, from its stays to those that were extracted from its fixes; what to say of it."""
    from ustad.files import read_table, write_table

    notes = _match(files["labels"], directory) if "labels" in files else []
    if "agent_labels" in files:
        table = read_table(files["agent_labels"])
        write_table(table, directory / "agent_labels.parquet")
        notes.append(f"{table.num_rows:,} labels of agents were taken over")
    return notes


def _match(labels: Path, directory: Path) -> list[str]:
    from ustad.files import find_table, read_table, write_table
    from ustad.simulate import match_labels

    truth, stays = read_table(labels), read_table(find_table(directory, "stays") or directory / "stays.parquet")
    if not {"agent_id", "started_at", "finished_at"} <= set(truth.column_names):
        return ["labels of stays were not taken over: they do not say agent_id, started_at and finished_at"]
    matches = match_labels(truth, stays)
    write_table(matches, directory / "labels.parquet")
    return [f"{matches.num_rows:,} stays took over one of {truth.num_rows:,} labels, by overlap in time"]


def _export(directory: Path, forms: list[str]) -> list[Path]:
    if not forms:
        return []
    from ustad.dataset import load_directory
    from ustad.mobility.writers import export

    data = load_directory(directory)
    tables = {"stays": data.events, "trips": data.trips, "gaps": data.gaps}
    return [p for form in forms for p in export(tables, directory / "export", form)]  # type: ignore[arg-type]  # checked by the caller


def _show_summary(summary: Any, exports: list[Path]) -> None:
    for note in summary.notes:
        out.print(f"  {note}", markup=False)
    for why, count in summary.dropped.items():
        out.print(f"  dropped: {count:,} {why}")
    if summary.stays and not summary.fixes:
        out.print(f"{summary.stays:,} stays of {summary.agents:,} agents, as the file holds them")
        out.print(f"written to {summary.out}; have a look with: ustad info {summary.out}")
        return
    out.print(
        f"{summary.stays:,} stays, {summary.trips:,} trips and {summary.gaps:,} gaps of {summary.agents:,} agents "
        f"from {summary.fixes:,} fixes in {summary.seconds:.1f} s",
    )
    out.print(
        f"{summary.unfinished:,} agents were still at their last stay; {summary.too_sparse:,} are sampled too sparsely "
        "to tell stays",
    )
    for path in exports:
        out.print(f"exported {path}")
    out.print(f"written to {summary.out}; have a look with: ustad info {summary.out}")


def _categories(value: bool) -> None:
    if value:
        from importlib.resources import files

        typer.echo(files("ustad.mobility").joinpath("osm_categories.yaml").read_text())
        raise typer.Exit()


def pois(
    file: Annotated[Path, typer.Argument(help="An OpenStreetMap extract, .osm.pbf.")],
    out_file: OutOption = Path("pois.parquet"),
    categories: Annotated[
        Path | None, typer.Option("--categories", help="YAML: each category with its tags. See --show-categories.")
    ] = None,
    show_categories: Annotated[
        bool,
        typer.Option(
            "--show-categories", callback=_categories, is_eager=True, help="Print the table, to edit, and stop."
        ),
    ] = False,
) -> None:
    """Make the POI table from OpenStreetMap.

    Example: `ustad pois Helsinki.osm.pbf --categories mine.yaml --out pois.parquet`
    """
    from ustad.files import write_table
    from ustad.mobility.osm import ATTRIBUTION, read_osm

    table = read_osm(file, categories)
    write_table(table.replace_schema_metadata({"attribution": ATTRIBUTION}), out_file)
    for entry in sorted(table["category"].value_counts().to_pylist(), key=lambda e: -e["counts"]):
        out.print(f"  {entry['values']:<16}{entry['counts']:>10,}")
    out.print(f"{table.num_rows:,} POIs written to {out_file} ({ATTRIBUTION})")


def info(
    path: Annotated[Path, typer.Argument(help="A data directory, a file of stays, a model or scores.")],
    as_json: JsonOption = False,
) -> None:
    """Say what a data directory holds (span, agents, split, data quality), or what a model or scores are.

    Example: `ustad info runs/demo/data`
    """
    from ustad.tables import DataError
    from ustad.versions import find_model

    path = find_model(path)
    card = path / "card.md"
    if card.exists():
        text = card.read_text()
        print_json({"path": str(path), "card": text}) if as_json else typer.echo(text, nl=False)
        return
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    from ustad.cli.inspect import describe, describe_record, show, show_record

    record = describe_record(path)
    if record is not None:
        print_json(record) if as_json else show_record(record)
        return
    content = describe(path)
    print_json(content) if as_json else show(content)
