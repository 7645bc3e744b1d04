"""Reasons are made of the listed sentences, in their order, and the list is what documentation and page show."""

import math
import re
import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from routine_stays import between, make_routine, odd_week
from whole_scores import score_by_habits

from ustad.events.templates import TEMPLATES, say
from ustad.habits.habit_words import contradicts_times, ordinal
from ustad.judges import learn_from
from ustad.kind_words import KIND_WORDS
from ustad.schema import mobility_schema
from words_page import LIST, PAGE, SCRIPT, fill, write_page, write_script, write_sentences

GROUPS = [group for group in TEMPLATES if group != "a person as a whole"]


def pattern(text):
    """A regular expression of one sentence: what stands for a value ends before the next sentence."""
    parts = re.split(r"\{\w+\}", text)
    return r"(?:(?!\. [A-Z]).)*?".join(map(re.escape, parts))


REASON = re.compile(
    " ".join(
        [f"(?:{'|'.join(pattern(t.text) for t in TEMPLATES['what happened'].values())})"]
    ) + "".join(f"(?: (?:{'|'.join(pattern(t.text) for t in TEMPLATES[group].values())}))*" for group in GROUPS[1:])
)  # fmt: skip


@pytest.fixture(scope="module")
def scored():
    life = make_routine(seed=2)
    model = learn_from(between(life, 0, 21), between(life, 21, 28), mobility_schema("none", 16, True))
    return score_by_habits(model, odd_week(life), reasons="all")[0].to_pylist()


def test_every_reason_is_made_of_listed_sentences_in_their_order(scored):
    assert len(scored) > 90
    for row in scored:
        assert REASON.fullmatch(row["reason"]), row["reason"]
    first, second, *others = scored[0]["reason"].split(". ")
    assert not REASON.fullmatch(". ".join([second, first, *others])), "the order does not matter to this test"


def test_every_reason_begins_with_what_happened_and_says_how_sure_it_is(scored):
    for row in scored:
        assert re.match(r"At [\w ]+ at \d\d:\d\d for |Left [\w ]+ at \d\d:\d\d, there since ", row["reason"])
        assert re.search(r" (Sure|Fairly sure|Unsure): ", row["reason"])


def test_a_reason_counts_days_that_there_were(scored):
    """Four weeks were learnt from: 20 weekdays and 8 weekend days, and nobody is somewhere on more days than those."""
    for row in scored:
        for there, days, which in re.findall(r"\((\d+) of (\d+) (weekdays|weekend days)\)", row["reason"]):
            assert 1 <= int(there) <= int(days) == {"weekdays": 20, "weekend days": 8}[which]


def test_a_reason_counts_visits_here_and_says_until_when_was_learnt(scored):
    """Counted one by one: visits to the place in the four weeks, which end on 28 January, and since, up to this one."""
    learnt = between(make_routine(seed=2), 0, 28).to_pylist()
    numbers = {"once": 1, "twice": 2, None: 0}
    counted = 0
    for row in scored:
        before = sum(r["agent_id"] == row["agent_id"] and r["poi_id"] == row["poi_id"] for r in learnt)
        now = sum(
            r["agent_id"] == row["agent_id"] and r["poi_id"] == row["poi_id"] and r["started_at"] <= row["started_at"]
            for r in scored
        )
        until = "before" if row["started_at"].date() == date(2024, 1, 29) else "until 28 January"
        here = re.search(r"Here (\w+)(?: times)? in the 28 days (.*?)(?:, (\w+)(?: times)? since)?\. ", row["reason"])
        new = re.search(r"time here([:;]) never in the 28 days (before|until 28 January)[.,]", row["reason"])
        assert (here or new).group(2) == until, row["reason"]
        assert bool(here) == (before > 0)
        if here:
            assert int(numbers.get(here.group(1), here.group(1))) == before
            assert here.group(3) is None or int(numbers.get(here.group(3), here.group(3))) == now
        else:
            assert (new.group(1) == ":") == (now == 1)
            assert row["reason"].split(" time here")[0].split(". ")[-1] == ordinal(now).capitalize()
        counted += until != "before"
    assert counted > 50


def test_where_nights_are_spent_is_called_home(scored):
    texts = " ".join(row["reason"] for row in scored)
    assert "at home at" in texts
    assert "at Home" not in texts


def test_every_sentence_has_an_example_that_fills_it():
    for templates in TEMPLATES.values():
        for name, template in templates.items():
            assert say(name, **template.example) == fill(template)
            assert set(re.findall(r"\{(\w+)\}", template.text)) <= set(template.example)


def test_the_documentation_and_the_page_say_what_the_code_says():
    page = PAGE.read_text()
    assert page == write_page(page), "write it anew: python benchmarks/words_page.py"
    for file, text in ((LIST, write_sentences()), (SCRIPT, write_script())):
        assert file.read_text() == text, "write it anew: python benchmarks/words_page.py"
    assert page.count(next(iter(KIND_WORDS.values()))[1]) == 1


def test_a_spread_that_says_nothing_is_said_as_a_span():
    """Errands of a minute or a day: a mean and its spread tell nobody anything, the span of most of them does."""
    life = make_routine(seed=2)
    lengths = np.random.default_rng(4).choice([2, 5, 9, 150, 300, 420], life.num_rows)
    start = life["started_at"].cast(pa.int64()).to_numpy()
    is_errand = np.array(life["poi_category"].to_pylist()) == "Shop"
    assert is_errand.sum() > 50
    end = np.where(is_errand, start + lengths * 60_000_000, life["finished_at"].cast(pa.int64()).to_numpy())
    at = life.column_names.index("finished_at")
    life = life.set_column(at, "finished_at", pa.array(end).cast(life["finished_at"].type))
    model = learn_from(between(life, 0, 21), between(life, 21, 28), mobility_schema("none", 16, True))
    rows = score_by_habits(model, between(life, 28, 35), reasons="all")[0].to_pylist()
    spans = 0
    for row in rows:
        said = re.search(r"for anything from (\d+ min|\d+ h[ \dmin]*) to ", row["reason"])
        wide = row["spread_duration"] is not None and row["spread_duration"] > row["expected_duration"] / 2
        assert bool(said) == (wide and not row["new_place"]), row["reason"]
        assert not re.search(r"± (1[3-9]|2\d) h", row["reason"])
        spans += bool(said)
    assert spans > 5


def test_an_unusual_end_is_the_fact_that_comes_first(scored):
    """Whoever leaves at another hour than usual reads that hour, not a length to be added to a start."""
    is_told = [row["reason"].startswith("Left ") for row in scored]
    assert 0 < sum(is_told) < len(scored)
    for row, is_left in zip(scored, is_told, strict=True):
        lead = max(row["evidence"], key=lambda one: one["share"])["name"]
        assert is_left == ("They usually leave around" in row["reason"] and "End not observed" not in row["reason"])
        if is_left:
            said = re.match(
                r"Left [\w ]+ at (\d\d:\d\d), there since (\d\d:\d\d) \([^)]+\)\. They usually", row["reason"]
            )
            assert said, row["reason"]
            assert lead == "end"
            assert said.groups() == tuple(f"{row[column]:%H:%M}" for column in ("finished_at", "started_at"))


def test_home_is_never_called_a_new_kind_of_place(scored):
    assert any(row["reason"].startswith("At home ") for row in scored)
    for row in scored:
        assert not (row["reason"].startswith("At home ") and "new kind" in row["reason"])


@pytest.mark.parametrize(
    ("minute", "is_contradiction"),
    [(7 * 60 - 5, False), (7 * 60 + 80, False), (14 * 60 + 54, True), (22 * 60, True)],
)
def test_when_a_place_is_left_is_not_told_against_start_and_length(minute: float, is_contradiction: bool) -> None:
    # Usually from 22:00 ± 20 min for 9 h ± 64 min: an end of the other shift must not stand beside it.
    usual_visits = SimpleNamespace(start=[1320.0], duration=[540.0], start_spread=[20.0], duration_spread=[64.0])
    assert contradicts_times(usual_visits, 0, minute) is is_contradiction
    unknown = SimpleNamespace(start=[math.nan], duration=[540.0], start_spread=[20.0], duration_spread=[64.0])
    assert contradicts_times(unknown, 0, minute) is False
