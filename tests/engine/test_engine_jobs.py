"""Jobs on a cluster: what is finished is kept, what cannot be had is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from ustad.config import ConfigError
from ustad.engine import cluster as engine_cluster
from ustad.engine.cluster import Cluster, connect
from ustad.engine.folder import Place
from ustad.engine.jobs import Job, Task
from ustad.tables import DataError


def test_finished_tasks_are_not_done_again_and_another_input_starts_anew(cluster, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()

    def work(number: int, shared: str) -> dict[str, int]:
        import uuid

        (Path(shared) / f"{number}-{uuid.uuid4().hex}").touch()
        if number == 3 and not (Path(shared) / "repaired").exists():
            raise DataError("part 3 is broken")
        return {"square": number * number}

    def run(identity: str) -> tuple[Job, list[dict[str, int]]]:
        job = Job.open(Place.of(tmp_path), "test", identity, Cluster(workers=1))
        return job, job.run("square", [Task(f"{i}", i) for i in range(6)], work, str(traces))

    def times(number: int) -> int:
        return len(list(traces.glob(f"{number}-*")))

    with pytest.raises(DataError, match=r"^part 3 is broken$"):
        run("one")
    (traces / "repaired").touch()
    job, results = run("one")
    assert [r["square"] for r in results] == [0, 1, 4, 9, 16, 25]
    assert job.is_resumed
    assert job.earlier_counts["square"] >= 3
    assert times(3) == 2
    assert all(times(i) == 1 for i in (0, 1, 2))
    job, _ = run("two")
    assert not job.is_resumed
    assert job.earlier_counts["square"] == 0


def test_a_job_of_another_version_of_ustad_starts_anew(tmp_path, monkeypatch):
    """Finished partitions are results of the code that made them."""

    def carries_on() -> bool:
        return Job.open(Place.of(tmp_path), "test", "one", Cluster(workers=1)).is_resumed

    assert not carries_on()
    assert carries_on()
    monkeypatch.setattr("ustad.engine.jobs.__version__", "0.0.0")
    assert not carries_on()
    assert carries_on()


def test_a_busy_cluster_is_given_up_with_how_many_cores_are_free(cluster):
    import ray

    @ray.remote(num_cpus=1)
    class Busy:
        def here(self) -> bool:
            return True

    hogs = [Busy.remote() for _ in range(3)]
    ray.get([hog.here.remote() for hog in hogs])
    with pytest.raises(ConfigError, match="of its 3 CPUs are free"):
        engine_cluster._probe(ray, Cluster(), seconds=2.0)
    with pytest.raises(ConfigError, match="2 workers need 2 CPU"):
        engine_cluster.enough_for(Cluster(), 2, seconds=1.0)
    for hog in hogs:
        ray.kill(hog)
    assert engine_cluster._free(ray, 3, 600)  # for whoever comes next


def test_a_gpu_that_no_machine_has_is_refused_at_once(cluster):
    with pytest.raises(ConfigError, match="no machine with 1 GPU"), connect(device="cuda"):
        pass
