"""The flags that docs/scoring.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from ustad.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "scoring.md"


def test_every_flag_of_the_page_is_one_of_the_verb() -> None:
    named = set(re.findall(r"`ustad score [^`]*`|`(--[a-z-]+)", PAGE.read_text())) - {""}
    helped = CliRunner().invoke(app, ["score", "--help"], terminal_width=200, env={"COLUMNS": "200"}).output
    assert named
    assert {flag for flag in named if flag not in helped} == set()
