"""Comparing what a cluster wrote with what one process computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ustad.engine.jobs import Job, Task

#: Largest difference of numbers, relative to the larger of 1 and the number: float32 sums in another order.
TOLERANCE = 1e-5
#: Of an angle in minutes of a day: one unit in the last place is 5 · 10⁻⁵ of them.
MINUTES = 2e-4
OF_THE_DAY = ("error_start", "expected_start", "low_start", "high_start")
#: Of the coordinates of stays, in degrees: nobody computes with them in float32.
DEGREES = 1e-9


def assert_same(left: pa.Table, right: pa.Table, keys: list[str], tolerance: float = TOLERANCE) -> None:
    """The same columns and the same rows, whatever their order; floats within the tolerance, the rest exactly.

    p-values are compared by their powers of ten: where they matter they are small.
    """
    assert left.column_names == right.column_names
    assert left.num_rows == right.num_rows
    order = [(key, "ascending") for key in keys]
    left, right = left.sort_by(order), right.sort_by(order)
    for name in left.column_names:
        mine, theirs = left[name], right[name]
        assert mine.type == theirs.type, name
        if pa.types.is_floating(mine.type):
            a, b = (np.nan_to_num(c.to_numpy(zero_copy_only=False), nan=-9.0) for c in (mine, theirs))
            if name == "p_value":
                a, b = (np.log10(np.maximum(c, 1e-300)) for c in (a, b))
            worst = np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a)), initial=0.0)
            assert worst <= _tolerance(name, tolerance), f"{name}: {worst}"
        elif name == "evidence":
            _assert_same_evidence(mine.to_pylist(), theirs.to_pylist(), tolerance)
        else:
            assert mine.to_pylist() == theirs.to_pylist(), name


def _assert_same_evidence(mine: list[Any], theirs: list[Any], tolerance: float) -> None:
    """The same questions of every event, each with the same answer; two that tie may change places."""
    for entries, others in zip(mine, theirs, strict=True):
        by_name = {entry["name"]: entry for entry in others}
        assert len(entries) == len(others)
        for entry in entries:
            for what, value in entry.items():
                other = by_name[entry["name"]][what]
                near = other if not isinstance(other, float) else pytest.approx(other, rel=1e-4, abs=tolerance)
                assert value == near, (entry, what, other)


def _tolerance(name: str, tolerance: float) -> float:
    if name in ("lat", "lon"):
        return DEGREES
    return max(tolerance, MINUTES) if name in OF_THE_DAY else tolerance


class Deadly:
    """From now on the worker that does the third task of a step dies after its work, before it can say so; once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, traces: Path) -> None:
        self.traces = traces
        traces.mkdir()
        run = Job._run

        def run_deadly(job: Job, name: str, tasks: list[Task], work: Callable[..., Any], shared: Any) -> Any:
            return run(job, name, tasks, deadly(work, str(traces)) if name == step else work, shared)

        monkeypatch.setattr(Job, "_run", run_deadly)

    @property
    def calls(self) -> int:
        return len(list(self.traces.glob("call-*")))

    @property
    def killed(self) -> bool:
        return (self.traces / "killed").exists()


def deadly(work: Callable[..., Any], traces: str) -> Callable[..., Any]:
    """Travels to the workers by value: they know nothing of the tests."""

    def third_dies(payload: Any, shared: Any) -> Any:
        import os
        import signal
        import uuid
        from pathlib import Path

        result = work(payload, shared)
        (Path(traces) / f"call-{uuid.uuid4().hex}").touch()
        if len(list(Path(traces).glob("call-*"))) == 3 and not (Path(traces) / "killed").exists():
            (Path(traces) / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return third_dies
