"""Google Takeout's `Records.json` (before: `Location History.json`): the raw positions of years, as fixes.

The file may have several gigabytes, of which four numbers per entry matter. One pass over the bytes finds them: no
object is made of the rest. In: the path. Out: tables of fixes of about a million rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from ustad.mobility.exports.content import open_bytes, person_of, repeat, times
from ustad.mobility.reading import Reading
from ustad.tables import DataError

BLOCK_BYTES = 64 << 20
LARGEST_ENTRY = 256 << 20  # bytes; a longer one is no entry
_START = re.compile(rb'^\s*\{\s*"locations"\s*:\s*\[')
_MISSING = np.iinfo(np.int64).min
_WRAP = 1 << 32  # some exports hold negative degrees as unsigned 32-bit numbers
_MORE, _END, _BROKEN, _FULL = 0, 1, 2, 3
_TIME, _TIME_MS, _LAT, _LON, _ACCURACY, _DEVICE = 1, 2, 3, 4, 5, 6


def is_records(head: bytes, path: Path) -> bool:
    """Whether a file begins as `Records.json` does."""
    return _START.match(head) is not None and b'"Feature' not in head


def read_records(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """The positions, in order of the file. Entries without a position or a time are left out and counted."""
    agent, n_bad, devices = person_of(path), 0, set[int]()
    reading.say(f"Google Takeout records: positions of one person, called after the folder '{agent}'")
    for values in _blocks(path, reading):
        time, lat, lon, accuracy, device = values
        good = (time != _MISSING) & (lat != _MISSING) & (lon != _MISSING)
        n_bad += int(np.count_nonzero(~good))
        devices.update(np.unique(device[device != _MISSING]).tolist())
        lat = np.where(lat > 900_000_000, lat - _WRAP, lat)[good]
        lon = np.where(lon > 1_800_000_000, lon - _WRAP, lon)[good]
        accuracy_m = accuracy[good]
        yield pa.table(
            {
                "agent_id": repeat(agent, len(lat)),
                "time": times(time[good]),
                "lat": lat / 1e7,
                "lon": lon / 1e7,
                "accuracy_m": pa.array(accuracy_m.astype(np.float64), mask=accuracy_m == _MISSING),
            }
        )
    if n_bad:
        reading.bad_rows += n_bad
        reading.say(f"dropped: {path}: {n_bad:,} entries without a position or a time")
    if len(devices) > 1:
        reading.say(f"Google Takeout records: {len(devices)} devices recorded; all were taken as one person")


def _blocks(path: Path, reading: Reading) -> Iterator[tuple[np.ndarray, ...]]:
    """Time (µs), latitude and longitude (1e-7 degrees), accuracy (m) and device of the entries, block by block."""
    with open_bytes(path) as stream:
        rest = stream.read(BLOCK_BYTES)
        begin = _START.match(rest.removeprefix(b"\xef\xbb\xbf"))
        if begin is None:
            raise DataError(f"{path}: is not a Records.json of Google Takeout")
        rest, count, state = rest.removeprefix(b"\xef\xbb\xbf")[begin.end() :], 0, _FULL
        while True:
            *values, n, end, state = _scan(np.frombuffer(rest, np.uint8), len(rest) // 60 + 16)
            count += n
            if n:
                yield tuple(v[:n] for v in values)
            if state in (_END, _BROKEN):
                break
            rest = rest[end:]
            if state == _FULL:
                continue
            if len(rest) > LARGEST_ENTRY:
                raise DataError(f"{path}: one entry is longer than {LARGEST_ENTRY >> 20} MB; the file is damaged")
            block = stream.read(BLOCK_BYTES)
            if not block:
                break
            rest += block
    if state != _END:
        _say_cut_off(path, count, reading)


def _say_cut_off(path: Path, count: int, reading: Reading) -> None:
    message = f"{path}: ends or is damaged after {count:,} entries"
    if reading.on_error == "fail":
        raise DataError(f"{message}; export it again, or take what is there with --on-error skip")
    reading.say(f"dropped: {message}; what comes before was taken")


# ------------------------------------------------------------------------------------------------ the scanner
@numba.njit(cache=True, nogil=True)
def _scan(data: Any, capacity: Any) -> Any:
    """Whole entries from the beginning of `data`: their values, how many, how many bytes they took, and why it
    stopped."""
    time, lat = np.full(capacity, _MISSING, np.int64), np.full(capacity, _MISSING, np.int64)
    lon, accuracy = np.full(capacity, _MISSING, np.int64), np.full(capacity, _MISSING, np.int64)
    device = np.full(capacity, _MISSING, np.int64)
    size, i, n, n_bytes, state = len(data), 0, 0, 0, _MORE
    while True:
        while i < size and (data[i] <= 32 or data[i] == 44):  # blanks and commas
            i += 1
        if i >= size:
            break
        if data[i] == 93:  # ]
            state = _END
            break
        if data[i] != 123:  # {
            state = _BROKEN
            break
        if n == capacity:
            state = _FULL
            break
        i, depth = i + 1, 1
        while depth > 0 and i < size:
            c = data[i]
            if c == 34:
                end = _string_end(data, i)
                after = _skip_blanks(data, end + 1)
                i = end + 1
                if depth == 1 and after < size and data[after] == 58:  # a key of the entry
                    i = _skip_blanks(data, after + 1)
                    key = _key(data, end)
                    stop = _value_end(data, i) if key else i
                    if stop >= size:
                        i = size
                    elif key == _TIME:
                        time[n] = _moment(data, i, stop)
                    elif key == _TIME_MS:
                        number = _integer(data, i, stop)
                        time[n] = number * 1000 if 0 <= number < 253_402_300_800_000 else _MISSING
                    elif key == _LAT:
                        lat[n] = _integer(data, i, stop)
                    elif key == _LON:
                        lon[n] = _integer(data, i, stop)
                    elif key == _ACCURACY:
                        accuracy[n] = _integer(data, i, stop)
                    elif key == _DEVICE:
                        device[n] = _integer(data, i, stop)
                    i = max(i, stop)
            else:
                if c == 123 or c == 91:
                    depth += 1
                elif c == 125 or c == 93:
                    depth -= 1
                i += 1
        if depth > 0:  # the entry goes on in the next block
            time[n] = lat[n] = lon[n] = accuracy[n] = device[n] = _MISSING
            break
        n, n_bytes = n + 1, i
    return time, lat, lon, accuracy, device, n, n_bytes, state


@numba.njit(cache=True, nogil=True)
def _skip_blanks(data: Any, i: Any) -> Any:
    while i < len(data) and data[i] <= 32:
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _string_end(data: Any, i: Any) -> Any:
    """Where the text that begins at quote i has its closing quote; the length of the data where there is none."""
    i += 1
    while i < len(data) and data[i] != 34:
        i += 2 if data[i] == 92 else 1
    return min(i, len(data))


@numba.njit(cache=True, nogil=True)
def _value_end(data: Any, i: Any) -> Any:
    """One past a text or number that begins at i; where anything else begins, i itself."""
    if i < len(data) and data[i] == 34:
        return min(_string_end(data, i) + 1, len(data))
    while i < len(data) and (48 <= data[i] <= 57 or data[i] in (43, 45, 46, 69, 101)):
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _key(data: Any, end: Any) -> Any:
    """Which of the keys that matter ends before the quote at `end`, or 0."""
    if _ends_with(data, end, b'"timestamp'):
        return _TIME
    if _ends_with(data, end, b'"timestampMs'):
        return _TIME_MS
    if _ends_with(data, end, b'"latitudeE7'):
        return _LAT
    if _ends_with(data, end, b'"longitudeE7'):
        return _LON
    if _ends_with(data, end, b'"accuracy'):
        return _ACCURACY
    if _ends_with(data, end, b'"deviceTag'):
        return _DEVICE
    return 0


@numba.njit(cache=True, nogil=True)
def _ends_with(data: Any, end: Any, word: Any) -> Any:
    same = end >= len(word)
    for k in range(len(word)):
        same = same and data[end - len(word) + k] == word[k]
    return same


@numba.njit(cache=True, nogil=True)
def _integer(data: Any, i: Any, stop: Any) -> Any:
    """The whole number at i, in quotes or not; a fraction is cut off. Missing where it is none or too long."""
    i += 1 if data[i] == 34 else 0
    negative = i < stop and data[i] == 45
    i += 1 if negative else 0
    value, digits = np.int64(0), 0
    while i < stop and 48 <= data[i] <= 57 and digits < 18:
        value, digits, i = value * 10 + data[i] - 48, digits + 1, i + 1
    if digits == 0 or (i < stop and data[i] not in (34, 46)):
        return np.int64(_MISSING)
    return -value if negative else value


@numba.njit(cache=True, nogil=True)
def _moment(data: Any, i: Any, stop: Any) -> Any:
    """`"2013-01-22T14:33:29.123Z"`, with Z or an offset, as microseconds since 1970; missing where it is not that."""
    i += 1
    if stop - i < 21 or data[i + 4] != 45 or data[i + 7] != 45 or data[i + 13] != 58 or data[i + 16] != 58:
        return np.int64(_MISSING)
    year = _two(data, i) * 100 + _two(data, i + 2)
    month, day = _two(data, i + 5), _two(data, i + 8)
    hour, minute, second = _two(data, i + 11), _two(data, i + 14), _two(data, i + 17)
    if year < 1900 or not (1 <= month <= 12 and 1 <= day <= 31 and 0 <= hour < 24 and 0 <= minute < 60):
        return np.int64(_MISSING)
    if not 0 <= second <= 60:
        return np.int64(_MISSING)
    i += 19
    fraction, scale = 0, 1_000_000
    if data[i] == 46:
        i += 1
        while i < stop and 48 <= data[i] <= 57:
            scale //= 10
            fraction, i = fraction + (data[i] - 48) * scale, i + 1
    offset = 0
    if i < stop and (data[i] == 43 or data[i] == 45):
        if stop - i < 6:
            return np.int64(_MISSING)
        last = i + 4 if data[i + 3] == 58 else i + 3
        offset = (_two(data, i + 1) * 60 + _two(data, last)) * (1 if data[i] == 43 else -1)
    elif i >= stop or data[i] != 90:
        return np.int64(_MISSING)
    march_year = year - 1 if month <= 2 else year  # days from civil, with years that begin in March
    era = march_year // 400
    of_era = march_year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    seconds = days * 86_400 + hour * 3600 + (minute - offset) * 60 + second
    return np.int64(seconds) * 1_000_000 + fraction


@numba.njit(cache=True, nogil=True)
def _two(data: Any, i: Any) -> Any:
    """Two digits; far below zero where they are none."""
    tens, ones = np.int64(data[i]) - 48, np.int64(data[i + 1]) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else np.int64(-100_000)
