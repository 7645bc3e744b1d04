"""What of a request is new and in order, against a store that is a plain list and is always asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.service.arrivals import Arrival, Arrivals

Row = dict[str, Any]


class ListedStore:
    """A store that is a list; `asked` are the keys and agents of every question."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Row]] = []
        self.asked: list[tuple[list[int], list[str]]] = []

    def find_known(self, keys: list[int], agents: list[str]) -> tuple[set[int], dict[str, int]]:
        self.asked.append((list(keys), sorted(agents)))
        ends: dict[str, int] = {}
        for _, row in self.rows:
            if row["agent"] in agents:
                ends[row["agent"]] = max(row["finished_at"], ends.get(row["agent"], row["finished_at"]))
        return {key for key, _ in self.rows if key in keys}, ends


def event(agent: str, start: int, end: int, **more: Any) -> Row:
    return {"agent": agent, "started_at": start, "finished_at": end, **more}


def key_of(row: Row) -> int:
    return hash((row["agent"], row["started_at"]))


def arrival(*rows: Row, extracted: bool = False) -> Arrival:
    return Arrival(list(rows), [key_of(row) for row in rows], is_extracted=extracted)


def naive(stored: list[tuple[int, Row]], requests: list[Arrival]) -> list[tuple[list[Row], list[Row]] | None]:
    """The new rows of each request and all but its late ones, or None where it is refused: row by row, by the list."""
    stored, answers = list(stored), list[tuple[list[Row], list[Row]] | None]()
    for request in requests:
        fresh: list[Row] = []
        late: list[Row] = []
        for row in request.rows:
            if any(key == key_of(row) for key, _ in stored):
                continue
            ends = [r["finished_at"] for r in [*(r for _, r in stored), *fresh] if r["agent"] == row["agent"]]
            (late if ends and row["started_at"] < max(ends) else fresh).append(row)
        if late and not request.is_extracted:
            answers.append(None)
            continue
        stored += [(key_of(row), row) for row in fresh]
        answers.append((fresh, [row for row in request.rows if row not in late]))
    return answers


spans = st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(0, 3))


def unique(rows: list[tuple[str, int, int]]) -> list[Row]:
    """Events of one request: each agent and start once, in order of agent and time."""
    first = {(agent, start): event(agent, start, start + length) for agent, start, length in reversed(rows)}
    return [first[name] for name in sorted(first)]


batches = st.lists(
    st.lists(st.tuples(st.lists(spans, min_size=1, max_size=4), st.booleans()), min_size=1, max_size=3),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(batches=batches, most=st.sampled_from([0, 1, 50]), forgets=st.lists(st.booleans(), min_size=5, max_size=5))
def test_new_events_and_refusals_are_those_of_a_store_that_is_always_asked(batches, most, forgets):
    """However many agents are remembered, and whoever is forgotten in between."""
    store = ListedStore()
    arrivals: Arrivals = Arrivals(store, most)  # type: ignore[arg-type]  # it answers the one question that is asked
    for batch, is_forgotten in zip(batches, forgets, strict=False):
        requests = [arrival(*unique(rows), extracted=extracted) for rows, extracted in batch]
        expected = naive(store.rows, requests)
        arrivals.sift(requests)
        new: list[Row] = []
        for request, answer in zip(requests, expected, strict=True):
            assert (request.refusal is not None) == (answer is None)
            fresh, kept = answer or ([], request.rows)
            assert [request.rows[i] for i in request.fresh] == fresh
            assert request.rows == kept
            assert request.keys == [key_of(row) for row in kept]
            new += fresh
        store.rows += [(key_of(row), row) for row in new]
        arrivals.note_accepted(new)
        if is_forgotten:
            arrivals.forget(["a", "nobody"])


def test_nothing_is_asked_of_what_comes_after_the_latest_event_of_its_agent():
    store = ListedStore()
    arrivals: Arrivals = Arrivals(store)  # type: ignore[arg-type]
    arrivals.note_accepted([event("a", 0, 5), event("a", 5, 9)])
    arrivals.sift([arrival(event("a", 9, 10))])
    arrivals.sift([arrival(event("a", 6, 7))])
    assert store.asked == []
    arrivals.sift([arrival(event("a", 5, 9), event("a", 12, 13), event("b", 1, 2))])
    assert store.asked == [([key_of(event("a", 5, 9)), key_of(event("b", 1, 2))], ["b"])]
    arrivals.forget(["a"])
    arrivals.sift([arrival(event("a", 20, 21))])
    assert store.asked[-1][1] == ["a"]


@pytest.mark.parametrize(("most", "asked"), [(1, ["a", "b"]), (2, ["b"]), (3, [])])
def test_of_more_agents_than_are_remembered_those_heard_of_last_stay(most, asked):
    store = ListedStore()
    arrivals: Arrivals = Arrivals(store, most)  # type: ignore[arg-type]
    arrivals.note_accepted([event(agent, start, start + 1) for start, agent in enumerate("abac")])
    arrivals.sift([arrival(event("a", 50, 51), event("b", 50, 51), event("c", 50, 51))])
    assert [agents for _, agents in store.asked] == ([asked] if asked else [])


def test_a_refusal_counts_what_is_late_and_names_at_most_twenty_rows_in_order():
    store = ListedStore()
    arrivals: Arrivals = Arrivals(store)  # type: ignore[arg-type]
    arrivals.note_accepted([event("a", 0, 100), event("b", 0, 5)])
    rows = [event("a", start, start + 1, row=50 - start) for start in range(1, 26)] + [event("b", 7, 8, row=60)]
    rows += [event("a", 30, 31)]  # found in fixes, without a row
    request = arrival(*rows)
    arrivals.sift([request])
    assert request.refusal is not None
    assert request.refusal.message.startswith("26 of 27 new events begin before")
    assert [detail["row"] for detail in request.refusal.details] == list(range(25, 45))
    assert request.fresh == []
    both = arrival(event("b", 7, 8), event("a", 30, 31), extracted=True)
    arrivals.sift([both])
    assert (both.refusal, both.rows, both.fresh) == (None, [event("b", 7, 8)], [0])
