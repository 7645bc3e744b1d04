"""The tables of a run: scores, what the run said about itself, and the data around the cases.

Tables are kept as Arrow datasets, so that a large run is read by columns and by agents, never whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset

from ustad.files import find_table, read_json, read_table
from ustad.schema import EventSchema, mobility_schema
from ustad.scores import join_details
from ustad.tables import DataError

#: Field of the input → table of the data directory.
COMPANIONS = {"history": "stays", "trips": "trips", "gaps": "gaps"}


@dataclass(frozen=True)
class RunTables:
    """What a page can show of a run. Only `events` is needed.

    `run` may hold: name, method, data, model, created, threshold, rule, evaluation, baselines (name → evaluation
    figures), split, schema, versions. `history` are the events before the scored period.
    """

    events: pa_dataset.Dataset
    agents: pa.Table | None = None
    run: dict[str, Any] = field(default_factory=dict)
    history: pa_dataset.Dataset | None = None
    trips: pa_dataset.Dataset | None = None
    gaps: pa_dataset.Dataset | None = None
    absences: pa_dataset.Dataset | None = None
    details: pa_dataset.Dataset | None = None
    groups: pa.Table | None = None  # several people at one place and time
    quality: pa.Table | None = None
    card: str = ""

    @property
    def schema(self) -> EventSchema:
        content = self.run.get("schema")
        return EventSchema.from_dict(content) if content else mobility_schema()

    def with_details(self, events: pa.Table) -> pa.Table:
        """Some of the event scores with what was measured of them beside."""
        entity = self.schema.entity
        return join_details(events, rows_of(self.details, entity, pc.unique(events[entity]).to_pylist()), self.schema)

    @classmethod
    def from_directory(cls, scores: Path | str, data: Path | str | None = None) -> RunTables:
        """From a directory that `ustad score` wrote, and the data directory and model that its run.json names, or that
        lie beside it."""
        scores = Path(scores)
        if not (scores / "run.json").exists():
            raise DataError(f"{scores}: not a directory of scores (no run.json); make one with `ustad score`")
        events = find_table(scores, "events")
        if events is None:
            raise DataError(f"{scores}: holds no events.parquet; the page needs event scores")
        run = read_json(scores / "run.json")
        agents, absences, details, groups = (
            find_table(scores, name) for name in ("agents", "absences", "details", "groups")
        )
        around, model = (
            _find_path(path, run.get(name), scores.resolve(), name) for name, path in (("data", data), ("model", None))
        )
        card = (model / "card.md").read_text() if model and (model / "card.md").exists() else ""
        tables, notes = _around(around, run)
        run["name"] = run.get("name") or _name_of(around)
        run["warnings"] = [*(run.get("warnings") or []), *notes]
        return cls(
            events=_open(events),
            agents=None if agents is None else read_table(agents),
            absences=None if absences is None else _open(absences),
            details=None if details is None else _open(details),
            groups=None if groups is None else read_table(groups),
            run=run,
            card=card,
            **tables,
        )


def _around(path: Path | None, run: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """History, trips, gaps and quality of the data that was scored, and what a reader should know about them."""
    if path is None:
        return {}, ["The data that was scored was not found, so cases show the scored period only."]
    if path.is_dir() and find_table(path, "stays") is not None:
        paths = {key: find_table(path, name) for key, name in COMPANIONS.items()}
        quality = find_table(path, "quality")
        tables: dict[str, Any] = {key: _open(where) for key, where in paths.items() if where is not None}
        return {**tables, "quality": None if quality is None else read_table(quality)}, []
    from ustad.mobility.readers import open_data

    schema = EventSchema.from_dict(run["schema"]) if run.get("schema") else None
    try:
        data = open_data(path, schema=schema, timezone=run.get("timezone"), on_error="skip")
    except DataError as error:
        return {}, [f"The data that was scored could not be opened, so cases show the scored period only ({error})."]
    return {"history": pa_dataset.dataset(data.events), "quality": data.quality}, []


def rows_of(
    source: pa_dataset.Dataset | None, column: str, values: Sequence[Any], columns: Sequence[str] | None = None
) -> pa.Table | None:
    """The rows whose `column` is one of the values, with these columns or all; None where there is no such table."""
    if source is None or column not in source.schema.names:
        return None
    kind = source.schema.field(column).type
    try:
        ids = pa.array(list(values)).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    names = None if columns is None else [name for name in columns if name in source.schema.names]
    return source.to_table(columns=names, filter=pc.field(column).isin(ids))


def _find_path(path: Path | str | None, name: Any, scores: Path, kind: str) -> Path | None:
    """The first path that exists: the given one, the one in run.json, the same name beside the scores, or the usual
    name beside the scores."""
    if path is not None:
        if not Path(path).exists():
            raise DataError(f"{path}: no such file or directory")
        return Path(path)
    candidates = [Path(name), scores / name, scores.parent / Path(name).name] if isinstance(name, str) and name else []
    return next((p for p in (*candidates, scores.parent / kind) if p.exists()), None)


def _name_of(directory: Path | None) -> str:
    """What the data directory calls itself, empty where it does not."""
    meta = directory / "meta.json" if directory is not None else None
    return str(read_json(meta).get("name") or "") if meta is not None and meta.is_file() else ""


def _open(path: Path) -> pa_dataset.Dataset:
    try:
        files = sorted(str(p) for p in path.glob("*.parquet")) if path.is_dir() else str(path)
        return pa_dataset.dataset(files, format="parquet")
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
