"""What every result file says about its own making: versions, machine, date, load and command."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def describe_run() -> dict[str, Any]:
    """Facts of a run, to be taken when it begins: the load is that of others then, not its own."""
    from ustad.lab.evaluation.result_files import hardware, versions

    return {
        "versions": versions(),
        "hardware": hardware(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load_at_start": round(os.getloadavg()[0], 2),
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
    }
