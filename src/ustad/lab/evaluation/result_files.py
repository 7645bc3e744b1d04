"""Result files: one line of JSON per finished cell, with what it was made with.

In go lines as dictionaries, out come files that can be appended to, cut off and read again. A line is written whole
before the next cell's; what a killed run left behind the last whole line is dropped.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ustad

Line = dict[str, Any]
#: Options that say where something lies on this machine.
_DIRECTORIES = ("--out", "-o", "--work", "--page", "--figures", "--also", "--chosen")


def append_line(path: Path, line: Line) -> None:
    """One whole line, on disk before the next cell begins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_half_line(path)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drop_half_line(path: Path) -> None:
    """What a killed run left behind the last whole line."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def read_lines(path: Path) -> list[Line]:
    """The whole lines of a result file; none where there is no file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line]


def plain_json(value: Any) -> Any:
    """JSON with six figures; what is not a number is null."""
    if isinstance(value, dict):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


#: What may change a figure: everything but what shows scores, serves them, and writes these files.
_FIGURES = (
    "ablated_scores.py", "case_studies.py", "cells.py", "detection_metrics.py", "fitted_models.py", "gps.py",
    "recordings.py", "sources.py", "stay_matching.py",
)  # fmt: skip
_ROOMS = (
    "config", "mobility", "simulate", "events", "habits", "network", "own_values", "scoring", "lab/baselines",
    "lab/red_team",
)  # fmt: skip


@cache
def code() -> str:
    """A short name of the code that makes figures, so that those of two states of it can be told apart."""
    root = Path(ustad.__file__).parent
    files = [*root.glob("*.py"), *(root / "lab" / "evaluation" / name for name in _FIGURES)]
    files += [file for room in _ROOMS for file in (root / room).rglob("*.py")]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:8]


def versions() -> dict[str, str]:
    """Of what a figure depends on."""
    return {
        "ustad": ustad.__version__,
        "code": code(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def command(words: Sequence[str] | None = None) -> str:
    """The command line that a figure was made by, without the directories of a machine; empty from Python."""
    words = list(sys.argv[1:] if words is None else words)
    if words[:1] != ["lab"] or words[1:2] not in (["experiment"], ["benchmark"]):
        return ""
    command_words, is_value = ["ustad"], False
    for i, word in enumerate(words):
        name, _, value = word.partition("=")
        if words[1] == "benchmark" and i and words[i - 1] == "--data":
            command_words.append("DIRECTORY")
        elif not is_value and name not in _DIRECTORIES:
            command_words.append(
                f"{name}=DIRECTORY" if os.sep in value else Path(word).name if os.sep in word else word
            )
        is_value = not is_value and name in _DIRECTORIES and not value
    return " ".join(command_words)


@cache
def hardware() -> dict[str, Any]:
    """What a figure was measured on."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    cpu = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), platform.processor())
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {"cpu": cpu, "cores": os.cpu_count(), "gpu": gpu}
