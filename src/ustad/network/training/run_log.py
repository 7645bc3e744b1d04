"""The log of a run: one JSON line per epoch, and TensorBoard's files on request. Only counts, losses and times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class RunLog:
    """Writes `log.jsonl` (and `tensorboard/`) into a directory; without a directory it writes nothing."""

    def __init__(self, directory: Path | None, history: list[dict[str, Any]], tensorboard: bool = False) -> None:
        self.path = directory / "log.jsonl" if directory is not None else None
        self.board = _board(directory / "tensorboard") if directory is not None and tensorboard else None
        if self.path is not None:
            # A resumed run repeats what its checkpoint remembers, so that no epoch stands in the log twice.
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(_line(entry) for entry in history))

    def write(self, entry: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(_line(entry))
        if self.board is not None:
            for name in ("loss", "validation", "learning_rate", "windows_per_s"):
                self.board.add_scalar(name, entry[name], entry["epoch"])
            for name, value in entry["validation_fields"].items():
                self.board.add_scalar(f"validation/{name}", value, entry["epoch"])

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True) + "\n"


def _board(directory: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard logs need the package tensorboard: pip install tensorboard") from error
    return SummaryWriter(str(directory))
