"""The report is one safe file that says what the tables say, in the service's own answers."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from report_example import add_habits, card_schema, make_card_events, make_run, tables_of

from ustad.dataset import save_directory
from ustad.files import write_json, write_table
from ustad.scores import Scores
from ustad.scoring.alerts import AlertRule, LeastRate, too_small
from ustad.tables import DataError

pytest.importorskip("sqlalchemy", reason="the page's libraries are not installed: pip install 'ustad[service]'")

from ustad.page import WEB, event_details, report_file
from ustad.page.answers import short
from ustad.page.bundle import bundle, module_order
from ustad.page.card_blocks import card_blocks
from ustad.page.facts import in_plain_words, notes
from ustad.page.quality_rows import quality_rows
from ustad.page.report_file import embed, write_report
from ustad.page.run_scores import read_run_scores

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
OWN_FILES = sorted(p for p in WEB.iterdir() if p.suffix in (".js", ".css", ".html"))


class Parsed(HTMLParser):
    """Elements, and the answers in the file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.inside, self.data = False, ""
        self.feed(text)
        content = json.loads(self.data)
        self.answers = content["answers"]
        self.agents = {
            name: json.loads(gzip.decompress(base64.b64decode(packed))) for name, packed in content["agents"].items()
        }
        self.about, self.summary, self.run, self.lanes = (
            self.answers[f"/v1/{name}"] for name in ("about", "summary", "run", "lanes")
        )
        self.lines = self.answers["/v1/alerts"]["alerts"]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id") == "answers"

    def handle_data(self, data):
        if self.inside:
            self.data += data

    def handle_endtag(self, tag):
        self.inside = False

    def events(self, agent):
        return self.agents[agent][f"/v1/agents/{agent}/events"]["events"]

    def detail(self, line):
        return self.agents[line["agent_id"]][f"/v1/events/{line['id']}"]


@pytest.fixture(scope="module")
def run():
    return make_run(24, 28)


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    events, agents, data, facts = run
    out = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    tables = tables_of(events, agents, facts, data, "# Card\n\n- one")
    return Parsed(write_report(tables, out, cases=20).read_text())


def write(tmp_path, *args, **options):
    return Parsed(write_report(tables_of(*args), tmp_path / "r.html", **options).read_text())


# --------------------------------------------------------------------------------------------- one safe file
def test_nothing_is_fetched_from_anywhere(page):
    fetching = [(tag, a) for tag, a in page.tags if "src" in a or tag in ("link", "iframe", "object", "embed", "img")]
    assert fetching == []
    links = [a["href"] for tag, a in page.tags if "href" in a]
    assert all(link.startswith(("#", "/")) for link in links)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "http" not in policy
    for file in OWN_FILES:
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", file.read_text()) == [], file.name
        assert "@import" not in file.read_text()


def test_scripts_never_make_markup_from_data():
    for file in OWN_FILES:
        text = file.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), file.name


def test_the_words_are_calm():
    for file in OWN_FILES:
        assert not re.search(r"suspicious|guilty|criminal|normal pe|deviant", file.read_text().lower()), file.name


def test_the_report_has_every_script_of_the_page_each_after_what_it_imports():
    order = module_order()
    assert sorted(order) == sorted(p.name for p in OWN_FILES if p.suffix == ".js")
    assert order[-1] == "main.js"
    text = bundle()
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    assert "</script" not in text


def test_hostile_names_stay_text(tmp_path, run):
    events, _, _, facts = run
    bad = pa.array([f"{HOSTILE} {v}" for v in events["agent_id"].to_pylist()])
    for name in ("agent_id", "poi_category", "reason", "kind"):
        values = bad if name == "agent_id" else pa.array([HOSTILE] * events.num_rows)
        events = events.set_column(events.column_names.index(name), name, values)
    parsed = write(tmp_path, events, None, {**facts, "name": HOSTILE, "method": HOSTILE}, None, HOSTILE, title=HOSTILE)
    assert [tag for tag, _ in parsed.tags].count("script") == 5
    assert not any(tag == "img" or "onerror" in a for tag, a in parsed.tags)
    assert parsed.lines[0]["agent_id"].startswith(HOSTILE)
    assert parsed.about["run"] == HOSTILE


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "{{style}}", "\0", "&amp;", '"\\'])
def test_embedded_json_survives_any_text(text):
    assert "<" not in embed([text])
    assert json.loads(embed([text])) == [text]


def test_the_same_run_gives_the_same_file(tmp_path, run):
    events, agents, data, facts = run
    tables = tables_of(events, agents, {**facts, "created": "2024-03-01"}, data)
    first = write_report(tables, tmp_path / "a.html").read_bytes()
    assert first == write_report(tables, tmp_path / "b.html").read_bytes()


def test_many_agents_stay_small(tmp_path):
    """Of the page itself, 0.8 MB, no more than once; of each further agent less than a kilobyte."""
    sizes = {}
    for count in (10, 1000):
        events, agents, _, facts = make_run(count, 6)
        path = write_report(tables_of(events, agents, facts), tmp_path / "r.html")
        sizes[count] = path.stat().st_size
    assert sizes[10] < 1_000_000
    assert sizes[1000] - sizes[10] < 990 * 1_000


# ------------------------------------------------------------------------------------------- what it says
def test_the_summary_counts_what_the_table_holds(page, run):
    events = run[0]
    flagged = events.filter(events["alert"])
    assert page.summary["events"] == events.num_rows
    assert page.summary["agents"] == 24
    assert page.summary["alerts"] == flagged.num_rows
    assert page.summary["days"] == 14
    assert page.summary["alert_p_value"] == pytest.approx(pc.max(flagged["p_value"]).as_py(), rel=1e-6)
    mildest = pc.min(flagged["score"]).as_py()
    assert page.summary["unusual"] == int((events["score"].to_numpy() >= mildest).sum()) >= flagged.num_rows
    assert page.run["rule"] == "the 5 most unusual a day, p ≤ 0.0025"
    assert [row["method"] for row in page.run["figures"]] == ["ustad", "random", "visit-rate"]


def test_lanes_show_each_days_most_unusual_event_in_local_days(page, run):
    events = run[0]
    lane = page.lanes["lanes"][0]
    own = events.filter(pc.equal(events["agent_id"], int(lane["agent_id"])))
    micro = own["started_at"].cast(pa.int64()).to_numpy()
    day = (micro - 8 * 3_600_000_000) // 86_400_000_000  # Los Angeles in winter
    score = own["score"].to_numpy()
    first = np.datetime64(page.lanes["first"]).astype(int)
    assert len(lane["cells"]) == 14
    for i, cell in enumerate(lane["cells"]):
        assert cell["score"] == pytest.approx(score[day == first + i].max(), rel=1e-6)


def test_who_has_an_alert_stands_above_who_has_none(page):
    flagged = [any(cell["alerts"] for cell in lane["cells"]) for lane in page.lanes["lanes"]]
    assert sum(flagged) > 1
    assert flagged == sorted(flagged, reverse=True)
    scores = [line["score"] for line in page.lines]
    assert scores == sorted(scores, reverse=True)


def test_every_alert_opens_with_everything_behind_it(tmp_path, run):
    events, agents, data, facts = run
    parsed = write(tmp_path, events, agents, facts, data, cases=1)
    raised = [line for line in parsed.lines if line["alert"]]
    assert len(raised) == pc.sum(events["alert"]).as_py()
    for line in raised:
        detail = parsed.detail(line)
        assert detail["event"]["id"] == line["id"]
        assert detail["features"]
    assert len(parsed.agents) == len({line["agent_id"] for line in raised}), "with one case, nobody else is open"


def test_an_agent_with_many_alerts_and_a_long_history_has_each_behind(tmp_path, run, monkeypatch):
    monkeypatch.setattr(event_details, "HISTORY", 30)
    events, agents, data, facts = run
    mine = pa.array(events["agent_id"].to_numpy() == 4)
    events = events.set_column(events.column_names.index("alert"), "alert", mine)
    parsed = write(tmp_path, events, agents, facts, data, cases=1)
    raised = [line for line in parsed.lines if line["alert"]]
    assert len(raised) == 14 * 4
    assert all(parsed.detail(line)["features"] for line in raised)


def test_at_least_so_many_cases_open_in_the_order_of_the_agents(page, run):
    agents = run[1].sort_by([("score", "descending")])
    flagged = {line["agent_id"] for line in page.lines if line["alert"]}
    others = [name for name in map(str, agents["agent_id"].to_pylist()) if name not in flagged]
    assert set(page.agents) == flagged | set(others[: 20 - len(flagged)])


@pytest.fixture(scope="module")
def crowd():
    """More people with alerts than a small file would hold: every one of 205, three each, whatever the scores."""
    events, agents, _, facts = make_run(205, 2)
    flags = np.arange(events.num_rows) % 4 < 3
    return events.set_column(events.column_names.index("alert"), "alert", pa.array(flags)), agents, facts


def test_however_many_people_have_alerts_every_alert_is_listed_and_opens(tmp_path, crowd):
    events, agents, facts = crowd
    parsed = write(tmp_path, events, agents, facts, cases=1)
    raised = {line["event_id"]: line for line in parsed.lines if line["alert"]}
    assert set(raised) == {str(i) for i in events.filter(events["alert"])["stay_id"].to_pylist()}
    assert len(raised) == 615
    assert len(parsed.agents) == 205
    for line in raised.values():
        detail = parsed.detail(line)
        assert detail["event"]["id"] == line["id"]
        assert detail["features"]
    assert parsed.summary["alerts"] == 615


def test_a_large_file_says_how_many_people_and_how_large_in_one_line(tmp_path, run, monkeypatch):
    events, agents, data, facts = run
    people = len(pc.unique(events.filter(events["alert"])["agent_id"]))
    monkeypatch.setattr(report_file, "MANY", people)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(tmp_path, events, agents, facts, data, cases=1)
    monkeypatch.setattr(report_file, "MANY", people - 1)
    with pytest.warns(UserWarning, match=f"report: {people} agents have alerts and all of them are in the file: 1 MB"):
        write(tmp_path, events, agents, facts, data, cases=1)


@pytest.mark.parametrize("cases", [1, 8, 20])
def test_whatever_the_slider_lists_opens_too(tmp_path, run, cases):
    """At each of its steps the list has as many lines as it says, the highest scores of all, of people in the file."""
    events, agents, data, facts = run
    parsed = write(tmp_path, events, agents, facts, data, cases=cases)
    assert {line["agent_id"] for line in parsed.lines} <= set(parsed.agents)
    scores = np.sort(events["score"].to_numpy())[::-1]
    curve = parsed.summary["curve"]
    assert curve or cases < 20
    for step in curve:
        listed = [line for line in parsed.lines if line["score"] >= step["score"] - 1e-9]
        assert len(listed) == step["per_day"] * parsed.summary["days"]
        assert [line["score"] for line in listed] == pytest.approx(scores[: len(listed)].tolist(), rel=1e-6)
        assert all(parsed.detail(line)["features"] for line in listed)


def test_a_slider_goes_further_the_more_people_a_file_holds(tmp_path, run):
    events, agents, data, facts = run
    files = [write(tmp_path, events, agents, facts, data, cases=cases, alerts=2_000) for cases in (1, 12, 24)]
    steps = [len(parsed.summary["curve"]) for parsed in files]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1] == events.num_rows // 14


def test_as_unusual_as_the_mildest_alert_counts_everybody_also_who_is_not_in_the_file(tmp_path, run):
    """One mild alert alone: nearly everybody has something as unusual, and few are in the file."""
    events, agents, _, facts = run
    flags = np.zeros(events.num_rows, bool)
    flags[np.argsort(-events["score"].to_numpy())[700]] = True
    events = events.set_column(events.column_names.index("alert"), "alert", pa.array(flags))
    parsed = write(tmp_path, events, agents, facts, cases=2, lanes=1)
    assert len(parsed.agents) == 2
    assert parsed.summary["unusual"] == 701


def test_a_case_holds_the_weeks_before_and_the_scored_ones(page):
    name = page.lines[0]["agent_id"]
    events = page.events(name)
    before = [e["started_at"] for e in events if e["score"] is None]
    after = [e["started_at"] for e in events if e["score"] is not None]
    assert len(before) == len(after) == 14 * 4
    assert max(before) < min(after)
    places = page.agents[name][f"/v1/agents/{name}/places"]["places"]
    assert sum(p["visits"] for p in places) == len(events)
    assert page.agents[name][f"/v1/agents/{name}/movements"]["gaps"]


def test_shares_of_a_score_by_the_network_sum_to_one(page):
    for line in page.lines[:5]:
        detail = page.detail(line)
        assert detail["questions"] is None
        assert sum(f["share"] for f in detail["features"]) + detail["knn"]["share"] == pytest.approx(1.0, abs=1e-5)


def test_shares_of_a_score_by_habits_are_its_own_and_nothing_else_speaks(tmp_path, run):
    """The percentiles of a network that had no part in the score get no share of it."""
    events, agents, data, facts = run
    events = add_habits(events)
    parsed = write(tmp_path, events, agents, facts, data)
    told = {row["stay_id"]: row for row in events.to_pylist()}
    for line in [line for line in parsed.lines if line["alert"]]:
        detail, row = parsed.detail(line), told[int(line["event_id"])]
        assert {t["name"]: t["share"] for t in detail["questions"]["terms"]} == {
            one["name"]: pytest.approx(one["share"], rel=1e-6) for one in row["evidence"]
        }
        assert [f["share"] for f in detail["features"]] == [0.0] * len(detail["features"])
        assert [f["au"] for f in detail["features"]] == [None] * len(detail["features"])
        assert {f["name"] for f in detail["features"]} == {"start", "duration", "place", "poi"}
        assert detail["knn"]["pct"] is None
        expected = next(f for f in detail["features"] if f["name"] == "start")["expected"]
        assert expected == pytest.approx(row["expected_start"], rel=1e-6)


def test_a_small_reference_is_said_in_plain_words() -> None:
    least = LeastRate(900, 3.0)
    warning = too_small(1e-4, AlertRule("alerts_per_day", 2), least)[0]
    plain = in_plain_words(warning)
    assert "only 900 usual events" in plain
    assert plain.endswith(least.words())
    before = warning.removesuffix(f"; {least.words()}")  # as runs of before say it
    assert in_plain_words(before).endswith("longer or more training data makes this sure")
    assert "1 in 10,000" in plain
    assert "reference" not in plain
    assert "tail" not in plain
    assert in_plain_words("something else") == "something else"


def test_the_page_knows_the_fewest_alerts_a_day_that_can_be_told_apart(tmp_path, run):
    events, agents, _, facts = run
    least = LeastRate(900, 3.2)
    told = {**facts, "reference_events": least.reference, "least_per_day": least.per_day}
    assert write(tmp_path, events, agents, facts, cases=1).about["rate"] is None
    rate = write(tmp_path, events, agents, told, cases=1).about["rate"]
    assert rate == {"least_per_day": 3.2, "words": f"{least.words().capitalize()}."}


def test_zero_alerts_say_why_and_what_to_do(tmp_path, run):
    events, agents, _, facts = run
    quiet = events.set_column(events.column_names.index("alert"), "alert", pa.array(np.zeros(events.num_rows, bool)))
    told = {**facts, "warnings": ["the reference is small"]}
    parsed = write(tmp_path, quiet, agents, told, cases=20)
    assert parsed.summary["alerts"] == 0
    assert "No stay passed the alert rule (the 5 most unusual a day" in parsed.about["notes"][0]
    assert "--alerts-per-day" in parsed.about["notes"][0]
    assert parsed.about["notes"][1:] == ["The reference is small"]
    assert len(parsed.agents) == 20


def test_a_report_names_data_and_model_without_the_directories_of_the_machine(tmp_path, run):
    events, agents, data, facts = run
    places = {"data": "/srv/people/berlin/data", "model": "s3://bucket/deep/down/model"}
    parsed = write(tmp_path, events, agents, {**facts, **places}, data, cases=1)
    shown = dict(parsed.run["facts"])
    assert (shown["data"], shown["model"]) == ("berlin/data", "down/model")


def notes_of(events, facts):
    tables = tables_of(events, None, facts)
    return notes(read_run_scores(tables), tables.run)


def test_fewer_or_more_alerts_than_asked_for_are_said(run):
    events, _, _, facts = run
    got = pc.sum(events["alert"]).as_py() / 14
    assert not any("Asked for" in note for note in notes_of(events, {**facts, "value": got}))
    assert f"Asked for {5 * got:g} alerts a day, got {got:.2g}." in notes_of(events, {**facts, "value": 5 * got})


@pytest.mark.parametrize(("p", "said"), [(0.05, True), (1e-4, False)])
def test_more_expected_by_chance_than_there_are_alerts_is_said(run, p, said):
    events, _, _, facts = run
    p_value = np.where(events["alert"].to_numpy(zero_copy_only=False), p, events["p_value"].to_numpy())
    events = events.set_column(events.column_names.index("p_value"), "p_value", pa.array(p_value))
    assert any("may be a false alarm" in note for note in notes_of(events, facts)) == said


def test_what_the_data_was_like_is_said_of_several_events(run):
    events, agents, data, facts = run
    schema = replace(data.schema, event_word="entry")
    rows = quality_rows(tables_of(events, agents, {**facts, "schema": schema.to_dict()}))
    assert "entries without a known category" in [row["what"] for row in rows]


def test_a_card_becomes_headings_lists_and_tables_and_nothing_else():
    blocks = card_blocks("# A\n\n## B\n\n- b **c**\n  more\n- `d`\n\n| e | f |\n|---|---|\n| <b>1</b> | 2 |\n\ng\nh")
    assert blocks == [
        {"kind": "h4", "parts": [["text", "B"]]},
        {"kind": "ul", "items": [[["text", "b "], ["strong", "c"], ["text", " more"]], [["code", "d"]]]},
        {
            "kind": "table",
            "head": [[["text", "e"]], [["text", "f"]]],
            "rows": [[[["text", "<b>1</b>"]], [["text", "2"]]]],
        },
        {"kind": "p", "parts": [["text", "g h"]]},
    ]


def test_regions_count_every_event_and_alert_of_their_kind(run, page):
    events, counts = run[0], page.run["scatter"]["counts"]
    kinds, alerts = events["kind"].to_pylist(), events["alert"].to_pylist()
    for kind in set(kinds):
        mine = [alert for k, alert in zip(kinds, alerts, strict=True) if k == kind]
        assert counts[kind] == [len(mine), sum(mine)]
    assert set(counts) == set(kinds)


# ---------------------------------------------------------------------------------------- the same as served
@pytest.fixture(scope="module")
def served(run, tmp_path_factory):
    """A service that shows the run, and the report of it."""
    testing = pytest.importorskip("fastapi.testclient", reason="the service's libraries are not installed")
    from ustad.service.app import create_app
    from ustad.service.settings import Settings

    events, agents, data, facts = run
    place = tmp_path_factory.mktemp("served")
    save_directory(data, place / "data")
    Scores(events, agents, {**facts, "data": str(place / "data")}).save(place / "scores")
    parsed = Parsed(write_report(place / "scores", place / "report.html").read_text())
    app = create_app(Settings(store=f"sqlite:///{place / 'store.db'}", run=place))
    with testing.TestClient(app, base_url="http://localhost") as client:
        yield client, parsed


def test_the_report_answers_what_the_service_answers(served):
    client, parsed = served
    for path in ("/v1/summary", "/v1/run"):
        assert short({**client.get(path).json(), "curve": None}) == {**parsed.answers[path], "curve": None}
    curve = client.get("/v1/summary").json()["curve"]
    assert parsed.summary["curve"] == short(curve)[: len(parsed.summary["curve"])]
    for name in sorted(parsed.agents)[:4]:
        for path, told in parsed.agents[name].items():
            limit = "?limit=1000" if path.endswith(("/events", "/movements")) else ""
            asked = short(client.get(path + limit).json())
            if path.endswith("/events"):  # what drives a score is behind the details
                asked["events"] = [
                    {**e, "term": k["term"]} for e, k in zip(asked["events"], told["events"], strict=True)
                ]
            assert asked == short(told), path


def test_the_report_lists_what_the_service_lists(served):
    client, parsed = served
    raised = client.get("/v1/alerts?limit=1000").json()["alerts"]
    assert [line for line in parsed.lines if line["alert"]] == short(raised)
    lanes = client.get("/v1/lanes?limit=50").json()
    assert parsed.lanes["lanes"] == short(lanes["lanes"])


# -------------------------------------------------------------------------------------------- other tables
def test_events_without_place_end_labels_history_or_p_values_make_a_report(tmp_path):
    events = make_card_events().drop_columns(["p_value", "alert", "kind", "reason"])
    parsed = write(tmp_path, events, None, {"schema": card_schema().to_dict()})
    assert (parsed.about["entity_word"], parsed.about["event_word"]) == ("card", "payment")
    assert not parsed.about["has_place"]
    assert parsed.run["calibration"] is None
    assert parsed.run["scatter"] is None
    assert parsed.run["figures"] == []
    detail = parsed.detail(parsed.lines[0])
    assert [f["label"] for f in detail["features"]] == ["amount", "time", "merchant"]


def test_one_agent_with_one_event_makes_a_report(tmp_path, run):
    events, agents, data, facts = run
    parsed = write(tmp_path, events.slice(0, 1), agents, facts, data)
    assert parsed.summary["events"] == 1
    assert len(parsed.agents) == 1


def test_missing_values_become_null_and_never_nan(tmp_path, run):
    events = run[0]
    for name in ("expected_start", "pct_x", "spread_duration", "expected_lat", "eu_start"):
        column = pa.array([None if i % 2 else np.nan for i in range(events.num_rows)], pa.float64())
        events = events.set_column(events.column_names.index(name), name, column)
    parsed = write(tmp_path, events, run[1])
    assert "NaN" not in json.dumps([parsed.answers, parsed.agents])
    start = next(f for f in parsed.detail(parsed.lines[0])["features"] if f["name"] == "start")
    assert start["expected"] is None


def test_from_directories_equals_from_tables(tmp_path, run, page):
    events, agents, data, facts = run
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "card.md").write_text("# Card\n\n- one")
    save_directory(data, tmp_path / "data")
    Scores(events, agents, {**facts, "data": "../data", "model": "../model"}).save(tmp_path / "scores")
    parsed = Parsed(write_report(tmp_path / "scores", tmp_path / "r.html", cases=20).read_text())
    for name in ("summary", "lanes", "alerts"):
        assert parsed.answers[f"/v1/{name}"] == page.answers[f"/v1/{name}"], name
    assert parsed.agents == page.agents
    assert {**parsed.run, "facts": None} == {**page.run, "facts": None}
    assert parsed.run["card"] == [{"kind": "ul", "items": [[["text", "one"]]]}]


def test_a_file_of_stays_gives_the_history_and_missing_data_is_said(tmp_path, run):
    events, agents, data, facts = run
    write_table(data.events, tmp_path / "stays.parquet")
    Scores(events, agents, {**facts, "data": str(tmp_path / "stays.parquet")}).save(tmp_path / "scores")
    parsed = Parsed(write_report(tmp_path / "scores", tmp_path / "r.html").read_text())
    name = parsed.lines[0]["agent_id"]
    assert len(parsed.events(name)) == 28 * 4
    (tmp_path / "stays.parquet").unlink()
    parsed = Parsed(write_report(tmp_path / "scores", tmp_path / "r.html").read_text())
    assert len(parsed.events(name)) == 14 * 4
    assert any("scored period only" in note for note in parsed.about["notes"])


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


def test_a_missing_library_is_said_in_one_line(monkeypatch):
    from ustad.cli.report import report_writer

    monkeypatch.setitem(sys.modules, "ustad.page.report_file", None)
    with pytest.raises(DataError, match=r"pip install 'ustad\[service\]'"):
        report_writer()


def test_events_older_than_the_history_that_is_looked_at_are_shown_too(run, page, tmp_path, monkeypatch):
    events, agents, data, facts = run
    monkeypatch.setattr("ustad.page.event_details.HISTORY", 3)
    shown = write(tmp_path, events, agents, facts, data, cases=20)
    assert {name: sorted(of) for name, of in shown.agents.items()} == {n: sorted(of) for n, of in page.agents.items()}
    details = [(path, of[path]) for of in shown.agents.values() for path in of if path.startswith("/v1/events/")]
    assert len(details) > 3
    assert all(path.endswith(detail["event"]["id"]) for path, detail in details)
