"""One HTML file from a run: the page with its answers written into it. Nothing is fetched when the file is opened.

`write_report(scores_directory, "report.html")` is the whole interface. Every alert opens, however many there are,
and so do the most unusual agents beside them. The answers come from the same functions that the service answers with,
through a store in memory that holds only the agents on show.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from pathlib import Path
from typing import Any

from ustad import progress
from ustad.page.answers import FrozenRun, freeze
from ustad.page.bundle import bundle, read_web
from ustad.page.ground import Ground, streets_in_table
from ustad.page.map_file import MapFile, is_extract, read_map_file
from ustad.page.run_tables import RunTables
from ustad.schema import plural
from ustad.tables import DataError

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "worker-src blob:; connect-src data: blob:; base-uri 'none'; form-action 'none'"
)
MAP = "vendor/maplibre-gl"
PLOT = "vendor/uplot"
READER = "vendor/pmtiles/pmtiles.js"
MOST_MAP_BYTES = 12_000_000  # of an archive of tiles within a file
#: From so many people with alerts on, the size of the file is worth a line.
MANY = 1_000


def write_report(
    run: RunTables | Path | str,
    out: Path | str,
    data: Path | str | None = None,
    *,
    cases: int = 100,
    lanes: int = 50,
    alerts: int = 500,
    title: str | None = None,
    map_file: Path | None = None,
) -> Path:
    """Write the report and return its path.

    `run` is a directory that `ustad score` wrote, or its tables; `data` the data directory where run.json does not
    name it. Every agent with an alert can be opened, however many there are, and at least `cases` in all. `lanes` get a
    row of days. Every alert has a line, and so have up to `alerts` of the most unusual events. `map_file` is a map to
    draw on: an OpenStreetMap extract, or a small archive of tiles.
    """
    for name, value in (("cases", cases), ("lanes", lanes), ("alerts", alerts)):
        if value < 1:
            raise DataError(f"report: {name} must be 1 or more, got {value}")
    tables = run if isinstance(run, RunTables) else RunTables.from_directory(run, data)
    progress.say("report: reading scores")
    extract, archive = _map_of(map_file)
    ground = Ground(lambda: streets_in_table(tables.trips), extract)
    frozen = freeze(tables, cases=cases, lanes=lanes, alerts=alerts, title=title, ground=ground)
    if archive is not None:
        frozen.answers["/v1/about"]["map"] = archive.describe()
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.part")
    temporary.write_text(render(frozen, archive), encoding="utf-8")
    temporary.replace(out)
    with_alert = {line["agent_id"] for line in frozen.answers["/v1/alerts"]["alerts"] if line["alert"]}
    if len(with_alert) > MANY:
        progress.warn(
            f"report: {len(with_alert):,} {plural(tables.schema.entity_word)} have alerts and all of them are in the "
            f"file: {out.stat().st_size / 1e6:.0f} MB; `ustad serve` shows as many without one"
        )
    return out


def _map_of(path: Path | None) -> tuple[Path | None, MapFile | None]:
    """A map as an extract or as an archive that fits into a file."""
    if path is None or is_extract(path):
        return path, None
    archive = read_map_file(path)
    size = path.stat().st_size
    if size > MOST_MAP_BYTES:
        raise DataError(
            f"{path}: {size / 1e6:.0f} MB are too much for a report ({MOST_MAP_BYTES / 1e6:.0f} MB); cut a smaller box "
            "with `pmtiles extract`, or use it with `ustad serve --map`"
        )
    return None, archive


def render(frozen: FrozenRun, archive: MapFile | None = None) -> str:
    """The page's own HTML with style, scripts and answers in place of the links to them."""
    about = frozen.answers["/v1/about"]
    agents = {name: pack(embed(answers)) for name, answers in frozen.agents.items()}
    content = {"answers": frozen.answers, "agents": agents}
    styles, scripts = (
        [read_web("page.css"), read_web(f"{PLOT}/uPlot.min.css")],
        [read_web(f"{PLOT}/uPlot.iife.min.js"), bundle()],
    )
    parts = [f'<script type="application/json" id="answers">{embed(content)}</script>']
    if about["has_place"]:
        styles.append(read_web(f"{MAP}/maplibre-gl.css"))
        library = {"map-library": "maplibre-gl-csp.js", "map-worker": "maplibre-gl-csp-worker.js"}
        parts += [_pack_file(name, f"{MAP}/{file}") for name, file in library.items()]
    if archive is not None:
        tiles = base64.b64encode(archive.path.read_bytes()).decode()
        parts += [_pack_file("map-reader", READER), f'<script type="text/plain" id="map-archive">{tiles}</script>']
    head = [
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{html.escape(about['run'] or 'ustad')}</title>",
        *(f"<style>{text}</style>" for text in reversed(styles)),
    ]
    page = re.sub(r"^ *<(?:title|link|script)\b.*\n", "", read_web("index.html"), flags=re.MULTILINE)
    before, _, after = page.partition("</head>")
    body, _, end = after.partition("</body>")
    tail = [*parts, *(f"<script>{text}</script>" for text in scripts)]
    return "".join([before, "\n".join(head), "\n</head>", body, "\n".join(tail), "\n</body>", end])


def _pack_file(name: str, file: str) -> str:
    return f'<script type="text/plain" id="{name}">{pack(read_web(file))}</script>'


def pack(text: str) -> str:
    """Compressed, as letters; the same text always gives the same."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def embed(content: Any) -> str:
    """JSON that no text in it can break out of a script element."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
