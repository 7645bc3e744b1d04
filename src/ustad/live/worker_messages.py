"""Messages between a live scorer and its worker processes: JSON, with bytes beside it.

In go plain values, events and their rows; out come the same on the other end of a pipe. Reading executes nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from ustad.clock import microseconds, moment_at
from ustad.tables import DataError

_SIZES = struct.Struct("<qq")  # bytes of the JSON, and how many parts follow it
_SIZE = struct.Struct("<q")


def send(stream: BinaryIO, content: Any, parts: Sequence[bytes] = ()) -> None:
    """Write one message."""
    text = json.dumps(content).encode()
    stream.write(_SIZES.pack(len(text), len(parts)) + text)
    for part in parts:
        stream.write(_SIZE.pack(len(part)))
        stream.write(part)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[Any, list[bytes]]:
    """Read one message; EOFError where the other end is gone."""
    length, number = _SIZES.unpack(_read(stream, _SIZES.size))
    content = json.loads(_read(stream, length))
    return content, [_read(stream, _SIZE.unpack(_read(stream, _SIZE.size))[0]) for _ in range(number)]


def _read(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def to_plain(value: Any, name: str = "") -> Any:
    """A value as JSON has it: moments as microseconds since 1970, arrays as lists."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return {"moment": microseconds(value)}
    if isinstance(value, datetime):
        return {"wall": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, (np.generic, np.ndarray)):
        return to_plain(value.tolist(), name)
    if isinstance(value, (list, tuple)):
        return [to_plain(one, name) for one in value]
    if isinstance(value, Mapping):
        return {"fields": {key: to_plain(one, key) for key, one in value.items()}}
    raise DataError(f"'{name}': a {type(value).__name__} cannot be sent to a worker process")


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`."""
    if isinstance(value, list):
        return [from_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "moment":
        return moment_at(content)
    if kind == "fields":
        return {key: from_plain(one) for key, one in content.items()}
    return datetime.fromisoformat(content) if kind == "wall" else date.fromisoformat(content)


def table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def read_table_bytes(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        return reader.read_all()
