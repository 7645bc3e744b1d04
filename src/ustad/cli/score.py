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
    from ustad.scoring.alerts import AlertRule
    from ustad.scoring.export import write_alerts_csv, write_alerts_geojson

    rule = AlertRule.choose(alerts_per_day, fdr, top)
    described = EventSchema.from_yaml(schema) if schema else None
    dataset = open_data(data, schema=described, timezone=timezone, on_error=on_error)
    detector = Detector.load(model, device=device)
    scores = detector.score(dataset, rule=rule, everything=everything)
    scores.run.update({"model": str(model.resolve()), "data": str(data.resolve())})
    scores.save(out_)
    write_alerts_csv(scores.events, out_ / "alerts.csv")
    if any(f.kind == "place" for f in detector.schema.features):
        write_alerts_geojson(scores.events, detector.schema, out_ / "alerts.geojson")
    facts = {k: scores.run[k] for k in ("alerts", "threshold", "warnings")}
    facts |= {"events": scores.events.num_rows, "agents": scores.agents.num_rows, "out": str(out_)}
    if json:
        print_json(facts)
        return
    words = detector.schema
    out.print(
        f"{facts['events']:,} {words.event_word}s of {facts['agents']:,} {words.entity_word}s, "
        f"{facts['alerts']:,} alerts: {out_} (alerts.csv to read on)",
        highlight=False,
    )
    out.print(f"next:  ustad report {out_} --out report.html   or   ustad evaluate {out_}", highlight=False)
