"""Threads of one interpreter: how long each keeps it while others wait."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: How long a thread keeps the interpreter where one of them tells a GPU what to do, s.
TURN_S = 2e-4


@contextmanager
def short_turns(is_needed: bool = True) -> Iterator[None]:
    """Inside, threads pass on the interpreter soon: whoever has to tell a GPU what to do next waits for its turn for a
    fraction of a millisecond, not for five."""
    turn = sys.getswitchinterval()
    if is_needed:
        sys.setswitchinterval(min(turn, TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(turn)
