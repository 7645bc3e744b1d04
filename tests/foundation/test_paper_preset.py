"""The preset `paper` is what the page about the method says it is, setting by setting."""

import re
from pathlib import Path

from ustad.config import Config, describe_settings
from ustad.config.setting_fields import flatten

PAGE = Path(__file__).parents[2] / "docs" / "method.md"
#: Settings of the paper's network that the paper says nothing of; the table of departures does where it matters.
SILENT = {
    "window.unit", "window.session_minutes", "window.max_events", "model.heads", "model.scaling",
    "training.epochs", "training.patience", "training.max_minutes", "training.acceleration",
}  # fmt: skip


def table(heading: str) -> list[list[str]]:
    """Rows of the table whose first line is `heading`, cell by cell."""
    lines = PAGE.read_text().splitlines()
    rows = lines[lines.index(heading) + 2 :]
    end = next(i for i, line in enumerate(rows) if not line.startswith("|"))
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[:end]]


def test_the_page_names_every_setting_of_the_preset_with_its_value():
    preset = dict(flatten(Config.preset("paper").to_dict()))
    told = {name.strip("`"): value for name, value, _ in table("| setting | preset | the paper |")}
    assert {name: str(preset[name]) for name in told} == told
    of_network = {row["name"] for row in describe_settings() if "dual" in (row["networks"] or ())}
    assert of_network == set(told) | SILENT


def test_every_point_that_is_not_as_printed_is_a_row_of_departures():
    points = {row[0] for row in table("| point | paper | here | why |")}
    assert {
        "scale of numbers", "rate after the start", "mask token", "day of the week", "trip vectors in the score",
        "early stopping", "validation", "learning rate of embeddings", "gradient clipping", "masks",
    } <= points  # fmt: skip
    assert re.search(r"atan2\(mean ŷ, mean x̂\)", PAGE.read_text())
