"""A Ray cluster to work on: one that runs already, or one of this machine's cores for as long as it is needed.

Whatever cannot be had is said within seconds: no library, no cluster at the address, no free core, no GPU.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ustad
from ustad.config import ConfigError
from ustad.tables import first_line

#: Seconds to wait for a connection, for a core that is free, and for a worker to start on it (a busy disk is slow).
CONNECT_SECONDS = 5.0
FREE_SECONDS = 20.0
START_SECONDS = 120.0
#: Shared memory of a cluster that is started here: what travels between tasks is small, tables go through files.
STORE_BYTES = 512 << 20
#: How Ray behaves here, unless the environment says otherwise. No usage data is sent. On a busy machine a worker or a
#: training may take minutes to start. The end of a training is noticed at once.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
}


@dataclass(frozen=True)
class Cluster:
    """What a job may use: tasks at the same time (0: as many as fit), cores and GPUs of each."""

    workers: int = 0
    cpus: float = 1.0
    gpus: float = 0.0

    @property
    def device(self) -> str:
        return "cuda" if self.gpus else "cpu"


@contextlib.contextmanager
def connect(address: str | None = None, workers: int = 0, device: str = "cpu") -> Iterator[Cluster]:
    """The cluster at `address` (host:port, `auto`, ray://…), or one of this machine's cores that ends with the block.

    A connection that is there already is used as it is. On the device `cuda` every task has a GPU; `auto` means so
    where the cluster has any.
    """
    ray = import_ray()
    if workers < 0:
        raise ConfigError(f"workers must be 0 (as many as fit) or more, got {workers}")
    if ray.is_initialized():
        yield _probe(ray, Cluster(workers, gpus=_gpus(ray, device)))
        return
    _start(ray, address)
    try:
        yield _probe(ray, Cluster(workers, gpus=_gpus(ray, device)))
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """The library, with its messages home off and its own progress silent."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--engine ray needs Ray; install it with pip install 'ustad[ray]'") from error
    for name in ("ray.train", "ray.tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray


def _start(ray: Any, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        cores = os.cpu_count() or 1
        ray.init(
            address="local", num_cpus=cores, include_dashboard=False, object_store_memory=STORE_BYTES,
            configure_logging=True, **quiet,
        )  # fmt: skip
        return
    _reachable(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        line = first_line(error)
        raise ConfigError(f"--address {address}: no Ray cluster answers there ({line})") from error


def _reachable(address: str) -> None:
    """Ray itself tries for a minute and more; a closed port is known at once."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(
            f"--address {address}: nothing answers there ({error.strerror or error}); "
            "start a cluster with `ray start --head` and use the address it prints"
        ) from error


def _probe(ray: Any, cluster: Cluster, seconds: float = FREE_SECONDS) -> Cluster:
    """Run one small task where the real ones will run: it needs what they need."""
    for name, amount in (("CPU", cluster.cpus), ("GPU", cluster.gpus)):
        most = max((node["Resources"].get(name, 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        if amount > most:
            raise ConfigError(
                f"the cluster has no machine with {amount:g} {name} (the largest has {most:g}); "
                "add a machine that has, or ask for less"
            )
    probe = ray.remote(num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=0)(_version)
    # A worker that starts takes what it takes; a taken core may stay so, or another machine comes for who waits.
    free = _free(ray, cluster.cpus, seconds / 2)
    waiting = probe.remote()
    try:
        if not ray.wait([waiting], timeout=START_SECONDS if free else seconds / 2)[0]:
            ray.cancel(waiting, force=True)
            raise ConfigError(_busy(ray, START_SECONDS if free else seconds))
        theirs = ray.get(waiting)
    except ray.exceptions.RayError as error:
        raise ConfigError(f"the workers of the cluster cannot run ustad: {_cause(error)}") from error
    if theirs != ustad.__version__:
        raise ConfigError(f"the cluster has ustad {theirs}, here is {ustad.__version__}; install the same on both")
    return cluster


def _free(ray: Any, cpus: float, seconds: float) -> bool:
    """Whether so many cores are free within these seconds: those of a task that has just ended soon are."""
    deadline = time.monotonic() + seconds
    while not (free := ray.available_resources().get("CPU", 0.0) >= cpus) and time.monotonic() < deadline:
        time.sleep(0.2)
    return bool(free)


def _busy(ray: Any, seconds: float) -> str:
    free, all_ = (f().get("CPU", 0.0) for f in (ray.available_resources, ray.cluster_resources))
    return (
        f"the cluster did not start a task within {seconds:g} seconds: {free:g} of its {all_:g} CPUs are free; "
        "wait for other jobs to end, or add machines"
    )


def enough_for(cluster: Cluster, workers: int, seconds: float = 10.0) -> None:
    """Workers that only start together need their cores at the same time: wait a little, then say what lacks."""
    ray = import_ray()
    deadline = time.monotonic() + seconds
    for name, each in (("CPU", cluster.cpus), ("GPU", cluster.gpus)):
        amount, all_ = each * workers, ray.cluster_resources().get(name, 0.0)
        while amount <= all_ and ray.available_resources().get(name, 0.0) < amount and time.monotonic() < deadline:
            time.sleep(0.2)
        free = ray.available_resources().get(name, 0.0)
        if free < amount:
            raise ConfigError(
                f"{workers} workers need {amount:g} {name}, the cluster has {all_:g}, of which {free:g} are free; "
                "use fewer --workers, wait for other jobs to end, or add machines"
            )


def _gpus(ray: Any, device: str) -> float:
    return 1.0 if device == "cuda" or (device == "auto" and ray.cluster_resources().get("GPU", 0.0) >= 1) else 0.0


def _version() -> str:
    import ustad

    return ustad.__version__


def _cause(error: BaseException) -> str:
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return lines[-1] if lines else type(cause).__name__
