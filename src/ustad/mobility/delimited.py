"""Tables of text (CSV and the like), whatever separates them: separator, heading and decimal sign are found.

In: a path and what was said of it (`Reading.layout`). Out: tables whose columns of times and numbers are still text,
so that a bad one is a bad row and not a bad file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ustad.files import plain_identifiers
from ustad.mobility.columns import match_names
from ustad.mobility.exports.content import HEAD_BYTES, read_head
from ustad.mobility.layout import SEPARATORS, Layout
from ustad.mobility.reading import Reading
from ustad.tables import DataError

BLOCK_BYTES = 32 << 20
SAMPLE_LINES = 50
_NUMBER = re.compile(r"^\s*[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?\s*$")
_TIME = re.compile(r"^\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?\s*$")
_CLOCK = re.compile(r"^\s*\d{1,2}:\d\d(:\d\d(\.\d+)?)?\s*$")
_COMMA = r"^\s*[-+]?\d+,\d+\s*$"
_SUFFIX = r"^\s*(?P<number>\d+(?:\.\d+)?)\s*°?\s*(?P<side>[NSEWnsew])\s*$"
_DEGREES = ("lat", "lon")
_IDENTIFIERS = ("agent_id", "stay_id", "poi_id")
_TEXT = (*_IDENTIFIERS, "time", "started_at", "finished_at", *_DEGREES, "accuracy_m")
Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Form:
    """How one file is laid out."""

    separator: str
    names: list[str]  # of its columns; numbers from 1 where the file has no heading
    heading: bool
    rows: list[list[str]]  # some of the first, without the heading
    skip: int  # lines before the first row

    def sample(self, name: str) -> str:
        """The first value of a column that is not empty."""
        at = self.names.index(name)
        return next((row[at] for row in self.rows if len(row) > at and row[at].strip()), "")


def form_of(path: Path, layout: Layout) -> Form:
    """Look into a file: what separates its columns, and whether it has a heading."""
    head = read_head(path)
    lines = head.decode("utf-8", errors="replace").splitlines()
    blank = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if len(head) >= HEAD_BYTES and len(lines) > 1:
        lines = lines[:-1]  # the last may be cut off
    lines = [line for line in lines[:SAMPLE_LINES] if line.strip()]
    if not lines:
        raise DataError(f"{path}: the file is empty")
    separator = layout.separator or _separator(lines, path)
    rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    first = [cell.strip() for cell in rows[0]]
    heading = not _is_data(first)
    names = first if heading else [str(i + 1) for i in range(len(first))]
    return Form(separator, _distinct(names), heading, rows[1:] if heading else rows, blank + heading)


def _separator(lines: list[str], path: Path) -> str:
    """The sign that cuts most lines into as many columns as the first, and into most columns."""
    usual = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    best, most = usual, 1
    for sign in (usual, *(s for s in SEPARATORS if s not in (usual, " "))):
        counts = [len(row) for row in csv.reader(lines, delimiter=sign)]
        alike = sum(count == counts[0] for count in counts)
        if counts[0] > most and 2 * alike >= len(counts):
            best, most = sign, counts[0]
    return best


def _is_data(cells: list[str]) -> bool:
    """Whether a first row holds values, not names."""
    return any(_TIME.match(cell) for cell in cells) or sum(bool(_NUMBER.match(cell)) for cell in cells) >= 2


def _distinct(names: list[str]) -> list[str]:
    """Names with a number where one repeats or is empty."""
    indices: dict[str, int] = {}
    result = []
    for i, name in enumerate(names):
        name = name or f"column {i + 1}"
        indices[name] = indices.get(name, 0) + 1
        result.append(name if indices[name] == 1 else f"{name} ({indices[name]})")
    return result


def read_delimited(path: Path, reading: Reading, names: Names, agent: str | None = None) -> Iterator[pa.Table]:
    """The rows, piece by piece. `names` are our columns with the neighbours' names, `agent` the column that was said
    to hold the agents."""
    form = form_of(path, reading.layout)
    _refuse_no_heading(path, form, reading)
    if form.separator != "," and reading.layout.separator is None:
        reading.say(f"columns are separated by {SEPARATORS[form.separator]}s")
    columns = _columns(path, form, reading, names)
    if agent is not None and agent in form.names:
        columns["agent_id"] = [agent]
    text = {name: pa.string() for ours in _TEXT for name in columns.get(ours, ())}
    broken: list[str] = []

    def note_row(row: pa_csv.InvalidRow) -> str:
        if reading.on_error == "fail":
            return "error"
        broken.append(f"{row.actual_columns} instead of {row.expected_columns} columns")
        return "skip"

    reader = pa_csv.open_csv(
        path,
        read_options=pa_csv.ReadOptions(
            block_size=BLOCK_BYTES, column_names=form.names, skip_rows=form.skip, encoding=_encoding(path)
        ),
        parse_options=pa_csv.ParseOptions(delimiter=form.separator, invalid_row_handler=note_row),
        convert_options=pa_csv.ConvertOptions(column_types=text),
    )
    for batch in reader:
        yield _finish(pa.Table.from_batches([batch]), columns, form, reading)
    if broken:
        reading.bad_rows += len(broken)
        reading.say(f"dropped: {path}: {len(broken):,} rows with a wrong number of columns (first: {broken[0]})")


def _columns(path: Path, form: Form, reading: Reading, names: Names) -> dict[str, list[str]]:
    """Ours → the file's columns that make it: as was said, else by name; one, or a date and a clock."""
    columns = {ours: [theirs] for ours, theirs in match_names(form.names, dict(names)).items()}
    by_layout = {ours: theirs for ours, theirs in reading.layout.columns.items() if ours in names}
    for ours, theirs in by_layout.items():
        parts = [theirs] if theirs in form.names else [part.strip() for part in theirs.split("+")]
        missing = [part for part in parts if part not in form.names]
        if missing:
            raise DataError(f"{path}: no column '{missing[0]}' (--columns {ours}=…); found {', '.join(form.names)}")
        columns = {name: whose for name, whose in columns.items() if name == ours or not set(whose) & set(parts)}
        columns[ours] = parts
        reading.say(f"column '{theirs}' is {ours}, as was said")
    date = next((n for n in form.names if n.lower() in ("date", "day", "utc date")), None)
    for ours in ("time",):
        clock = columns.get(ours, [])
        if (
            date
            and ours not in by_layout
            and len(clock) == 1
            and clock[0] != date
            and _CLOCK.match(form.sample(clock[0]))
        ):
            columns[ours] = [date, clock[0]]
            reading.say(f"columns '{date}' and '{clock[0]}' were taken for {ours}")
    return columns


def _finish(table: pa.Table, columns: dict[str, list[str]], form: Form, reading: Reading) -> pa.Table:
    """Columns that were said or put together get our name; degrees lose a decimal comma or a side of the world."""
    for ours, parts in columns.items():
        is_joined = len(parts) > 1 or ours in reading.layout.columns
        if len(parts) > 1:
            value = pc.binary_join_element_wise(*(pc.utf8_trim_whitespace(table[p]) for p in parts), " ")
            table = table.append_column("\0joined", value)
            parts = ["\0joined"]
        if ours in _IDENTIFIERS:
            table = table.set_column(table.column_names.index(parts[0]), parts[0], plain_identifiers(table[parts[0]]))
        if ours in (*_DEGREES, "accuracy_m"):
            value = _plain_number(table[parts[0]], ours, form.separator, reading)
            table = table.set_column(table.column_names.index(parts[0]), parts[0], value)
        if is_joined and parts[0] != ours:
            others = table.drop_columns([ours]) if ours in table.column_names else table
            table = others.rename_columns({parts[0]: ours})
    return table


def _plain_number(column: pa.ChunkedArray, ours: str, separator: str, reading: Reading) -> pa.ChunkedArray:
    """Text of numbers with a decimal point and a sign."""
    comma = reading.layout.decimal == ","
    if reading.layout.decimal is None and separator != "," and len(column):
        comma = bool(pc.any(pc.match_substring_regex(column.slice(0, 100), _COMMA)).as_py())
    if comma:
        reading.say("numbers have a decimal comma")
        column = pc.replace_substring(column, ",", ".")
    if ours in _DEGREES and len(column) and pc.any(pc.match_substring_regex(column.slice(0, 100), _SUFFIX)).as_py():
        reading.say("degrees end in N, S, E or W")
        parts = pc.extract_regex(column, _SUFFIX)
        negative = pc.is_in(pc.struct_field(parts, "side"), pa.array(["S", "W", "s", "w"]))
        number = pc.struct_field(parts, "number")
        with_sign = pc.if_else(negative, pc.binary_join_element_wise(pa.scalar("-"), number, ""), number)
        column = pc.coalesce(with_sign, column)
    return column


def _refuse_no_heading(path: Path, form: Form, reading: Reading) -> None:
    """Without a heading the numbers of the columns have to be said."""
    if form.heading or reading.layout.columns:
        return
    kinds = ", ".join(f"{name} {_kind(form.sample(name))}" for name in form.names[:12])
    raise DataError(
        f"{path}: has no heading; its columns are {kinds}; say which is which, "
        "for example --columns agent_id=1,time=2,lat=3,lon=4"
    )


def _kind(value: str) -> str:
    """What a value looks like, without showing it."""
    if _TIME.match(value):
        return "(a time)"
    return "(a number)" if _NUMBER.match(value) else "(text)"


def _encoding(path: Path) -> str:
    """UTF-8 where the first part of the file is that, else Latin-1, in which every byte is a sign."""
    head = read_head(path)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    whole = len(head) < HEAD_BYTES  # else the last sign may be cut off
    try:
        head[: len(head) if whole else head.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"
