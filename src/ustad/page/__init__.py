"""What a person sees of a run: one set of scripts in `web/`, and the answers that they ask for.

`store` keeps events, scores and verdicts, `runs` copies a finished run into it, `queries`, `event_details` and `facts`
make the answers as JSON. The service gives them over HTTP; `report_file` writes them into one file with the scripts.
"""

from pathlib import Path

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "card_blocks",
    "case_erasure",
    "cases",
    "coarse",
    "counts",
    "event_details",
    "event_writer",
    "facts",
    "ground",
    "hidden",
    "likeness",
    "live_days",
    "map_file",
    "movements",
    "queries",
    "records",
    "report_file",
    "runs",
    "store",
    "translate",
    "usual_weeks",
    "weights_preview",
)

#: Scripts, styles and the HTML file of the page.
WEB = Path(__file__).parent / "web"
