"""One event at a time, from the same sources; what is held of an entity in bytes."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "habit_state",
    "live_judges",
    "network_live",
)
