"""What a notebook shows of data, detectors and scores: their numbers, their sentences, and never markup from data."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.scores import Scores
from ustad.tables import DataError

HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def events() -> pa.Table:
    moments = pa.array([datetime(2024, 3, day, tzinfo=UTC) for day in (1, 2, 3)], pa.timestamp("us", tz="UTC"))
    return pa.table({
        "agent_id": [HOSTILE, "b", "b"], "started_at": moments, "finished_at": moments, "lat": [60.0, 60.1, None],
        "lon": [25.0, 25.1, None], "timezone": ["UTC"] * 3,
    })  # fmt: skip


def test_data_shows_its_counts_its_span_and_where_it_lies() -> None:
    page = Page(Dataset(events(), meta={"name": HOSTILE})._repr_html_())
    assert "script" not in page.tags
    assert HOSTILE in "".join(page.words)
    assert {"3", "2", "2024-03-01 to 2024-03-03"} <= set(page.words)
    assert page.tags.count("circle") == 2


def test_data_without_events_or_places_shows_no_dots() -> None:
    assert "circle" not in Dataset(events().slice(0, 0))._repr_html_()
    assert "circle" not in Dataset(events().slice(2))._repr_html_()


def test_scores_show_the_most_unusual_first_with_their_sentences() -> None:
    table = (
        events()
        .append_column("score", pa.array([1.0, 3.0, 2.0]))
        .append_column("reason", pa.array(["x", HOSTILE, "y"]))
    )
    page = Page(Scores(table, run={"alerts": 2, "warnings": ["mind the gap"]})._repr_html_())
    assert "script" not in page.tags
    assert [w for w in page.words if w in ("1", "2", "3")][-3:] == ["3", "2", "1"]
    assert {HOSTILE, "mind the gap", "2"} <= set(page.words)


def test_a_detector_says_whether_it_has_learnt() -> None:
    detector = Detector("quick", device="cpu")
    assert "Not fitted yet" in detector._repr_html_()
    detector.facts = {"events": 1904, "entities": 60, "first_day": "2024-05-06"}
    assert {"1,904", "60", "2024-05-06"} <= set(Page(detector._repr_html_()).words)


def test_a_case_shows_its_stays_in_order_and_where_they_lie_among_the_others() -> None:
    table = pa.table(
        {
            "agent_id": ["a", "a", "a", "b"], "started_at": [3, 1, 2, 1], "lat": [60.0, 60.1, 60.2, 10.0],
            "lon": [24.0, 24.1, None, 10.0], "score": [3.0, 1.0, 2.0, 9.0], "incident_id": ["x", "x", None, "y"],
            "reason": [HOSTILE, "At a bar.", None, None],
        }
    )  # fmt: skip
    page = Scores(table).case("x")._repr_html_()
    assert page.index("At a bar.") < page.index("&lt;")
    assert HOSTILE not in page
    assert page.count('r="5"') == 2
    assert page.count('r="2"') == 2, "of the same agent, where a place is known"
    with pytest.raises(DataError, match="no incident is called 'z'"):
        Scores(table).case("z")
