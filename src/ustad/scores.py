"""What a detector says: a table of event scores, a table of agent scores, and how they came about.

On disk a directory: `events.parquet`, `agents.parquet` (or folders of parts) and `run.json`. Higher scores are more
unusual.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.files import find_table, read_json, read_table, write_json, write_table
from ustad.tables import DataError


@dataclass(frozen=True)
class Scores:
    """Scores of one run. A method that cannot score events (or agents) leaves that table out."""

    events: pa.Table | None = None
    agents: pa.Table | None = None
    run: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table, what in ((self.events, "event"), (self.agents, "agent")):
            if table is not None and not np.isfinite(table["score"].to_numpy()).all():
                raise DataError(f"a score of an {what} is not a finite number; the model or its data is damaged")

    def save(self, path: Path) -> None:
        """Write the tables and `run.json`; a table that there is not here does not stay from other scores."""
        before = (path / "run.json").exists()  # else a table of that name is not one of scores
        for name, table in (("events", self.events), ("agents", self.agents)):
            if table is not None:
                write_table(table, path / f"{name}.parquet")
            elif before:
                (path / f"{name}.parquet").unlink(missing_ok=True)
        write_json(self.run, path / "run.json")

    @classmethod
    def load(cls, path: Path) -> Scores:
        path = Path(path)
        if not (path / "run.json").exists():
            raise DataError(f"{path}: not a directory of scores (no run.json); make one with `ustad score`")
        tables = {n: find_table(path, n) for n in ("events", "agents")}
        found = {n: read_table(p) for n, p in tables.items() if p is not None}
        return cls(run=read_json(path / "run.json"), **found)
