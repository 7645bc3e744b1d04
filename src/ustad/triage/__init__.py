"""What becomes of alerts once they are there: rules that hide, weights learnt from verdicts, days of everybody,
meetings of several people, and lists for other tools. Scores stay as they are."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "companions",
    "export",
    "hiding",
    "meetings",
    "unusual_days",
    "verdict_weights",
)
