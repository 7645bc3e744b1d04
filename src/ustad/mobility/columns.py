"""Other people's columns: which names, units and encodings are taken for which column of our tables.

In: a table as it was read. Out: the same table with our names, times in UTC and degrees as numbers, and notes that
say what was mapped or guessed. `as_fixes` and `as_stays` also validate, once, where data enters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.files import as_table
from ustad.mobility.geometry import point_degrees
from ustad.mobility.plausible import NULL_ISLAND, at_null_island, check_swapped, implausible_times
from ustad.mobility.reading import Reading as Reading  # also from here
from ustad.mobility.times import NUMBER, is_blank, is_text, no_times, to_utc
from ustad.tables import FIXES, STAYS, TIMESTAMP, Complaints, Contract, DataError, first_line, validate

#: Names that trackintel, scikit-mobility, NUMOSIM, GeoLife readers, Google and others give to our columns.
AGENT_NAMES = (
    "user_id", "uid", "agent", "user", "userid", "device_id", "person_id", "tid", "ad_id", "vehicle_id",
    "device", "imei", "caid", "maid", "aaid", "idfa", "advertiser_id", "advertising_id", "msisdn", "imsi",
    "subscriber_id", "subscriber", "caller_id", "customer_id", "member_id", "participant_id", "participant", "person",
    "phone_id", "tracker_id", "tracker", "driver_id", "taxi_id", "mmsi", "individual-local-identifier", "animal_id",
    "entity_id", "trajectory_id", "traj_id", "track_id",
)  # fmt: skip
LAT_NAMES = (
    "latitude", "lat_e6", "lat_e7", "latitudee7", "lat_deg", "center_lat", "location-lat", "gps_lat",
    "latitude n/s",
)  # fmt: skip
LON_NAMES = (
    "lng", "longitude", "lon_e6", "lon_e7", "longitudee7", "long", "lon_deg", "center_lng", "location-long", "gps_lon",
    "gps_lng", "longitude e/w",
)  # fmt: skip
FIX_NAMES: dict[str, tuple[str, ...]] = {
    "agent_id": AGENT_NAMES,
    "time": (
        "tracked_at", "datetime", "timestamp", "t", "recorded_at", "ts", "time_utc", "timestampms", "fix_time",
        "utc_timestamp", "utc_time", "timestamp_utc", "time_stamp", "date_time", "gps_time", "event_time",
        "device_time", "unix_time", "unix_timestamp", "epoch", "tst", "created_at", "local_time", "call_time",
    ),
    "lat": (*LAT_NAMES, "y"),
    "lon": (*LON_NAMES, "x"),
    "accuracy_m": ("accuracy", "horizontal_accuracy", "hacc", "radius", "acc", "location_accuracy"),
}  # fmt: skip
STAY_NAMES: dict[str, tuple[str, ...]] = {
    "agent_id": AGENT_NAMES,
    "started_at": ("start_datetime", "datetime", "start_time", "arrived_at", "arrival", "start"),
    "finished_at": ("end_datetime", "leaving_datetime", "end_time", "left_at", "departure", "end"),
    "lat": LAT_NAMES,
    "lon": LON_NAMES,
    "stay_id": ("staypoint_id", "stay_point_id"),
    "poi_id": ("location_id", "place_id", "venue_id"),
    "poi_category": ("category", "purpose", "activity", "act_type", "venue_type"),
    "timezone": ("tz", "time_zone"),
}
POI_NAMES: dict[str, tuple[str, ...]] = {
    "poi_id": ("id", "osm_id", "venue_id", "place_id"),
    "lat": LAT_NAMES,
    "lon": LON_NAMES,
    "category": ("act_types", "act_type", "poi_category", "categories", "venue_type", "type", "amenity"),
    "name": ("poi_name",),
}
GEOMETRY_NAMES = ("geom", "geometry")
_SCALES = {"_e6": 1e6, "_e7": 1e7, "ee7": 1e7}


def as_fixes(source: Any, where: str = "fixes", reading: Reading | None = None) -> pa.Table:
    """Fixes by the contract, from a path or a table with anybody's column names. An empty table stays empty."""
    return _as_contract(as_table(source, where), FIXES, FIX_NAMES, where, settings=reading)


def as_stays(source: Any, where: str = "stays", reading: Reading | None = None) -> pa.Table:
    """Stays by the contract, from a path or a table with anybody's column names."""
    return _as_contract(as_table(source, where), STAYS, STAY_NAMES, where, settings=reading)


def _as_contract(
    table: pa.Table, contract: Contract, names: dict[str, tuple[str, ...]], where: str, *, settings: Reading | None
) -> pa.Table:
    reading = settings or Reading()
    refuse_other_bytes(table, where)
    try:
        table = rename(_with_agents(table, reading, where) if contract is FIXES else table, names, reading)
    except DataError as error:
        raise DataError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    complaints = Complaints(where, reading.on_error)
    table = _numbers(table, contract, complaints)
    for name, kind in contract.columns.items():
        if kind == TIMESTAMP and name in table.column_names:
            table = _times(table, name, contract, complaints, reading=reading)
            if settings is not None and pa.types.is_timestamp(table[name].type) and table[name].type.tz:
                table = _check_range(table, name, complaints)
    missing = [name for name in contract.required if name not in table.column_names]
    if missing and contract is FIXES and table.column_names:
        raise missing_columns(where, missing, table.column_names)
    if table.num_rows == 0 and not missing:
        if complaints.bad_rows:
            raise DataError(f"{where}: no usable row is left ({complaints.messages[0]})")
        return table
    _hint_at_east(table, complaints, reading)
    table, complaints = validate(table, contract, where, reading.on_error, complaints=complaints)
    if settings is not None:
        table = _check_places(table, complaints, reading)
    reading.count(complaints)
    return table


def refuse_other_bytes(table: pa.Table, where: str) -> None:
    """Refuse text and names of columns that are not UTF-8: some readers pass them on as they are."""
    try:
        table.column_names  # noqa: B018  # decodes them
        table.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(f"{where}: holds what cannot be read ({first_line(error)}); text must be UTF-8") from error


def _with_agents(table: pa.Table, reading: Reading, where: str) -> pa.Table:
    """The column that was said to hold the agents under our name, in the place of one that has it already."""
    name = reading.agent_column("table")
    if name is None or name == "agent_id":
        return table
    if name not in table.column_names:
        raise DataError(f"{where}: no column '{name}' (--agent); found {', '.join(table.column_names)}")
    reading.say(f"column '{name}' was taken for agent_id")
    others = table.drop_columns(["agent_id"]) if "agent_id" in table.column_names else table
    return others.rename_columns({name: "agent_id"})


def _check_range(table: pa.Table, name: str, complaints: Complaints) -> pa.Table:
    bad, what = implausible_times(table[name])
    return complaints.check(table, bad, name, what)


def _check_places(table: pa.Table, complaints: Complaints, reading: Reading) -> pa.Table:
    """Drop rows at (0, 0), whatever happens to bad rows; refuse a table whose coordinates are swapped."""
    complaints_of_hours = Complaints(complaints.where, "skip", rows=complaints.rows)
    table = complaints_of_hours.check(table, at_null_island(table), "lat", NULL_ISLAND)
    reading.count(complaints_of_hours)
    if not table.num_rows:
        raise DataError(f"{complaints.where}: no usable row is left ({complaints_of_hours.messages[0]})")
    warning = check_swapped(table, complaints.where, _zone_of(table, reading), reading.area)
    if warning:
        reading.warn(warning)
    return table


def _zone_of(table: pa.Table, reading: Reading) -> str | None:
    """The zone that is known of all rows: as the table says, else that of naive times."""
    if "timezone" not in table.column_names:
        return reading.timezone
    zones = pc.unique(table["timezone"])
    return str(zones[0].as_py()) if len(zones) == 1 and zones.null_count == 0 else None


def _times(
    table: pa.Table, name: str, contract: Contract, complaints: Complaints, *, reading: Reading
) -> pa.Table:  # fmt: skip
    """The column in UTC; complain of rows that hold something, but no time."""
    theirs = table[name]
    agents = table["agent_id"] if contract is FIXES and "agent_id" in table.column_names else None
    before = reading.skipped_hour
    ours = to_utc(theirs, complaints.where, name, reading, agents=agents)
    table = table.set_column(table.column_names.index(name), name, ours)
    bad, what = no_times(theirs, ours)
    skipped_rows = reading.skipped_hour - before
    if skipped_rows:
        others = f"{what}, or " if skipped_rows < np.count_nonzero(bad) else ""
        what = (
            f"{others}lie in the hour that daylight saving skips in {reading.timezone} ({skipped_rows:,} rows: the "
            "clock that wrote them does not follow that zone; --timezone Etc/GMT-1 is a clock always one hour ahead of "
            "UTC)"
        )
    return complaints.check(table, bad, name, what)


def _hint_at_east(table: pa.Table, complaints: Complaints, reading: Reading) -> None:
    """Longitudes of 0 … 360° are not read, but recognised."""
    if "lon" not in table.column_names or not pa.types.is_floating(table["lon"].type):
        return
    lon = table["lon"].to_numpy()
    beyond = int(np.count_nonzero((lon > 180) & (lon <= 360)))
    if not beyond or np.nanmin(lon) < 0 or np.nanmax(lon) > 360:
        return
    hint = (
        f"{complaints.where}: column 'lon': {beyond:,} of {len(lon):,} rows are beyond 180° and none is below 0°: "
        "they seem to count from 0 to 360°; subtract 360 from those above 180"
    )
    if reading.on_error == "fail":
        raise DataError(hint)
    reading.say(hint)


# -------------------------------------------------------------------------------------------------- names
def rename(table: pa.Table, names: dict[str, tuple[str, ...]], reading: Reading) -> pa.Table:
    """Give our names to the neighbours' columns; degrees that are scaled or inside a geometry are unpacked."""
    theirs_by_ours = match_columns(table.column_names, names, reading)
    old_names = [ours for ours, theirs in theirs_by_ours.items() if ours != theirs and ours in table.column_names]
    table = table.drop_columns([name for name in old_names if name not in theirs_by_ours.values()])
    table = table.rename_columns({theirs: ours for ours, theirs in theirs_by_ours.items() if ours != theirs})
    for ours, theirs in theirs_by_ours.items():
        if ours != theirs:
            reading.say(f"column '{theirs}' was taken for {ours}")
        scale = next((s for end, s in _SCALES.items() if theirs.lower().endswith(end)), None)
        if ours in ("lat", "lon") and scale:
            table = table.set_column(table.column_names.index(ours), ours, _scale(table[ours], scale))
            reading.say(f"column '{theirs}' was divided by {scale:,.0f} to give degrees")
    return _unpack_geometry(table, reading) if "lat" in names and "lat" not in table.column_names else table


def _scale(column: pa.ChunkedArray, scale: float) -> pa.ChunkedArray:
    """Degrees from a column of scaled ones. Text stays text, so that what is no number can be named later."""
    if not is_text(column.type):
        return pc.divide(column.cast(pa.float64()), scale)
    good = pc.fill_null(pc.match_substring_regex(column, NUMBER), False)
    numbers = pc.utf8_trim_whitespace(pc.if_else(good, column, pa.scalar(None, column.type))).cast(pa.float64())
    return pc.if_else(good, pc.divide(numbers, scale).cast(column.type), column)


def match_names(columns: list[str], names: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Ours → theirs: our own name where it is there, else the first neighbour's name, whatever its case and whatever
    stands between its words."""
    plain = {_plain(c): c for c in reversed(columns)}
    if not {"x", "y"} <= plain.keys() or plain.keys() & set(GEOMETRY_NAMES):
        plain = {name: c for name, c in plain.items() if name not in ("x", "y")}  # degrees only where nothing else is
    matches: dict[str, str] = {}
    for ours, aliases in names.items():
        candidates = (plain.get(_plain(alias)) for alias in (ours, *aliases))
        theirs = next((c for c in candidates if c is not None and c not in matches.values()), None)
        if ours in columns:
            theirs = ours
        if theirs is not None:
            matches[ours] = theirs
    return matches


def match_columns(columns: list[str], names: dict[str, tuple[str, ...]], reading: Reading) -> dict[str, str]:
    """Ours → theirs: as was said (`--columns`), else by name."""
    by_layout = {ours: theirs for ours, theirs in reading.layout.columns.items() if ours in names and theirs in columns}
    in_use = set(by_layout.values())
    return {**{o: t for o, t in match_names(columns, names).items() if t not in in_use}, **by_layout}


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def missing_columns(where: str, missing: list[str], columns: list[str]) -> DataError:
    """What to say where columns are missing: what was seen, and the options that help."""
    hint = f"say which is which with --columns {','.join(f'{name}=NAME' for name in missing)}"
    if missing == ["agent_id"]:
        hint = "say whose they are with --columns agent_id=NAME, --agent file or --agent folder"
    listing = ", ".join(columns) or "no columns"
    return DataError(
        f"{where}: missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; found {listing}; {hint}"
    )


def _unpack_geometry(table: pa.Table, reading: Reading) -> pa.Table:
    name = next((c for c in table.column_names if c.lower() in GEOMETRY_NAMES), None)
    if name is None:
        return table
    lat, lon = point_degrees(table[name])
    reading.say(f"lat and lon were read from the points in column '{name}'")
    return table.drop_columns([name]).append_column("lat", pa.array(lat)).append_column("lon", pa.array(lon))


def _numbers(table: pa.Table, contract: Contract, complaints: Complaints) -> pa.Table:
    """Text in the columns of numbers: read it, and complain of the rows that hold no number."""
    for name, kind in contract.columns.items():
        if name not in table.column_names or kind != pa.float64() or not is_text(table[name].type):
            continue
        column = table[name]
        good = pc.or_kleene(pc.match_substring_regex(column, NUMBER), pc.is_null(column))
        bad = ~pc.fill_null(good, True).to_numpy(zero_copy_only=False).astype(bool) & ~is_blank(column)
        table = complaints.check(table, bad, name, "are not numbers")
        values = pc.utf8_trim_whitespace(table[name])
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values).cast(pa.float64())
        table = table.set_column(table.column_names.index(name), name, values)
    return table
