"""Whose fixes a file holds: the file, its folder, a part of its path or a column says so.

In: the files and what the user said (`--agent`). Out: for each format how its agents are told, and the agent of a path.
Two files that would be taken for one agent by accident are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ustad.tables import DataError

if TYPE_CHECKING:  # which looks here for the column of agents
    from ustad.mobility.reading import Reading

TRACKS = ("gpx", "plt", "track")  # formats that do not say whose they are
OPTIONS = "--agent file, --agent folder, or --agent 'REGEX' with the agent's part of the path in parentheses"
_DATE = (
    r"(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])"
    r"(?:[T _-]?[0-2]\d[-:_.]?[0-5]\d(?:[-:_.]?[0-5]\d)?Z?)?"
)


def choose_agents(files: Sequence[Path], rule: str | None, reading: Reading) -> None:
    """Set in `reading` how the agents of these files are told, and say what was chosen."""
    formats = {file: _format(file) for file in files}
    tracks = [f for f in files if formats[f] in TRACKS]
    if rule is not None:
        reading.agents = dict.fromkeys(("table", "csv", "parquet", "ndjson", "export", *TRACKS), rule)
        if tracks and not by_path(rule):
            raise DataError(f"{tracks[0]}: has no column '{rule}' that says whose it is; use {OPTIONS}")
        own_files = list(files) if by_path(rule) else []
    else:
        tables = [f for f in files if formats[f] == "csv"]
        without_agents = tables if tables and all(_lacks_agents(f, reading) for f in tables) else []
        reading.agents = {"plt": "folder"}
        for name, title, those in (
            ("gpx", "GPX", [f for f in files if formats[f] == "gpx"]),
            ("track", "tracks", [f for f in files if formats[f] == "track"]),
            ("csv", "no column says whose the fixes are", without_agents),
        ):
            if those:
                reading.agents[name] = _default(those)
                reading.say(f"{title}: the agent is the name of the {reading.agents[name]} (another: {OPTIONS})")
        own_files = tracks + without_agents
    _refuse_clash([(f, reading.agents[formats[f]]) for f in own_files])


def _format(file: Path) -> str:
    from ustad.mobility.exports import kind_of  # here, because readers ask for the agent of a path
    from ustad.mobility.formats import format_of

    export = kind_of(file)
    return export.whose if export is not None else format_of(file) or "csv"


def _lacks_agents(file: Path, reading: Reading) -> bool:
    """Whether a table of text has columns of times and degrees, but none that says whose they are."""
    from ustad.mobility.columns import FIX_NAMES, match_names
    from ustad.mobility.delimited import form_of

    if not file.exists() or "agent_id" in reading.layout.columns:
        return False
    try:
        names = {**match_names(form_of(file, reading.layout).names, FIX_NAMES), **reading.layout.columns}
    except DataError:
        return False  # the reader says what is wrong
    return {"time", "lat", "lon"} <= set(names) and "agent_id" not in names


def by_path(how: str) -> bool:
    """Whether the path says who it is, and not a column."""
    return how in ("file", "folder") or "(" in how


def agent_of(path: Path, how: str) -> str:
    """The agent of a file: `file`, `folder` (GeoLife's `Trajectory` is none), or the first group of a pattern."""
    if how == "file":
        return path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    if how == "folder":
        return _folder(path).name
    try:
        match = re.search(how, path.as_posix())
        name = match.group(1) if match else None
    except (re.error, IndexError) as error:
        raise DataError(f"--agent '{how}': not a regular expression with one part in parentheses ({error})") from error
    if not name:
        raise DataError(f"{path}: --agent '{how}' does not match this path")
    return name


def _folder(path: Path) -> Path:
    folder = path.absolute().parent
    return folder.parent if folder.name == "Trajectory" else folder


def _default(gpx: list[Path]) -> str:
    """`folder` where the files of each folder are named by date and otherwise alike, else `file`."""
    with_date = [f for f in gpx if re.search(_DATE, f.stem)]
    if len(gpx) < 2 or 2 * len(with_date) < len(gpx):
        return "file"
    rests: dict[Path, set[str]] = {}
    for file in gpx:
        rests.setdefault(_folder(file), set()).add(re.sub(r"[\d\W_]+", " ", re.sub(_DATE, "", file.stem)).strip())
    mixed_folder = next((folder for folder, names in rests.items() if len(names) > 1), None)
    if mixed_folder is not None:
        raise DataError(
            f"{mixed_folder}: files are named by date and by something else; say whose they are with {OPTIONS}"
        )
    return "folder"


def _refuse_clash(files: list[tuple[Path, str]]) -> None:
    """A DataError where files of different folders would be one agent, or different folders of one name."""
    first: dict[str, Path] = {}
    for file, how in files:
        if how not in ("file", "folder"):
            continue
        first_file = first.setdefault(agent_of(file, how), file)
        if _folder(first_file) != _folder(file):
            raise DataError(f"{first_file} and {file}: one name by --agent {how}; say whose they are with {OPTIONS}")
