"""How a table of text is laid out, as the user says it: `--columns`, `--sep`, `--decimal`, `--time-format`.

What is not said is found in the file (`delimited.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ustad.tables import FIXES, STAYS, DataError

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space"}
_NAMES = {**{name: sign for sign, name in SEPARATORS.items()}, "\\t": "\t"}


@dataclass(frozen=True)
class Layout:
    """What was said of a table. None: look into the file."""

    columns: Mapping[str, str] = field(default_factory=dict)  # ours → theirs: a name, a number from 1, or A+B
    separator: str | None = None
    decimal: str | None = None
    time_format: str | None = None  # as Python's strptime takes it

    @classmethod
    def of(
        cls,
        columns: str | Mapping[str, str] | None = None,
        separator: str | None = None,
        decimal: str | None = None,
        time_format: str | None = None,
    ) -> Layout:
        """From what the options hold; a DataError says what an option takes."""
        sign = _NAMES.get(separator.lower(), separator) if separator else None
        if sign is not None and len(sign) != 1:
            raise DataError(f"--sep '{separator}': expected one sign, or {', '.join(SEPARATORS.values())}")
        if decimal is not None and decimal not in (".", ","):
            raise DataError(f"--decimal '{decimal}': expected . or ,")
        if time_format is not None and "%" not in time_format:
            raise DataError(f"--time-format '{time_format}': expected a pattern such as '%d.%m.%Y %H:%M:%S'")
        return cls(_pairs(columns), sign, decimal, time_format)


def _pairs(text: str | Mapping[str, str] | None) -> dict[str, str]:
    """`agent_id=device,time=ts` as a dictionary."""
    parts = [part for part in text.split(",") if part.strip()] if isinstance(text, str) else []
    pairs = dict(text) if isinstance(text, Mapping) else {}
    ours = {**FIXES.columns, **STAYS.columns}
    for part in parts:
        name, sign, theirs = part.partition("=")
        if not sign or not theirs.strip():
            raise DataError(f"--columns '{part}': expected NAME=COLUMN, such as agent_id=device,time=ts,lat=y,lon=x")
        pairs[name.strip()] = theirs.strip()
    for name in pairs:
        if name not in ours:
            raise DataError(
                f"--columns: '{name}' is no column of ours; fixes have {', '.join(FIXES.columns)}, "
                f"stays {', '.join(STAYS.columns)}"
            )
    return pairs
