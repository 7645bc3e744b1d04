"""Ctrl-C is neither lost nor taken away while Ray works.

What a signal raises inside a destructor is printed and dropped by Python, and Ray's destructors wait in the driver.
Ray Train takes the signal for itself, ends the program with status 0 on it, and never gives it back.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def notice_interrupts() -> Iterator[Callable[[], None]]:
    """Gives a function that raises an interrupt which was dropped since; the end of the block asks it too.

    Does nothing beside the main thread, or where somebody else handles the signal.
    """
    signals: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        signal.default_int_handler(number, frame)

    def check() -> None:
        if signals:
            raise KeyboardInterrupt

    if not _ours():
        yield check
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def given_back() -> Iterator[None]:
    """Around Ray Train: an interrupt is raised as one, and the signal is handled afterwards as it was before."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Ray Train leaves the signal alone there
        return
    before = signal.getsignal(signal.SIGINT)
    reader, writer = socket.socketpair()  # whoever handles a signal, Python writes its number here
    reader.setblocking(False)
    writer.setblocking(False)
    others = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    except (Exception, SystemExit) as error:
        if _came(reader):
            raise KeyboardInterrupt from error
        raise
    else:
        if _came(reader):
            raise KeyboardInterrupt
    finally:
        signal.set_wakeup_fd(others)
        signal.signal(signal.SIGINT, before)
        reader.close()
        writer.close()


def _came(reader: socket.socket) -> bool:
    try:
        return signal.SIGINT in reader.recv(4096)
    except BlockingIOError:
        return False


def _ours() -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
