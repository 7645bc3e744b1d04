"""What every result file says about its own making: versions, machine, date, load and command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Of others, when the script began: not its own.
_LOAD = round(os.getloadavg()[0], 2)


def describe_run() -> dict[str, Any]:
    """Facts of the run that is under way."""
    from ustad.lab.evaluation.result_files import hardware, versions

    return {
        "versions": versions(),
        "hardware": hardware(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load_at_start": _LOAD,
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_without_directory, sys.argv[1:])]),
    }


def say_made(content: Mapping[str, Any]) -> str:
    """By which version, state of the code and when a result file was made, as far as it says so."""
    places = (content.get("versions", {}), content.get("machine", {}), {"ustad": content.get("version")})
    version = next((place["ustad"] for place in places if isinstance(place, Mapping) and place.get("ustad")), None)
    if version is None and "date" not in content:
        return "version and date not noted"
    code = f" (code {places[0]['code']})" if "code" in places[0] else ""
    said = f"ustad {version}{code}" if version else "version not noted"
    return f"{said}, {content.get('date', 'date not noted')}"


def _without_directory(word: str) -> str:
    """A word of a command line; of a directory of this machine only its last name."""
    return Path(word).name if word.startswith(os.sep) else word


def write_result(path: Path, content: Mapping[str, Any]) -> None:
    """A result file with the facts of this run, which replace those of an earlier one that `content` was read from.

    What a script says itself of versions and hardware stays.
    """
    facts = describe_run()
    facts["versions"] = {**content.get("versions", {}), **facts["versions"]}
    facts["hardware"] = content.get("hardware", facts["hardware"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, **facts}, indent=1) + "\n")
