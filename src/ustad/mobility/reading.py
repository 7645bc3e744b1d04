"""How fixes or stays are to be read, and what was mapped, guessed or dropped on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ustad import progress
from ustad.mobility.layout import Layout
from ustad.mobility.whose import by_path
from ustad.tables import Complaints, OnError

Times = Literal["utc", "local"]
Box = tuple[float, float, float, float]  # south, north, west, east


@dataclass
class Reading:
    """How to read, and what was mapped, guessed or dropped on the way."""

    timezone: str | None = None  # of times that carry none
    times: Times = "utc"  # what epoch numbers count: UTC, or the wall clock of `timezone`
    on_error: OnError = "fail"
    notes: list[str] = field(default_factory=list)
    bad_rows: int = 0
    skipped_hour: int = 0  # naive times that no clock of the zone shows, because daylight saving skips them
    area: Box | None = None  # where the data is known to be
    agents: dict[str, str] = field(default_factory=dict)  # by format: `file`, `folder`, a pattern or a column says who
    layout: Layout = field(default_factory=Layout)  # of tables of text, as far as it was said
    piece_rows: int | None = None  # rows of a Parquet file that are read at once, where only some are looked at

    def agent_column(self, kind: str) -> str | None:
        """The column that was said to hold the agents; None where it is found by its name, or the path says who."""
        how = self.agents.get(kind)
        return None if how is None or by_path(how) else how

    def say(self, note: str) -> None:
        """Remember a note once."""
        if note not in self.notes:
            self.notes.append(note)

    def warn(self, note: str) -> None:
        """Remember a note and warn of it, once."""
        if note not in self.notes:
            self.notes.append(note)
            progress.warn(note)

    def warn_of_bad_rows(self) -> None:
        """One warning of all rows that were dropped because they are bad, and of files that could not be read."""
        losses = [note for note in self.notes if note.startswith(("dropped: ", "skipped: "))]
        if losses:
            others = f"; {len(losses) - 1} more in the notes" if len(losses) > 1 else ""
            progress.warn(f"{self.bad_rows:,} bad rows were left out ({losses[0]}{others})")

    def count(self, complaints: Complaints) -> None:
        """Take over what validation dropped."""
        self.bad_rows += complaints.bad_rows
        for message in complaints.messages:
            self.say(f"dropped: {message}")
