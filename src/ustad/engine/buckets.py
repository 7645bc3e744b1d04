"""Rows into buckets of whole agents, through files: the one shuffle of this engine.

A task reads one piece of the input and writes one file for each bucket that the piece has rows of. The bucket's own
task then reads these files in the order of the pieces. An agent's bucket is a hash of its identifier: the same whatever
the number of pieces, workers or machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ustad.engine.folder import Place
from ustad.tables import agent_codes, identity_hash

#: Partitions there are at least, so that a small job has something to share out.
FEWEST = 8


def how_many(rows: int, size: int) -> int:
    """Buckets of about `size` rows."""
    return max(FEWEST, -(-rows // size))


def bucket_of(column: pa.ChunkedArray | pa.Array, buckets: int) -> np.ndarray:
    """The bucket of each row's agent: int64 [n]. The number 7 and the text '7' are the same agent."""
    codes, values = agent_codes(column)
    return (identity_hash(values.tolist()) % np.uint64(buckets)).astype(np.int64)[codes]


def divide(table: pa.Table, entity: str, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has any, in their order."""
    bucket = bucket_of(table[entity], buckets)
    order = np.argsort(bucket, kind="stable")
    edges = np.searchsorted(bucket[order], np.arange(buckets + 1))
    in_order = table.take(pa.array(order))
    for number in np.flatnonzero(np.diff(edges)):
        yield int(number), in_order.slice(edges[number], edges[number + 1] - edges[number])


def write(place: Place, table: pa.Table, piece: str, entity: str, *, buckets: int) -> list[int]:
    """One piece into its buckets; returns which."""
    numbers = []
    for number, rows in divide(table, entity, buckets):
        place.write_arrow(rows, f"bucket-{number:05d}/{piece}.arrow")
        numbers.append(number)
    return numbers


def read(place: Place, bucket: int, pieces: Sequence[str]) -> list[pa.Table]:
    """The bucket's tables in the order of the pieces."""
    return [place.read_arrow(f"bucket-{bucket:05d}/{piece}.arrow") for piece in pieces]


def pieces_in(place: Place, bucket: int) -> list[str]:
    """What was written to a bucket, in order."""
    return sorted(name.removesuffix(".arrow") for name in place.names(f"bucket-{bucket:05d}", ".arrow"))


def contents(pieces: Sequence[tuple[str, Sequence[int]]]) -> dict[int, list[str]]:
    """The names of the pieces in each bucket, in order, from the buckets that each piece was written to."""
    names: dict[int, list[str]] = {}
    for name, numbers in pieces:
        for number in numbers:
            names.setdefault(number, []).append(name)
    return dict(sorted(names.items()))
