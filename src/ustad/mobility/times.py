"""Times in anybody's notation as UTC: epoch numbers, text, timestamps with or without a zone.

In: a column as it was read. Out: the same moments in UTC, null where it is no time.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.mobility.plausible import refuse_digits
from ustad.mobility.reading import Reading
from ustad.mobility.wallclock import from_wall_clock
from ustad.tables import TIMESTAMP, DataError

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?"
_MOMENT = rf"^(?P<moment>\d{{4}}-(?:0\d|1[0-2])-[0-3]\d[T ]{_CLOCK})(?P<zone>Z|[-+](?:[01]\d|2[0-3]):?[0-5]\d)?$"
_EPOCH_LIMITS = (1e11, 1e14, 1e17)  # from here on it is the next unit
_EPOCH_UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0), ("ns", 1e-3))
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def no_times(theirs: pa.ChunkedArray, ours: pa.ChunkedArray) -> tuple[np.ndarray, str]:
    """Rows that hold something that was not read as a time, and how to say it."""
    empty = is_blank(theirs) if is_text(theirs.type) else pc.is_null(theirs, nan_is_null=True).to_numpy()
    numbers = holds_numbers(theirs)
    what = "are not times in the unit of the other rows" if numbers else "are not times"
    return pc.is_null(ours).to_numpy() & ~empty, what


def holds_numbers(column: pa.ChunkedArray) -> bool:
    """Whether times are given as numbers, in a column of numbers or of text."""
    return _text_of_numbers(column) if is_text(column.type) else not pa.types.is_timestamp(column.type)


def is_blank(column: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True).to_numpy(zero_copy_only=False).astype(bool)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def to_utc(
    column: pa.ChunkedArray, where: str, name: str, reading: Reading, *, agents: pa.ChunkedArray | None = None
) -> pa.ChunkedArray:  # fmt: skip
    """Times in UTC from epoch numbers, text, or timestamps with or without a zone; null where it is no time.

    Naive times are in `reading.timezone`; without one they are left as they are, and validation refuses them.
    `agents` says whose they are, which tells the two passes of an hour that daylight saving repeats apart.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _from_epoch(column, where, name, reading, agents=agents)
    if is_text(column.type):
        if reading.layout.time_format is None and _text_of_numbers(column):
            return _from_epoch(_whole_numbers(column), where, name, reading, agents=agents)
        column = _from_text(column, where, name, reading)
    if pa.types.is_timestamp(column.type) and column.type.tz is None and reading.timezone is not None:
        reading.say(f"column '{name}' has no time zone: its times were taken as {reading.timezone}")
        return from_wall_clock(
            column.cast(pa.timestamp("us"), safe=False), reading.timezone, agents, name, reading=reading
        )
    return column.cast(TIMESTAMP, safe=False) if pa.types.is_timestamp(column.type) and column.type.tz else column


def _from_epoch(
    column: pa.ChunkedArray, where: str, name: str, reading: Reading, *, agents: pa.ChunkedArray | None
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
        microseconds = np.round(np.where(good, numbers, 0.0) * factor)
        whole = pa.chunked_array([pa.array(microseconds.astype(np.int64), pa.int64(), mask=~good)])
    if reading.times == "utc":
        return whole.cast(TIMESTAMP)
    if reading.timezone is None:
        raise DataError(f"{where}: column '{name}' counts local time; say of which zone with --timezone")
    return from_wall_clock(whole.cast(pa.timestamp("us")), reading.timezone, agents, name, reading=reading)


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
    good = pc.fill_null(pc.match_substring_regex(text, NUMBER), False)
    return pc.if_else(good, text, pa.scalar(None, text.type)).cast(pa.float64())


def _from_text(column: pa.ChunkedArray, where: str, name: str, reading: Reading) -> pa.ChunkedArray:
    if reading.layout.time_format is not None:
        return _by_format(column, reading.layout.time_format, where)
    texts = pc.utf8_trim_whitespace(column)
    texts = pc.replace_substring_regex(texts, r"^(\d{4})/(\d\d)/(\d\d)", r"\1-\2-\3")
    texts = pc.replace_substring_regex(texts, r" ?(?:UTC|GMT)$", "Z")
    micro = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")  # nanoseconds are cut off
    for text in (texts, micro):
        for kind in (TIMESTAMP, pa.timestamp("us")):
            try:
                return text.cast(kind)
            except pa.ArrowInvalid:
                continue
    return _row_by_row(micro, where, name, reading)


def _by_format(column: pa.ChunkedArray, form: str, where: str) -> pa.ChunkedArray:
    """Text by a pattern of strptime, with a zone where the pattern has one; null where it does not fit."""
    codes = pc.dictionary_encode(pc.utf8_trim_whitespace(column)).unify_dictionaries().combine_chunks()
    has_zone = "%z" in form
    try:
        moments = [_moment(text, form) for text in codes.dictionary.to_pylist()]
        values = pa.array(moments, TIMESTAMP if has_zone else pa.timestamp("us"))
    except (ValueError, TypeError, pa.ArrowInvalid) as error:
        raise DataError(f"{where}: --time-format '{form}' is not a pattern of times ({error})") from error
    return pa.chunked_array([values.take(codes.indices)])


def _moment(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError as error:
        if "does not match" in str(error) or "unconverted" in str(error) or "out of range" in str(error):
            return None
        raise


def _row_by_row(column: pa.ChunkedArray, where: str, name: str, reading: Reading) -> pa.ChunkedArray:
    """Text of which some is no time: null where it is not, so that validation can name or drop those rows."""
    parts = pc.extract_regex(column, _MOMENT)
    parts = parts.combine_chunks() if isinstance(parts, pa.ChunkedArray) else parts
    good = pc.is_valid(parts).to_numpy(zero_copy_only=False).astype(bool)
    good[good] = _exist(parts.filter(pa.array(good)))
    if not good.any():
        raise DataError(
            f"{where}: column '{name}' holds text that is not a time; expected ISO 8601 such as 2024-01-31T08:15:00Z, "
            "or say how it is written with --time-format, for example '%d.%m.%Y %H:%M:%S'"
        )
    has_zone = pc.not_equal(pc.fill_null(pc.struct_field(parts, "zone"), ""), "")
    is_zoned = good & pc.fill_null(has_zone, False).to_numpy(zero_copy_only=False).astype(bool)
    if is_zoned.any() and (good & ~is_zoned).any():
        if reading.on_error == "fail":
            raise DataError(f"{where}: column '{name}' mixes times with and without a time zone; use one of them")
        good &= is_zoned if 2 * is_zoned.sum() >= good.sum() else ~is_zoned  # those of the rarer kind are bad rows
    text = pc.if_else(pa.array(good), column.combine_chunks(), pa.scalar(None, pa.string()))
    return pa.chunked_array([text.cast(TIMESTAMP if (good & is_zoned).any() else pa.timestamp("us"))])


def _exist(parts: pa.StructArray) -> np.ndarray:
    """Which dates of well-formed times the calendar has: bool [n]."""
    date = [pc.utf8_slice_codeunits(pc.struct_field(parts, "moment"), a, b) for a, b in ((0, 4), (5, 7), (8, 10))]
    year, month, day = (part.cast(pa.int64()).to_numpy() for part in date)
    first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    length = (first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")
    return (month >= 1) & (day >= 1) & (day <= length.astype(np.int64))
