"""From tables of events to arrays and padded windows."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "encoded_row",
    "encoder",
    "observed",
    "one_visit",
    "templates",
    "together",
    "visit_counts",
    "visits",
    "windows",
    "words",
)
