"""Comparing what a cluster wrote with what one process computes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

#: Largest difference of numbers, relative to the larger of 1 and the number: float32 sums in another order.
TOLERANCE = 1e-5


def assert_same(left: pa.Table, right: pa.Table, keys: list[str], tolerance: float = TOLERANCE) -> None:
    """The same columns and the same rows, whatever their order; floats within the tolerance, the rest exactly."""
    assert left.column_names == right.column_names
    assert left.num_rows == right.num_rows
    order = [(key, "ascending") for key in keys]
    left, right = left.sort_by(order), right.sort_by(order)
    for name in left.column_names:
        mine, theirs = left[name], right[name]
        assert mine.type == theirs.type, name
        if pa.types.is_floating(mine.type):
            a, b = (np.nan_to_num(c.to_numpy(zero_copy_only=False), nan=-9.0) for c in (mine, theirs))
            worst = np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a)), initial=0.0)
            assert worst <= tolerance, f"{name}: {worst}"
        else:
            assert mine.to_pylist() == theirs.to_pylist(), name


class Killer(threading.Thread):
    """Kills the busy workers of this process's cluster once, as soon as a task of the step is done."""

    def __init__(self, job: Path, step: str) -> None:
        super().__init__(daemon=True)
        self.folder, self.killed, self.done = job / "done" / step, 0, 0
        self.start()

    def run(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not self.killed:
            done = len(list(self.folder.glob("[!.]*.json"))) if self.folder.exists() else 0
            if done:
                self.done = done
                for pid in busy_workers():
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
            time.sleep(0.002)


def busy_workers() -> list[int]:
    """Worker processes below this one that are running a task of Ray Data."""
    parents, busy = {}, []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "cmdline").read_bytes().startswith(b"ray::Map"):
                busy.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return [pid for pid in busy if _below(pid, os.getpid(), parents)]


def _below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False
