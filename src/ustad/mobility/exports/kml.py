"""KML and KMZ: tracks (`gx:Track`) and points with a moment as fixes; points with a span of time as stays.

In: the path; out: one table. Lines and points without a time cannot be placed in it and are left out, which is said.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ustad.mobility.exports.content import file_agent, read_whole, repeat
from ustad.mobility.exports.xml_events import walk_xml
from ustad.mobility.reading import Reading
from ustad.tables import DataError

LARGEST = 512 << 20  # bytes of KML, unpacked
_MOMENTS = (b"Track>", b"<TimeStamp")


def has_moments(head: bytes, path: Path) -> bool:
    """Whether a KML or KMZ file holds tracks or points with a moment."""
    return _is_kml(head) and (any(word in _quietly(path) for word in _MOMENTS) or b"<TimeSpan" not in _quietly(path))


def has_spans(head: bytes, path: Path) -> bool:
    """Whether a KML or KMZ file holds only spans of time."""
    return _is_kml(head) and not has_moments(head, path)


def read_tracks(path: Path, reading: Reading) -> Iterator[pa.Table]:
    marks = _Marks(path)
    if not marks.times:
        raise DataError(f"{path}: the KML file holds no point with a time; export tracks with times (gx:Track or GPX)")
    marks.report(reading, "tracks and points with a moment are fixes")
    lon, lat = zip(*marks.points, strict=True)
    columns = {"time": pa.array(marks.times), "lat": pa.array(lat), "lon": pa.array(lon)}
    yield pa.table({"agent_id": repeat(file_agent(path), len(lat)), **columns})


def read_spans(path: Path, reading: Reading) -> Iterator[pa.Table]:
    marks = _Marks(path)
    if not marks.spans:
        raise DataError(f"{path}: the KML file holds no point with a time")
    marks.report(reading, "places with a span of time are stays")
    begin, end, position = zip(*marks.spans, strict=True)
    lon, lat = zip(*position, strict=True)
    columns = {"started_at": pa.array(begin), "finished_at": pa.array(end), "lat": pa.array(lat), "lon": pa.array(lon)}
    yield pa.table({"agent_id": repeat(file_agent(path), len(lat)), **columns})


class _Marks:
    """What the placemarks of a file say: moments with points, spans with points, and how many lack one of both."""

    def __init__(self, path: Path) -> None:
        self.times: list[str] = []
        self.points: list[tuple[str, str]] = []  # lon, lat of each time
        self.spans: list[tuple[str, str, tuple[str, str]]] = []  # begin, end, position
        self.without = 0
        self._mark: dict[str, str] = {}
        self._track: tuple[list[str], list[str]] = ([], [])
        walk_xml(_content(path), path, self._close)

    def report(self, reading: Reading, how: str) -> None:
        reading.say(f"KML: {how}")
        if self.without:
            reading.say(f"KML: {self.without:,} placemarks without a time or a point were left out")

    def _close(self, names: list[str], text: str) -> None:
        name, parent = names[-1], names[-2] if len(names) > 1 else ""
        if parent == "Track" and name in ("when", "coord"):
            self._track[name == "coord"].append(text)
        elif name == "Track":
            self._end_track()
        elif (name == "when" and parent == "TimeStamp") or name in ("begin", "end"):
            self._mark[name] = text
        elif name == "coordinates" and parent == "Point":
            self._mark["point"] = text
        elif name == "Placemark":
            self._end_mark()

    def _end_track(self) -> None:
        for time, coordinate in zip(*self._track, strict=False):
            parts = coordinate.split()
            if time and len(parts) >= 2:
                self.times.append(time)
                self.points.append((parts[0], parts[1]))
        self._mark["track"] = ""
        self._track = ([], [])

    def _end_mark(self) -> None:
        mark, parts = self._mark, self._mark.get("point", "").split(",")
        self._mark = {}
        if "track" in mark:
            return
        if len(parts) < 2 or not ("when" in mark or ("begin" in mark and "end" in mark)):
            self.without += 1
        elif "when" in mark:
            self.times.append(mark["when"])
            self.points.append((parts[0].strip(), parts[1].strip()))
        else:
            self.spans.append((mark["begin"], mark["end"], (parts[0].strip(), parts[1].strip())))


def _is_kml(head: bytes) -> bool:
    return b"<kml" in head[:4096] or (head[:4] == b"PK\x03\x04" and b".kml" in head)


def _quietly(path: Path) -> bytes:
    """The content, or nothing where it cannot be read: the reader says why."""
    try:
        return _content(path)
    except DataError:
        return b""


def _content(path: Path) -> bytes:
    """The KML text, unpacked from a KMZ; a member that unpacks to more than the limit is refused."""
    content = read_whole(path, LARGEST)
    if content[:4] != b"PK\x03\x04":
        return content
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            member = next((i for i in archive.infolist() if i.filename.lower().endswith(".kml")), None)
            if member is None:
                raise DataError(f"{path}: the KMZ file holds no .kml")
            with archive.open(member) as stream:
                text = stream.read(LARGEST + 1)
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: the KMZ file cannot be unpacked ({error})") from error
    if len(text) > LARGEST:
        raise DataError(f"{path}: the KMZ file unpacks to more than {LARGEST >> 20} MB")
    return text
