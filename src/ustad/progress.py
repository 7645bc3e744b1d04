"""Progress of long work: a live bar on a terminal, a line every ten seconds elsewhere and from Python.

Library code wraps its loops in `track`; the command line calls `enable`, which shows short work and plain statements
(`say`) too. `disable` shows nothing. Never shows data, only counts.
What a user has to know whether progress is shown or not goes through `warn`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_SECONDS_BETWEEN_LINES = 10.0
_console: Console | None = None
_silent = False
_is_off = False

Advance = Callable[..., None]  # advance(n=1, note="")


def enable(console: Console | None = None) -> None:
    """Show progress on standard error from now on."""
    global _console, _is_off
    _console, _is_off = console or Console(stderr=True), False


def disable() -> None:
    """Show nothing from now on, however long the work."""
    global _console, _is_off
    _console, _is_off = None, True


def say(text: str) -> None:
    """One line about what is happening, where progress is shown."""
    if _console is not None:
        _console.print(text, highlight=False, soft_wrap=True)


class UstadWarning(UserWarning):
    """Something that makes results worse or other than asked for, and does not stop the work."""


def warn(text: str) -> None:
    """A warning by Python's `warnings`, as of the line that called ustad; the command line prints it whatever `-q`
    says."""
    if _silent:
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "ustad":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UstadWarning, stacklevel=level)


@contextmanager
def print_warnings(console: Console) -> Iterator[None]:
    """Our warnings as one line each on the console, every time; those of others as Python shows them."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UstadWarning)
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, UstadWarning):
                line = escape(" ".join(str(message).split()))
                console.print(f"[bold yellow]warning:[/] {line}", highlight=False, soft_wrap=True)
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


def is_shown() -> bool:
    """Whether anybody is looking."""
    return _console is not None


@contextmanager
def silence() -> Iterator[None]:
    """Nothing is shown inside, warnings neither."""
    global _console, _silent
    before = _console, _silent
    _console, _silent = None, True
    try:
        yield
    finally:
        _console, _silent = before


def roughly(seconds: float) -> str:
    """A duration as people say it beforehand: `a few seconds`, `about 3 minutes`, `about 2 hours`."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {round(seconds, -1):.0f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"


@contextmanager
def track(label: str, total: float | None = None) -> Iterator[Advance]:
    """Yields `advance(n, note)`; `note` is a short text beside the bar (a loss, a rate)."""
    if _console is None and (_is_off or _silent):
        yield lambda n=1, note="": None
    elif _console is None:
        with _lines(label, total, Console(stderr=True), brief=False) as advance:
            yield advance
    elif _console.is_terminal:
        with _bar(label, total, _console) as advance:
            yield advance
    else:
        with _lines(label, total, _console) as advance:
            yield advance


@contextmanager
def _bar(label: str, total: float | None, console: Console) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        task = progress.add_task(label, total=total, note="")

        def advance(n: float = 1, note: str = "") -> None:
            if note:
                progress.update(task, note=note)
            progress.advance(task, n)

        yield advance


@contextmanager
def _lines(label: str, total: float | None, console: Console, brief: bool = True) -> Iterator[Advance]:
    """A line every ten seconds and at the end, where that is worth it: of `brief` work too, or only of what had one."""
    began = time.monotonic()
    state = {"done": 0.0, "note": "", "said": began}

    def line() -> str:
        share = f" {state['done']:,.0f} of {total:,.0f}" if total else ""
        return f"{label}:{share} after {time.monotonic() - began:.0f} s {state['note']}".rstrip()

    def advance(n: float = 1, note: str = "") -> None:
        state["done"] += n  # type: ignore[operator]  # the entry is always a number
        state["note"] = note or state["note"]
        if time.monotonic() - state["said"] > _SECONDS_BETWEEN_LINES:  # type: ignore[operator]  # likewise
            state["said"] = time.monotonic()
            console.print(line(), highlight=False, soft_wrap=True)

    yield advance
    if time.monotonic() - began > 2.0 and (brief or state["said"] > began):  # type: ignore[operator]  # likewise
        console.print(line(), highlight=False, soft_wrap=True)
        sys.stderr.flush()
