"""What a person sees of a run: one set of scripts in `web/`, and the answers that they ask for.

`store` keeps events, scores and verdicts, `runs` copies a finished run into it, `queries`, `event_details` and `facts`
make the answers as JSON. The service gives them over HTTP; `report` writes them into one file with the scripts.
"""

from pathlib import Path

#: Scripts, styles and the HTML file of the page.
WEB = Path(__file__).parent / "web"
