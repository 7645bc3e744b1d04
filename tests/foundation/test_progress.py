"""Progress is shown when asked for, in words, and never otherwise."""

import io

import pytest
from rich.console import Console

from ustad import progress


@pytest.fixture
def shown():
    """What progress prints, as text."""
    stream = io.StringIO()
    progress.enable(Console(file=stream, width=200))
    yield stream
    progress.disable()


def test_nothing_is_shown_unless_enabled(capsys):
    progress.disable()
    progress.say("hello")
    with progress.track("work", 3) as advance:
        advance()
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_lines_are_said_where_there_is_no_terminal(shown, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    with progress.track("work", 3) as advance:
        advance(2, note="loss 1.5")
    assert "work: 2 of 3" in shown.getvalue()
    assert "loss 1.5" in shown.getvalue()


def test_silence_ends_with_its_block(shown):
    with progress.silence():
        progress.say("unheard")
    progress.say("heard")
    assert shown.getvalue().strip() == "heard"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3, "a few seconds"), (42, "about 40 seconds"), (200, "about 3 minutes"), (7200, "about 2.0 hours")],
)
def test_durations_are_said_as_people_say_them(seconds, words):
    assert progress.roughly(seconds) == words
