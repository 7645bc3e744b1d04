"""`ustad score --engine ray`: scores in parts of whole entities, judged together.

Every partition is measured on its own (samples, neighbours, habits: nothing there depends on other entities). What
does depend on all events – ranks within the scored set, thresholds, warnings – is merged from what the partitions
report, and a second, cheap pass writes the final parts.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.dataset import Dataset, Split
from ustad.detector import Detector
from ustad.engine import events as engine_events
from ustad.engine.cluster import connect
from ustad.engine.events import Buckets
from ustad.engine.folder import Place
from ustad.engine.jobs import Job, Task
from ustad.engine.judge_job import Judging, merge_ranks, survey, tell
from ustad.engine.model import ModelPlace
from ustad.events.together import compared_columns
from ustad.periods import check_extraction
from ustad.progress import say
from ustad.schema import EventSchema
from ustad.scores import TABLES
from ustad.scoring.alerts import AlertRule
from ustad.scoring.judge import Reasons, Request, Span
from ustad.scoring.scored_parts import choose_alerts, report_scores
from ustad.tables import DataError, OnError
from ustad.triage.export import write_alerts
from ustad.trip_features import COLUMNS


@dataclass(frozen=True)
class ScoreSummary:
    """What a job scored. `run` is what `run.json` says."""

    out: str
    events: int
    agents: int
    run: dict[str, Any]
    seconds: float
    earlier_partitions: int  # partitions that an earlier run had measured
    data: Dataset  # without rows, or with the events of all days in the columns that people are compared by


def score(
    model: Path | str, data: Any, out: Path | str, rule: AlertRule | None = None, *, everything: bool = False,
    schema: EventSchema | None = None, timezone: str | None = None, on_error: OnError = "fail",
    device: str = "auto", workers: int = 0, address: str | None = None, partitions: int | None = None,
    test_from: str | None = None, reasons: Reasons = "flagged", coverage: float | None = None, details: bool = False,
    all_days: bool = False,
) -> ScoreSummary:  # fmt: skip
    """Score on a Ray cluster. Model, data and `out` may be URIs; events and agents are written in parts.

    The scores are those of `Detector.score`: the same numbers within 1e-5, the same alerts, whatever the number of
    partitions and workers. With `all_days`, the summary has the events of all days in few columns.
    """
    began, place, model_place = time.monotonic(), Place.of(out), ModelPlace.of(model)
    request = Request.of(rule, reasons, coverage, details)
    rule = request.rule
    event_schema = schema or EventSchema.from_dict(model_place.place.read_json("schema.json"))
    source = engine_events.find(data, event_schema, timezone, on_error)
    with connect(address, workers, device) as cluster:
        identity = [
            source.stamp(),
            model_place.identity,
            everything,
            partitions,
            [rule.kind, float(rule.value)],
            cluster.device,
            test_from,
            reasons,
            coverage,
            details,
        ]
        job = Job.open(place, "score", identity, cluster)
        parts = engine_events.divide(job, source, partitions)
        detector = model_place.load("cpu").scoring_from(test_from)
        check_extraction(detector.config, detector.facts.get("extraction", []), parts.dataset())
        split = None if everything else detector.scored_days(parts.dataset())
        plan = _plan(
            job,
            model_place.share_reference(),
            parts,
            detector,
            split=split,
            request=request,
            device=cluster.device,
        )
        model_place.divide_habits(plan.habits, parts.number)
        results = _measure(job, plan)
        judging, notes = _judge(job, plan, results, detector)
        summaries = job.run("tell", _tasks(results), tell, judging, label="writing scores, partitions")
        run = {**notes, **detector.run_facts(plan.span.first, plan.span.last)}
        run |= {"model": str(model_place.place), "data": _name(data), "engine": "ray"}
        job.finish()
        place.replace_tables(TABLES, job.place / "scores", "run.json", run)
        _export(place, detector)
        dataset = _read_all_days(parts) if all_days else parts.dataset()
        job.close()
    events, agents = (sum(t[what] for t in summaries) for what in ("events", "agents"))
    seconds, earlier = time.monotonic() - began, job.earlier_counts["measure"]
    return ScoreSummary(str(out), events, agents, run, seconds, earlier, dataset)


@dataclass(frozen=True)
class Plan:
    """What every task of the job knows."""

    model: ModelPlace
    buckets: Buckets
    split: Split | None
    request: Request
    device: str
    measurements: Place
    habits: Place  # of the entities, by bucket
    span: Span


def _plan(
    job: Job, model: ModelPlace, parts: Buckets, detector: Detector, *,
    split: Split | None, request: Request, device: str,
) -> Plan:  # fmt: skip
    """What local scoring would see in the whole of the events, from their calendar."""
    days = parts.span(split.test_first, split.test_last) if split else parts.span()
    if not len(days):
        raise DataError(f"{parts.source.name}: no event to score on or after the first scored day; check the dates")
    known_until, before = detector.require_judge().known_until, days[:0]
    if split is not None:
        say(f"{split.describe()}; what comes before the test part is context, not scored")
        if known_until is not None:
            before = parts.span(max(split.train_first, known_until + 1), split.test_first - 1)
    span = Span.between(int(days[0, 0]), int(days[-1, 0]), before[:, 0])
    return Plan(model, parts, split, request, device, job.place / "measured", job.place / "habits", span)


# ------------------------------------------------------------------------------------------------ measuring
def _measure(job: Job, plan: Plan) -> dict[str, dict[str, Any]]:
    """Every partition that has something to score."""
    tasks = [Task(f"{number:05d}", number) for number in plan.buckets.numbers]
    results = job.run("measure", tasks, _measure_bucket, plan, label="scoring, partitions")
    return {task.name: one for task, one in zip(tasks, results, strict=True) if one["events"]}


def _measure_bucket(number: int, plan: Plan) -> dict[str, Any]:
    detector = plan.model.load_bucket(plan.device, plan.habits, number)
    data = plan.buckets.read(number)
    split = plan.split
    events = data.between(split.test_first, split.test_last) if split else data.events
    before = data.between(split.train_first, split.test_first - 1) if split else None
    if not events.num_rows:
        return {"events": 0}
    judge = detector.require_judge()
    with_trips = detector.trips.attach(events, data.trips)
    earlier = detector.trips.attach(before, data.trips) if before is not None and before.num_rows else None
    measurements, agents = judge.measure(with_trips, earlier, plan.span, plan.request)
    measurements = measurements.drop_columns([c for c in COLUMNS if c in measurements.column_names])
    name = f"{number:05d}.parquet"
    plan.measurements.write_table(measurements, f"events/{name}")
    if agents is not None:
        plan.measurements.write_table(agents, f"agents/{name}")
    if judge.ranked_columns:
        return {"events": measurements.num_rows}
    return report_scores(judge.settle(measurements, judge.stand(None)), judge.schema, plan.request.rule, plan.span.days)


# -------------------------------------------------------------------------------------------------- judging
def _tasks(results: dict[str, Any]) -> list[Task]:
    return [Task(name, name) for name in results]


def _judge(
    job: Job, plan: Plan, results: dict[str, dict[str, Any]], detector: Detector
) -> tuple[Judging, dict[str, Any]]:
    """How all events are judged, and what the run says of it; with ranks within the batch, these are merged first."""
    if not results:
        raise DataError(f"{plan.buckets.source.name}: no event to score on or after the first scored day")
    judge, tasks = detector.require_judge(), _tasks(results)
    judging, reports = Judging(plan, job.place / "scores"), results
    if judge.ranked_columns:
        judging = merge_ranks(job, judging, list(results), detector)
        surveys = job.run("survey", tasks, survey, judging, label="ranking, partitions")
        reports = {task.name: one for task, one in zip(tasks, surveys, strict=True)}
    else:
        judging = replace(judging, standing=judge.stand(None))
    rank = _ranking(plan, detector) if plan.request.rule.most(plan.span.days) is not None else None
    alerts, notes = choose_alerts(judge, reports, plan, rank)
    return replace(judging, alerts=alerts), notes


def _ranking(plan: Plan, detector: Detector) -> Any:
    """(task, row) → entity and time: which of two equal events comes first in the local table."""
    files_by_name: dict[str, list[tuple[Any, int]]] = {}

    def key(task: str, row: int) -> tuple[Any, int]:
        if task not in files_by_name:
            names = [detector.schema.entity, detector.schema.time]
            table = plan.measurements.read_table(f"events/{task}.parquet", names)
            times = table[names[1]].cast(pa.int64()).to_pylist()
            files_by_name[task] = list(zip(table[names[0]].to_pylist(), times, strict=True))
        return files_by_name[task][row]

    return key


# -------------------------------------------------------------------------------------------------- results
def _name(data: Any) -> str:
    return str(Place.of(data)) if isinstance(data, (str, Path, Place)) else "a table"


def _export(out: Place, detector: Detector) -> None:
    """Alerts for other tools, beside the parts."""
    import pyarrow.dataset as pa_dataset

    parts = [f"{out.root}/events/{info.base_name}" for info in out.files("events", ".parquet")]
    events = pa_dataset.dataset(parts, format="parquet", filesystem=out.filesystem)
    alert_rows = events.to_table(filter=pa_dataset.field("alert"))
    with tempfile.TemporaryDirectory(prefix="ustad-") as folder:
        write_alerts(alert_rows, detector.schema, Path(folder))
        out.take_in(Path(folder))


def _read_all_days(parts: Buckets) -> Dataset:
    """Events of all days in the order of entities and times, in the columns that people are compared by."""
    schema, tables = parts.source.schema, []
    for number in parts.numbers:
        events = parts.read(number).events
        tables.append(events.select([name for name in events.column_names if name in compared_columns(schema)]))
    events = pa.concat_tables(tables, promote_options="permissive")
    return Dataset(events.sort_by([(schema.entity, "ascending"), (schema.time, "ascending")]), schema)
