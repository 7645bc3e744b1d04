"""What is held of one entity between its live events: counts, places met since, recent events, the visits that have not
entered its history yet, and that history once it has moved on.

Small and bounded; `to_bytes` writes an Arrow stream (the recent events) with the rest as JSON and packed arrays beside
it, and reading that back executes nothing. A mark tells which model it follows. Bytes from before histories moved on
are read too: the visits that they count are not known one by one and never enter the history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.events.visits import Frame
from ustad.live.visit_log import empty_log, pack_log, unpack_log
from ustad.tables import DataError
from ustad.ties import raised

#: Places of an entity since going live whose visits are counted; those not visited for longest go first.
MOST_PLACES = 512
_META, _LOG, _OWN = b"ustad.habits", b"ustad.visits", b"ustad.own"
_OLD_LOG = b"ustad.log"  # visits as they were written before it was known what was observed of them


@dataclass
class HabitState:
    """Everything since going live that later scores of the entity depend on. Arrays are replaced, never changed."""

    counts: dict[int, int] = field(default_factory=dict)  # key of a place → visits, the latest visited last
    spots: dict[int, tuple[float, float]] = field(default_factory=dict)  # unnamed places met since: km
    recent: list[dict[str, Any]] = field(default_factory=list)  # the latest events, oldest first
    log: np.ndarray = field(default_factory=empty_log)  # visits since the end of the history, oldest first
    own: bytes | None = None  # the history once it has moved on, see `visit_log`
    early: int = 0  # local day up to which visits entered the history before their time
    follows: str | None = None  # mark of the model that all but the recent events belongs to, see `model_mark`

    @property
    def last(self) -> dict[str, Any] | None:
        return self.recent[-1] if self.recent else None

    def of(self, mark: str) -> HabitState:
        """What the model of a mark can go on from: all of it where it is its own, else the recent events alone.

        Bytes written before there were marks know the last day of their model; the oldest ones, which know nothing of
        it, are taken as they are.
        """
        if self.follows is None or mark.startswith(self.follows):
            return self
        return HabitState(recent=self.recent)

    def copy(self) -> HabitState:
        """One that can be changed without changing this one."""
        return replace(self, counts=dict(self.counts), spots=dict(self.spots))

    def count(self, key: int) -> int:
        """Visits to a place so far, this one included."""
        self.counts[key] = self.counts.pop(key, 0) + 1
        while len(self.counts) > MOST_PLACES:
            oldest = next(iter(self.counts))
            del self.counts[oldest]
            self.spots.pop(oldest, None)
        return self.counts[key]

    def nearest(self, new: int, x: float, y: float, radius: float) -> int:
        """Key of the unnamed place within `radius` km, the nearest; else `new`, which becomes one."""
        best, nearest_key = radius * radius, new
        for key, (other_x, other_y) in self.spots.items():
            square = (other_x - x) ** 2 + (other_y - y) ** 2
            if square <= raised(best):  # as `habit_kernels.lead`
                best, nearest_key = square, key
        if nearest_key == new:
            self.spots[new] = (x, y)
        return nearest_key

    def move_on(self, row: dict[str, Any], most: int) -> None:
        """The new event becomes the last one; `most` are kept."""
        self.recent = [*self.recent, row][-most:]

    # ---------------------------------------------------------------------------------------- storing
    def to_bytes(self, as_table: Callable[[list[dict[str, Any]]], pa.Table]) -> bytes:
        content = {
            "counts": [[str(key), number] for key, number in self.counts.items()],
            "spots": [[str(key), x, y] for key, (x, y) in self.spots.items()],
            "early": self.early,
            "follows": self.follows,
        }
        table = as_table(self.recent) if self.recent else pa.table({})
        metadata = {_META: json.dumps(content).encode(), _LOG: pack_log(self.log)}
        table = table.replace_schema_metadata(metadata if self.own is None else {**metadata, _OWN: self.own})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> HabitState:
        try:
            return cls._read(content)
        except Exception as error:  # Arrow raises almost anything for bytes that are not its own
            raise DataError("live state: these bytes were not written by to_bytes") from error

    @classmethod
    def _read(cls, content: bytes) -> HabitState:
        with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
            table = reader.read_all()
        table.validate(full=True)
        metadata = table.schema.metadata
        fields, log = json.loads(metadata[_META]), _read_log(metadata)
        return cls(
            {int(key): number for key, number in fields["counts"]},
            {int(key): (x, y) for key, x, y in fields["spots"]},
            table.to_pylist(),
            log,
            metadata.get(_OWN),
            fields.get("early", 0),
            fields["follows"] if "follows" in fields else _day_mark(fields.get("trained")),
        )


def _read_log(metadata: Mapping[bytes, bytes]) -> np.ndarray:
    if _LOG in metadata:
        return unpack_log(metadata[_LOG])
    return unpack_log(metadata[_OLD_LOG], with_length=False) if _OLD_LOG in metadata else empty_log()


def model_mark(last_day: int, frame: Frame) -> str:
    """Tells models apart by what keys, positions and counts of a state rest on: the last local day of their trained
    history, their projection and their kinds of places."""
    content = json.dumps(frame.to_dict(), sort_keys=True).encode()
    return f"{_day_mark(last_day)}{hashlib.sha256(content).hexdigest()[:16]}"


def _day_mark(last_day: int | None) -> str | None:
    return None if last_day is None else f"{last_day}:"
