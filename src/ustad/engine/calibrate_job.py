"""Reference and calibration of a trained network, computed bucket by bucket and merged exactly.

In go the network and the events to learn from. Out comes the judge that `paper_fitting.calibrate` makes in one process.
Every reference event and every calibration event is used once, in the same order of entities.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
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
from ustad.engine.jobs import Job, Task, fingerprint
from ustad.engine.sharded_reference import ShardedReference, share_out
from ustad.events.encoder import Encoder
from ustad.events.visit_counts import VisitCounts
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.neighbours import Reference
from ustad.network.inference.paper_network import PaperNetwork, embed_reference, scored_terms
from ustad.paper_fitting import measure_period, see_past
from ustad.scoring.calibration import Calibration, Parts
from ustad.scoring.paper_judge import PaperJudge
from ustad.tables import DataError, agent_codes

_PARTS = ("error", "loss", "au", "eu", "knn")


@dataclass(frozen=True)
class _Context:
    """What every task knows. Weights, encoder and settings lie in `place` under the identity of the weights."""

    place: Place
    identity: str
    first_day: int
    device: str
    reference: ShardedReference | None = None


def calibrate(
    job: Job, source: PaperNetwork, *, train: pa.Table, week: pa.Table, first_day: int, partitions: int
) -> PaperJudge[PaperNetwork]:
    """As `paper_fitting.calibrate`, and with what the `source` compares events with; `week` holds the calibration
    entities with their context."""
    network, encoder, config = source.network, source.encoder, source.config
    place, entity = job.place / "calibration", encoder.schema.entity
    context = _Context(place, _store(place, network, encoder, config), first_day, job.cluster.device)
    tasks = {}
    for name, table in (("train", train), ("week", week)):
        numbers = buckets.write(place / name, table, "all", entity, buckets=partitions)
        tasks[name] = [Task(f"{number:05d}", number) for number in numbers]
    neighbours = None
    if config.scoring.neighbours:
        job.run(
            f"embed-{context.identity[:16]}",
            tasks["train"],
            _embed,
            context,
            label="embedding reference events, partitions",
        )
        neighbours = _gather_reference(place, tasks["train"])
        context = replace(context, reference=share_out(neighbours.embeddings, neighbours.owner))
    job.run(f"calibrate-{context.identity[:16]}", tasks["week"], _calibrate, context, label="calibrating, partitions")
    _, identifiers = agent_codes(week[entity])
    days = _gather_days(place, tasks["week"]) - first_day + 1
    calibrations = {
        mode: _gather(place, mode, tasks["week"], encoder, identifiers=identifiers, days=days)
        for mode in _modes(config)
    }
    source = replace(source, neighbours=neighbours, counts=VisitCounts.fit(train, encoder.schema))
    by_rank = config.scoring.percentiles == "batch"
    return PaperJudge(source, calibrations["own"], calibrations.get("past"), by_rank)


def _modes(config: Config) -> dict[str, Config]:
    """The configured windows and, where these see more, causal ones: a live event is judged by those."""
    if config.window.mode == "past":
        return {"own": config}
    return {"own": config, "past": see_past(config)}


def _store(place: Place, network: DualTransformer, encoder: Encoder, config: Config) -> str:
    weights = pack_weights({k: v.cpu().contiguous() for k, v in network.state_dict().items()})
    place.write_bytes(weights, "network.safetensors")
    place.write_json(encoder.to_dict(), "encoder.json")
    place.write_json(config.to_dict(), "config.json")
    return fingerprint([hashlib.sha256(weights).hexdigest(), encoder.to_dict(), config.to_dict()])


# ---------------------------------------------------------------------------------------------- on workers
@lru_cache(maxsize=1)
def _load(place: Place, identity: str, device: str) -> tuple[DualTransformer, Encoder, Config]:
    """Once per process and network."""
    config = Config.from_dict(place.read_json("config.json"))
    encoder = Encoder.from_dict(place.read_json("encoder.json"))
    network = DualTransformer(encoder.fields, config.model, config.window.max_events)
    network.load_state_dict(unpack_weights(place.read_bytes("network.safetensors")))
    return network.to(device).eval(), encoder, config


def _embed(number: int, context: _Context) -> dict[str, Any]:
    network, encoder, config = _load(context.place, context.identity, context.device)
    (table,) = buckets.read(context.place / "train", number, ["all"])
    reference = embed_reference(network, encoder, config, table, device=torch.device(context.device))
    arrays = {"embeddings": np.ascontiguousarray(reference.embeddings), "owner": reference.owner}
    context.place.write_bytes(pack(arrays), f"reference/{number:05d}.safetensors")
    return {"events": len(reference)}


def _calibrate(number: int, context: _Context) -> dict[str, Any]:
    network, encoder, config = _load(context.place, context.identity, context.device)
    (table,) = buckets.read(context.place / "week", number, ["all"])
    arrays = encoder.encode(table)
    count = 0
    for mode, setting in _modes(config).items():
        source = PaperNetwork(network, encoder, setting, context.reference)  # type: ignore[arg-type]  # it answers the same questions
        parts, entity = measure_period(source, arrays, context.first_day)
        arrays_by_name = {name: np.ascontiguousarray(getattr(parts, name)) for name in _PARTS}
        arrays_by_name |= {"entity": entity.astype(np.int32), "last_day": np.array([arrays.day.max()], np.int64)}
        context.place.write_bytes(pack(arrays_by_name), f"{mode}/{number:05d}.safetensors")
        count = len(parts)
    return {"events": count}


# ------------------------------------------------------------------------------------------------- merging
def _gather_reference(place: Place, tasks: list[Task]) -> Reference:
    parts = [unpack(place.read_bytes(f"reference/{task.name}.safetensors")) for task in tasks]
    embeddings, owner = (np.concatenate([part[name] for part in parts]) for name in ("embeddings", "owner"))
    return Reference(embeddings, owner)


def _gather_days(place: Place, tasks: list[Task]) -> int:
    return max(int(unpack(place.read_bytes(f"own/{task.name}.safetensors"))["last_day"][0]) for task in tasks)


def _gather(
    place: Place, mode: str, tasks: list[Task], encoder: Encoder, *, identifiers: np.ndarray, days: int
) -> Calibration:  # fmt: skip
    """All buckets' events by entity, in the order of the identifiers, as one process would have them."""
    parts, codes = [], []
    for task in tasks:
        part = unpack(place.read_bytes(f"{mode}/{task.name}.safetensors"))
        (table,) = buckets.read(place / "week", int(task.name), ["all"])
        _, own = agent_codes(table[encoder.schema.entity])
        codes.append(np.searchsorted(identifiers, own)[part["entity"]])
        parts.append(part)
    entity = np.concatenate(codes).astype(np.int32)
    if not len(entity):
        raise DataError("calibration: no event of the calibration agents falls into the validation week")
    order = np.argsort(entity, kind="stable")
    columns = (np.concatenate([part[name] for part in parts])[order] for name in _PARTS)
    return Calibration.fit(Parts(scored_terms(encoder), *columns), entity[order], days)
