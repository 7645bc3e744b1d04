"""The table contracts: which columns each table has, of which type, and what makes a row bad.

In go pyarrow tables (`files.as_table` makes them of whatever a user has); out come pyarrow tables that keep the
contract. Validation happens here once, where data enters. Identity and order of events are here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.data_error import DataError as DataError  # most of the package asks for it here

TIMESTAMP = pa.timestamp("us", tz="UTC")
PATH_POINT = pa.struct([("time", TIMESTAMP), ("lat", pa.float64()), ("lon", pa.float64())])
OnError = Literal["fail", "skip"]


@dataclass(frozen=True)
class Contract:
    """What a table must hold. `identifiers` may be integers or strings; they are kept as they are."""

    name: str
    required: Mapping[str, pa.DataType | None]  # None: an identifier, integer or string
    optional: Mapping[str, pa.DataType | None] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, pa.DataType | None]:
        return {**self.required, **self.optional}


IDENTIFIER = None
FIXES = Contract(
    "fixes",
    {"agent_id": IDENTIFIER, "time": TIMESTAMP, "lat": pa.float64(), "lon": pa.float64()},
    {"accuracy_m": pa.float64()},
)
STAYS = Contract(
    "stays",
    {
        "agent_id": IDENTIFIER,
        "started_at": TIMESTAMP,
        "finished_at": TIMESTAMP,
        "lat": pa.float64(),
        "lon": pa.float64(),
    },
    {
        "stay_id": IDENTIFIER,
        "poi_id": IDENTIFIER,
        "poi_category": pa.string(),
        "timezone": pa.string(),
        "n_fixes": pa.int32(),
        "start_gap_s": pa.float64(),
        "end_gap_s": pa.float64(),
        "observed_s": pa.float64(),
    },
)
TRIPS = Contract(
    "trips",
    {
        "trip_id": IDENTIFIER,
        "agent_id": IDENTIFIER,
        "started_at": TIMESTAMP,
        "finished_at": TIMESTAMP,
        "origin_stay_id": IDENTIFIER,
        "destination_stay_id": IDENTIFIER,
        "path": pa.list_(PATH_POINT),
    },
)
GAPS = Contract(
    "gaps",
    {"agent_id": IDENTIFIER, "started_at": TIMESTAMP, "finished_at": TIMESTAMP},
    # Where the silence ended. bridged: at the place, part of a stay. left: on the way from the place, part of a stay
    # too. moved: elsewhere. unbridged: at the place, but too late to count.
    {"cause": pa.string()},
)
POIS = Contract(
    "pois",
    {"poi_id": IDENTIFIER, "lat": pa.float64(), "lon": pa.float64(), "category": pa.string()},
    {"name": pa.string()},
)
STAY_LABELS = Contract("labels", {"stay_id": IDENTIFIER, "anomaly": pa.bool_()}, {"kind": pa.string()})
AGENT_LABELS = Contract("agent_labels", {"agent_id": IDENTIFIER, "anomaly": pa.bool_()}, {"kind": pa.string()})
#: Visits that were nearly certain and did not come, as `ustad score` writes them. `instead` is the stay that took a
#: visit's place, and the incident is that stay's.
ABSENCES = Contract(
    "absences",
    {
        "agent_id": IDENTIFIER,
        "expected_from": TIMESTAMP,
        "expected_until": TIMESTAMP,
        "share": pa.float64(),
        "days": pa.int64(),
        "surprise": pa.float64(),
        "p_value": pa.float64(),
        "reason": pa.string(),
        "instead_started_at": TIMESTAMP,
    },
    {
        "lat": pa.float64(),
        "lon": pa.float64(),
        "poi_category": pa.string(),
        "instead_stay_id": IDENTIFIER,
        "incident_id": pa.string(),
    },
)

#: One answer of a source to one question about an event, see `scoring/evidence.py`.
ANSWER = pa.struct(
    [("name", pa.string()), ("surprise", pa.float64()), ("share", pa.float64())]
    + [(name, pa.float32()) for name in ("expected", "observed", "spread", "noise", "doubt")]
)
EVIDENCE = pa.list_(ANSWER)
#: What scoring adds to the columns of an event, whoever scored it. Both uncertainties are null where no network was
#: asked. The optional columns come later: rules and learnt weights choose alerts again, `--reject` withholds.
EVENT_SCORES = Contract(
    "event scores",
    {
        "score": pa.float64(),
        "p_value": pa.float64(),
        "alert": pa.bool_(),
        "incident_id": pa.string(),
        "echo": pa.bool_(),
        "kind": pa.string(),
        "reason": pa.string(),
        "final": pa.bool_(),
        "uncertainty_noise": pa.float64(),
        "uncertainty_model": pa.float64(),
        "evidence": EVIDENCE,
    },
    {
        "hidden_by": pa.string(),
        "learned_score": pa.float64(),
        "uncertainty": pa.float64(),
        "withheld": pa.bool_(),
    },
)
#: An incident's first and last moment, its events and the leading one are named after the schema's columns.
INCIDENT_SCORES = Contract(
    "incident scores",
    {
        "incident_id": pa.string(),
        "n_events": pa.int64(),
        "score": pa.float64(),
        "p_value": pa.float64(),
        "alert": pa.bool_(),
        "kind": pa.string(),
        "reason": pa.string(),
    },
)
AGENT_SCORES = Contract(
    "agent scores",
    {
        "score": pa.float64(),
        "p_value": pa.float64(),
        "n_events": pa.int64(),
        "n_incidents": pa.int64(),
        "n_alerts": pa.int64(),
        "worst_incident_id": pa.string(),
        "reason": pa.string(),
        "order_note": pa.string(),
    },
)


def check_types(table: pa.Table, contract: Contract) -> pa.Table:
    """The table itself, after a check that it has the contract's required columns in their types. A failure is a
    mistake of ours, not of the data, so rows are not looked at."""
    kinds = {name: table.schema.field(name).type for name in contract.required if name in table.column_names}
    wrong = [name for name, kind in contract.required.items() if kinds.get(name) != kind]
    if wrong:
        name = wrong[0]
        raise TypeError(
            f"{contract.name}: '{name}' is {kinds.get(name, 'missing')}, expected {contract.required[name]}"
        )
    return table


# ------------------------------------------------------------------------------------------- validation
@dataclass
class Complaints:
    """Rows found bad while validating: what is wrong, how many rows, the first few."""

    where: str
    on_error: OnError = "fail"
    messages: list[str] = field(default_factory=list)
    bad_rows: int = 0
    rows: np.ndarray | None = None  # where the rows that are left were before any was dropped

    def check(self, table: pa.Table, bad: np.ndarray, column: str, what: str) -> pa.Table:
        """Fail on, or drop, the rows where `bad` is true."""
        count = int(np.count_nonzero(bad))
        if not count:
            return table
        numbers = self.rows if self.rows is not None and len(self.rows) == len(bad) else np.arange(len(bad))
        rows = ", ".join(str(i) for i in numbers[bad][:3])
        message = f"{self.where}: column '{column}': {count:,} of {len(bad):,} rows {what} (first rows: {rows})"
        if self.on_error == "fail":
            raise DataError(f"{message}; fix them or drop them with --on-error skip")
        self.messages.append(message)
        self.bad_rows += count
        self.rows = numbers[~bad]
        return table.filter(pa.array(~bad))


def validate(
    table: pa.Table, contract: Contract, where: str | None = None, on_error: OnError = "fail", *,
    complaints: Complaints | None = None,
) -> tuple[pa.Table, Complaints]:  # fmt: skip
    """The table with the contract's columns and types, and the complaints about rows that were dropped.

    `complaints` are those of earlier checks of the same table, which go on.
    Columns outside the contract are kept as they are, after the contract's own.
    """
    where = where or contract.name
    complaints = complaints or Complaints(where, on_error)
    missing = [name for name in contract.required if name not in table.column_names]
    if missing:
        raise DataError(
            f"{where}: missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
            f"found {', '.join(table.column_names) or 'no columns'}"
        )
    twice = [name for name in contract.columns if table.column_names.count(name) > 1]
    if twice:
        raise DataError(f"{where}: there are two columns called {twice[0]}; rename one")
    if table.num_rows == 0:
        raise DataError(f"{where}: the table is empty")
    for name, kind in contract.columns.items():
        if name in table.column_names:
            position = table.column_names.index(name)
            table = table.set_column(position, name, _cast(table[name], kind, where, name))
    for name in contract.required:
        table = complaints.check(table, _is_null(table[name]), name, "are missing")
    for name in ("lat", "lon"):
        if name in contract.columns and name in table.column_names:
            table = _check_degrees(table, name, complaints)
    if {"started_at", "finished_at"} <= set(contract.required):
        ends_early = _to_int(table["finished_at"]) < _to_int(table["started_at"])
        table = complaints.check(table, ends_early, "finished_at", "end before they start")
    if table.num_rows == 0:
        raise DataError(f"{where}: no usable row is left ({complaints.messages[0]})")
    names = [n for n in contract.columns if n in table.column_names]
    return table.select(names + [n for n in table.column_names if n not in contract.columns]), complaints


def check_overlaps(stays: pa.Table, complaints: Complaints) -> pa.Table:
    """Refuse (or drop) stays that begin before the same agent's previous stay has ended. Sorts the table."""
    complaints.rows = event_order(stays, "agent_id", "started_at")
    stays = take_rows(stays, complaints.rows)
    codes = agent_codes(stays["agent_id"])[0]
    starts, ends = (_to_int(stays[name]) for name in ("started_at", "finished_at"))
    # Ends so far within the agent: lifted by agent, a running maximum never reaches over from the one before.
    lift = codes.astype(np.int64) * (int(ends.max() - starts.min()) + 1)
    latest = np.maximum.accumulate(ends - starts.min() + lift)
    bad = np.zeros(len(codes), bool)
    bad[1:] = (starts - starts.min() + lift)[1:] < latest[:-1]
    bad[1:] &= codes[1:] == codes[:-1]
    return complaints.check(stays, bad, "started_at", "begin before the agent's previous stay has ended")


def _cast(column: pa.ChunkedArray, kind: pa.DataType | None, where: str, name: str) -> pa.ChunkedArray:
    if kind is IDENTIFIER:
        return _identifier(column, where, name)
    if kind == TIMESTAMP:
        return _timestamp(column, where, name)
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{where}: column '{name}' is {column.type}, expected {kind} ({first_line(error)})") from error


def _identifier(column: pa.ChunkedArray, where: str, name: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    raise DataError(f"{where}: column '{name}' is {column.type}, expected integers or strings")


def _timestamp(column: pa.ChunkedArray, where: str, name: str) -> pa.ChunkedArray:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _parse_times(column, where, name)
    if not pa.types.is_timestamp(column.type):
        raise DataError(f"{where}: column '{name}' is {column.type}, expected times with a time zone")
    if column.type.tz is None:
        raise DataError(
            f"{where}: column '{name}' has times without a time zone; say which zone they are in "
            "with --timezone (for example --timezone America/Los_Angeles)"
        )
    return column.cast(TIMESTAMP, safe=False)


def _parse_times(column: pa.ChunkedArray, where: str, name: str) -> pa.ChunkedArray:
    for kind in (TIMESTAMP, pa.timestamp("us")):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    raise DataError(
        f"{where}: column '{name}' holds text that is not a time; expected ISO 8601 such as "
        f"2024-01-31T08:15:00+00:00, or mixes times with and without a time zone"
    )


def _check_degrees(table: pa.Table, name: str, complaints: Complaints) -> pa.Table:
    limit = 90.0 if name == "lat" else 180.0
    values = table[name].to_numpy()
    table = complaints.check(table, ~np.isfinite(values), name, "are not finite numbers")
    values = table[name].to_numpy()
    outside = np.abs(values) > limit
    if name == "lat" and 2 * np.count_nonzero(outside) > len(values):
        raise DataError(
            f"{complaints.where}: column 'lat': {int(outside.sum()):,} of {len(values):,} rows are beyond ±90°; "
            "latitude and longitude may be swapped, or the unit is not degrees"
        )
    return complaints.check(table, outside, name, f"are beyond ±{limit:.0f}°")


def _is_null(column: pa.ChunkedArray) -> np.ndarray:
    return pc.is_null(column, nan_is_null=True).to_numpy()


def _to_int(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.int64()).to_numpy()


def first_line(error: BaseException) -> str:
    """The first line of what an error says, for a message of one line."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


# ------------------------------------------------------------------------------------- identity and order
def sort_events(table: pa.Table, entity: str, time: str) -> pa.Table:
    """Rows by entity, then by time; ties keep their order."""
    return take_rows(table, event_order(table, entity, time))


def take_rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Some rows in their order; where one follows the other in the table too, without a copy."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
        return table.slice(int(rows[0]), len(rows))
    return table.take(pa.array(rows))


def event_order(table: pa.Table, entity: str, time: str) -> np.ndarray:
    """Row numbers by entity, then by time; ties keep their order."""
    return np.lexsort((_to_int(table[time]), agent_codes(table[entity])[0]))


def agent_codes(column: pa.ChunkedArray | pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Dense codes of identifiers and the identifiers they stand for, in sorted order of the identifiers."""
    if len(column) == 1 and not column.null_count and not pa.types.is_dictionary(column.type):
        return np.zeros(1, np.int64), column.to_numpy(zero_copy_only=False).copy()  # one live event: nothing to compare
    codes = pc.dictionary_encode(column)
    if isinstance(codes, pa.ChunkedArray):
        codes = codes.unify_dictionaries().combine_chunks()
        if isinstance(codes, pa.ChunkedArray):  # an empty column has no chunk
            codes = codes.chunk(0) if codes.num_chunks else pa.array([], column.type).dictionary_encode()
    values = codes.dictionary.to_numpy(zero_copy_only=False)
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes.indices.to_numpy(zero_copy_only=False)], values[order]


def identity_hash(values: Iterable[Any]) -> np.ndarray:
    """A 64-bit hash of each identifier, the same on every machine: uint64 [n]."""
    digests = (hashlib.blake2b(str(v).encode(), digest_size=8).digest() for v in values)
    return np.frombuffer(b"".join(digests), dtype="<u8").copy()


def mix(key: np.ndarray) -> np.ndarray:
    """The splitmix64 finaliser: spreads each 64-bit key over all 64 bits."""
    with np.errstate(over="ignore"):
        key = key.astype(np.uint64)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return key ^ (key >> np.uint64(31))


def event_keys(agents: pa.ChunkedArray | pa.Array, started_at: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """What identifies an event wherever it is processed: a hash of its agent and start, int64 [n], ≥ 0. Two events of
    one agent that start in the same microsecond share a key; validated stays never do."""
    codes, values = agent_codes(agents)
    times = _to_int(started_at).astype(np.uint64)
    with np.errstate(over="ignore"):
        keys = mix(identity_hash(values)[codes] + times * np.uint64(0x9E3779B97F4A7C15))
    return (keys >> np.uint64(1)).astype(np.int64)
