"""Own places and kinds of days in words, for every sentence that names one. Words come from the schema."""

from __future__ import annotations

from ustad.events.templates import place_words
from ustad.habits.habit_model import HabitModel


def name_place(model: HabitModel, place: int) -> str:
    """At an own place: where nights are spent it is home, else its kind in the schema's words."""
    kind = name_kind(model, place)
    return "elsewhere" if kind is None else f"at {place_words(kind)}"


def name_kind(model: HabitModel, place: int) -> str | None:
    """`home`, or the kind of an own place, None where it is not known."""
    if model.is_home(place):
        return "home"
    code = int(model.habits.place_category[place])
    return model.frame.categories[code - 1] if code > 0 else None


def days_like(is_weekend: bool) -> str:
    """What days an hour is compared with."""
    return "weekend days" if is_weekend else "weekdays"
