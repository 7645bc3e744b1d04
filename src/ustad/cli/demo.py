"""`ustad demo`: the whole way once, on a small simulated town."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import DeviceOption, OutOption, SeedOption, out

#: What an analyst of the demo has time for.
ALERTS_PER_DAY = 5.0


def demo(
    out_: OutOption = Path("runs/demo"),
    seed: SeedOption = 7,
    agents: Annotated[int, typer.Option("--agents", help="People in the town.")] = 300,
    days: Annotated[int, typer.Option("--days", help="Days to simulate; the second half is scored.")] = 28,
    *,
    device: DeviceOption = "auto",
) -> None:
    """Simulate a town, extract stays from its GPS, train, score, evaluate, and write a report.

    Example: `ustad demo --out runs/demo`
    """
    from ustad.cli.lab import demo_truth
    from ustad.cli.lab.evaluate import figures_table
    from ustad.cli.report import report_writer

    write_report = report_writer()  # said before the work, not after
    began = time.monotonic()
    out.print("[bold]ustad demo[/]: raw GPS to a report, about 3 minutes on two cores\n")
    data = make_town(out_, agents, days, seed)
    scores = train_and_score(data, out_, seed, device)
    figures = demo_truth.judge(scores, out_)
    page = out_ / "report.html"
    _step(5, "writing the report")
    write_report(out_ / "scores", page)
    out.print()
    out.print(figures_table(figures), soft_wrap=False)
    out.print(demo_truth.describe_loss(scores, data, out_ / "town", seed))
    out.print(f"\ndone in {time.monotonic() - began:.0f} s. Look at [bold]{page}[/] in a browser.")
    out.print("Try next: your own GPS with `ustad extract FILES --out runs/mine`, or `ustad --help`.")


def make_town(place: Path, agents: int, days: int, seed: int) -> Path:
    """Simulate fixes, extract stays and trips from them, and carry the labels over to the extracted stays."""
    from ustad.cli.lab.demo_truth import label_stays
    from ustad.dataset import load_directory
    from ustad.mobility.extraction import extract
    from ustad.simulate import simulate

    town, data = place / "town", place / "data"
    _step(1, f"simulating a town of {agents} people over {days} days, a fix a minute")
    simulate("town", agents, seed, town, fixes="60s", days=days)
    _step(2, "extracting stays and trips from the GPS")
    truth = load_directory(town)
    extract([town / "fixes"], data, pois=truth.pois, timezone=truth.meta["timezone"])
    label_stays(town, data)
    return data


def train_and_score(data: Path, place: Path, seed: int, device: str) -> Any:
    """Train the preset best and score the second half, for an analyst who looks at five alerts a day."""
    from ustad.config import Config
    from ustad.detector import Detector
    from ustad.scoring.alerts import AlertRule
    from ustad.triage.export import write_alerts

    _step(3, "learning what is usual (preset: best)")
    detector = Detector(Config.preset("best", seed=seed), device=device).fit(data, directory=place / "model")
    detector.save(place / "model")
    _step(4, "scoring the weeks after")
    scores = detector.score(data, rule=AlertRule("alerts_per_day", ALERTS_PER_DAY))
    scores.run.update({"model": str((place / "model").resolve()), "data": str(data.resolve())})
    scores.save(place / "scores")
    write_alerts(scores.events, detector.schema, place / "scores")
    return scores


def _step(number: int, text: str) -> None:
    out.print(f"[bold]{number}/5[/] {text}")
