"""`ustad score`."""

from __future__ import annotations

import json as json_module
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    count_words,
    out,
    print_json,
)
from ustad.cli.train import SchemaOption, TestFromOption, TimezoneOption

if TYPE_CHECKING:
    from ustad.cli.after_scores import AfterScores
    from ustad.engine.score_job import ScoreSummary

#: Tables about several people, and what their rows are called.
_SEVERAL = {"groups": "group", "company": "fact about company"}


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
            help="Report a day that is unusual for everybody as one note, not as alerts; tell groups and company.",
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
    from ustad.cli.after_scores import AfterScores, DaysWish
    from ustad.engine.folder import on_this_machine
    from ustad.scoring.alerts import AlertRule
    from ustad.versions import find_model

    model = find_model(model)
    rule = AlertRule.choose(alerts_per_day, fdr, top)
    after = AfterScores.of(weights, DaysWish(holidays, calendar, group_days), rules)
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
    event_schema = _schema(model, schema)
    if is_baseline(model):
        _check_baseline(engine, extras, test_from)
    reading = {"schema": event_schema, "timezone": timezone, "on_error": on_error}
    task = _Task(model, data, reading, rule, extras, after, everything=everything, device=device, test_from=test_from)
    if engine == "ray":
        after, summary = task.score_on_cluster(out_, address=address, workers=workers, partitions=partitions)
        with on_this_machine(out_, "run.json") as place:
            run = after.apply(summary.run, place, summary.data.schema, model=model, data=summary.data)
            run |= {"events": summary.events, "agents": summary.agents}
            _show(run, out_, place, summary.data.schema, json=json, explain=explain)
        return
    with on_this_machine(out_, "run.json") as place:
        run, words = task.score_here(place, explain > 0)
        _show(run, out_, place, words, json=json, explain=explain)


def _check_baseline(engine: str, extras: _Extras, test_from: str | None) -> None:
    """What only models of the method ustad can do. Other methods are there to be compared with, in memory."""
    if test_from is not None:
        raise typer.BadParameter("needs a model of the method ustad", param_hint="--test-from")
    if extras != _Extras():
        raise typer.BadParameter(
            "--reasons, --details, --coverage, --reject and --curves need a model of the method ustad"
        )
    if engine == "ray":
        raise typer.BadParameter("scores models of the method ustad only", param_hint="--engine ray")


@dataclass(frozen=True)
class _Task:
    """What to score, and how; the same for every executor."""

    model: Path
    data: Path
    reading: dict[str, Any]
    rule: Any
    extras: _Extras
    after: AfterScores
    _: KW_ONLY
    everything: bool
    device: str
    test_from: str | None

    def _options(self) -> dict[str, Any]:
        return {
            "rule": self.rule, "everything": self.everything, "reasons": self.extras.reasons,
            "coverage": self.extras.coverage, "details": self.extras.every_detail,
        }  # fmt: skip

    def _with_rejection(self, detector: Any) -> AfterScores:
        """What comes after scoring; with the judge where predictions are to be withheld or drawn."""
        from ustad.cli.withhold import Rejection

        extras = self.extras
        judge = detector.paper() if extras.needs_network else None
        if extras.reject is None and not extras.curves:
            return self.after
        return replace(self.after, rejection=Rejection(judge, extras.reject, extras.reject_by, extras.curves))

    def score_on_cluster(self, out_: Path, **where: Any) -> tuple[AfterScores, ScoreSummary]:
        """The workers write the tables."""
        from ustad.engine.model import ModelPlace
        from ustad.engine.score_job import score as score_on_ray

        after = self._with_rejection(ModelPlace.of(self.model).load("cpu")) if self.extras.needs_network else self.after
        summary = score_on_ray(
            self.model, self.data, out_, **self._options(), **self.reading, **where, device=self.device,
            test_from=self.test_from, all_days=self.after.days.group,
        )  # fmt: skip
        return after, summary

    def score_here(self, place: Path, explain: bool) -> tuple[dict[str, Any], Any]:
        """In memory, or part by part where there are many entities; what the run says, and the schema."""
        from ustad.artefact import is_baseline
        from ustad.cli.lab.baseline import score_baseline
        from ustad.cli.parts import are_many, write_in_parts
        from ustad.mobility.readers import open_data
        from ustad.triage.export import write_alerts

        names = {"model": str(self.model.resolve()), "data": str(self.data.resolve())}
        if is_baseline(self.model):
            data = open_data(self.data, **self.reading)
            scores = score_baseline(
                self.model, data, self.device, self.rule, everything=self.everything, place=place, explain=explain
            )
            run = self.after.apply(
                _write(scores, names, place), place, data.schema, days=False, model=self.model, data=data
            )
            return {**run, **_counts(scores)}, data.schema
        data, detector = _open_both(self.data, self.reading, self.model, device=self.device, test_from=self.test_from)
        after = self._with_rejection(detector)
        if are_many(data):
            across = after.gather(data, self.model)
            run = write_in_parts(detector, data, place, names, across=across, **self._options())
            counts = {"events": run["events"], "agents": run["agents"]}
            return {
                **after.apply(run, place, data.schema, model=self.model, across=across, data=data),
                **counts,
            }, data.schema
        scores = detector.score(data, **self._options())
        write_alerts(scores.events, detector.schema, place)
        run = after.apply(_write(scores, names, place), place, data.schema, model=self.model, data=data)
        return {**run, **_counts(scores)}, data.schema


def _write(scores: Any, names: dict[str, str], place: Path) -> dict[str, Any]:
    """Write scores that are in memory; what the run says."""
    from ustad.scores import TABLES

    scores.run.update(names)
    for name in TABLES:  # parts that an earlier run left here
        shutil.rmtree(place / name, ignore_errors=True)
    scores.save(place)
    return scores.run


def _counts(scores: Any) -> dict[str, int]:
    return {name: 0 if table is None else table.num_rows for name, table in
            (("events", scores.events), ("agents", scores.agents))}  # fmt: skip


def _show(run: dict[str, Any], out_: Path, place: Path, words: Any, *, json: bool, explain: int) -> None:
    """Say what came out; the tables of `out_` are read in `place`."""
    from ustad.cli.show_shares import explain as show_shares
    from ustad.schema import plural

    facts = {k: run.get(k) for k in ("alerts", "threshold", "warnings", "events", "agents")} | {"out": str(out_)}
    facts |= {k: run[k] for k in ("coverage", "rejected", "hidden", *_SEVERAL) if run.get(k) is not None}
    if json:
        facts |= {"explained": show_shares(place, words, explain, quiet=True)} if explain else {}
        print_json(facts)
        return
    if explain:
        show_shares(place, words, explain)
    counts = f", {count_words(facts['alerts'], 'alert')} (alerts.csv)" if facts["alerts"] is not None else ""
    if "hidden" in run:
        counts += f", {sum(run['hidden'].values()):,} more hidden by rules"
    counts += "".join(f", {count_words(run[n], word)} ({n}.parquet)" for n, word in _SEVERAL.items() if run.get(n))
    if "rejected" in run:
        counts += f", {run['rejected']['withheld']:,} predictions withheld"
    events, entities = plural(words.event_word), plural(words.entity_word)
    out.print(f"{facts['events']:,} {events}, {facts['agents']:,} {entities}{counts}: {out_}")
    out.print(f"next:  ustad report {out_} --out report.html")


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

    @property
    def needs_network(self) -> bool:
        """Predictions are the network's."""
        return self.coverage is not None or self.reject is not None or self.curves

    @property
    def every_detail(self) -> bool:
        """Rejection looks at what was measured of every event."""
        return self.details or self.reject is not None or self.curves

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
    from ustad.torch_device import wake_gpu
    from ustad.trip_features import needed_companions

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(_load, model, device, test_from)
        if not (model / "config.yaml").exists():
            loading.result()  # says what is wrong with the model
        config = Config.from_model(model / "config.yaml")
        if config.model.network != "none" and device != "cpu":
            wake_gpu(device)
        companions = needed_companions(config)
        return open_data(data, **reading, companions=companions), loading.result()


def _load(model: Path, device: str, test_from: str | None) -> Any:
    """The model, to score from a day on where one was given."""
    from ustad.detector import Detector

    return Detector.load(model, device=device).scoring_from(test_from)
