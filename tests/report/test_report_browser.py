"""The report in a real browser: it draws, answers to the keyboard, asks nobody, complains of nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from report_example import card_schema, make_card_events, make_run

from ustad.report import ReportInput, write_report
from ustad.tables import TIMESTAMP

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium is installed; `make setup-tests` (as root) installs one"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
PATIENCE = 180_000  # milliseconds that a busy machine may take; only a test that fails waits so long


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def plain_run():
    return make_run(24, 28)


@pytest.fixture(scope="module")
def file(tmp_path_factory, plain_run):
    events, agents, data, facts = plain_run
    source = ReportInput.from_tables(events, agents, facts, data)
    return write_report(source, tmp_path_factory.mktemp("page") / "report.html", cases=5)


@pytest.fixture
def open_page(browser, file):
    """A page of the report that fails the test on any complaint or request but for the file itself."""
    troubles, pages = [], []

    def opened(address: str = "", path=file, **options):
        page = browser.new_page(**options)
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: troubles.append(str(e)))
        page.on("request", lambda r: troubles.append(r.url) if not r.url.startswith(path.as_uri()) else None)
        page.goto(f"{path.as_uri()}{address}")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []


def test_overview_case_and_keyboard(open_page):
    page = open_page()
    assert page.locator(".lanes tbody tr").count() == 24
    assert page.locator("#alerts a, #alerts .still").count() > 5
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".timeline rect.stay")
    first = page.locator("#case h1").inner_text()
    assert page.locator(".timeline rect.stay.alerted").count() > 0
    assert page.locator(".map .ghost").count() == 2
    assert page.locator(".axis .observed").count() == 3
    page.keyboard.press("j")
    page.wait_for_function("name => document.querySelector('#case h1').innerText !== name", arg=first)
    page.keyboard.press("Escape")
    page.wait_for_selector("#overview:not([hidden])")
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")


def test_the_map_says_when_only_some_paths_are_drawn(open_page, tmp_path, monkeypatch):
    from ustad.report import cases

    monkeypatch.setattr(cases, "MAX_PATHS", 3)
    events, agents, data, facts = make_run(24, 28)
    travelled = {str(a) for a in data.trips["agent_id"].unique().to_pylist()}
    few = write_report(ReportInput.from_tables(events, agents, facts, data), tmp_path / "few.html", cases=24)
    assert "paths of the latest 3 are drawn" in case_text(open_page, few, travelled)
    monkeypatch.setattr(cases, "MAX_PATHS", 10_000)
    all_ = write_report(ReportInput.from_tables(events, agents, facts, data), tmp_path / "all.html", cases=24)
    assert "are drawn" not in case_text(open_page, all_, travelled)


def case_text(open_page, path, names):
    """What the case of the first of these agents says."""
    page = open_page(path=path)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".timeline rect.stay")
    for _ in range(200):
        if page.locator("#case h1").inner_text().split()[-1] in names:
            break
        before = page.url
        page.keyboard.press("j")
        page.wait_for_function("url => location.href !== url", arg=before)
    page.wait_for_selector(".map")
    return page.locator("#case").inner_text()


def test_coordinates_are_shown_on_request_only(open_page):
    page = open_page("#case=0")
    assert not page.get_by_text("(WGS84)").is_visible()
    page.get_by_text("Show coordinates").click()
    assert page.get_by_text("(WGS84)").is_visible()


def test_slider_search_and_kind_narrow_the_list_and_the_address_keeps_them(open_page):
    page = open_page()
    lines = page.locator("#alerts li:not(.rule-line)")
    before = lines.count()
    page.locator("#alerts-controls input").fill("0")
    assert lines.count() == 1 < before
    page.locator("#alerts-controls input").fill("1000")
    page.locator("#alerts-controls select").select_option("novel")
    assert set(page.locator("#alerts .kind").all_inner_texts()) == {"◆ novel"}
    page.keyboard.press("/")
    page.locator("#search").fill("14")
    assert page.locator("#found li").count() == 1
    again = open_page(page.evaluate("location.hash"))
    assert again.locator("#search").input_value() == "14"
    assert again.locator("#alerts-controls select").input_value() == "novel"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_uncertainty_against_surprise_has_a_region_for_each_kind_with_all_of_its_alerts(open_page, scheme):
    page = open_page(color_scheme=scheme)
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    kinds = ("predictable", "unsure", "novel", "unobserved")
    drawn, colours = {}, {}
    for kind in kinds:
        region = page.locator(f"#scatter .region.{kind}")
        stays, alerts = data["scatter"]["counts"].get(kind, (0, 0))
        words = region.locator("figcaption").inner_text()
        assert kind in words
        assert f"{stays} stay" in words
        assert (f"{alerts} alert" if alerts else "no alert") in words
        assert f"{stays} stay" in region.locator("svg").get_attribute("aria-label")
        assert region.locator(".alerts-field").count() == 1
        drawn[kind] = region.locator(".dot.alert").count()
        assert drawn[kind] == alerts
        colours[kind] = region.locator("figcaption i").evaluate("e => getComputedStyle(e).color")
    assert sum(drawn.values()) == data["summary"]["alerts"] > 0
    assert page.locator("#scatter .dot").count() == sum(x is not None for x in data["scatter"]["x"])
    assert len(set(colours.values())) == 4


def test_events_of_no_kind_have_one_region(open_page, tmp_path, plain_run):
    events, agents, data, facts = plain_run
    source = ReportInput.from_tables(events.drop_columns(["kind"]), agents, facts, data)
    page = open_page(path=write_report(source, tmp_path / "kinds.html", cases=1))
    assert page.locator("#scatter .region figcaption b").all_inner_texts() == ["○all"]


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("address", ["", "#case=0", "#about"])
def test_nothing_sticks_out_sideways(open_page, address, width):
    page = open_page(address, viewport={"width": width, "height": 720})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_printing_lays_out_every_case_and_clears_up(open_page):
    page = open_page()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#print .case-page .timeline").count() == 5
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#print .case-page").count() == 0


def test_events_without_a_place_have_no_map(open_page, tmp_path):
    source = ReportInput.from_tables(make_card_events(), None, {"schema": card_schema().to_dict()})
    page = open_page("#case=0", path=write_report(source, tmp_path / "cards.html"))
    assert page.locator(".timeline rect.stay").count() == 20
    assert page.locator(".map").count() == 0


def test_a_moment_just_before_midnight_has_the_date_of_the_minute_it_is_shown_at(open_page, tmp_path):
    events = make_card_events()
    late = pa.array([datetime(2024, 1, 1, 23, 59, 40, i, tzinfo=UTC) for i in range(events.num_rows)], TIMESTAMP)
    events = events.set_column(events.column_names.index("time"), "time", late)
    source = ReportInput.from_tables(events, None, {"schema": card_schema().to_dict()})
    page = open_page("#case=0", path=write_report(source, tmp_path / "late.html"))
    texts = [page.locator(".event-head h2").inner_text(), *page.locator(".chips .button").all_inner_texts()]
    assert len(texts) > 1
    assert all(text.endswith("Tue 2 Jan, 00:00") for text in texts), texts


def test_several_of_a_kind_are_called_as_in_python(open_page, tmp_path):
    schema = replace(card_schema(), entity_word="entity", event_word="wash")
    source = ReportInput.from_tables(make_card_events(), None, {"schema": schema.to_dict(), "name": "town"})
    page = open_page(path=write_report(source, tmp_path / "several.html"))
    text = page.locator("body").inner_text()
    assert page.title().startswith("Town: unusual washes")
    assert "Most unusual entities, day by day" in text
    assert "washes scored" in text
    assert "entitys" not in text
    assert "washs" not in text


def test_hostile_text_runs_nothing(open_page, tmp_path):
    bad = '</script><img src=x onerror="document.title=1"><b>"'
    events = make_card_events()
    for name in ("merchant", "reason", "expected_merchant", "kind"):
        events = events.set_column(events.column_names.index(name), name, [[bad] * events.num_rows])
    path = write_report(
        ReportInput.from_tables(events, None, {"schema": card_schema().to_dict()}), tmp_path / "bad.html"
    )
    page = open_page("#case=0", path=path)
    assert page.locator("img").count() == 0
    assert page.get_by_text(bad).count() > 0
