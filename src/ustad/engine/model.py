"""A model directory on every worker: loaded once per process, the kNN reference shared in memory, not copied."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ustad import artefact
from ustad.detector import Detector
from ustad.engine.neighbours import SHARD_ROWS, ShardedReference, share_out
from ustad.engine.places import Place
from ustad.tables import DataError

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

    def shared(self) -> ModelPlace:
        """The same with its reference in shared memory, where it has one."""
        with safe_open(_local(self.place, self.identity) / _REFERENCE, framework="numpy") as file:
            if "neighbours.embeddings" not in file.keys():  # noqa: SIM118  # not a mapping
                return self
            embeddings, owner = (file.get_tensor(f"neighbours.{n}") for n in ("embeddings", "owner"))
        return ModelPlace(self.place, self.identity, share_out(embeddings, owner, SHARD_ROWS))

    def load(self, device: str) -> Detector:
        """The detector, the same object for every task of a process."""
        detector = _load(self.place, self.identity, device)
        if self.reference is not None and detector.model is not None:
            detector.model.neighbours = self.reference  # type: ignore[assignment]  # it answers the same questions
        return detector


@lru_cache(maxsize=1)
def _load(place: Place, identity: str, device: str) -> Detector:
    return Detector.load(_local(place, identity), device, neighbours=False)


@lru_cache(maxsize=1)
def _local(place: Place, identity: str) -> Path:
    """The directory itself, or a copy that lasts as long as the process."""
    if place.local:
        return place.path
    held = tempfile.TemporaryDirectory(prefix="ustad-model-")
    _HELD.append(held)
    place.bring(Path(held.name), [artefact.MANIFEST, *place.read_json(artefact.MANIFEST)["files"]])
    return Path(held.name)


_HELD: list[tempfile.TemporaryDirectory[str]] = []
