"""A job is steps, a step is tasks, a task is a file that says it is done: what is finished is never done again.

In go named tasks and a function. Ray runs the tasks that have no result yet, wherever there is a free core. A task runs
again if its worker or machine died. A job that is started again with the same input carries on; with another it starts
anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ustad import __version__, progress
from ustad.config import ConfigError
from ustad.engine.cluster import Cluster, import_ray
from ustad.engine.folder import Place
from ustad.engine.interrupts import notice_interrupts
from ustad.tables import DataError

#: How often a task is tried again whose worker died, and how many wait in the cluster at the same time at most.
RETRIES = 3
MOST_WAITING = 500
_ERRORS: dict[str, type[ValueError]] = {"DataError": DataError, "ConfigError": ConfigError}


@dataclass(frozen=True)
class Task:
    """One piece of work; the name is its number among the files of its step."""

    name: str
    payload: Any = None


@dataclass
class Job:
    """The folder of a job, beside its results until they are complete."""

    place: Place
    cluster: Cluster
    is_resumed: bool = False
    earlier_counts: dict[str, int] = field(default_factory=dict)  # step → tasks that an earlier run had finished

    @classmethod
    def open(cls, out: Place, verb: str, identity: Any, cluster: Cluster) -> Job:
        """Carry on with the job of the same identity and version, else clear what another left."""
        place = out / f".{verb}-job"
        mark = {"identity": fingerprint([__version__, identity])}
        if place.exists("job.json") and place.read_json("job.json") == mark:
            progress.say("carrying on: finished partitions of an earlier run are kept")
            return cls(place, cluster, is_resumed=True)
        place.remove()
        place.write_json(mark, "job.json")
        return cls(place, cluster)

    def run(
        self, step: str, tasks: Sequence[Task], work: Callable[[Any, Any], dict[str, Any]], context: Any = None,
        *, label: str | None = None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """`work(payload, context)` for every task; results (JSON) in the order of the tasks.

        `work` writes its files whole and may be called twice for the same task, so it must give the same again.
        """
        results = self._read_finished(step, tasks)
        self.earlier_counts[step] = len(results)
        left = [task for task in tasks if task.name not in results]
        with progress.track(label or step, len(tasks)) as advance, notice_interrupts() as check:
            if results:
                advance(len(results))
            for name, result in self._run(step, left, work, context):
                results[name] = result
                advance(1)
                check()
        return [results[task.name] for task in tasks]

    def finish(self) -> None:
        """The results are about to be moved away: who is killed from here on starts anew."""
        self.place.remove("job.json")

    def close(self) -> None:
        """The results are where they belong: nothing is left to carry on with."""
        self.place.remove()

    def _read_finished(self, step: str, tasks: Sequence[Task]) -> dict[str, dict[str, Any]]:
        there = self.place.names(f"done/{step}", ".json")
        return {
            task.name: self.place.read_json(f"done/{step}/{task.name}.json")
            for task in tasks
            if f"{task.name}.json" in there
        }

    def _run(self, step: str, tasks: list[Task], work: Callable[..., Any], context: Any) -> Iterable[tuple[str, Any]]:
        """Names and results as they come. Plain tasks of Ray: its data sets cost more than the work of small jobs."""
        if not tasks:
            return
        ray = import_ray()
        options = {"num_cpus": self.cluster.cpus, "num_gpus": self.cluster.gpus, "max_retries": RETRIES}
        remote = ray.remote(**options, scheduling_strategy="SPREAD")(_call)
        call = ray.put((work, context, self.place, step))
        left, most = iter(tasks), self.cluster.workers or MOST_WAITING
        waiting = [remote.remote(task, call) for task in islice(left, most)]
        try:
            while waiting:
                ready, waiting = ray.wait(waiting)
                name, error, result = ray.get(ready[0])
                if error:
                    raise _ERRORS[error](result)
                waiting += [remote.remote(task, call) for task in islice(left, 1)]
                yield name, result
        except ray.exceptions.RayError as error:
            raise _plainly(error) from error
        finally:
            for one in waiting:  # nobody will ask for it
                ray.cancel(one)


def _call(task: Task, call: Any) -> tuple[str, str, Any]:
    """On a worker: do the work, then say that it is done. Name, error and result."""
    work, context, place, step = call
    try:
        result = work(task.payload, context)
    except (DataError, ConfigError) as error:
        return task.name, type(error).__name__, str(error)
    place.write_json(result, f"done/{step}/{task.name}.json")
    return task.name, "", json.loads(json.dumps(result))  # as a later run would read it


def fingerprint(content: Any) -> str:
    """Of anything JSON can hold (what it cannot counts by its text)."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _plainly(error: BaseException) -> BaseException:
    """What a worker complained about, in one line."""
    cause: BaseException | None = error
    while cause is not None:
        inner = getattr(cause, "cause", None) or cause.__cause__
        if inner is None or inner is cause:
            break
        cause = inner
    lines = [line for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    return RuntimeError(f"a task failed on the cluster: {lines[-1]}")
