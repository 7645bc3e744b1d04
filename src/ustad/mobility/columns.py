"""Other people's columns: which names, units and encodings are taken for which column of our tables.

In: a table as it was read. Out: the same table with our names, times in UTC and degrees as numbers, and notes that
say what was mapped or guessed. `as_fixes` and `as_stays` also validate, once, where data enters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.files import as_table
from ustad.mobility.geometry import point_degrees
from ustad.mobility.plausible import NULL_ISLAND, Box, at_null_island, check_swapped, implausible_times, refuse_digits
from ustad.tables import FIXES, STAYS, TIMESTAMP, Complaints, Contract, DataError, OnError, validate

Times = Literal["utc", "local"]

#: Names that trackintel, scikit-mobility, NUMOSIM, GeoLife readers, Google and others give to our columns.
AGENT_NAMES = ("user_id", "uid", "agent", "user", "userid", "device_id", "person_id", "tid", "ad_id", "vehicle_id")
LAT_NAMES = ("latitude", "lat_e6", "lat_e7", "latitudee7", "lat_deg", "center_lat")
LON_NAMES = ("lng", "longitude", "lon_e6", "lon_e7", "longitudee7", "long", "lon_deg", "center_lng")
FIX_NAMES: dict[str, tuple[str, ...]] = {
    "agent_id": AGENT_NAMES,
    "time": ("tracked_at", "datetime", "timestamp", "t", "recorded_at", "ts", "time_utc", "timestampms"),
    "lat": LAT_NAMES,
    "lon": LON_NAMES,
    "accuracy_m": ("accuracy", "horizontal_accuracy", "hacc", "radius"),
}
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
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?"
_MOMENT = rf"^(?P<moment>\d{{4}}-(?:0\d|1[0-2])-[0-3]\d[T ]{_CLOCK})(?P<zone>Z|[-+]\d\d:?\d\d)?$"
_EPOCH_LIMITS = (1e11, 1e14, 1e17)  # from here on it is the next unit
_EPOCH_UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0), ("ns", 1e-3))
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


@dataclass
class Reading:
    """How to read, and what was mapped, guessed or dropped on the way."""

    timezone: str | None = None  # of times that carry none
    times: Times = "utc"  # what epoch numbers count: UTC, or the wall clock of `timezone`
    on_error: OnError = "fail"
    notes: list[str] = field(default_factory=list)
    dropped: int = 0
    skipped_hour: int = 0  # naive times that no clock of the zone shows, because daylight saving skips them
    area: Box | None = None  # where the data is known to be

    def say(self, note: str) -> None:
        """Remember a note once."""
        if note not in self.notes:
            self.notes.append(note)

    def warn(self, note: str) -> None:
        """Remember a note and warn of it, once."""
        if note not in self.notes:
            self.notes.append(note)
            progress.warn(note)

    def count(self, complaints: Complaints) -> None:
        """Take over what validation dropped."""
        self.dropped += complaints.dropped
        for message in complaints.found:
            self.say(f"dropped: {message}")


def as_fixes(source: Any, where: str = "fixes", reading: Reading | None = None) -> pa.Table:
    """Fixes by the contract, from a path or a table with anybody's column names. An empty table stays empty."""
    return _as_contract(as_table(source, where), FIXES, FIX_NAMES, where, reading)


def as_stays(source: Any, where: str = "stays", reading: Reading | None = None) -> pa.Table:
    """Stays by the contract, from a path or a table with anybody's column names."""
    return _as_contract(as_table(source, where), STAYS, STAY_NAMES, where, reading)


def _as_contract(
    table: pa.Table, contract: Contract, names: dict[str, tuple[str, ...]], where: str, asked: Reading | None
) -> pa.Table:
    reading = asked or Reading()
    table = rename(table, names, reading)
    complaints = Complaints(where, reading.on_error)
    table = _numbers(table, contract, complaints)
    for name, kind in contract.columns.items():
        if kind == TIMESTAMP and name in table.column_names:
            table = _times(table, name, contract, complaints, reading)
            if asked is not None and pa.types.is_timestamp(table[name].type) and table[name].type.tz:
                table = _check_range(table, name, complaints)
    missing = [name for name in contract.required if name not in table.column_names]
    if table.num_rows == 0 and not missing:
        if complaints.dropped:
            raise DataError(f"{where}: no usable row is left ({complaints.found[0]})")
        return table
    _hint_at_east(table, complaints, reading)
    table, complaints = validate(table, contract, where, reading.on_error, complaints)
    if asked is not None:
        table = _check_places(table, complaints, reading)
    reading.count(complaints)
    return table


def _check_range(table: pa.Table, name: str, complaints: Complaints) -> pa.Table:
    bad, what = implausible_times(table[name])
    return complaints.check(table, bad, name, what)


def _check_places(table: pa.Table, complaints: Complaints, reading: Reading) -> pa.Table:
    """Drop rows at (0, 0), whatever happens to bad rows; refuse a table whose coordinates are swapped."""
    lost = Complaints(complaints.where, "skip", rows=complaints.rows)
    table = lost.check(table, at_null_island(table), "lat", NULL_ISLAND)
    reading.count(lost)
    if not table.num_rows:
        raise DataError(f"{complaints.where}: no usable row is left ({lost.found[0]})")
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
    table: pa.Table, name: str, contract: Contract, complaints: Complaints, reading: Reading
) -> pa.Table:  # fmt: skip
    """The column in UTC; complain of rows that hold something, but no time."""
    theirs = table[name]
    agents = table["agent_id"] if contract is FIXES and "agent_id" in table.column_names else None
    before = reading.skipped_hour
    ours = to_utc(theirs, complaints.where, name, reading, agents)
    table = table.set_column(table.column_names.index(name), name, ours)
    bad, what = no_times(theirs, ours)
    lost = reading.skipped_hour - before
    if lost:
        others = f"{what}, or " if lost < np.count_nonzero(bad) else ""
        what = (
            f"{others}lie in the hour that daylight saving skips in {reading.timezone} ({lost:,} rows: the clock that "
            "wrote them does not follow that zone; --timezone Etc/GMT-1 is a clock always one hour ahead of UTC)"
        )
    return complaints.check(table, bad, name, what)


def no_times(theirs: pa.ChunkedArray, ours: pa.ChunkedArray) -> tuple[np.ndarray, str]:
    """Rows that hold something that was not read as a time, and how to say it."""
    empty = _blank(theirs) if _is_text(theirs.type) else pc.is_null(theirs, nan_is_null=True).to_numpy()
    numbers = holds_numbers(theirs)
    what = "are not times in the unit of the other rows" if numbers else "are not times"
    return pc.is_null(ours).to_numpy() & ~empty, what


def holds_numbers(column: pa.ChunkedArray) -> bool:
    """Whether times are given as numbers, in a column of numbers or of text."""
    return _text_of_numbers(column) if _is_text(column.type) else not pa.types.is_timestamp(column.type)


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
    found = match_names(table.column_names, names)
    table = table.rename_columns({theirs: ours for ours, theirs in found.items() if ours != theirs})
    for ours, theirs in found.items():
        if ours != theirs:
            reading.say(f"column '{theirs}' was taken for {ours}")
        scale = next((s for end, s in _SCALES.items() if theirs.lower().endswith(end)), None)
        if ours in ("lat", "lon") and scale:
            table = table.set_column(table.column_names.index(ours), ours, _scaled(table[ours], scale))
            reading.say(f"column '{theirs}' was divided by {scale:,.0f} to give degrees")
    return _unpack_geometry(table, reading) if "lat" in names and "lat" not in table.column_names else table


def _scaled(column: pa.ChunkedArray, scale: float) -> pa.ChunkedArray:
    """Degrees from a column of scaled ones. Text stays text, so that what is no number can be named later."""
    if not _is_text(column.type):
        return pc.divide(column.cast(pa.float64()), scale)
    good = pc.fill_null(pc.match_substring_regex(column, _NUMBER), False)
    numbers = pc.utf8_trim_whitespace(pc.if_else(good, column, pa.scalar(None, column.type))).cast(pa.float64())
    return pc.if_else(good, pc.divide(numbers, scale).cast(column.type), column)


def match_names(columns: list[str], names: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Ours → theirs: our own name where it is there, else the first neighbour's name, whatever its case."""
    lower = {c.lower(): c for c in reversed(columns)}
    found: dict[str, str] = {}
    for ours, aliases in names.items():
        theirs = next((lower[a] for a in (ours, *aliases) if a in lower and lower[a] not in found.values()), None)
        if ours in columns:
            theirs = ours
        if theirs is not None:
            found[ours] = theirs
    return found


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
        if name not in table.column_names or kind != pa.float64() or not _is_text(table[name].type):
            continue
        column = table[name]
        good = pc.or_kleene(pc.match_substring_regex(column, _NUMBER), pc.is_null(column))
        bad = ~pc.fill_null(good, True).to_numpy(zero_copy_only=False).astype(bool) & ~_blank(column)
        table = complaints.check(table, bad, name, "are not numbers")
        values = pc.utf8_trim_whitespace(table[name])
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values).cast(pa.float64())
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def _blank(column: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True).to_numpy(zero_copy_only=False).astype(bool)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


# -------------------------------------------------------------------------------------------------- times
def to_utc(
    column: pa.ChunkedArray, where: str, name: str, reading: Reading, agents: pa.ChunkedArray | None = None
) -> pa.ChunkedArray:  # fmt: skip
    """Times in UTC from epoch numbers, text, or timestamps with or without a zone; null where it is no time.

    Naive times are in `reading.timezone`; without one they are left as they are, and validation refuses them.
    `agents` says whose they are, which tells the two passes of an hour that daylight saving repeats apart.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _from_epoch(column, where, name, reading, agents)
    if _is_text(column.type):
        if _text_of_numbers(column):
            return _from_epoch(_whole_numbers(column), where, name, reading, agents)
        column = _from_text(column, where, name, reading)
    if pa.types.is_timestamp(column.type) and column.type.tz is None and reading.timezone is not None:
        reading.say(f"column '{name}' has no time zone: its times were taken as {reading.timezone}")
        return _localise(column.cast(pa.timestamp("us"), safe=False), reading.timezone, agents, name, reading)
    return column.cast(TIMESTAMP, safe=False) if pa.types.is_timestamp(column.type) and column.type.tz else column


def _localise(
    column: pa.ChunkedArray, zone: str, agents: pa.ChunkedArray | None, name: str, reading: Reading
) -> pa.ChunkedArray:  # fmt: skip
    from ustad.mobility.wallclock import from_wall_clock  # here, because it notes in a Reading of this module

    return from_wall_clock(column, zone, agents, name, reading)


def _from_epoch(
    column: pa.ChunkedArray, where: str, name: str, reading: Reading, agents: pa.ChunkedArray | None
) -> pa.ChunkedArray:  # fmt: skip
    """Seconds, milli-, micro- or nanoseconds since 1970: told apart by the size of the median. What is of another
    size is null."""
    numbers = column.to_numpy().astype(np.float64)
    finite = np.isfinite(numbers)
    size = np.searchsorted(_EPOCH_LIMITS, np.abs(numbers), side="right")
    usual = int(np.sort(size[finite])[np.count_nonzero(finite) // 2]) if finite.any() else 0
    unit, factor = _EPOCH_UNITS[usual]
    refuse_digits(numbers[finite], where, name)
    good = finite & (size == usual)
    reading.say(f"column '{name}' holds numbers: they were taken as {unit} since 1970 ({reading.times} time)")
    if pa.types.is_integer(column.type):
        column = pc.if_else(pa.array(good), column.cast(pa.int64()), pa.scalar(None, pa.int64()))
        whole = pc.multiply(column, int(factor)) if factor >= 1 else pc.divide(column, 1000)
    else:
        scaled = np.round(np.where(good, numbers, 0.0) * factor)
        whole = pa.chunked_array([pa.array(scaled.astype(np.int64), pa.int64(), mask=~good)])
    if reading.times == "utc":
        return whole.cast(TIMESTAMP)
    if reading.timezone is None:
        raise DataError(f"{where}: column '{name}' counts local time; say of which zone with --timezone")
    return _localise(whole.cast(pa.timestamp("us")), reading.timezone, agents, name, reading)


def _text_of_numbers(column: pa.ChunkedArray) -> bool:
    """Whether the first value that is there is a plain number."""
    first = next((str(v) for v in column.slice(0, 100).to_pylist() if v), "")
    return first.strip().removeprefix("-").replace(".", "", 1).isdigit()


def _whole_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text of numbers as integers, or as fractions where some have one; null where it is no number."""
    text = pc.utf8_trim_whitespace(column)
    for kind in (pa.int64(), pa.float64()):
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    good = pc.fill_null(pc.match_substring_regex(text, _NUMBER), False)
    return pc.if_else(good, text, pa.scalar(None, text.type)).cast(pa.float64())


def _from_text(column: pa.ChunkedArray, where: str, name: str, reading: Reading) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(column)
    micro = pc.replace_substring_regex(trimmed, r"(\.\d{6})\d+", r"\1")  # nanoseconds are cut off
    for text in (trimmed, micro):
        for kind in (TIMESTAMP, pa.timestamp("us")):
            try:
                return text.cast(kind)
            except pa.ArrowInvalid:
                continue
    return _row_by_row(micro, where, name, reading)


def _row_by_row(column: pa.ChunkedArray, where: str, name: str, reading: Reading) -> pa.ChunkedArray:
    """Text of which some is no time: null where it is not, so that validation can name or drop those rows."""
    parts = pc.extract_regex(column, _MOMENT)
    parts = parts.combine_chunks() if isinstance(parts, pa.ChunkedArray) else parts
    good = pc.is_valid(parts).to_numpy(zero_copy_only=False).astype(bool)
    good[good] = _exist(parts.filter(pa.array(good)))
    if not good.any():
        raise DataError(
            f"{where}: column '{name}' holds text that is not a time; expected ISO 8601 such as 2024-01-31T08:15:00Z"
        )
    has_zone = pc.not_equal(pc.fill_null(pc.struct_field(parts, "zone"), ""), "")
    zoned = good & pc.fill_null(has_zone, False).to_numpy(zero_copy_only=False).astype(bool)
    if zoned.any() and (good & ~zoned).any():
        if reading.on_error == "fail":
            raise DataError(f"{where}: column '{name}' mixes times with and without a time zone; use one of them")
        good &= zoned if 2 * zoned.sum() >= good.sum() else ~zoned  # those of the rarer kind are bad rows
    text = pc.if_else(pa.array(good), column.combine_chunks(), pa.scalar(None, pa.string()))
    return pa.chunked_array([text.cast(TIMESTAMP if (good & zoned).any() else pa.timestamp("us"))])


def _exist(parts: pa.StructArray) -> np.ndarray:
    """Which dates of well-formed times the calendar has: bool [n]."""
    date = [pc.utf8_slice_codeunits(pc.struct_field(parts, "moment"), a, b) for a, b in ((0, 4), (5, 7), (8, 10))]
    year, month, day = (part.cast(pa.int64()).to_numpy() for part in date)
    first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    length = (first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")
    return (month >= 1) & (day >= 1) & (day <= length.astype(np.int64))
