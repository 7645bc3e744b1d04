"""The report in a real browser: it draws, answers to the keyboard, asks nobody, complains of nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from report_example import card_schema, make_card_events, make_run, tables_of

from ustad.tables import TIMESTAMP

pytest.importorskip("sqlalchemy", reason="the page's libraries are not installed: pip install 'ustad[service]'")
from ustad.page.bundle import bundle
from ustad.page.report_file import write_report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")
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
    source = tables_of(events, agents, facts, data)
    return write_report(source, tmp_path_factory.mktemp("page") / "report.html", cases=5)


@pytest.fixture
def open_page(browser, file):
    """A page of the report that fails the test on any complaint or request but for the file itself."""
    troubles, pages = [], []

    def opened(address: str = "", path=file, **options):
        page = browser.new_page(**options)
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda m: troubles.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: troubles.append(str(e)))
        own = (path.as_uri(), "blob:", "data:")
        page.on("request", lambda r: troubles.append(r.url) if not r.url.startswith(own) else None)
        page.goto(f"{path.as_uri()}{address}")
        page.wait_for_selector(".alerts li, .drawer, #quality, .empty, .timeline")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []


def open_first(page):
    page.wait_for_selector(".alerts li")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".drawer .sentence")
    return page


def test_overview_case_and_keyboard(open_page):
    page = open_page()
    page.wait_for_selector(".lanes tbody tr")
    assert page.locator(".lanes tbody tr").count() == 24
    assert page.locator(".alerts li").count() > 5
    open_first(page)
    first = page.url
    page.wait_for_selector(".map[data-drawn] canvas")
    assert page.locator(".timeline rect.stay.alerted").count() > 0
    assert set(page.locator(".map-label").all_inner_texts()) == {"observed", "expected"}
    assert page.locator(".axis .seen").count() == 2
    assert page.locator(".verdict").count() == 0, "a file takes no verdicts"
    page.keyboard.press("j")
    page.wait_for_function("url => location.href !== url", arg=first)
    page.wait_for_selector(".drawer .sentence")
    page.keyboard.press("o")
    page.wait_for_selector(".lanes")
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")


def test_every_alert_of_the_list_opens(open_page):
    page = open_page()
    page.wait_for_selector(".alerts li")
    links = [a.get_attribute("href") for a in page.locator(".alerts li a").all()]
    assert len(links) == page.locator(".alerts li").count() > 5
    for link in links:
        page.evaluate("to => { location.hash = to; }", link)
        page.wait_for_function("id => document.querySelector('.drawer') && location.hash.endsWith(id)", arg=link[-9:])
        page.wait_for_selector(".drawer .features")


def test_what_the_slider_lists_opens_as_alerts_do(open_page, wide_file):
    page = open_page(path=wide_file)
    last = page.locator("#per-day").get_attribute("max")
    page.locator("#per-day").fill(last)
    page.wait_for_function("() => document.querySelectorAll('.alerts li').length === 50")
    assert page.locator(".alerts li a").count() == 50
    page.locator(".alerts li a").last.click()
    page.wait_for_selector(".drawer .features")


def test_a_slider_below_what_can_be_told_apart_says_what_can(open_page, plain_run, tmp_path):
    events, agents, data, facts = plain_run
    told = {**facts, "reference_events": 900, "least_per_day": 2.5}
    page = open_page(path=write_report(tables_of(events, agents, told, data), tmp_path / "rate.html"))
    words = "ask for 2.5 alerts a day or more"
    for step, is_said in (("1", True), ("3", False), ("2", True)):
        page.locator("#per-day").fill(step)
        page.wait_for_function("n => document.getElementById('per-day-value').textContent === n", arg=step)
        notes = page.locator(".note").all_inner_texts()
        assert any(words in text for text in notes) == is_said


@pytest.mark.parametrize("share", [0.2, 1.5])
def test_what_chance_alone_gives_is_what_scoring_said_and_more_than_alerts_has_a_sentence(
    open_page, plain_run, tmp_path, share
):
    events, agents, data, facts = plain_run
    count = pc.sum(events["alert"]).as_py()
    told = {**facts, "alerts": count, "by_chance": share * count}
    page = open_page(path=write_report(tables_of(events, agents, told, data), tmp_path / "chance.html", cases=1))
    alerts, chance = (page.locator(".tile b").nth(i).inner_text() for i in (2, 3))
    assert int(alerts) == count
    assert float(chance) == pytest.approx(share * count, abs=0.51), "in the unit of the alerts beside it"
    assert ("may be a false alarm" in " ".join(page.locator(".note").all_inner_texts())) == (share > 1)


def test_a_person_opened_again_has_the_same_days(open_page):
    page = open_page()
    days = []
    for _ in range(3):
        page.locator(".alerts a").first.click()
        page.wait_for_selector(".drawer")
        days.append(page.locator(".timeline-place").inner_text())
        page.go_back()
        page.wait_for_selector(".lanes")
    assert days[0] == days[1] == days[2]


def test_any_scored_event_of_an_open_agent_opens_and_says_what_is_left_out(open_page):
    page = open_first(open_page())
    bars, seen = page.locator(".timeline .stay[role=button]"), []
    for i in range(0, bars.count(), 7):
        bars.nth(i).dispatch_event("click")
        page.wait_for_selector(".drawer .sentence")
        seen.append(page.get_by_text("for the most unusual ones only").count())
    assert 1 in seen


def test_who_is_not_in_the_file_is_said_to_be_elsewhere(open_page):
    page = open_page()
    page.wait_for_selector(".lanes tbody tr")
    assert page.locator(".lanes th .still").count() == page.locator(".lanes tbody tr").count() - len(opened(page))
    page.evaluate("location.hash = '/agent/nobody'")
    page.wait_for_selector("text=is not in this file")


def opened(page):
    return page.evaluate("Object.keys(JSON.parse(document.getElementById('answers').textContent).agents)")


def test_coordinates_are_shown_on_request_only(open_page):
    page = open_first(open_page())
    assert "-118." not in page.inner_text(".drawer")
    page.get_by_text("Show coordinates").click()
    assert ", -118." in page.inner_text(".drawer")


@pytest.fixture(scope="module")
def wide_file(tmp_path_factory, plain_run):
    """Everybody is in it, so that the slider goes far."""
    events, agents, data, facts = plain_run
    return write_report(tables_of(events, agents, facts, data), tmp_path_factory.mktemp("wide") / "report.html")


def test_slider_search_and_kind_narrow_the_list_and_the_address_keeps_them(open_page, wide_file):
    page = open_page(path=wide_file)
    lines = page.locator(".alerts li")
    page.wait_for_selector(".alerts li")
    before = lines.count()
    page.locator("#per-day").fill("3")
    page.wait_for_function("n => document.querySelectorAll('.alerts li').length === n", arg=3 * 14)
    assert before < 3 * 14
    page.locator("#filter-kind").select_option("novel")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.alerts .kind')].every((k) => k.classList.contains('novel'))"
    )
    again = open_page(page.evaluate("location.hash"), path=wide_file)
    again.wait_for_selector(".alerts li")
    assert again.locator("#filter-kind").input_value() == "novel"
    assert again.locator("#per-day-value").inner_text() == "3"
    again.keyboard.press("/")
    again.locator("#search").fill("1")
    again.keyboard.press("Enter")
    again.wait_for_function(
        "() => [...document.querySelectorAll('.lanes .who')].every((w) => w.innerText.includes('1'))"
    )
    again.keyboard.press("/")
    again.locator("#search").fill("14")  # all of a name: that one opens
    again.keyboard.press("Enter")
    again.wait_for_function("() => location.hash.includes('/agent/14') && document.querySelector('.agent h1')")


NARROWED = [
    "", "kind=novel", "kind=novel&min_score=2.6", "category=EatOut", "search=4", "first_day=2024-01-20",
    "last_day=2024-01-20", "min_score=2.8", "min_score=2.8&raised=true", "order=time",
]  # fmt: skip


def test_lists_are_narrowed_as_the_service_narrows_them(open_page, plain_run, tmp_path):
    """The file's own answers, asked as its scripts ask, beside those of the service about the same run."""
    testing = pytest.importorskip("fastapi.testclient", reason="the service's libraries are not installed")
    from ustad.scores import Scores
    from ustad.service.app import create_app
    from ustad.service.settings import Settings

    events, agents, _, facts = plain_run
    Scores(events, agents, facts).save(tmp_path / "scores")
    page = open_page()
    page.evaluate(f"() => {{ {bundle('frozen.js')}; window.kept = frozen_module; }}")
    ask = lambda path: page.evaluate("path => window.kept.answer(path)", path)  # noqa: E731  # a name for one line
    app = create_app(Settings(store=f"sqlite:///{tmp_path / 'store.db'}", run=tmp_path))
    with testing.TestClient(app, base_url="http://localhost") as client:
        found = 0
        for words in NARROWED:
            mine, theirs = (of(f"/v1/alerts?{words}&limit=40") for of in (ask, lambda p: client.get(p).json()))
            assert [e["id"] for e in mine["alerts"]] == [e["id"] for e in theirs["alerts"]], words
            found += bool(mine["alerts"])
            named = words.replace("first_day", "first").replace("last_day", "last").replace("order=time", "")
            mine, theirs = (of(f"/v1/lanes?{named}&limit=40") for of in (ask, lambda p: client.get(p).json()))
            assert [lane["agent_id"] for lane in mine["lanes"]] == [lane["agent_id"] for lane in theirs["lanes"]], words
            assert mine["total"] == theirs["total"]
            assert [len(lane["cells"]) for lane in mine["lanes"]] == [len(lane["cells"]) for lane in theirs["lanes"]]
    assert found > len(NARROWED) / 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_uncertainty_against_surprise_has_a_region_for_each_kind_with_all_of_its_alerts(open_page, scheme):
    page = open_page("#/run", color_scheme=scheme)
    data = page.evaluate("JSON.parse(document.getElementById('answers').textContent).answers")
    dots = data["/v1/run"]["scatter"]
    drawn, colours = {}, {}
    for kind in ("predictable", "unsure", "novel", "unobserved"):
        region = page.locator(f"#scatter .region.{kind}")
        stays, alerts = dots["counts"].get(kind, (0, 0))
        words = region.locator("figcaption").inner_text()
        assert f"{stays} stay" in words
        assert (f"{alerts} alert" if alerts else "no alert") in words
        assert f"{stays} stay" in region.locator("svg").get_attribute("aria-label")
        assert region.locator(".alerts-field").count() == 1
        drawn[kind] = region.locator(".dot.alert").count()
        assert drawn[kind] == alerts
        colours[kind] = region.locator(".chart").evaluate("e => getComputedStyle(e).borderTopColor")
    assert sum(drawn.values()) == data["/v1/summary"]["alerts"] > 0
    assert page.locator("#scatter .dot").count() == sum(x is not None for x in dots["x"])
    assert len(set(colours.values())) == 4


def test_events_of_no_kind_have_one_region(open_page, tmp_path, plain_run):
    events, agents, data, facts = plain_run
    tables = tables_of(events.drop_columns(["kind"]), agents, facts, data)
    page = open_page("#/run", path=write_report(tables, tmp_path / "kinds.html", cases=1))
    assert page.locator("#scatter .region figcaption b").all_inner_texts() == ["all"]


def test_the_run_shows_figures_quality_and_the_card(open_page, tmp_path, plain_run):
    events, agents, data, facts = plain_run
    tables = tables_of(events, agents, facts, data, "# Card\n\n## Trained on\n\n- **24** agents")
    page = open_page("#/run", path=write_report(tables, tmp_path / "card.html", cases=1))
    assert "0.912" in page.inner_text("#figures")
    assert page.locator("#quality tbody tr").count() > 3
    assert page.locator("#card li strong").all_inner_texts() == ["24"]
    assert page.locator("#calibration .curve").count() == 1
    assert "must not decide" in page.inner_text("footer")


def test_the_run_shows_people_together_and_opens_those_who_are_in_the_file(open_page, tmp_path, plain_run):
    events, agents, data, facts = plain_run
    first = str(agents["agent_id"][0])
    groups = pa.table(
        {
            "agent_ids": [[first, "somebody else"]], "p_value": [0.0004], "reason": ["At the same place: <b>two</b>."],
            "finished_at": pa.array([0], TIMESTAMP),
        }
    )  # fmt: skip
    tables = replace(tables_of(events, agents, facts, data), groups=groups)
    page = open_page("#/run", path=write_report(tables, tmp_path / "groups.html", cases=24))
    text = page.inner_text("#together")
    assert "At the same place: <b>two</b>." in text
    assert "about 1 in 2,500" in text
    assert page.locator("#together td a").all_inner_texts() == [first]
    page.click("#together td a")
    page.wait_for_selector(".timeline")
    assert first in page.inner_text("main")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("address", ["#/", "first case", "#/run"])
def test_nothing_sticks_out_sideways(open_page, address, width):
    page = open_page(address if address.startswith("#") else "", viewport={"width": width, "height": 720})
    if not address.startswith("#"):
        open_first(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_printing_lays_out_every_alert_and_clears_up(open_page):
    page = open_page()
    page.wait_for_selector("html[data-printable]")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    alerts = page.evaluate("JSON.parse(document.getElementById('answers').textContent).answers['/v1/summary'].alerts")
    assert page.locator("#print .case-page .timeline").count() == min(alerts, 40)
    assert page.locator("#print .case-page .sketch").count() == min(alerts, 40)
    assert page.locator("#print .case-page .sketch .observed").count() == min(alerts, 40)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#print .case-page").count() == 0


NO_WEBGL = """
const whole = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind.startsWith("webgl") ? null : whole.call(this, kind, ...more);
};
"""


def test_without_webgl_the_map_is_drawn_as_lines(browser, file):
    page = browser.new_page()
    page.add_init_script(NO_WEBGL)
    page.goto(file.as_uri())
    open_first(page)
    page.wait_for_selector(".map .sketch .observed")
    assert page.locator(".map .sketch .ghost").count() == 1
    page.close()


def test_events_without_a_place_have_no_map(open_page, tmp_path):
    tables = tables_of(make_card_events(), None, {"schema": card_schema().to_dict()})
    page = open_page("#/agent/card%201", path=write_report(tables, tmp_path / "cards.html"))
    page.wait_for_selector(".timeline rect.stay")
    assert page.locator(".timeline rect.stay").count() == 20
    assert not page.locator(".map").is_visible()
    assert page.locator("#map-library").count() == 0


def test_names_with_any_sign_open(open_page, tmp_path):
    events = make_card_events()
    names = [f"a/{i % 3} ü%?#.." for i in range(events.num_rows)]
    events = events.set_column(0, "card", pa.array(names))
    events = events.set_column(events.column_names.index("alert"), "alert", pa.array([True] * events.num_rows))
    tables = tables_of(events, None, {"schema": card_schema().to_dict()})
    page = open_first(open_page(path=write_report(tables, tmp_path / "names.html")))
    assert page.locator("h1").inner_text() in names


def test_a_category_has_one_colour_whoever_is_on_show(browser):
    page = browser.new_page()
    page.evaluate(f"() => {{ {bundle('colours.js')}; window.made = colours_module; }}")
    ask = "([events, all, name]) => window.made.colours(events.map((category) => ({ category })), all).of(name)"
    everywhere = ["home", "bar", "zoo", "mill"]
    colours = {
        name: {page.evaluate(ask, [events, everywhere, name]) for events in (["bar"], ["zoo", "zoo", "bar"], ["mill"])}
        for name in everywhere
    }
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == 4
    page.close()


def test_a_moment_just_before_midnight_has_the_date_of_the_minute_it_is_shown_at(open_page, tmp_path):
    events = make_card_events()
    late = pa.array([datetime(2024, 1, 1, 23, 59, 40, i, tzinfo=UTC) for i in range(events.num_rows)], TIMESTAMP)
    events = events.set_column(events.column_names.index("time"), "time", late)
    events = events.set_column(events.column_names.index("alert"), "alert", pa.array([True] * events.num_rows))
    tables = tables_of(events, None, {"schema": card_schema().to_dict()})
    page = open_page(path=write_report(tables, tmp_path / "late.html"))
    texts = page.locator(".alerts .when").all_inner_texts()
    assert len(texts) > 1
    assert all(text.endswith("2 Jan 00:00") for text in texts), texts


def test_several_of_a_kind_are_called_as_in_python(open_page, tmp_path):
    schema = replace(card_schema(), entity_word="entity", event_word="wash")
    tables = tables_of(make_card_events(), None, {"schema": schema.to_dict(), "name": "town"})
    page = open_page(path=write_report(tables, tmp_path / "several.html"))
    page.wait_for_selector(".lanes")
    text = page.locator("body").inner_text()
    assert page.title().endswith("town")
    assert "washes scored" in text
    assert "entities" in text
    assert "entitys" not in text
    assert "washs" not in text


def test_hostile_text_runs_nothing(open_page, tmp_path):
    bad = '</script><img src=x onerror="document.title=1"><b>"'
    events = make_card_events()
    for name in ("merchant", "reason", "expected_merchant", "kind"):
        events = events.set_column(events.column_names.index(name), name, [[bad] * events.num_rows])
    events = events.set_column(events.column_names.index("alert"), "alert", pa.array([True] * events.num_rows))
    tables = tables_of(events, None, {"schema": card_schema().to_dict()}, None, bad)
    page = open_page(path=write_report(tables, tmp_path / "bad.html"))
    open_first(page)
    assert page.locator("img").count() == 0
    assert page.get_by_text(bad).count() > 0
