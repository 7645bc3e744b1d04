"""Public data sets of check-ins: Foursquare (TSMC2014), Gowalla and Brightkite. A check-in is a moment at a place.

It has no end, so it becomes a stay of no length: when and where say something, how long does not. In: the path; out:
tables of stays with the venue as `poi_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ustad.mobility.exports.content import open_bytes
from ustad.mobility.reading import Reading
from ustad.tables import DataError

BLOCK_BYTES = 32 << 20
_FOURSQUARE = ["agent_id", "poi_id", "category_id", "poi_category", "lat", "lon", "offset", "time"]
_FOURSQUARE_NAMES = "userid,venueid,venuecategoryid,venuecategory,latitude,longitude,timezoneoffset,utctimestamp"
_GOWALLA = ["agent_id", "time", "lat", "lon", "poi_id"]
_WEEKDAY_TIME = r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \+0000 \d{4}"
_FOURSQUARE_LINE = re.compile(
    rb"^\d+\t[0-9a-f]+\t[0-9a-f]*\t[^\t]*\t-?[\d.]+\t-?[\d.]+\t-?\d+\t" + _WEEKDAY_TIME.encode()
)
_GOWALLA_LINE = re.compile(rb"^\d+\t\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\t-?[\d.]+\t-?[\d.]+\t\S+\s*$")


def is_foursquare(head: bytes, path: Path) -> bool:
    line = _first_line(head)
    return _FOURSQUARE_LINE.match(line) is not None or _has_foursquare_names(line)


def is_gowalla(head: bytes, path: Path) -> bool:
    return _GOWALLA_LINE.match(_first_line(head)) is not None


def read_foursquare(path: Path, reading: Reading) -> Iterator[pa.Table]:
    with open_bytes(path) as stream:
        has_names = _has_foursquare_names(stream.readline())
    reading.say("Foursquare check-ins: stays of no length, because a check-in has no end; the venue is the place")
    for table in _rows(path, _FOURSQUARE, "," if has_names else "\t", skip=int(has_names)):
        moment = pc.strptime(table["time"], format="%a %b %d %H:%M:%S +0000 %Y", unit="s", error_is_null=True)
        iso = pc.strftime(moment, format="%Y-%m-%dT%H:%M:%SZ")
        time = pc.if_else(pc.is_valid(moment), iso, table["time"])  # what is no time stays, to be named as a bad row
        yield _stays(table, time, poi_category=table["poi_category"])


def read_gowalla(path: Path, reading: Reading) -> Iterator[pa.Table]:
    reading.say("Gowalla or Brightkite check-ins: stays of no length, because a check-in has no end")
    for table in _rows(path, _GOWALLA, "\t"):
        yield _stays(table, table["time"])


def _stays(table: pa.Table, time: pa.ChunkedArray, **more: pa.ChunkedArray) -> pa.Table:
    columns = {name: table[name] for name in ("agent_id", "lat", "lon", "poi_id")}
    return pa.table({**columns, "started_at": time, "finished_at": time, **more})


def _rows(path: Path, names: list[str], separator: str, skip: int = 0) -> Iterator[pa.Table]:
    """The rows as text but for the agents, which are integers."""
    kinds = {name: pa.string() for name in names}
    with open_bytes(path) as stream:
        try:
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(
                    column_names=names, skip_rows=skip, block_size=BLOCK_BYTES, encoding="latin-1"
                ),
                parse_options=pa_csv.ParseOptions(delimiter=separator, quote_char='"' if separator == "," else False),
                convert_options=pa_csv.ConvertOptions(column_types=kinds),
            )
            for batch in reader:
                table = pa.Table.from_batches([batch])
                yield table.set_column(0, "agent_id", table["agent_id"].cast(pa.int64()))
        except (pa.ArrowInvalid, OSError, EOFError) as error:
            raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error


def _first_line(head: bytes) -> bytes:
    return head.partition(b"\n")[0].rstrip(b"\r")


def _has_foursquare_names(line: bytes) -> bool:
    return re.sub(rb'[\s"]', b"", line).lower() == _FOURSQUARE_NAMES.encode()
