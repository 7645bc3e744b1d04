"""From the evidence of sources to scores, incidents, alerts and reasons."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "adding_judge",
    "alerts",
    "calibration",
    "drift_alarm",
    "evidence",
    "incidents",
    "judge",
    "looks",
    "paper_judge",
    "rejection",
    "score_table",
    "scored_parts",
)
