"""A model directory on every worker: loaded once per process, but for what grows with the entities.

The kNN reference is shared in memory; habits are divided into the buckets of the events and read with them.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import safe_open

from ustad import artefact
from ustad.detector import Detector
from ustad.engine import buckets
from ustad.engine.folder import Place
from ustad.habits.habit_source import HISTORIES
from ustad.tables import DataError

if TYPE_CHECKING:  # torch, which workers that score by habits do without
    from ustad.engine.sharded_reference import ShardedReference

_REFERENCE = "reference.safetensors"


@dataclass(frozen=True)
class ModelPlace:
    """Where the model is, which one it is, and its reference."""

    place: Place
    identity: str
    reference: ShardedReference | None = None

    @classmethod
    def of(cls, where: Any) -> ModelPlace:
        place = Place.of(where)
        if not place.exists(artefact.MANIFEST):
            raise DataError(f"{where}: not a model directory (no {artefact.MANIFEST}); make one with `ustad train`")
        return cls(place, str(sorted(place.read_json(artefact.MANIFEST)["files"].items())))

    def share_reference(self) -> ModelPlace:
        """The same with its reference in shared memory, where it has one."""
        if not self.place.exists(_REFERENCE):
            return self
        with _local(self.place, [_REFERENCE]) as path, safe_open(path / _REFERENCE, framework="numpy") as file:
            if "neighbours.embeddings" not in file.keys():  # noqa: SIM118  # not a mapping
                return self
            embeddings, owner = (file.get_tensor(f"neighbours.{n}") for n in ("embeddings", "owner"))
        from ustad.engine.sharded_reference import SHARD_ROWS, share_out

        return ModelPlace(self.place, self.identity, share_out(embeddings, owner, SHARD_ROWS))

    def load(self, device: str) -> Detector:
        """The detector, the same object for every task of a process; it knows the habits of nobody."""
        detector = _load(self.place, self.identity, device)
        if self.reference is not None:
            detector.paper().source.neighbours = self.reference  # type: ignore[assignment]  # it answers the same questions
        return detector

    def divide_habits(self, target: Place, number: int) -> None:
        """The habits of each bucket's entities into a file of their own; a piece at a time."""
        if not self.place.exists(HISTORIES) or target.exists("done"):
            return
        target.remove()
        file = pq.ParquetFile(f"{self.place.root}/{HISTORIES}", filesystem=self.place.filesystem)
        entity = file.schema_arrow.metadata[b"entity"].decode()
        for i, batch in enumerate(file.iter_batches(1 << 17)):
            buckets.write(target, pa.Table.from_batches([batch], file.schema_arrow), f"{i:06d}", entity, buckets=number)
        target.write_bytes(b"", "done")

    def load_bucket(self, device: str, habits: Place, bucket: int) -> Detector:
        """The detector with the habits of one bucket's entities."""
        detector = self.load(device)
        pieces = buckets.pieces_in(habits, bucket)
        if detector.judge is None or not pieces:
            return detector
        mine = copy.copy(detector)
        mine.judge = detector.judge.with_histories(pa.concat_tables(buckets.read(habits, bucket, pieces)))
        return mine


@lru_cache(maxsize=1)
def _load(place: Place, identity: str, device: str) -> Detector:
    with _local(place, [artefact.MANIFEST, *place.read_json(artefact.MANIFEST)["files"]]) as path:
        return Detector.load(path, device, whole=False)


@contextmanager
def _local(place: Place, names: list[str]) -> Iterator[Path]:
    """The directory itself, or a copy of these files until they are read: a worker that is killed would leave it."""
    if place.local:
        yield place.path
        return
    with tempfile.TemporaryDirectory(prefix="ustad-model-") as folder:
        place.bring(Path(folder), names)
        yield Path(folder)
