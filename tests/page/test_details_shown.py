"""What the page shows of an event comes from its details where they are kept, and from its evidence where not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from report_example import tables_of

from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.page.answers import freeze
from ustad.page.translate import Layout, keys_of, store_rows
from ustad.scores import Scores


@pytest.fixture(scope="module")
def detector(town: Dataset) -> Detector:
    return Detector("quick", device="cpu").fit(town)


@pytest.fixture(scope="module")
def every(detector: Detector, town: Dataset) -> Scores:
    """Details of every event: joined, what older versions wrote."""
    return detector.score(town, details=True, reasons="all")


@pytest.fixture(scope="module")
def some(detector: Detector, town: Dataset) -> Scores:
    return detector.score(town, reasons="all")


def contents(scores: Scores, table: pa.Table) -> dict[int, dict[str, Any]]:
    _, details = store_rows(table, Layout.of(scores.schema))
    return {key: json.loads(text) for key, text in details.items()}


def test_without_details_the_evidence_says_what_was_expected(every: Scores, some: Scores) -> None:
    older, newer = contents(every, every.with_details()), contents(some, some.with_details())
    keys = keys_of(some.events, some.schema)
    for key, incident in zip(keys, some.events["incident_id"].to_pylist(), strict=True):
        if incident is not None:
            assert newer[key] == older[key]
            continue
        assert newer[key]["evidence"] == older[key]["evidence"]
        known = {name: value for name, value in older[key]["facts"].items() if name != "at_home"}  # of details alone
        assert newer[key]["facts"] == {name: pytest.approx(value, rel=1e-5) for name, value in known.items()}
        for term in ("start", "duration"):
            for part in ("expected", "observed", "spread", "error"):
                value = older[key]["terms"][term][part]
                assert newer[key]["terms"][term][part] == (value if value is None else pytest.approx(value, abs=2e-3))
        assert newer[key]["terms"]["poi"]["expected"] is None  # a word is no part of the evidence


def test_scores_alone_still_show_their_questions(some: Scores) -> None:
    alone = contents(some, some.events)
    assert all({"recurrence", "start"} < content["evidence"].keys() for content in alone.values())
    assert all(content["terms"]["start"]["observed"] is not None for content in alone.values())


def test_a_report_of_older_scores_opens_the_same_incidents(every: Scores, some: Scores) -> None:
    """Older versions wrote details into the table of event scores."""
    older = tables_of(every.with_details(), every.agents, every.run)
    newer = tables_of(some.events, some.agents, some.run, details=some.details)
    one, other = (freeze(run, cases=2, lanes=5, alerts=20) for run in (older, newer))
    assert one.answers["/v1/alerts"] == other.answers["/v1/alerts"]
    assert one.agents.keys() == other.agents.keys()
    pairs = zip(keys_of(some.events, some.schema), some.events["incident_id"].to_pylist(), strict=True)
    in_incidents = {str(key) for key, name in pairs if name is not None}
    opened = 0
    for name, answers in one.agents.items():
        for address, answer in answers.items():
            if address.startswith("/v1/events/") and address.rpartition("/")[2] in in_incidents:
                assert other.agents[name][address] == answer
                opened += 1
    assert opened > 5
