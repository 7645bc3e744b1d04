"""The log of a run: one JSON line per epoch. Only counts, losses and times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class RunLog:
    """Writes `log.jsonl` into a directory; without a directory it writes nothing."""

    def __init__(self, directory: Path | None, history: list[dict[str, Any]]) -> None:
        self.path = directory / "log.jsonl" if directory is not None else None
        if self.path is not None:
            # A resumed run repeats what its checkpoint remembers, so that no epoch stands in the log twice.
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(_line(entry) for entry in history))

    def write(self, entry: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(_line(entry))


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True) + "\n"
