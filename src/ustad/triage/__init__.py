"""What becomes of alerts once they are there: rules that hide, weights learnt from verdicts, days of everybody,
groups of people, and lists for other tools. Scores stay as they are."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "companions",
    "export",
    "groups",
    "hiding",
    "unusual_days",
    "verdict_weights",
)
