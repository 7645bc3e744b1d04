"""`ustad lab evaluate`: scores against labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ustad.cli.shared import JsonOption, out, print_json
from ustad.data_error import DataError

#: The column of event keys where the schema names no identifier.
EVENT_KEY = "event_key"


def evaluate(
    scores: Annotated[Path, typer.Argument(help="A directory that `ustad score` wrote.")],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="A table of labels; by default those of the data that were scored.")
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="Show two simple baselines beside them: random and visit rate.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Compare scores with labels: AUROC and average precision of events and agents.

    Example: `ustad lab evaluate runs/demo/scores`
    """
    from ustad.files import write_json
    from ustad.scores import Scores

    loaded_scores = Scores.load(scores)
    figures = evaluate_scores(loaded_scores, labels, baselines)
    write_json(with_figures(loaded_scores.run, figures), scores / "run.json")
    if json:
        print_json(figures)
    else:
        out.print(figures_table(figures, loaded_scores.run.get("schema")), soft_wrap=False)


def evaluate_scores(scores: Any, labels: Path | None, baselines: bool) -> dict[str, Any]:
    """Figures of the scores and, on the same events, of random and visit rate: {method: figures}."""
    from ustad.files import read_table
    from ustad.lab.evaluation.detection_metrics import evaluate as figures_of
    from ustad.mobility.readers import open_data
    from ustad.schema import EventSchema, mobility_schema

    schema = EventSchema.from_dict(scores.run["schema"]) if scores.run.get("schema") else mobility_schema()
    source = scores.run.get("data")
    data = open_data(Path(source), schema=schema) if source and Path(source).exists() else None
    by_event, by_agent = (data.labels, data.agent_labels) if data is not None else (None, None)
    if labels is not None:
        by_event, by_agent = sort_labels(read_table(labels), schema)
    if by_event is None and by_agent is None:
        columns = f"{schema.event_id or f'{schema.entity} and {schema.time}'}, or {schema.entity}"
        raise DataError(f"there are no labels to compare with; give a table with --labels ({columns}; and anomaly)")
    methods = {scores.run.get("method", "ustad"): scores}
    if baselines and data is not None:
        methods = {**methods, **trivial_scores(data, scores), **methods}
    event_id, entity = schema.event_id or EVENT_KEY, schema.entity
    tables = {name: (with_key(s.events, schema), s.agents) for name, s in methods.items()}
    return {
        name: figures_of(*both, by_event, by_agent, event_id=event_id, entity=entity, time=schema.time)
        for name, both in tables.items()
    }


def sort_labels(labels: Any, schema: Any) -> tuple[Any, Any]:
    """Labels by event (by its identifier, or by entity and time where it has none) or by entity: (event, entity)."""
    if schema.event_id in labels.column_names:
        return labels, None
    if schema.event_id is None and {schema.entity, schema.time} <= set(labels.column_names):
        return with_key(labels, schema), None
    return None, labels


def with_key(table: Any, schema: Any) -> Any:
    """The table with a column that tells events apart, where the schema names none: from entity and time."""
    import pyarrow as pa

    from ustad.tables import TIMESTAMP, event_keys

    if table is None or schema.event_id is not None:
        return table
    keys = event_keys(table[schema.entity], table[schema.time].cast(TIMESTAMP, safe=False))
    return table.append_column(EVENT_KEY, pa.array(keys))


def with_figures(run: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """What is known of a run, with its own figures and those of the trivial methods: the report shows both."""
    own = run.get("method", "ustad")
    return {**run, "evaluation": figures[own], "baselines": {k: v for k, v in figures.items() if k != own}}


def trivial_scores(data: Any, scores: Any) -> dict[str, Any]:
    """Random and visit rate on exactly the events that were scored."""
    from ustad.lab.baselines.protocol import make

    first, last = scores.run["first_day"], scores.run["last_day"]
    period, before = data.between(first, last), data.between(-(2**31), first - 1)
    if before.num_rows == 0:
        return {}
    seed = int(scores.run.get("seed", 7))
    detectors = {name: make(name, data.schema, seed).fit(before) for name in ("random", "visit-rate")}
    return {name: detector.score(period, context=before) for name, detector in detectors.items()}


def figures_table(figures: dict[str, Any], schema: dict[str, Any] | None = None) -> Table:
    """AUROC and AP of events, of incidents and of agents, as the schema calls them, a row for each method."""
    words = [(schema or {}).get(f"{which}_word", word) for which, word in (("event", "event"), ("entity", "agent"))]
    words.insert(1, "incident")
    table = Table("method", *(f"{w} {f}" for w in words for f in ("AUROC", "AP")), title="Against the labels")
    for name, both in figures.items():
        cells = []
        for level in ("events", "incidents", "agents"):
            for figure in ("auroc", "ap"):
                value = (both.get(level) or {}).get(figure)
                cells.append("–" if value is None or value != value else f"{value:.3f}")
        table.add_row(name, *cells)
    return table
