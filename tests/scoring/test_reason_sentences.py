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

from ustad.events.templates import OFTEN, TEMPLATES, say, say_how_sure
from ustad.habits.habit_words import ordinal
from ustad.habits.leaving_words import contradicts_times
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
        assert re.match(
            r"At [\w ]+ at \d\d:\d\d for |Left [\w ]+ at \d\d:\d\d(, there since | and was [\w ]+ at \d\d:\d\d for )",
            row["reason"],
        )
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
    is_told = [bool(re.match(r"Left [\w ]+ at \d\d:\d\d, there", row["reason"])) for row in scored]
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


def test_an_unusual_leaving_of_the_place_before_is_told_with_the_days_on_which_it_is_left_around_then(scored):
    """Counted one by one: weekdays or weekend days of the four weeks with an end of a stay there within an hour."""
    learnt, before, told, leads = between(make_routine(seed=2), 0, 28).to_pylist(), {}, 0, 0
    for row in sorted(scored, key=lambda row: row["started_at"]):
        earlier, before[row["agent_id"]] = before.get(row["agent_id"]), row
        shares = {one["name"]: one["share"] for one in row["evidence"]}
        is_told = row["reason"].startswith("Left ") and ", there since" not in row["reason"]
        assert is_told == (shares["left_before"] >= 0.2), row["reason"]
        if not is_told:
            continue
        left = earlier["finished_at"]
        assert row["reason"].startswith(f"Left {_name(earlier)} at {left:%H:%M} and was {_there(row, earlier)} at ")
        said = re.search(r"They ([\w ]+) leave ([\w ]+) around (\d\d):(\d\d) \((\d+) of (\d+) (\w+)", row["reason"])
        often, place, hour, minute, days, all_days, which = said.groups()
        assert (place, which) == (_name(earlier), "weekend" if left.weekday() >= 5 else "weekdays")
        usual = int(hour) * 60 + int(minute)
        days_left = {
            r["finished_at"].date()
            for r in learnt
            if (r["agent_id"], r["poi_id"]) == (earlier["agent_id"], earlier["poi_id"])
            and (r["finished_at"].weekday() >= 5) == (left.weekday() >= 5)
            and abs((r["finished_at"].hour * 60 + r["finished_at"].minute - usual + 720) % 1440 - 720) <= 60
        }
        assert abs(int(days) - len(days_left)) <= 1, "the usual minute is told to the minute"
        share = int(days) / int(all_days)
        assert often == next(word.lower() for least, word in OFTEN if share >= least)
        if max(shares, key=shares.get) == "left_before":
            there = [r for r in learnt if (r["agent_id"], r["poi_id"]) == (row["agent_id"], earlier["poi_id"])]
            assert say_how_sure(len(there), "visits there") in row["reason"]
            leads += 1
        told += 1
    assert told >= leads > 3


def _name(row):
    return "home" if row["poi_category"] == "Home" else row["poi_category"]


def _there(row, earlier):
    return "back" if row["poi_id"] == earlier["poi_id"] else f"at {_name(row)}"


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
