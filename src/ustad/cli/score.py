"""`ustad score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ustad.cli.shared import DeviceOption, JsonOption, OnErrorOption, OutOption, out, print_json
from ustad.cli.train import SchemaOption, TimezoneOption


def score(
    model: Annotated[Path, typer.Argument(help="A model directory that `ustad train` wrote.")],
    data: Annotated[Path, typer.Argument(help="A data directory, or a file of stays or events.")],
    out_: OutOption = Path("runs/scores"),
    alerts_per_day: Annotated[
        float | None, typer.Option("--alerts-per-day", help="About this many alerts a day.")
    ] = None,
    fdr: Annotated[float | None, typer.Option("--fdr", help="At most this share of false alarms among alerts.")] = None,
    top: Annotated[int | None, typer.Option("--top", help="Exactly this many alerts.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Score the training weeks too, not only the test part.")
    ] = False,
    schema: SchemaOption = None,
    timezone: TimezoneOption = None,
    device: DeviceOption = "auto",
    on_error: OnErrorOption = "fail",
    json: JsonOption = False,
) -> None:
    """Score every stay and every agent of the test weeks, with uncertainty and a reason in words.

    Example: `ustad score runs/demo/model runs/demo/data --alerts-per-day 5 --out runs/demo/scores`
    """
    from ustad.detector import Detector
    from ustad.mobility.readers import open_data
    from ustad.schema import EventSchema
    from ustad.scoring.calibration import AlertRule
    from ustad.scoring.export import write_alerts

    given = [o for o in (alerts_per_day, fdr, top) if o is not None]
    if len(given) > 1:
        raise typer.BadParameter("choose one of --alerts-per-day, --fdr and --top")
    dataset = open_data(
        data, schema=EventSchema.from_yaml(schema) if schema else None, timezone=timezone, on_error=on_error
    )
    rule = AlertRule.of(alerts_per_day=alerts_per_day, fdr=fdr, top=top)
    detector = Detector.load(model, device=device)
    scores = detector.score(dataset, rule=rule, everything=everything)
    scores.run.update({"model": str(model.resolve()), "data": str(data.resolve())})
    scores.save(out_)
    written = write_alerts(scores.events, detector.schema, out_)
    alerts = int(sum(scores.events["alert"].to_pylist()))
    facts = {"events": scores.events.num_rows, "agents": scores.agents.num_rows, "alerts": alerts, "out": str(out_)}
    if json:
        print_json(facts)
        return
    for warning in scores.run.get("warnings", []):
        out.print(f"note: {warning}", highlight=False)
    words = detector.schema
    out.print(
        f"{facts['events']:,} {words.event_word}s of {facts['agents']:,} {words.entity_word}s, {alerts:,} alerts: {out_}",
        highlight=False,
    )
    out.print(f"alerts: {', '.join(str(p) for p in written)}", highlight=False)
    out.print(f"next:   ustad report {out_} --out report.html   or   ustad evaluate {out_}", highlight=False)
