"""What the memory network says about the events that calibrate, bucket by bucket.

Stands in for `MemoryModel` while a judge is fitted: the same answers, computed wherever there is a core.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack
from safetensors.torch import load as unpack_weights
from safetensors.torch import save as pack_weights

from ustad.config import Config
from ustad.engine import buckets
from ustad.engine.folder import Place
from ustad.engine.jobs import Job, Task
from ustad.events.encoder import Encoder
from ustad.events.visits import Frame
from ustad.habits.history import Habits
from ustad.network.inference.memory_model import MemoryModel, NetworkAnswers, new_network

_ROW = "row of the whole table"


@dataclass(frozen=True)
class DistributedTerms(NetworkAnswers):
    """The network on a cluster."""

    job: Job
    memory: MemoryModel
    partitions: int
    calls: list[Place] = field(default_factory=list)  # each has its files: the questions differ, their order does not

    def terms(self, habits: Habits, events: pa.Table, before: pa.Table | None) -> Mapping[str, np.ndarray]:
        entity = self.memory.encoder.schema.entity
        place = self.job.place / f"memory-terms-{len(self.calls)}"
        self.calls.append(place)
        identity = self._store(place)
        habit_table = habits.to_table(entity)
        place.write_table(
            habit_table.slice(0, 0), "nobody.parquet"
        )  # the span of days, for buckets without any history
        with_rows = events.append_column(_ROW, pa.array(np.arange(events.num_rows)))
        tables = {"histories": habit_table, "before": before, "events": with_rows}
        pieces = {
            name: set(buckets.write(place / name, table, "all", entity, buckets=self.partitions))
            for name, table in tables.items()
            if table is not None and table.num_rows
        }
        tasks = [
            Task(f"{number:05d}", (number, [name for name in tables if number in pieces.get(name, ())]))
            for number in sorted(pieces["events"])
        ]
        context = (place, identity, self.job.cluster.device)
        step = f"memory-{len(self.calls)}-{identity[:16]}"
        self.job.run(step, tasks, _terms, context, label="asking the memory network, partitions")
        parts = [unpack(place.read_bytes(f"terms/{task.name}.safetensors")) for task in tasks]
        rows = np.concatenate([part.pop(_ROW) for part in parts])
        back = np.argsort(rows)
        return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}

    def _store(self, place: Place) -> str:
        memory = self.memory
        weights = pack_weights({k: v.cpu().contiguous() for k, v in memory.network.state_dict().items()})
        place.write_bytes(weights, "network.safetensors")
        place.write_json(memory.encoder.to_dict(), "encoder.json")
        place.write_json(memory.config.to_dict(), "config.json")
        place.write_json(memory.frame.to_dict(), "frame.json")
        return hashlib.sha256(weights).hexdigest()


def _terms(payload: tuple[int, list[str]], context: tuple[Place, str, str]) -> dict[str, Any]:
    """On a worker: one bucket's events, with its entities' habits and context."""
    (number, names), (place, identity, device) = payload, context
    tables = {name: buckets.read(place / name, number, ["all"])[0] for name in names}
    events = tables["events"]
    memory = _load(place, identity, device)
    habits = tables["histories"] if "histories" in tables else place.read_table("nobody.parquet")
    terms = memory.terms(Habits.from_table(habits), events.drop_columns([_ROW]), tables.get("before"))
    arrays = {name: np.ascontiguousarray(values) for name, values in terms.items()}
    place.write_bytes(pack({**arrays, _ROW: events[_ROW].to_numpy()}), f"terms/{number:05d}.safetensors")
    return {"events": events.num_rows}


@lru_cache(maxsize=1)
def _load(place: Place, identity: str, device: str) -> MemoryModel:
    encoder = Encoder.from_dict(place.read_json("encoder.json"))
    config, frame = Config.from_dict(place.read_json("config.json")), Frame.from_dict(place.read_json("frame.json"))
    network = new_network(encoder, frame, config)
    network.load_state_dict(unpack_weights(place.read_bytes("network.safetensors")))
    return MemoryModel(network.to(device).eval(), encoder, frame, config, torch.device(device))
