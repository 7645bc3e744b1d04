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


def test_long_work_says_a_line_from_python_too_and_short_work_none(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_is_off", False)
    monkeypatch.setattr(progress, "_console", None)
    with progress.track("short work", 3) as advance:
        advance()
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    with progress.track("long work", 3) as advance:
        advance(2)
    with progress.silence(), progress.track("hidden work", 3) as advance:
        advance(2)
    captured = capsys.readouterr()
    assert captured.err.startswith("long work: 2 of 3")
    assert "short" not in captured.err
    assert "hidden" not in captured.err


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


def test_warnings_show_from_python_and_name_the_line_that_called(recwarn):
    progress.disable()
    progress.warn("few reference events")
    (warning,) = recwarn.list
    assert str(warning.message) == "few reference events"
    assert warning.filename == __file__


def test_warnings_of_the_command_line_are_one_line_whatever_quiet_says(capsys, monkeypatch):
    from ustad import cli

    @cli.app.command("caution", hidden=True)
    def caution() -> None:
        progress.say("progress")
        progress.warn("the data\nis thin [see docs]")
        progress.warn("the data\nis thin [see docs]")

    try:
        with pytest.raises(SystemExit) as stop:
            cli.main(["--quiet", "caution"])
    finally:
        cli.app.registered_commands.pop()
    assert stop.value.code == 0
    assert capsys.readouterr().err.splitlines() == ["warning: the data is thin [see docs]"] * 2


def test_silence_silences_warnings_too(recwarn):
    with progress.silence():
        progress.warn("unheard")
    assert not recwarn.list


def test_ordinals_are_said_as_people_say_them():
    from ustad.habits.habit_words import ordinal

    said = [ordinal(n) for n in (3, 11, 21, 22, 23, 111, 112, 131, 1013)]
    assert said == ["third", "11th", "21st", "22nd", "23rd", "111th", "112th", "131st", "1013th"]
