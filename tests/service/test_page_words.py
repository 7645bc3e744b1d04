"""What the page says, asked of its own script in a real browser: the same words as the sentences from Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ustad.events.words import clock_words
from ustad.schema import plural

LOAD = """async (source) => { window.say = await import("data:text/javascript," + encodeURIComponent(source)); }"""


@pytest.fixture
def say(browser: Any) -> Iterator[Callable[..., Any]]:
    """Calls a function of words.js."""
    page = browser.new_page()
    page.evaluate(LOAD, resources.files("ustad.page").joinpath("web/words.js").read_text(encoding="utf-8"))
    yield lambda name, *values: page.evaluate("([name, values]) => window.say[name](...values)", [name, list(values)])
    page.close()


@pytest.mark.parametrize(
    ("moment", "zone", "date", "time"),
    [
        ("2024-03-04T23:59:40Z", "UTC", "Tue 5 Mar", "00:00"),
        ("2024-03-04T23:59:29.999999Z", "UTC", "Mon 4 Mar", "23:59"),
        ("2024-03-04T23:59:30Z", "UTC", "Tue 5 Mar", "00:00"),
        ("2024-03-04T18:14:40Z", "Asia/Kathmandu", "Tue 5 Mar", "00:00"),
        ("2024-03-04T08:00:30Z", "Asia/Kathmandu", "Mon 4 Mar", "13:46"),
        ("2024-03-31T00:59:45Z", "Europe/Helsinki", "Sun 31 Mar", "04:00"),
    ],
)
def test_date_and_time_are_of_one_moment_the_nearest_minute(
    say: Callable[..., Any], moment: str, zone: str, date: str, time: str
) -> None:
    assert say("date", moment, zone).replace(",", "") == date
    assert say("time", moment, zone) == time
    event = {"started_at": moment, "finished_at": moment, "timezone": zone}
    assert say("span", event).replace(",", "") == f"{date} {time}–{time}"


def test_clock_times_are_those_of_the_sentences(say: Callable[..., Any]) -> None:
    minutes = [0, 0.5, 1.5, 2.5, 61.49, 719.5, 1439.4, 1439.5, 1440, -0.5, -5.2, 2000.7]
    assert [say("clock", m) for m in minutes] == [clock_words(m) for m in minutes]


def test_several_of_a_kind_are_called_as_in_python(say: Callable[..., Any]) -> None:
    words = ["entity", "stay", "agent", "box", "purchase", "bus", "match", "dish", "quiz", "y"]
    assert [say("plural", word) for word in words] == [plural(word) for word in words]


def test_the_page_leaves_no_plural_to_chance() -> None:
    for script in resources.files("ustad.page").joinpath("web").iterdir():
        if script.name.endswith(".js"):
            assert not re.search(r"word\}s", script.read_text(encoding="utf-8")), script.name


@pytest.mark.parametrize(
    ("day", "zone"),
    [
        ("2024-06-30", "UTC"),
        ("2024-06-30", "America/Los_Angeles"),
        ("2024-06-30", "Pacific/Kiritimati"),
        ("2024-06-30", "Pacific/Pago_Pago"),
        ("2024-12-31", "Asia/Kathmandu"),
        ("2024-03-31", "Europe/Helsinki"),
        ("2024-10-27", "Europe/Helsinki"),
        ("2024-10-26", "Asia/Beirut"),
        ("2024-03-09", "America/Havana"),
    ],
)
def test_a_day_ends_at_the_first_moment_whose_local_date_is_later(say: Callable[..., Any], day: str, zone: str) -> None:
    end = datetime.fromisoformat(say("endOfDay", day, zone))
    minute = timedelta(minutes=1)
    assert end.astimezone(ZoneInfo(zone)).date().isoformat() > day
    assert (end - minute).astimezone(ZoneInfo(zone)).date().isoformat() == day
    assert say("lastDayUntil", end.isoformat(), zone) == day


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("2030-06-30T21:00:00Z", "the end of Sun 30 Jun 2030"),
        ("2030-06-30T20:30:00Z", "Sun 30 Jun 2030 23:30 Helsinki time"),
        ("2030-06-30T21:00:00.5Z", "Mon 1 Jul 2030 00:00 Helsinki time"),
        ("2030-07-01T07:12:00Z", "Mon 1 Jul 2030 10:12 Helsinki time"),
    ],
)
def test_only_the_end_of_a_day_is_called_so(say: Callable[..., Any], moment: str, words: str) -> None:
    assert say("untilText", moment, "Europe/Helsinki").replace(",", "") == words


def test_a_zone_that_the_browser_does_not_know_is_utc(say: Callable[..., Any]) -> None:
    assert [say("knownZone", zone) for zone in ("Europe/Helsinki", "Mars/Olympus")] == ["Europe/Helsinki", "UTC"]


def test_everything_vendored_comes_with_its_licence_and_is_named_in_the_docs() -> None:
    told = (Path(__file__).parents[2] / "docs" / "page.md").read_text(encoding="utf-8")
    vendored = [p for p in resources.files("ustad.page").joinpath("web/vendor").iterdir() if p.is_dir()]
    assert {"maplibre-gl", "uplot"} <= {p.name for p in vendored}
    for place in vendored:
        assert "Copyright" in place.joinpath("LICENSE.txt").read_text(encoding="utf-8"), place.name
        assert f"vendor/{place.name}`" in told, place.name
