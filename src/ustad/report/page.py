"""One HTML file from a run: the data as JSON inside the page's own markup, style and script.

`write_report(scores_directory, "report.html")` is the whole interface; nothing is fetched when the file is opened.
"""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ustad import progress
from ustad.report import card as model_card
from ustad.report import overview
from ustad.report.cases import CaseMaker
from ustad.report.quality import quality_rows
from ustad.report.source import ReportInput, rows_of
from ustad.report.uncertainty import Uncertainty, calibration, scatter
from ustad.report.words import described
from ustad.schema import plural
from ustad.tables import DataError

SCRIPTS = ("draw.js", "overview.js", "scatter.js", "timeline.js", "map.js", "case.js", "page.js")


def write_report(
    run: ReportInput | Path | str,
    out: Path | str,
    data: Path | str | None = None,
    cases: int = 20,
    lanes: int = 50,
    alerts: int = 500,
    title: str | None = None,
) -> Path:
    """Write the report and return its path.

    `run` is a directory that `ustad score` wrote or a ReportInput; `data` the data directory where run.json does not
    name it. `cases` agents get the full view, `lanes` a row of days, `alerts` events a line.
    """
    for name, value in (("cases", cases), ("lanes", lanes), ("alerts", alerts)):
        if value < 1:
            raise DataError(f"report: {name} must be 1 or more, got {value}")
    source = run if isinstance(run, ReportInput) else ReportInput.from_directory(run, data)
    content = collect(source, cases, lanes, alerts)
    content["title"] = title or _title(source)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.part")
    temporary.write_text(render(content, source.card), encoding="utf-8")
    temporary.replace(out)
    return out


def collect(source: ReportInput, cases: int, lanes: int, alerts: int) -> dict[str, Any]:
    """Everything the page shows, ready for JSON."""
    progress.say("report: reading scores")
    scored = overview.read_scored(source)
    schema = scored.schema
    detail = overview.detail_of(source, scored, max(cases, lanes))
    epistemic, aleatoric = Uncertainty.of(scored.table, "eu_"), Uncertainty.of(scored.table, "au_")
    maker = CaseMaker(schema, detail.column_names, epistemic, aleatoric)
    content: dict[str, Any] = {
        "made": str(source.run.get("created") or datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        "words": {"entity": schema.entity_word, "event": schema.event_word, "point": schema.end is None},
        "summary": overview.summary(scored, source),
        "lanes": overview.lanes(scored, detail, lanes),
        "top": overview.top_events(scored, source, alerts),
        "agents": overview.ranking(scored),
        "scatter": scatter(scored),
        "calibration": calibration(scored),
        "features": described(schema, detail.column_names),
        "quality": quality_rows(source),
        "run": _facts(source.run),
        "cases": _cases(source, scored, detail, maker, cases),
    }
    content["categories"] = sorted(maker.minutes, key=lambda word: -maker.minutes[word])
    return content


def render(content: dict[str, Any], card: str) -> str:
    """The page with its parts in place."""
    parts = resources.files("ustad.report")
    script = "\n".join(parts.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    page = parts.joinpath("page.html").read_text(encoding="utf-8")
    replacements = {
        "{{title}}": html.escape(content["title"]),
        "{{style}}": parts.joinpath("page.css").read_text(encoding="utf-8"),
        "{{card}}": model_card.to_html(_body(card)) or "<p>The model came without a card.</p>",
        "{{script}}": f'"use strict";\n(() => {{\n{script}\n}})();',
        "{{data}}": embed(content),
    }
    for mark in replacements:
        before, _, after = page.partition(mark)
        page = f"{before}\0{mark}\0{after}"
    pieces = page.split("\0")  # replaced once each, so that a value that looks like a mark is not replaced in turn
    return "".join(replacements.get(piece, piece) for piece in pieces)


def _body(card: str) -> str:
    """The card without its own title: the page has one."""
    first, _, rest = card.strip().partition("\n")
    return rest if first.startswith("# ") else card


def embed(content: Any) -> str:
    """JSON that no text in it can break out of a script element."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _cases(
    source: ReportInput, scored: overview.Scored, detail: pa.Table, maker: CaseMaker, count: int
) -> list[dict[str, Any]]:
    entity = scored.schema.entity
    names = [scored.names[code] for code in scored.agent_order[:count]]
    around = {key: rows_of(getattr(source, key), entity, names) for key in ("history", "trips", "gaps")}
    result = []
    with progress.track("report: cases", len(names)) as advance:
        for name in names:
            own = {key: _of(table, entity, name) for key, table in around.items()}
            case = maker.make(_of(detail, entity, name), own["history"], own["trips"], own["gaps"])
            result.append({"id": str(name), **case})
            advance()
    return result


def _of(table: pa.Table | None, entity: str, name: Any) -> Any:
    if table is None:
        return None
    column = table[entity]
    wanted = np.asarray(column.to_numpy(zero_copy_only=False) == name) if len(column) else np.empty(0, bool)
    return table.filter(pa.array(wanted))


def _title(source: ReportInput) -> str:
    name, events = str(source.run.get("name") or ""), plural(source.schema.event_word)
    return f"{name[:1].upper()}{name[1:]}: unusual {events}" if name else f"Unusual {events}"


def _facts(run: dict[str, Any]) -> list[list[str]]:
    """What the run says about itself, as label and text."""
    shown = []
    for key in ("method", "data", "model", "split", "preset", "seed", "version", "created"):
        value = run.get(key)
        if value not in (None, "", {}, []):
            shown.append([key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)])
    return shown
