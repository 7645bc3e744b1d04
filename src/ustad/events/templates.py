"""Every sentence that says why an event stands out: the one list of them.

A reason is made of these, in this order: what happened, what is usual, how often since, how sure, what was not
observed. `say` fills one in; docs/reference/sentences.md lists them all with examples, written by
`python benchmarks/words_page.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """A sentence with names in braces, when it is said, and values that make an example of it."""

    text: str
    when: str
    example: dict[str, str]


_TIME = {"place": "a bar", "clock": "04:56", "length": "8 min"}
_DAYS = {"often": "Always", "there": "at home", "hour": "this hour", "days": "10", "all": "10", "which": "weekdays"}
#: By name; the groups of a reason one after the other.
TEMPLATES: dict[str, dict[str, Template]] = {
    "what happened": {
        "stay": Template("At {place} at {clock} for {length}.", "a place and a length are known", _TIME),
        "left": Template(
            "Left {place} at {clock}, there since {start} ({length}).",
            "an own place that was left at another hour than usual",
            {"place": "home", "clock": "03:53", "start": "19:02", "length": "8 h 51 min"},
        ),
        "handover": Template(
            "Left {before} at {left} and was {there} at {clock}{length}.",
            "the place before was left at another hour than usual",
            {
                "before": "the office", "left": "11:20", "there": "at a gym", "clock": "11:40",
                "length": " for 50 min",
            },
        ),
        "stay_open": Template("At {place} at {clock}.", "a place is known, no length", _TIME),
        "somewhere": Template("At {place}.", "no clock time is known", _TIME),
        "event": Template(
            "{what} at {clock}.", "events that are no stays", {"what": "Payment (groceries)", "clock": "12:10"}
        ),
        "event_long": Template(
            "{what} at {clock} for {length}.",
            "the kind of place is not known",
            {"what": "Stay", "clock": "12:10", "length": "40 min"},
        ),
        "unlike": Template(
            "Unlike any known {event}.", "`paper`: the distance to known events leads", {"event": "stay"}
        ),
        "value": Template(
            "{label}: {value}.", "another feature leads", {"label": "Duration", "value": "11 h 5 min"}
        ),
        "unusual": Template("Unusual {label}.", "a feature without a plain value leads", {"label": "basket"}),
        "own_range": Template(
            "{label}: {value}, where {low} to {high} is usual ({events}).",
            "a number, beside eight of ten of the entity's own ones",
            {"label": "Amount", "value": "4,200 EUR", "low": "12", "high": "80 EUR", "events": "38 payments"},
        ),
        "everybody_range": Template(
            "{label}: {value}, where {low} to {high} is usual for everybody (of their own: {events}).",
            "the same of somebody with fewer than five own ones",
            {"label": "Amount", "value": "4,200 EUR", "low": "12", "high": "80 EUR", "events": "2 payments"},
        ),
        "own_word": Template(
            "{label}: {value}, {often} ({events}{mostly}).",
            "a word, beside how often the entity had it",
            {
                "label": "Device", "value": "tablet", "often": "never before", "events": "38 payments",
                "mostly": ", mostly phone",
            },
        ),
    },
    "what is usual": {
        "elsewhere": Template(
            "{often} {there} at {hour} ({days} of {all} {which}){away}.",
            "they are somewhere else on most such days",
            {**_DAYS, "away": ", 4.6 km away"},
        ),
        "missed": Template(
            "Not {there} on {day}; there at {hour} on {days} of {all} {which}{away}.",
            "somewhere for hours instead of where they nearly always are",
            {
                "there": "at work", "day": "Tuesday", "hour": "10:30", "days": "19", "all": "20", "which": "weekdays",
                "away": ", 4.6 km away",
            },
        ),
        "here": Template("Usually here {times}.", "an own place", {"times": "from 18:10 ± 25 min for 13 h ± 40 min"}),
        "here_varies": Template(
            "They come here {times}.",
            "an own place whose visits differ much: eight of ten are within the span",
            {"times": "at any hour, for anything from 10 min to 14 h"},
        ),
        "leaves": Template(
            "They usually leave around {clock}.",
            "an own place that was left at another hour than usual",
            {"clock": "17:05"},
        ),
        "leaves_before": Template(
            "They {often} leave {before} around {clock} ({days} of {all} {which}).",
            "the place before was left at another hour than usual: when it is left on such days, within an hour",
            {
                "often": "nearly always", "before": "the office", "clock": "17:05", "days": "18", "all": "20",
                "which": "weekdays",
            },
        ),
        "expected": Template(
            "Expected {what}{away}.", "`paper`", {"what": "home at 18:10 ± 25 min", "away": ", 41 km away"}
        ),
    },
    "how often since": {
        "first": Template(
            "First time here: never {before}{distance}.",
            "the first visit to a new place",
            {"before": "in the 14 days until 28 May", "distance": ", 910 m from anywhere usual"},
        ),
        "again": Template(
            "{ordinal} time here; never {before}{distance}.",
            "another visit to a new place",
            {"ordinal": "Fourth", "before": "in the 14 days until 28 May", "distance": ", 910 m from anywhere usual"},
        ),
        "known": Template(
            "Here {times} {before}.", "an own place", {"times": "12 times", "before": "in the 28 days before"}
        ),
        "more": Template(
            "Here {times} {before}, {now} since.",
            "an own place that is visited more often now",
            {"times": "twice", "before": "in the 28 days until 28 May", "now": "6 times"},
        ),
        "new_kind": Template(
            "A new kind of place for {whom}: {kind}.", "its kind is new too", {"whom": "them", "kind": "bar"}
        ),
        "rare_kind": Template(
            "People seldom go to {place} for the first time.", "that makes much of the score", {"place": "an office"}
        ),
        "elsewhere_hours": Template(
            "Here at hours usually spent elsewhere.", "that makes much of the score, and no one place is usual", {}
        ),
        "never": Template("Never here in {days}.", "`paper`: not in training", {"days": "28 days"}),
        "seen": Template(
            "Here {times} in {days}{but}.",
            "`paper`: known from training",
            {"times": "4 times", "days": "21 days", "but": ", never at this hour"},
        ),
    },
    "what else belongs to it": {
        "with_it": Template(
            "Also part of it: at {place} {times}, {away} {whence}.",
            "on the page: another stay of the incident, where the leading one is at an own place",
            {"place": "a shop", "times": "01:04–02:20", "away": "2.1 km", "whence": "from home"},
        ),
        "then": Template(
            "{explains} Then: {reason}",
            "on the page: the most unusual stay is the way back from the one that explains the incident",
            {"explains": "At a bar at 01:04 for 1 h 16 min. …", "reason": "At home at 02:26 for 4 h."},
        ),
    },
    "how sure": {
        "sure": Template("Sure: {number} {which} known.", "ten or more", {"number": "20", "which": "weekdays"}),
        "fairly": Template(
            "Fairly sure: {number} {which} known.", "five to nine", {"number": "eight", "which": "visits here"}
        ),
        "unsure": Template(
            "Unsure: only {number} {which} known.", "fewer", {"number": "four", "which": "weekend days"}
        ),
        "doubt": Template(
            "Unsure: few {events} like this are known.",
            "the network's doubt is among the highest 5 %",
            {"events": "stays"},
        ),
        "nothing": Template(
            "Unsure: they have no history yet.", "nothing was learnt of them", {}
        ),
    },
    "what was not observed": {
        "unseen_start": Template(
            "Start not observed: {span}.", "nobody saw the start", {"span": "between 18:10 and 23:40"}
        ),
        "unseen_end": Template("End not observed: {span}.", "nobody saw the end", {"span": "after 07:40"}),
        "around": Template("Not observed for {length} around it.", "events without a clock time", {"length": "45 min"}),
        "silence": Template("No data at hours that usually have some.", "the question `silence` leads", {}),
    },
    "several people": {
        "group": Template(
            "At the same place, {place}, at {clock} on {date}: {who}. New to {new}; {people} people in the data go "
            "there.",
            "a row of `groups.parquet`",
            {
                "who": "a-17 and b-3", "place": "a warehouse", "clock": "12:10", "date": "14 May",
                "new": "each of them", "people": "3",
            },
        ),
        "first_together": Template(
            "With {who} for {length} at {place} that few people go to. In the weeks before they never were together at "
            "such a place.",
            "a row of `company.parquet`",
            {"who": "b-3", "length": "45 min", "place": "a warehouse"},
        ),
        "without": Template(
            "Without {who}, who was there too on {times} of {visits} visits before ({place}).",
            "a row of `company.parquet`",
            {"who": "b-3", "times": "9", "visits": "10", "place": "a gym"},
        ),
    },
    "a person as a whole": {
        "shift": Template(
            "Many of their {events} are a little more unusual than before. Most unusual: {reason}",
            "many small changes",
            {"events": "stays", "reason": "…"},
        ),
        "profile": Template(
            "They divide their {events} among their places differently than before. Most unusual: {reason}",
            "other places, or the same ones in another measure",
            {"events": "stays", "reason": "…"},
        ),
        "lasting": Template(
            "{change} Most unusual: {reason}",
            "a lasting change, see below",
            {"change": "Since 3 May weekday evenings at a bar instead of at home: …", "reason": "…"},
        ),
        "changed": Template(
            "Since {date} {times} {now} instead of {before}: {days} of {all}, before {days_before} of {all_before}.",
            "a lasting change of where they are at some time of day",
            {
                "date": "3 May", "times": "weekday evenings", "now": "at home", "before": "at a bar",
                "days": "11", "all": "12", "days_before": "3", "all_before": "20",
            },
        ),
        "changed_number": Template(
            "Since {date} {what} on {which}: {now} instead of {before} (medians).",
            "a lasting change of how many visits a day has, or of how far they lie apart",
            {"date": "3 May", "what": "more stays", "which": "weekdays", "now": "9 a day", "before": "4 a day"},
        ),
        "changed_otherwise": Template(
            "Since {date} {times} are unlike those before.",
            "a lasting change that no one place or number tells",
            {"date": "3 May", "times": "weekday evenings"},
        ),
    },
}  # fmt: skip
_BY_NAME = {name: template.text for group in TEMPLATES.values() for name, template in group.items()}
#: How often somebody is somewhere, from this share of the days on.
OFTEN = ((0.995, "Always"), (0.9, "Nearly always"), (0.6, "Usually"), (0.3, "Often"), (0.0, "Sometimes"))
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
#: From so many similar days or visits on, a reason calls itself sure, and fairly sure.
MANY, SOME = 10, 5


def say(name: str, **values: object) -> str:
    """A sentence of the list.

    >>> say("never", days="28 days")
    'Never here in 28 days.'
    """
    text = _BY_NAME[name].format(**values)
    return text[:1].upper() + text[1:]


def say_how_sure(number: int, which: str) -> str:
    """How sure a reason is by so many similar days or visits.

    >>> say_how_sure(20, "weekdays"), say_how_sure(1, "visits here")
    ('Sure: 20 weekdays known.', 'Unsure: only one visit here known.')
    """
    level = "sure" if number >= MANY else "fairly" if number >= SOME else "unsure"
    if number == 1:
        which = re.sub(r"s\b", "", which, count=1)
    return say(level, number=number_words(number), which=which)


def number_words(number: int) -> str:
    """Small numbers as words."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else f"{number:,}"


#: Kinds of place that take no article.
_BARE = {
    "home", "work", "school", "fast food", "car repair", "healthcare", "health care", "childcare", "transport",
    "worship", "shopping", "recreation", "exercise", "leisure", "education", "somewhere", "sport",
}  # fmt: skip


def place_words(kind: str) -> str:
    """A kind of place with its article; none for names that take none, such as labels of a data set.

    >>> place_words("bar"), place_words("office"), place_words("EatOut"), place_words("work"), place_words("services")
    ('a bar', 'an office', 'EatOut', 'work', 'services')
    """
    if not kind.islower() or "_" in kind or kind in _BARE or re.search(r"[^s]s$", kind):
        return kind
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"
