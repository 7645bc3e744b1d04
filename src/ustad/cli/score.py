"""`ustad score`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ustad.cli.shared import (
    AddressOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    OnErrorOption,
    OutOption,
    PartitionsOption,
    WorkersOption,
    check_engine,
    out,
    print_json,
)
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
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = 0,
    partitions: PartitionsOption = None,
    json: JsonOption = False,
) -> None:
    """Score every stay and every agent of the test weeks, with uncertainty and a reason in words.

    Examples:

    - `ustad score runs/demo/model runs/demo/data --alerts-per-day 5 --out runs/demo/scores`
    - `ustad score model s3://bucket/data --engine ray --address head:6379 --out s3://bucket/scores` (on a cluster)
    """
    from ustad.baselines.storage import is_baseline
    from ustad.mobility.readers import open_data
    from ustad.scoring.alerts import AlertRule

    rule = AlertRule.choose(alerts_per_day, fdr, top)
    check_engine(engine, address, partitions, workers)
    described = _schema(model, schema)
    if engine == "ray":
        from ustad.engine.scoring import score as score_on_ray
        from ustad.schema import EventSchema

        if is_baseline(model):
            raise typer.BadParameter("scores models of the method ustad only", param_hint="--engine ray")
        done = score_on_ray(
            model, data, out_, rule, everything, described, timezone, on_error, device, workers, address, partitions
        )  # fmt: skip
        words = EventSchema.from_dict(done.run["schema"])
        _show({"events": done.events, "agents": done.agents, **done.run}, out_, words, json)
        return
    dataset = open_data(data, schema=described, timezone=timezone, on_error=on_error)
    scorer = _baseline_scores if is_baseline(model) else _detector_scores
    scores = scorer(model, dataset, device, rule, everything, out_)
    scores.run.update({"model": str(model.resolve()), "data": str(data.resolve())})
    scores.save(out_)
    counts = {"events": _rows(scores.events), "agents": _rows(scores.agents)}
    _show({**scores.run, **counts}, out_, dataset.schema, json)


def _show(run: dict[str, Any], out_: Path, words: Any, json: bool) -> None:
    facts = {k: run.get(k) for k in ("alerts", "threshold", "warnings", "events", "agents")} | {"out": str(out_)}
    if json:
        print_json(facts)
        return
    found = f", {facts['alerts']:,} alerts (alerts.csv)" if facts["alerts"] is not None else ""
    out.print(
        f"{facts['events']:,} {words.event_word}s, {facts['agents']:,} {words.entity_word}s{found}: {out_}",
        highlight=False,
    )
    out.print(f"next:  ustad report {out_} --out report.html   or   ustad evaluate {out_}", highlight=False)


def _schema(model: Path, given: Path | None) -> Any:
    """The schema file where one is given, else what the model was trained with."""
    from ustad.baselines.storage import METHOD, is_baseline
    from ustad.schema import EventSchema

    if given is not None:
        return EventSchema.from_yaml(given)
    stored = json_module.loads((model / METHOD).read_text())["schema"] if is_baseline(model) else None
    if stored is None and (model / "schema.json").exists():
        stored = json_module.loads((model / "schema.json").read_text())
    return EventSchema.from_dict(stored) if stored else None


def _detector_scores(model: Path, data: Any, device: str, rule: Any, everything: bool, place: Path) -> Any:
    from ustad.detector import Detector
    from ustad.scoring.export import write_alerts_csv, write_alerts_geojson

    detector = Detector.load(model, device=device)
    scores = detector.score(data, rule=rule, everything=everything)
    write_alerts_csv(scores.events, place / "alerts.csv")
    if any(f.kind == "place" for f in detector.schema.features):
        write_alerts_geojson(scores.events, detector.schema, place / "alerts.geojson")
    return scores


def _baseline_scores(model: Path, data: Any, device: str, rule: Any, everything: bool, place: Path) -> Any:
    """Scores alone: the other methods have no uncertainty, no p-values and no reasons."""
    from ustad.baselines.storage import load
    from ustad.config import SplitConfig

    split = data.split(SplitConfig())
    scores = load(model, device).score(data.events if everything else data)
    first = split.train_first if everything else split.test_first
    scores.run.update({"first_day": first, "last_day": split.test_last, "schema": data.schema.to_dict()})
    return scores


def _rows(table: Any) -> int:
    return 0 if table is None else int(table.num_rows)
