"""`ustad train --engine ray`: the very same training loop inside Ray Train's workers, then a distributed calibration.

Every worker holds the training arrays and takes its share of each batch; gradients are averaged, so all have the same
weights after every step. One worker computes what a local run computes. A worker that dies takes the others back to
the last checkpoint.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import load as unpack_weights
from safetensors.torch import save as pack_weights

from ustad.calendar_days import Calendar
from ustad.config import Config, ConfigError
from ustad.detector import Detector
from ustad.engine import buckets
from ustad.engine.calibrate_job import calibrate
from ustad.engine.cluster import Cluster, connect, enough_for, import_ray
from ustad.engine.distributed_terms import DistributedTerms
from ustad.engine.events import BUCKET_ROWS, find
from ustad.engine.folder import Place
from ustad.engine.interrupts import given_back
from ustad.engine.jobs import Job
from ustad.events.encoder import Encoder
from ustad.events.visits import Frame
from ustad.evidence_source import S, Source, SourceFit, Training
from ustad.judges import Trainer
from ustad.lessons import Lessons
from ustad.mobility.readers import open_data
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.memory_model import MemoryModel, first_network, new_network
from ustad.network.inference.paper_network import PaperNetwork
from ustad.network.training.dual_training import training_tensors
from ustad.network.training.loop import CHECKPOINT, FitResult
from ustad.network.training.masked_task import fit
from ustad.network.training.memory_task import CHECKPOINT as MEMORY_CHECKPOINT
from ustad.network.training.process_group import ProcessGroup
from ustad.network.training.task import Validation
from ustad.progress import say
from ustad.schema import EventSchema
from ustad.scoring.paper_judge import PaperJudge
from ustad.tables import OnError

#: How often a group of workers is started again after one of them died.
FAILURES = 3
_WORDS = {"network": "network", "memory": "memory network"}
_LESSONS = ("train", "stopping", "calibration")


def train(
    data: Any, out: Path | str, config: Config | str = "best", workers: int = 1, *, address: str | None = None,
    device: str = "auto", schema: EventSchema | None = None, timezone: str | None = None, on_error: OnError = "fail",
    resume: bool = False, start: Detector | None = None, partitions: int | None = None,
    calendar: Calendar | None = None,
) -> Detector:  # fmt: skip
    """Train on a Ray cluster and write the model directory `out`, which may be a URI, as may `data`.

    `workers` processes share every batch (on GPUs, one each). With one the model is that of `Detector.fit`.
    """
    place = Place.of(out)
    with connect(address, workers, device) as cluster:
        enough_for(cluster, max(1, workers))
        dataset = _open(data, schema, timezone, on_error)
        detector = RayDetector(config, cluster, place, resume=resume, partitions=partitions)
        directory = place.path if place.local else None
        detector.fit(dataset, directory=directory, resume=resume, start=start, calendar=calendar)
        detector.facts |= {"device": cluster.device, "engine": "ray", "workers": max(1, workers)}
        _save(detector, place)
        detector.job.close()
    return detector


def _open(data: Any, schema: EventSchema | None, timezone: str | None, on_error: OnError) -> Any:
    """A data set in this process: encoder and habits are fitted on the whole of it."""
    if not isinstance(data, (str, Path, Place)) or Place.of(data).local:
        return open_data(Place.of(data).path if isinstance(data, Place) else data, schema, timezone, on_error)
    source = find(data, schema, timezone, on_error)
    events = pa.concat_tables([f.read_table("") for f in source.events], promote_options="permissive")
    trips = pa.concat_tables([f.read_table("") for f in source.trips]) if source.trips else None
    dataset = open_data(events, source.schema, source.timezone, on_error)
    return replace(dataset, trips=trips, meta={**source.meta, "notes": dataset.meta["notes"]})


def _save(detector: Detector, place: Place) -> None:
    if place.local:
        detector.save(place.path)
        return
    with tempfile.TemporaryDirectory(prefix="ustad-") as folder:
        detector.save(Path(folder) / "model")
        place.take_in(Path(folder) / "model")


class RayDetector(Detector):
    """A detector whose networks are trained, and whose reference is computed, on a cluster."""

    def __init__(
        self, config: Config | str, cluster: Cluster, place: Place, *, resume: bool = False,
        partitions: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, "cpu")
        self.partitions = partitions
        self.job = Job.open(place, "train", None, cluster) if resume else _anew(place, cluster)

    def _trainer(self, directory: Path | None, resume: bool, start: tuple[Source, ...]) -> RayTrainer:
        return RayTrainer(
            self.config, self.device, directory=directory, resume=resume, start=start, days_off=self._days_off,
            job=self.job, partitions=self.partitions,
        )  # fmt: skip


@dataclass(kw_only=True)
class RayTrainer(Trainer):
    """The long steps on a cluster."""

    job: Job
    partitions: int | None = None

    def fit_source(self, kind: type[S], lessons: Lessons) -> SourceFit[S]:
        steps: dict[Any, Callable[[Lessons], SourceFit[Any]]] = {
            MemoryModel: self._fit_memory,
            PaperNetwork: self._fit_network,
        }
        return steps[kind](lessons) if kind in steps else super().fit_source(kind, lessons)

    def _fit_network(self, lessons: Lessons) -> SourceFit[PaperNetwork]:
        source = PaperNetwork.begin(lessons, self)
        source.result = self._train("network", source.network, lessons)
        return SourceFit(source, source.answer)

    def _fit_memory(self, lessons: Lessons) -> SourceFit[MemoryModel]:
        frame = Frame.fit(lessons.train, lessons.schema)
        network = first_network(lessons.encoder, frame, self.config, self.begins_with(MemoryModel))
        result = self._train("memory", network, lessons)
        memory = MemoryModel(network, lessons.encoder, frame, self.config, self.device, result)
        return SourceFit(memory, DistributedTerms(self.job, memory, self._parts(lessons)).answer)

    def _train(self, what: str, network: DualTransformer, lessons: Lessons) -> FitResult:
        """The network comes out with the weights that the workers gave it."""
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name in () if self.resume else (CHECKPOINT, MEMORY_CHECKPOINT, "log.jsonl"):
                (self.directory / name).unlink(missing_ok=True)
        weights, facts = _on_workers(self.job, self._plan(what, lessons, network.state_dict()))
        network.load_state_dict(weights)
        network.eval()
        return FitResult(**{**facts, "validation": Validation(**facts["validation"])})

    def _parts(self, lessons: Lessons) -> int:
        return self.partitions or buckets.how_many(lessons.train.num_rows, BUCKET_ROWS)

    def calibrate(self, source: PaperNetwork, lessons: Lessons) -> PaperJudge[PaperNetwork]:
        week, first = lessons.calibration_week()
        parts = self._parts(lessons)
        return calibrate(self.job, source, train=lessons.train, week=week, first_day=first, partitions=parts)

    def _plan(self, what: str, lessons: Lessons, weights: dict[str, torch.Tensor]) -> _Plan:
        """Everything the workers need, where they can read it."""
        place = self.job.place / what
        for name in _LESSONS:
            place.write_table(getattr(lessons, name), f"{name}.parquet")
        place.write_json(lessons.encoder.to_dict(), "encoder.json")
        place.write_json(self.config.to_dict(), "config.json")
        place.write_bytes(pack_weights({k: v.cpu().contiguous() for k, v in weights.items()}), "first.safetensors")
        return _Plan(what, place, self.directory, self.job.cluster.device, lessons.stopping is lessons.calibration)


def _anew(place: Place, cluster: Cluster) -> Job:
    (place / ".train-job").remove()
    return Job.open(place, "train", None, cluster)


# ---------------------------------------------------------------------------------------------- on workers
@dataclass(frozen=True)
class _Plan:
    what: str  # network or memory
    place: Place
    directory: Path | None  # where checkpoints go
    device: str
    one_half: bool  # validation entities were too few to be halved

    def lessons(self) -> Lessons:
        encoder = Encoder.from_dict(self.place.read_json("encoder.json"))
        train, stopping, other = (self.place.read_table(f"{name}.parquet") for name in _LESSONS)
        return Lessons(encoder, train, stopping, stopping if self.one_half else other)


def _on_workers(job: Job, plan: _Plan) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Run the loop in Ray Train; the weights and what the first worker says."""
    ray = import_ray()
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    cluster = job.cluster
    gpu = cluster.gpus > 0
    each = {"CPU": cluster.cpus, "GPU": cluster.gpus}
    scaling = ScalingConfig(num_workers=max(1, cluster.workers), use_gpu=gpu, resources_per_worker=each)
    storage = job.place / "ray"
    settings = RunConfig(
        name=plan.what, storage_path=storage.root, failure_config=FailureConfig(max_failures=FAILURES),
        storage_filesystem=None if storage.local else storage.filesystem,
    )  # fmt: skip
    trainer = TorchTrainer(
        _loop, train_loop_config={"plan": plan}, scaling_config=scaling, run_config=settings,
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
    )  # fmt: skip
    say(f"training the {_WORDS[plan.what]} with {scaling.num_workers} worker(s) of the cluster")
    try:
        with _say_epochs(plan.directory), given_back():
            trainer.fit()
    except (ray.exceptions.RayError, ray.train.TrainingFailedError) as error:
        raise ConfigError(f"training failed on the cluster: {_reason(error)}") from error
    return unpack_weights(plan.place.read_bytes("last.safetensors")), plan.place.read_json("result.json")


@contextmanager
def _say_epochs(directory: Path | None) -> Iterator[None]:
    """Says what the first worker writes into its log, epoch by epoch."""
    log = None if directory is None else directory / "log.jsonl"
    over = threading.Event()

    def follow() -> None:
        epochs = {entry["epoch"] for entry in _entries(log)}
        while not over.wait(1.0):
            for entry in _entries(log):
                if entry["epoch"] not in epochs:
                    say(f"epoch {entry['epoch'] + 1}: loss {entry['loss']:.3f}, validation {entry['validation']:.3f}")
                    epochs.add(entry["epoch"])

    watcher = threading.Thread(target=follow, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _entries(log: Path | None) -> list[dict[str, Any]]:
    """The whole lines of a file that is being written."""
    lines = log.read_text().splitlines(keepends=True) if log is not None and log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _reason(error: BaseException) -> str:
    causes = [line.strip() for line in str(error).splitlines() if "Error: " in line]
    return causes[-1] if causes else (str(error).splitlines() or [type(error).__name__])[-1]


def _loop(settings: dict[str, Any]) -> None:
    """What each worker does: the local training loop, as a member of a process group."""
    plan: _Plan = settings["plan"]
    lessons, config = plan.lessons(), Config.from_dict(plan.place.read_json("config.json"))
    device = torch.device(plan.device)
    weights, result = _TRAINED_BY[plan.what](plan, lessons, config, device)
    if ProcessGroup.current().rank == 0:
        plan.place.write_bytes(pack_weights({k: v.cpu().contiguous() for k, v in weights.items()}), "last.safetensors")
        plan.place.write_json(asdict(result), "result.json")


def _train_network(
    plan: _Plan, lessons: Lessons, config: Config, device: torch.device
) -> tuple[dict[str, torch.Tensor], FitResult]:  # fmt: skip
    network = DualTransformer(lessons.encoder.fields, config.model, config.window.max_events)
    network.load_state_dict(unpack_weights(plan.place.read_bytes("first.safetensors")))
    tensors, windows, validation = training_tensors(lessons, config, device)
    # The driver has removed the checkpoint of another run: what is there is this one's.
    result = fit(
        network,
        tensors,
        windows,
        validation,
        config=config,
        device=device,
        directory=plan.directory,
        resume=plan.directory is not None,
    )
    return network.state_dict(), result


def _train_memory(
    plan: _Plan, lessons: Lessons, config: Config, device: torch.device
) -> tuple[dict[str, torch.Tensor], FitResult]:  # fmt: skip
    checkpoints, encoder = plan.directory, lessons.encoder
    frame = Frame.fit(lessons.train, encoder.schema)
    first = MemoryModel(new_network(encoder, frame, config), encoder, frame, config, device)
    first.network.load_state_dict(unpack_weights(plan.place.read_bytes("first.safetensors")))
    training = Training(config, device, directory=checkpoints, resume=checkpoints is not None, start=(first,))
    model = MemoryModel.fit(lessons, training).source
    assert model.result is not None  # it was fitted
    return model.network.state_dict(), model.result


_TRAINED_BY = {"network": _train_network, "memory": _train_memory}
