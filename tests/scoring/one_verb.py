"""One call of the command line."""

from __future__ import annotations

from typing import Any

from ustad.cli import main


def run(*arguments: Any) -> int:
    """Its exit code."""
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0
