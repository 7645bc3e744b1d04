"""The report is one safe file that says what the tables say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from report_example import card_schema, make_card_events, make_run

from ustad.dataset import save_directory
from ustad.files import write_json, write_table
from ustad.report import ReportInput, write_report
from ustad.report.card import to_html
from ustad.report.overview import in_plain_words
from ustad.report.page import SCRIPTS, embed
from ustad.scores import Scores
from ustad.scoring.alerts import AlertRule, too_small
from ustad.tables import DataError

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'


class Parsed(HTMLParser):
    """Elements and what lies in the data element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.inside, self.data = False, ""
        self.feed(text)
        self.content = json.loads(self.data)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id") == "data"

    def handle_data(self, data):
        if self.inside:
            self.data += data

    def handle_endtag(self, tag):
        self.inside = False


@pytest.fixture(scope="module")
def run():
    return make_run(24, 28)


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    events, agents, data, facts = run
    out = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    return Parsed(
        write_report(ReportInput.from_tables(events, agents, facts, data, "# Card\n\n- one"), out).read_text()
    )


def write(tmp_path, *args, **options):
    return Parsed(write_report(ReportInput.from_tables(*args), tmp_path / "r.html", **options).read_text())


def test_a_small_reference_is_said_in_plain_words() -> None:
    warning = too_small(1e-4, AlertRule("alerts_per_day", 2), 900)[0]
    plain = in_plain_words(warning)
    assert "only 900 usual events" in plain
    assert "1 in 10,000" in plain
    assert "reference" not in plain
    assert "tail" not in plain
    assert in_plain_words("something else") == "something else"


def test_nothing_is_fetched_from_anywhere(page):
    fetching = [(tag, a) for tag, a in page.tags if "src" in a or tag in ("link", "iframe", "object", "embed", "img")]
    assert fetching == []
    links = [a["href"] for tag, a in page.tags if "href" in a]
    assert all(link.startswith("#") for link in links)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    for name in ("page.css", "page.html", *SCRIPTS):
        text = resources.files("ustad.report").joinpath(name).read_text()
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
        assert "@import" not in text


def test_scripts_never_make_markup_from_data():
    for name in SCRIPTS:
        text = resources.files("ustad.report").joinpath(name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name


def test_the_words_are_calm():
    for name in ("page.html", *SCRIPTS):
        text = resources.files("ustad.report").joinpath(name).read_text().lower()
        assert not re.search(r"suspicious|guilty|criminal|normal pe|deviant", text), name


def test_summary_counts_what_the_table_holds(page, run):
    events = run[0]
    summary = page.content["summary"]
    assert summary["events"] == events.num_rows
    assert summary["agents"] == 24
    assert summary["alerts"] == int(pc.sum(events["alert"]).as_py())
    assert summary["days"] == 14
    assert summary["rule"] == "5 a day if nothing happens, p ≤ 0.0025"
    assert [row["method"] for row in summary["evaluation"]] == ["ustad", "random", "visit-rate"]


def test_lanes_show_each_days_most_unusual_event_in_local_days(page, run):
    events = run[0]
    lane = page.content["lanes"][0]
    own = events.filter(pc.equal(events["agent_id"], int(lane["id"])))
    micro = own["started_at"].cast(pa.int64()).to_numpy()
    day = (micro - 8 * 3_600_000_000) // 86_400_000_000  # Los Angeles in winter
    p = own["p_value"].to_numpy()
    for i, cell in enumerate(lane["cells"]):
        expected = -np.log10(p[day == page.content["summary"]["firstDay"] + i].min())
        assert cell[0] == pytest.approx(expected, abs=0.01)


def test_agents_and_events_are_ranked_and_alerts_come_first(page):
    scores = page.content["agents"]["score"]
    assert scores == sorted(scores, reverse=True)
    assert [c["id"] for c in page.content["cases"]] == page.content["agents"]["id"][:20]
    top = page.content["top"]
    assert [e["alert"] for e in top] == sorted((e["alert"] for e in top), reverse=True)
    marked = [e["score"] for e in top if e["alert"]]
    assert marked == sorted(marked, reverse=True)


def test_a_case_holds_training_before_and_scored_after_and_shares_that_sum_to_one(page, run):
    case = page.content["cases"][0]
    assert max(case["before"]["day"]) < min(case["events"]["day"])
    assert len(case["before"]["day"]) == len(case["events"]["day"]) == 14 * 4
    shares = np.array([t["share"] for t in case["events"]["terms"].values() if "share" in t])
    assert shares.sum(axis=0) == pytest.approx(1.0, abs=0.01)
    assert sum(case["places"]["visits"]) == len(case["before"]["day"])
    assert sum(case["places"]["now"]) == len(case["events"]["day"])
    assert case["gaps"]
    assert case["zones"] == ["America/Los_Angeles"]


def test_a_long_history_is_cut_to_its_latest_weeks_and_says_so(tmp_path):
    events, agents, data, facts = make_run(5, 200)
    case = write(tmp_path, events, agents, facts, data).content["cases"][0]
    assert max(case["before"]["day"]) - min(case["before"]["day"]) == 62
    assert case["left_out"] == [(100 - 63) * 4, 0]


def test_the_map_keeps_distances(page, run):
    from ustad.geo import haversine_km

    events = run[0]
    case = next(c for c in page.content["cases"] if any(t.get("p") for t in c["trips"]))
    own = events.filter(pc.equal(events["agent_id"], int(case["id"]))).sort_by("started_at")
    lat, lon, elat, elon = (own[n].to_numpy() for n in ("lat", "lon", "expected_lat", "expected_lon"))
    place = np.array(case["event_place"])
    x, y = np.array(case["places"]["x"])[place], np.array(case["places"]["y"])[place]
    drawn = np.hypot(x - np.array(case["events"]["ex"]), y - np.array(case["events"]["ey"]))
    assert drawn == pytest.approx(haversine_km(lat, lon, elat, elon), abs=0.05)
    assert case["events"]["terms"]["place"]["observed"] == pytest.approx(haversine_km(lat, lon, elat, elon), abs=0.01)


def test_hostile_names_stay_text(tmp_path, run):
    events, _, _, facts = run
    bad = pa.array([f"{HOSTILE} {v}" for v in events["agent_id"].to_pylist()])
    for name in ("agent_id", "poi_category", "reason", "kind"):
        values = bad if name == "agent_id" else pa.array([HOSTILE] * events.num_rows)
        events = events.set_column(events.column_names.index(name), name, values)
    parsed = write(tmp_path, events, None, {**facts, "name": HOSTILE, "method": HOSTILE}, None, HOSTILE, title=HOSTILE)
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    assert not any(tag == "img" or "onerror" in a for tag, a in parsed.tags)
    assert parsed.content["cases"][0]["id"].startswith(HOSTILE)
    assert parsed.content["title"] == HOSTILE


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "{{style}}", "\0", "&amp;", '"\\'])
def test_embedded_json_survives_any_text(text):
    assert "<" not in embed([text])
    assert json.loads(embed([text])) == [text]


def test_zero_alerts_say_why_and_what_to_do(tmp_path, run):
    events, agents, _, facts = run
    quiet = events.set_column(events.column_names.index("alert"), "alert", pa.array(np.zeros(events.num_rows, bool)))
    told = {**facts, "warnings": ["the reference is small"]}
    summary = write(tmp_path, quiet, agents, told).content["summary"]
    assert summary["alerts"] == 0
    assert "No stay passed the alert rule (5 a day" in summary["notes"][0]
    assert "--alerts-per-day" in summary["notes"][0]
    assert summary["notes"][1:] == ["the reference is small"]


def test_what_the_data_was_like_is_said_of_several_events(tmp_path, run):
    events, agents, data, facts = run
    schema = replace(data.schema, event_word="entry")
    rows = write(tmp_path, events, agents, {**facts, "schema": schema.to_dict()}).content["quality"]
    assert "entries without a known category" in [row["what"] for row in rows]


def test_events_without_place_end_labels_history_or_p_values_make_a_report(tmp_path):
    events = make_card_events().drop_columns(["p_value", "alert", "kind", "reason"])
    content = write(tmp_path, events, None, {"schema": card_schema().to_dict()}).content
    assert content["words"] == {"entity": "card", "event": "payment", "point": True}
    assert "places" not in content["cases"][0]
    assert content["calibration"] is None
    assert content["scatter"] is None
    assert content["summary"]["evaluation"] == []
    assert [f["label"] for f in content["features"]] == ["amount", "time", "merchant"]


def test_one_agent_with_one_event_makes_a_report(tmp_path, run):
    events, agents, data, facts = run
    one = events.slice(0, 1)
    content = write(tmp_path, one, agents, facts, data).content
    assert content["summary"]["events"] == 1
    assert len(content["cases"]) == 1


def test_missing_values_become_null_and_never_nan(tmp_path, run):
    events = run[0]
    for name in ("expected_start", "pct_x", "spread_duration", "expected_lat", "eu_start"):
        column = pa.array([None if i % 2 else np.nan for i in range(events.num_rows)], pa.float64())
        events = events.set_column(events.column_names.index(name), name, column)
    parsed = write(tmp_path, events, run[1])
    assert "NaN" not in parsed.data
    assert set(parsed.content["cases"][0]["events"]["terms"]["start"]["expected"]) == {None}


def test_from_directories_equals_from_tables(tmp_path, run, page):
    events, agents, data, facts = run
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "card.md").write_text("# Card\n\n- one")
    save_directory(data, tmp_path / "data")
    Scores(events, agents, {**facts, "data": "../data", "model": "../model"}).save(tmp_path / "scores")
    out = write_report(tmp_path / "scores", tmp_path / "r.html")
    content = Parsed(out.read_text()).content
    for name in ("summary", "lanes", "top", "cases", "scatter", "calibration", "quality"):
        assert content[name] == page.content[name], name
    assert "<li>one</li>" in out.read_text()


def test_a_file_of_stays_gives_the_history_and_missing_data_is_said(tmp_path, run):
    events, agents, data, facts = run
    write_table(data.events, tmp_path / "stays.parquet")
    Scores(events, agents, {**facts, "data": str(tmp_path / "stays.parquet")}).save(tmp_path / "scores")
    content = Parsed(write_report(tmp_path / "scores", tmp_path / "r.html").read_text()).content
    assert len(content["cases"][0]["before"]["day"]) == 14 * 4
    assert content["summary"]["notes"] == []
    (tmp_path / "stays.parquet").unlink()
    content = Parsed(write_report(tmp_path / "scores", tmp_path / "r.html").read_text()).content
    assert content["cases"][0]["before"] is None
    assert "scored period only" in content["summary"]["notes"][0]


def test_the_same_run_gives_the_same_file(tmp_path, run):
    events, agents, data, facts = run
    source = ReportInput.from_tables(events, agents, {**facts, "created": "2024-03-01"}, data)
    first = write_report(source, tmp_path / "a.html").read_bytes()
    assert first == write_report(source, tmp_path / "b.html").read_bytes()


def test_many_agents_stay_small(tmp_path):
    events, agents, _, facts = make_run(2000, 8)
    path = write_report(ReportInput.from_tables(events, agents, facts), tmp_path / "r.html")
    assert path.stat().st_size < 1_500_000


def test_mistakes_are_said_in_one_line(tmp_path, run):
    events, agents, _, _ = run
    with pytest.raises(DataError, match=r"no run\.json"):
        write_report(tmp_path, tmp_path / "r.html")
    write_json({}, tmp_path / "run.json")
    with pytest.raises(DataError, match=r"no events\.parquet"):
        write_report(tmp_path, tmp_path / "r.html")
    write_table(events.drop_columns(["score"]), tmp_path / "events.parquet")
    with pytest.raises(DataError, match="missing column score"):
        write_report(tmp_path, tmp_path / "r.html")
    with pytest.raises(DataError, match="the table is empty"):
        write(tmp_path, events.slice(0, 0), agents)
    with pytest.raises(DataError, match="share no agent"):
        write(tmp_path, events, pa.table({"agent_id": [-1], "score": [1.0]}))
    with pytest.raises(DataError, match="cases must be 1 or more"):
        write(tmp_path, events, agents, cases=0)
    with pytest.raises(DataError, match="no such file"):
        write_report(tmp_path, tmp_path / "r.html", data=tmp_path / "nowhere")
    assert not (tmp_path / "r.html").exists()


def test_a_card_becomes_headings_lists_and_tables_and_nothing_else():
    html = to_html("# A\n\n- b **c**\n  more\n- `d`\n\n| e | f |\n|---|---|\n| <b>1</b> | 2 |\n\ng\nh")
    assert "<h3>A</h3>" in html
    assert "<ul><li>b <strong>c</strong> more</li><li><code>d</code></li></ul>" in html
    assert "<td>&lt;b&gt;1&lt;/b&gt;</td>" in html
    assert html.endswith("<p>g h</p>")


def test_regions_count_every_event_and_alert_of_their_kind(run, page):
    events, counts = run[0], page.content["scatter"]["counts"]
    kinds, alerts = events["kind"].to_pylist(), events["alert"].to_pylist()
    for kind in set(kinds):
        mine = [alert for k, alert in zip(kinds, alerts, strict=True) if k == kind]
        assert counts[kind] == [len(mine), sum(mine)]
    assert set(counts) == set(kinds)
