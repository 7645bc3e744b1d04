"""The flags that the pages about scores name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ustad.cli import app

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["scoring.md", "paper-score.md", "threshold.md"])
def test_every_flag_of_the_page_is_one_of_the_verb(page: str) -> None:
    named = set(re.findall(r"`ustad score [^`]*`|`(--[a-z-]+)", (DOCS / page).read_text())) - {""}
    helped = CliRunner().invoke(app, ["score", "--help"], terminal_width=200, env={"COLUMNS": "200"}).output
    assert named
    assert {flag for flag in named if flag not in helped} == set()
