"""A directory of model versions: `1`, `2`, … are model directories, and the link `current` names the one in use.

The link is replaced in one step, so that whoever opens the directory gets one version or the other, whole.
`versions.json` says what became of each. Whatever takes a model directory takes this one too (`find_model`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ustad.artefact import MANIFEST
from ustad.files import read_json, write_json
from ustad.tables import DataError

CURRENT, RECORD, LOCK = "current", "versions.json", ".lock"
State = Literal["taken", "refused", "left"]


def find_model(path: Path) -> Path:
    """The model directory itself, or the version in use of a directory of versions."""
    link = path / CURRENT
    return link.resolve() if not (path / MANIFEST).exists() and (link / MANIFEST).exists() else path


class ModelVersions:
    """Versions are numbered from 1 on; a number is never used twice."""

    def __init__(self, path: Path) -> None:
        if (path / MANIFEST).exists():
            raise DataError(f"{path}: a model, not a directory of versions; name a new directory, and --from {path}")
        self.path = path

    def __getitem__(self, number: int) -> Path:
        """The model directory of a version."""
        return self.path / str(number)

    def numbers(self) -> list[int]:
        """Those that are there, in order."""
        if not self.path.is_dir():
            return []
        names = [p.name for p in self.path.iterdir() if p.name.isdigit() and (p / MANIFEST).exists()]
        return sorted(int(name) for name in names)

    @property
    def current(self) -> int | None:
        """The version in use; none where there is none yet."""
        link = self.path / CURRENT
        if not link.is_symlink():
            return None
        name = os.readlink(link)
        if not name.isdigit() or not (self.path / name / MANIFEST).exists():
            raise DataError(f"{link}: leads to no model; choose one with `ustad watch {self.path} --use NUMBER`")
        return int(name)

    def next_number(self) -> int:
        """One more than the highest that ever was."""
        return max([0, *self.numbers(), *(int(n) for n in self.records())]) + 1

    def use(self, number: int) -> None:
        """Serve this version from now on."""
        if number not in self.numbers():
            there = ", ".join(str(n) for n in self.numbers()) or "none"
            raise DataError(f"{self.path}: there is no version {number}; there are {there}")
        link = self.path / f".{CURRENT}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(str(number))
        link.replace(self.path / CURRENT)
        self.record(number, "taken")

    def go_back(self) -> int:
        """Serve the latest version before the one in use that was neither refused nor left; returns its number."""
        current, records = self.current, self.records()
        if current is None:
            raise DataError(f"{self.path}: no version is in use")
        sound = [n for n in self.numbers() if records.get(str(n), {}).get("state") == "taken"]
        earlier = [n for n in sound if n < current]
        if not earlier:
            raise DataError(f"{self.path}: there is no version before {current} to go back to")
        self.use(earlier[-1])
        self.record(current, "left")
        return earlier[-1]

    def prune(self, keep: int) -> list[int]:
        """Delete the oldest versions, so that so many stay beside the one in use; returns what is gone."""
        others = [n for n in self.numbers() if n != self.current]
        oldest = others[: max(0, len(others) - keep)]
        for number in oldest:
            shutil.rmtree(self[number])
        return oldest

    # ---------------------------------------------------------------------------------------- records
    def records(self) -> dict[str, dict[str, Any]]:
        """What became of each version, by its number."""
        file = self.path / RECORD
        return read_json(file) if file.exists() else {}

    def record(self, number: int, state: State, **more: Any) -> None:
        records = self.records()
        entry = {"made": datetime.now(UTC).isoformat(timespec="seconds"), **records.get(str(number), {})}
        write_json({**records, str(number): {**entry, "state": state, **more}}, self.path / RECORD)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While this lasts nobody else makes or changes versions here."""
        import fcntl

        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DataError(
                    f"{self.path}: another `ustad watch` is at work there; wait until it has ended"
                ) from error
            yield
