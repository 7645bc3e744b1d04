"""`ustad report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ustad.cli.shared import OutOption, out


def report(
    scores: Annotated[Path, typer.Argument(help="A directory that `ustad score` wrote.")],
    out_: OutOption = Path("report.html"),
    cases: Annotated[int, typer.Option("--cases", help="How many agents are shown in detail.")] = 20,
) -> None:
    """One HTML file with the summary, the ranked cases, timelines, maps and reasons. Opens without a network.

    Example: `ustad report runs/demo/scores --out report.html`
    """
    from ustad.report import write_report

    write_report(scores, out_, cases=cases)
    out.print(f"report: {out_} ({out_.stat().st_size / 1e6:.1f} MB); open it in a browser", highlight=False)
