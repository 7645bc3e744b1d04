"""Who read what: one line of JSON for each request that reads people's data, written before it is answered.

In: the name of a key, a method and an address. Out: lines in a file that its owner alone can read. The file names
people; it is apart from the log, which never does.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from ustad.config import ConfigError


class ReadAudit:
    """Appends to one file. A line is one write, so that lines of several requests do not mix."""

    def __init__(self, file: Path) -> None:
        try:
            self._file = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        except OSError as error:
            raise ConfigError(f"--audit: {file} cannot be written ({error.strerror})") from error

    def note(self, key: str, method: str, path: str, query: bytes) -> None:
        """Raises OSError where the line cannot be written: then nothing may be shown."""
        if method not in ("GET", "HEAD") or not path.startswith("/v1/"):
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"at": at, "key": key, "address": path, "query": query.decode("latin-1")}
        text = json.dumps(line).encode() + b"\n"
        if os.write(self._file, text) != len(text):
            raise OSError("a line was cut off")
