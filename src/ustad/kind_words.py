"""Words for kinds of unusual events and for questions: the one place that maps what is stored to what people read."""

from __future__ import annotations

_TIMES = ("start", "duration", "end", "leaving", "memory_start", "memory_duration")
#: Words for the stored kinds and what they mean; `kind/question` where the question that leads says more.
KIND_WORDS: dict[str, tuple[str, str]] = {
    "predictable": ("not as expected", "What happened is not what was expected."),
    **dict.fromkeys(
        [f"predictable/{name}" for name in _TIMES],
        ("unexpected time", "A known place, but not at this hour or not for so long."),
    ),
    "predictable/left_before": ("unexpected time", "They left the place before at another hour."),
    **dict.fromkeys(
        [f"predictable/{name}" for name in ("memory_place", "poi", "x", "y")],
        ("unexpected place", "Not where they were expected at this hour."),
    ),
    "predictable/elsewhere": ("missed routine", "At this hour they are usually somewhere else."),
    "novel": ("not seen before", "Nothing like it is in what was learnt from."),
    **dict.fromkeys(
        [
            f"novel/{name}"
            for name in ("recurrence", "distance", "new_kind", *_TIMES, "left_before", "elsewhere", "memory_place")
        ],
        ("new place", "Not among the places of the days learnt from."),
    ),
    "novel/knn": ("unlike anything known", "Nothing like it was seen in training."),
    "routine": ("new routine", "A place that they now visit more often than in all of their history."),
    "unsure": ("seen too little", "Unusual, but few cases like this are known."),
    "unobserved": ("not fully observed", "What makes it unusual rests on a time that nobody observed."),
}
#: What each question asks, in words.
QUESTION_WORDS = {
    "recurrence": "how often they come here", "distance": "how far from their own places",
    "new_kind": "a first visit to this kind of place", "start": "when they came",
    "duration": "how long they stayed", "end": "when they left", "leaving": "staying on so long",
    "left_before": "when they left the place before",
    "elsewhere": "expected elsewhere at this hour", "silence": "no data at these hours",
    "memory_place": "this place after the one before", "memory_start": "this time after what came before",
    "memory_duration": "this length after what came before",
}  # fmt: skip


def kind_words(kind: str | None, question: str | None = None) -> str:
    """A stored kind in people's words, by the question that leads where that says more.

    >>> kind_words("novel", "distance"), kind_words("predictable", "elsewhere"), kind_words(None)
    ('new place', 'missed routine', '')
    """
    words = KIND_WORDS.get(f"{kind}/{question}") or KIND_WORDS.get(kind or "")
    return words[0] if words else kind or ""


def question_words(name: str) -> str:
    """What a question asks; its name where it has no words.

    >>> question_words("end"), question_words("rain_here")
    ('when they left', 'rain here')
    """
    return QUESTION_WORDS.get(name, name.replace("_", " "))
