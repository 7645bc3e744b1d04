"""Processes of a parallel run compile each kernel once: the second waits for the first, and reads what that stored.

Without this both compile it, and two that store versions of one kernel at the same time may mix up their files.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any

#: Kernels that this process compiles now: one may call itself with other types.
_compiling: set[str] = set()


def compile_once() -> None:
    """From now on this process compiles a kernel that is stored while no other one does."""
    from numba.core.caching import NullCache
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    place = Path(tempfile.gettempdir()) / f"ustad-compiling-{os.getuid()}"
    place.mkdir(exist_ok=True)
    compile_at_once = Dispatcher.compile

    def compile_alone(kernel: Any, signature: Any) -> Any:
        name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"
        # First this process's own lock, then the file's: threads never wait for each other's files.
        with global_compiler_lock:
            if name in _compiling or isinstance(kernel._cache, NullCache):
                return compile_at_once(kernel, signature)
            with (place / name).open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _compiling.add(name)
                try:
                    return compile_at_once(kernel, signature)
                finally:
                    _compiling.discard(name)

    Dispatcher.compile = compile_alone
