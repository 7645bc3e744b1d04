"""An entity's history: counts, hours, places; what it asks of later events; how it moves on."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "habit_model",
    "habit_source",
    "habit_words",
    "history",
    "leaving",
    "measurements",
    "moving",
    "one_comparison",
    "questions",
    "side_by_side",
    "stages",
    "usual",
)
