"""`ustad score`."""

from __future__ import annotations

import json as json_module
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
    choose,
    out,
    print_json,
    write_alerts,
)
from ustad.cli.train import SchemaOption, TestFromOption, TimezoneOption

#: Tables about several people, and what their rows are called.
_SEVERAL = {"groups": "groups", "company": "facts about company"}


def score(
    model: Annotated[Path, typer.Argument(help="A model directory that `ustad train` or `ustad watch` wrote.")],
    data: Annotated[Path, typer.Argument(help="A data directory, or a file of stays or events.")],
    out_: OutOption = Path("runs/scores"),
    alerts_per_day: Annotated[
        float | None, typer.Option("--alerts-per-day", help="About this many alerts a day.")
    ] = None,
    *,
    fdr: Annotated[float | None, typer.Option("--fdr", help="At most this share of false alarms among alerts.")] = None,
    top: Annotated[int | None, typer.Option("--top", help="Exactly this many alerts.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Score the training weeks too, not only the test part.")
    ] = False,
    reasons: Annotated[str, typer.Option("--reasons", help="Which events get a sentence: alerts, all or none.")] = (
        "alerts"
    ),
    details: Annotated[
        bool,
        typer.Option("--details", help="Write the measurements of every stay (details), not only of incidents."),
    ] = False,
    coverage: Annotated[
        float | None,
        typer.Option("--coverage", help="Add ranges that hold this share of normal events, such as 0.9 (in details)."),
    ] = None,
    reject: Annotated[
        float | None, typer.Option("--reject", help="Withhold this share of predictions, the least certain ones: 0.05.")
    ] = None,
    reject_by: Annotated[
        str, typer.Option("--reject-by", help="Uncertainty of an event: sum (the paper's) or standardised.")
    ] = "sum",
    curves: Annotated[
        bool, typer.Option("--curves", help="Write rejection.csv: error against the share of predictions kept.")
    ] = False,
    explain: Annotated[
        int,
        typer.Option("--explain", min=0, help="Show what this many of the highest scores are made of (explained.csv)."),
    ] = 0,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", help="Hide alerts that these rules explain (YAML or CSV); their scores stay."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option("--weights", help="Choose alerts by what verdicts taught (`ustad learn`); the scores stay."),
    ] = None,
    holidays: Annotated[
        str | None,
        typer.Option("--holidays", help="Name public holidays: of a country (DE, DE-BY), or of the data's `zone`."),
    ] = None,
    calendar: Annotated[
        Path | None, typer.Option("--calendar", help="Name days by events of your own (CSV or ICS).")
    ] = None,
    group_days: Annotated[
        bool,
        typer.Option(
            "--group-days/--no-group-days",
            help="Report a day that is unusual for everybody as one note, not as alerts.",
        ),
    ] = True,
    schema: SchemaOption = None,
    timezone: TimezoneOption = None,
    test_from: TestFromOption = None,
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
    - `ustad score model data --top 20 --explain 20 --out scores` (what each of the highest scores is made of)
    - `ustad score model data --coverage 0.9 --reject 0.05 --curves --out scores` (what to expect, and how surely)
    - `ustad score model data --alerts-per-day 5 --rules rules.yaml --out scores` (without what is explained)
    - `ustad score model data --alerts-per-day 5 --weights weights.json --out scores` (as verdicts taught)
    - `ustad score model data --holidays zone --calendar events.csv --out scores` (days with names)
    - `ustad score model s3://bucket/data --engine ray --address head:6379 --out s3://bucket/scores` (on a cluster)
    """
    from ustad.artefact import is_baseline
    from ustad.cli.lab.baseline import score_baseline
    from ustad.cli.parts import are_many, write_in_parts
    from ustad.mobility.readers import open_data
    from ustad.scoring.alerts import AlertRule
    from ustad.versions import find_model

    model = find_model(model)
    rule = AlertRule.choose(alerts_per_day, fdr, top)
    after = _After.of(weights, _Days(holidays, calendar, group_days), rules)
    # who will be an alert is known once all are scored, so every event gets its reason
    extras = _Extras.of(
        "all" if after.weights and reasons == "alerts" else reasons,
        coverage,
        reject,
        reject_by,
        curves=curves,
        details=details,
    )
    check_engine(engine, address, partitions, workers)
    after.check(out_)
    event_schema = _schema(model, schema)
    if is_baseline(model) and test_from is not None:
        raise typer.BadParameter("needs a model of the method ustad", param_hint="--test-from")
    if is_baseline(model) and extras != _Extras():
        raise typer.BadParameter(
            "--reasons, --details, --coverage, --reject and --curves need a model of the method ustad"
        )
    if engine == "ray" and replace(extras, reasons="flagged", details=False) != _Extras():
        raise typer.BadParameter("--coverage, --reject and --curves need --engine local")
    if engine == "ray":
        from ustad.engine.score_job import score as score_on_ray
        from ustad.schema import EventSchema

        if is_baseline(model):
            raise typer.BadParameter("scores models of the method ustad only", param_hint="--engine ray")
        summary = score_on_ray(
            model, data, out_, rule, everything=everything, schema=event_schema, timezone=timezone, device=device,
            on_error=on_error, workers=workers, address=address, partitions=partitions, test_from=test_from,
            reasons=extras.reasons, details=extras.details,  # type: ignore[arg-type]  # checked above
        )  # fmt: skip
        words = EventSchema.from_dict(summary.run["schema"])
        run = after.apply(summary.run, out_, words, model=model)
        _show({"events": summary.events, "agents": summary.agents, **run}, out_, words, json, explain=explain)
        return
    reading = {"schema": event_schema, "timezone": timezone, "on_error": on_error}
    if is_baseline(model):
        dataset = open_data(data, **reading)
        scores = score_baseline(model, dataset, device, rule, everything=everything, place=out_, explain=explain > 0)
        _finish(scores, model, data, out_, after=after, dataset=dataset, json=json, explain=explain)
        return
    dataset, detector = _open_both(data, reading, model, device=device, test_from=test_from)
    if extras.reject is None and not extras.curves and are_many(dataset):
        names = {"model": str(model.resolve()), "data": str(data.resolve())}
        across = after.gather(dataset.schema, out_, model)
        run = write_in_parts(
            detector, dataset, out_, names, across=across,
            rule=rule, everything=everything, reasons=extras.reasons, coverage=extras.coverage, details=extras.details,
        )  # fmt: skip
        counts = {"events": run["events"], "agents": run["agents"]}
        run = after.apply(run, out_, dataset.schema, model=model, across=across, data=dataset)
        _show({**run, **counts}, out_, dataset.schema, json, explain=explain)
        return
    scores = _detector_scores(detector, dataset, rule, everything, place=out_, extras=extras)
    _finish(scores, model, data, out_, after=after, dataset=dataset, json=json, explain=explain)


def _finish(
    scores: Any, model: Path, data: Path, out_: Path, *, after: _After, dataset: Any, json: bool, explain: int
) -> None:
    """Write scores that are in memory, and say what came out."""
    from ustad.artefact import is_baseline
    from ustad.scores import TABLES

    scores.run.update({"model": str(model.resolve()), "data": str(data.resolve())})
    for name in TABLES:  # parts that an earlier run left here
        shutil.rmtree(out_ / name, ignore_errors=True)
    scores.save(out_)
    counts = {"events": _rows(scores.events), "agents": _rows(scores.agents)}
    days = not is_baseline(model)
    run = after.apply(scores.run, out_, dataset.schema, days, model=model, data=dataset)
    _show({**run, **counts}, out_, dataset.schema, json, explain=explain)


def _show(run: dict[str, Any], out_: Path, words: Any, json: bool, *, explain: int) -> None:
    from ustad.cli.show_shares import explain as show_shares
    from ustad.schema import plural

    facts = {k: run.get(k) for k in ("alerts", "threshold", "warnings", "events", "agents")} | {"out": str(out_)}
    facts |= {k: run[k] for k in ("coverage", "rejected", "hidden", *_SEVERAL) if run.get(k) is not None}
    if json:
        facts |= {"explained": show_shares(out_, words, explain, quiet=True)} if explain else {}
        print_json(facts)
        return
    if explain:
        show_shares(out_, words, explain)
    counts = f", {facts['alerts']:,} alerts (alerts.csv)" if facts["alerts"] is not None else ""
    if "hidden" in run:
        counts += f", {sum(run['hidden'].values()):,} more hidden by rules"
    counts += "".join(f", {run[name]:,} {words} ({name}.parquet)" for name, words in _SEVERAL.items() if run.get(name))
    if "rejected" in run:
        counts += f", {run['rejected']['withheld']:,} predictions withheld"
    events, entities = plural(words.event_word), plural(words.entity_word)
    out.print(f"{facts['events']:,} {events}, {facts['agents']:,} {entities}{counts}: {out_}")
    out.print(f"next:  ustad report {out_} --out report.html")


@dataclass(frozen=True)
class _Days:
    """What is asked for about whole days."""

    country: str | None
    calendar: Path | None
    group: bool

    def note(self, run: dict[str, Any], out_: Path, schema: Any, across: Any) -> dict[str, Any]:
        """What the run says once its days have names and unusual ones are grouped."""
        from ustad.cli.group_days import note_days

        if not (self.country or self.calendar or self.group):
            return run
        groups = across.days if across is not None else None
        return note_days(out_, schema, country=self.country, calendar=self.calendar, group=self.group, groups=groups)


@dataclass(frozen=True)
class _After:
    """What happens to alerts once scores are written, whatever wrote them: learnt weights, whole days, rules."""

    weights: dict[str, float]
    days: _Days
    rules: list[Any]

    @classmethod
    def of(cls, weights: Path | None, days: _Days, rules: Path | None) -> _After:
        from ustad.triage.hiding import read_rules
        from ustad.triage.verdict_weights import read_weights

        return cls(
            read_weights(weights) if weights is not None else {}, days, read_rules(rules) if rules is not None else []
        )

    def check(self, out_: Path) -> None:
        """Tables elsewhere are not written a second time."""
        from ustad.engine.folder import is_uri

        if is_uri(out_) and (self.weights or self.rules or self.days.country or self.days.calendar):
            raise typer.BadParameter(
                "--weights, --rules, --holidays and --calendar need an --out on this machine; copy it afterwards",
                param_hint="--out",
            )

    def gather(self, schema: Any, out_: Path, model: Path) -> Any:
        """What sees the parts while they are scored; None where alerts change afterwards or days are not grouped."""
        from ustad.cli.across_agents import AcrossAgents
        from ustad.engine.folder import is_uri

        return AcrossAgents(schema, model) if self.days.group and not self.weights and not is_uri(out_) else None

    def apply(
        self, run: dict[str, Any], out_: Path, schema: Any, days: bool = True, *, model: Path, across: Any = None,
        data: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """What the run says from then on; `data` has all days, where they are in memory."""
        from ustad.cli.group_people import delete_earlier, note_company, note_groups
        from ustad.cli.hide import hide_explained
        from ustad.cli.reweigh import reweigh_alerts
        from ustad.engine.folder import is_uri
        from ustad.progress import say

        if is_uri(out_):
            if self.days.group:
                say(f"{out_}: unusual days of everybody are not looked for where tables are not on this machine")
            return run
        delete_earlier(out_)
        run = reweigh_alerts(out_, self.weights, schema) if self.weights else run
        run = self.days.note(run, out_, schema, across) if days else run
        run = hide_explained(out_, self.rules, schema) if self.rules else run
        if not days or not self.days.group:
            return run
        company = note_company(out_, data) if data is not None else {}
        return {**run, **note_groups(out_, schema, model, across.groups if across is not None else None), **company}


def _schema(model: Path, file: Path | None) -> Any:
    """The schema file where one is given, else what the model was trained with."""
    from ustad.artefact import is_baseline
    from ustad.cli.lab.baseline import read_schema
    from ustad.schema import EventSchema

    if file is not None:
        return EventSchema.from_yaml(file)
    content = read_schema(model) if is_baseline(model) else None
    if content is None and (model / "schema.json").exists():
        content = json_module.loads((model / "schema.json").read_text())
    return EventSchema.from_dict(content) if content else None


@dataclass(frozen=True)
class _Extras:
    """What is asked for beside the scores."""

    reasons: str = "flagged"
    coverage: float | None = None
    reject: float | None = None
    reject_by: str = "sum"
    curves: bool = False
    details: bool = False

    @classmethod
    def of(
        cls, reasons: str, coverage: float | None, reject: float | None, reject_by: str, *, curves: bool, details: bool
    ) -> _Extras:
        choose(reasons, ("alerts", "all", "none"), "--reasons")
        choose(reject_by, ("sum", "standardised"), "--reject-by")
        for value, option in ((coverage, "--coverage"), (reject, "--reject")):
            if value is not None and not 0 < value < 1:
                raise typer.BadParameter(f"expected a share between 0 and 1, got {value:g}", param_hint=option)
        return cls("flagged" if reasons == "alerts" else reasons, coverage, reject, reject_by, curves, details)


def _open_both(
    data: Path, reading: dict[str, Any], model: Path, *, device: str, test_from: str | None
) -> tuple[Any, Any]:
    """Data and model, read at the same time: one takes about as long as the other."""
    from ustad.config import Config
    from ustad.mobility.readers import open_data
    from ustad.trip_features import needed_companions

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(_load, model, device, test_from)
        if not (model / "config.yaml").exists():
            loading.result()  # says what is wrong with the model
        companions = needed_companions(Config.from_model(model / "config.yaml"))
        return open_data(data, **reading, companions=companions), loading.result()


def _load(model: Path, device: str, test_from: str | None) -> Any:
    """The model, to score from a day on where one was given."""
    from ustad.detector import Detector

    return Detector.load(model, device=device).scoring_from(test_from)


def _detector_scores(detector: Any, data: Any, rule: Any, everything: bool, *, place: Path, extras: _Extras) -> Any:
    every = extras.details or extras.reject is not None or extras.curves  # these look at what was measured of all
    scores = detector.score(
        data, rule=rule, everything=everything, reasons=extras.reasons, coverage=extras.coverage, details=every
    )
    scores = _with_rejection(detector, scores, place, extras)
    write_alerts(scores.events, detector.schema, place)
    return scores


def _with_rejection(detector: Any, scores: Any, place: Path, extras: _Extras) -> Any:
    """Curves of error against the share kept, and predictions withheld, where asked for."""
    from ustad.scoring.explain import term_labels
    from ustad.scoring.rejection import agents_after, reject, rejection_curves
    from ustad.triage.export import write_csv

    if extras.reject is None and not extras.curves:
        return scores
    model = detector.paper().model
    reference = model.calibration.parts
    table = scores.with_details()
    if extras.curves:
        write_csv(rejection_curves(table, reference), place / "rejection.csv")
    if extras.reject is None:
        return scores
    labels = term_labels(model.encoder)
    table, threshold = reject(table, extras.reject, extras.reject_by, reference, labels=labels)  # type: ignore[arg-type]  # checked above
    withheld = int(sum(table["withheld"].to_pylist()))
    note = {"share": extras.reject, "by": extras.reject_by, "threshold": threshold, "withheld": withheld}
    return replace(
        scores,
        events=table.select([*scores.events.column_names, "uncertainty", "withheld"]),
        agents=agents_after(scores.agents, table, detector.schema.entity),
        run={**scores.run, "rejected": note},
        details=table.select(scores.details.column_names),
    )


def _rows(table: Any) -> int:
    return 0 if table is None else int(table.num_rows)
