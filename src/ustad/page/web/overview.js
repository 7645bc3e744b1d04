// The overview: totals and the slider, swim lanes of agents by days, and alerts in order.
import * as api from "./api.js";
import { byId, empty, failure, h, show, skeleton } from "./dom.js";
import { exportButtons } from "./export.js";
import { frozen } from "./frozen.js";
import { laneTable } from "./lanes.js";
import { alertFilter, higher, loadCases, openCase, slidScore, typedScore } from "./cases.js";
import { alertLine } from "./lines.js";
import { pager } from "./pager.js";
import { address, go, here } from "./route.js";
import { viewChooser } from "./saved.js";
import { kindNames, KINDS } from "./kinds.js";
import * as say from "./words.js";

const ROWS = 50, LINES = 50, MOST_EXPORTED = 10000;
// Where the slider stops: every step where it matters, wider ones beyond.
const STOPS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200];
const LEAST = "Only alerts of at least this score, and only who has an event of at least this score.";

export async function overview(page, parameters) {
  const filters = page.filters;
  const places = { tiles: h("section", { class: "tiles", "aria-label": "Totals" }), notes: h("div"), lanes: h("div"), alerts: h("div") };
  const pages = { lanes: Number(parameters.get("lanes_from")) || 0, alerts: Number(parameters.get("alerts_from")) || 0 };
  const focused = document.activeElement?.closest(".filters") ? document.activeElement.id : null;
  show(byId("main"), places.tiles, places.notes, filterBar(page), h("div", { class: "columns" },
    h("section", { class: "panel", "aria-labelledby": "lanes-title" }, h("h2", { id: "lanes-title" }, "Who stands out, by day"), h("p", { class: "hint" }, `One row for each ${page.about.entity_word}, one cell a day; the stronger the more unusual, a dot marks an alert, framed days are weekends.`), places.lanes),
    h("section", { class: "panel", "aria-labelledby": "alerts-title" }, h("h2", { id: "alerts-title" }, "Alerts"), places.alerts)));
  if (focused) byId(focused)?.focus();
  show(places.tiles, skeleton(4, "tile"));
  show(places.lanes, skeleton(14, "lane"));
  show(places.alerts, skeleton(8, "item"));
  const view = { chosen: -1, cases: true }, left = () => page.view !== view;
  let totals = null;
  page.view = view;

  async function load() {
    try { totals = await api.summary(); }
    catch (error) { show(places.tiles, failure(error, load)); return; }
    if (left()) return; // its alerts would take the place of those of the view that came after it
    drawTiles(places, totals, page);
    choices(page, totals);
    await Promise.all([loadLanes(), loadAlerts()]);
  }

  async function loadLanes() {
    const narrowed = filters.kind || filters.category || filters.state;
    const slid = slidScore(filters, totals.curve), typed = typedScore(filters);
    const wanted = { first: filters.first, last: filters.last, search: filters.search, watched: filters.watched, kind: filters.kind, category: filters.category, state: filters.state, min_score: narrowed ? higher(slid, typed) : typed, raised: narrowed && slid === null && typed !== null ? true : null, limit: ROWS, offset: pages.lanes };
    try {
      const found = await api.lanes(wanted);
      if (!found.lanes.length) { show(places.lanes, nothing(totals, filters)); return; }
      show(places.lanes, laneTable(found, { slid, typed, raised: totals.alert_score, days: page.about.days || {} }, filters), frozen && !Object.keys(filters).length && found.total < totals.agents ? h("p", { class: "hint" }, `This file holds the days of ${say.count(found.total)} of the ${say.count(totals.agents)} ${say.plural(page.about.entity_word)}.`) : null, pager(pageAt("lanes_from"), { total: found.total, from: pages.lanes, size: ROWS, shown: found.lanes.length }, page.about.entity_word));
    } catch (error) { show(places.lanes, failure(error, loadLanes)); }
  }

  async function loadAlerts() {
    try {
      const found = await loadCases({ ...alertFilter(page.filters, totals.curve), offset: pages.alerts });
      if (!found.alerts.length) { show(places.alerts, nothing(totals, filters)); return; }
      view.chosen = Math.min(view.chosen, found.alerts.length - 1);
      show(places.alerts, h("ol", { class: "alerts" }, found.alerts.slice(0, LINES).map((item, i) => alertLine(item, i === view.chosen))), pager(pageAt("alerts_from"), { total: found.total, from: pages.alerts, size: LINES, shown: Math.min(LINES, found.alerts.length) }, "alert"), h("p", { class: "hint no-print" }, "Save this list: ", exportButtons(() => everyAlert(alertFilter(page.filters, totals.curve)), "alerts")));
    } catch (error) { show(places.alerts, failure(error, loadAlerts)); }
  }

  view.next = (step) => {
    const lines = [...places.alerts.querySelectorAll(".alerts > li")];
    if (!lines.length) return;
    view.chosen = Math.max(0, Math.min(lines.length - 1, view.chosen + step));
    lines.forEach((line, i) => line.classList.toggle("chosen", i === view.chosen));
    lines[view.chosen].querySelector("a").focus();
  };
  const chosen = () => page.cases[view.chosen];
  view.open = () => chosen() && openCase(chosen());
  view.confirm = view.expect = () => view.open();
  view.escape = () => document.activeElement?.blur();
  let due = 0;
  view.arrived = () => { clearTimeout(due); due = setTimeout(() => left() || load(), 400); };
  await load();
}

// All alerts of the list, not only those of this page.
async function everyAlert(wanted) {
  const all = [];
  for (let more = true; more && all.length < MOST_EXPORTED;) {
    const found = await api.alerts({ ...wanted, limit: 1000, offset: all.length });
    all.push(...found.alerts);
    more = found.alerts.length > 0 && all.length < found.total;
  }
  return all;
}

// --------------------------------------------------------------------------------------------- totals
function drawTiles(places, totals, page) {
  const tile = (value, text, tip) => h("div", { class: "tile", "data-tip": tip }, h("b", {}, value), h("span", {}, text));
  const most = totals.curve.length;
  const perDay = Number(page.filters.per_day) || null;
  const alarms = h("b"), alarmsText = h("span"), flagged = h("b"), flaggedText = h("span");
  const stops = STOPS.filter((n) => n <= Math.max(1, most)), raised = Math.round(totals.alerts / Math.max(1, totals.days));
  const stop = Math.max(1, stops.findLastIndex((n) => n <= (perDay || raised)) + 1), chosen = () => stops[Number(slider.value) - 1];
  const slider = h("input", { type: "range", id: "per-day", min: 1, max: stops.length, value: stop, disabled: most < 2, "aria-label": "Alerts a day", "aria-valuetext": perDay || `${raised}, as raised` });
  const recount = (n) => {
    const days = Math.max(1, totals.days), shown = n === null ? totals.alerts : n * totals.days;
    const p = n === null ? page.about.alert_p_value ?? totals.alert_p_value : totals.curve[Math.min(n, most) - 1]?.p_value;
    const leads = totals.unusual ? totals.alerts / totals.unusual : 1; // of events so unusual, as many lead an incident
    const counted = p === null || p === undefined ? null : leads * p * totals.events / days;
    const usual = n === null && page.about.chance_share !== null ? page.about.chance_share * shown / days : counted; // a run has said it
    flagged.textContent = say.count(shown);
    show(flaggedText, n === null ? `alerts, as they were raised: ${say.number(shown / days)} a day` : `alerts: ${n} a day`, totals.hidden ? ["; ", h("a", { href: address.overview({ state: "hidden" }), "data-link": true, id: "hidden-alerts" }, `${say.count(totals.hidden)} ${totals.hidden === 1 ? "alert" : "alerts"} hidden by rules`)] : null);
    const total = usual === null ? null : usual * days; // in the unit of the alerts beside it
    alarms.textContent = total === null ? "–" : total < 0.1 ? "< 0.1" : total < 10 ? total.toFixed(1) : say.count(total);
    alarmsText.textContent = usual === null ? "by chance alone: unknown" : `as unusual by chance alone: ${say.number(usual)} a day`;
    show(places.notes, notes(page.about, n, usual, shown / days));
  };
  recount(perDay);
  slider.addEventListener("input", () => { recount(chosen()); slider.setAttribute("aria-valuetext", chosen()); byId("per-day-value").textContent = chosen(); });
  slider.addEventListener("change", () => go(address.overview({ ...page.filters, per_day: chosen() }), true));
  const reset = perDay ? h("a", { href: address.overview({ ...page.filters, per_day: null }), "data-link": true }, "as raised") : null;
  show(places.tiles,
    tile(say.count(totals.events), `${say.plural(page.about.event_word)} scored${totals.first_day ? `, ${say.days(totals.first_day, totals.last_day)}` : ""}`),
    tile(say.count(totals.agents), say.plural(page.about.entity_word)),
    h("div", { class: "tile" }, flagged, flaggedText), h("div", { class: "tile" }, alarms, alarmsText),
    h("div", { class: "tile wide" }, h("label", { for: "per-day" }, "Alerts a day ", h("output", { for: "per-day", id: "per-day-value" }, perDay || "as raised"), " ", reset), slider,
      frozen ? h("span", {}, `This file lists up to ${say.count(stops.at(-1))} a day; a larger --cases lists more.`) : null));
  if (totals.odd_days.length) places.tiles.append(oddDays(totals.odd_days, page));
}

// Days far from all others: a clock was wrong. The figures leave them out; a click shows them.
const oddDays = (days, page) => h("p", { class: "hint odd" }, "Dated far from all others, and left out of these figures: ",
  days.map((d, i) => [i ? ", " : "", h("a", { href: address.overview({ first: d.day, last: d.day }), "data-link": true }, say.dayText(d.day)), ` (${say.count(d.events)} ${d.events === 1 ? page.about.event_word : say.plural(page.about.event_word)})`]), ".");

// What a reader should know before the numbers. As raised the run says it; the slider's own line is weighed here.
function notes({ notes: told, rate }, n, usual, perDay) {
  const found = n === null ? [...told] : told.filter((text) => !/^(Asked for|By the p-values)|normal behaviour alone|usual events/.test(text));
  if (n !== null && rate && n < rate.least_per_day) found.push(rate.words);
  if (usual !== null && usual > 1.001 * perDay && perDay > 0 && !found.some((text) => /^By the p-values|normal behaviour alone/.test(text))) found.push(`By the p-values about ${say.number(usual)} a day would be expected if nothing unusual happened, and there are ${say.number(perDay)}: any of them may be a false alarm. Trust the order more than the p-values.`);
  return found.length ? h("div", { class: "note" }, found.map((text) => h("p", {}, text))) : null;
}

// -------------------------------------------------------------------------------------------- filters
function filterBar(page) {
  const filters = page.filters;
  const set = (name) => (e) => go(address.overview({ ...page.filters, [name]: e.target.value }), true);
  const select = (name, label, options) => h("label", {}, label, h("select", { id: `filter-${name}`, on: { change: set(name) } }, h("option", { value: "" }, "all"), options.map(([v, text]) => h("option", { value: v, selected: filters[name] === v }, text))));
  const day = (name, label) => h("label", {}, label, h("input", { type: "date", id: `filter-${name}`, value: filters[name] || "", on: { change: set(name) } }));
  const least = h("input", { type: "number", id: "filter-min_score", min: 0, step: "any", inputmode: "decimal", placeholder: "any", value: typedScore(filters), "aria-describedby": "least-hint", "data-tip": LEAST, on: { change: set("min_score") } });
  return h("form", { class: "filters", "aria-label": "Filters", on: { submit: (e) => e.preventDefault() } },
    day("first", "From"), day("last", "to"),
    select("kind", "Kind", kindNames.map((v) => [v, kindChoice(v)])), select("category", "Category", filters.category ? [[filters.category, filters.category]] : []),
    frozen ? null : select("state", "Verdict", [["open", "open"], ["confirmed", "confirmed"], ["expected", "explained"], ["wrong", "wrong"], ["marked", "like explained"], ["hidden", "hidden by rules"]]),
    frozen ? null : select("watched", "Who", [["true", "watched"]]),
    h("label", {}, "Score from", least), h("span", { class: "quiet", id: "least-hint" }, LEAST),
    h("label", {}, "Order", h("select", { id: "filter-order", on: { change: set("order") } }, [["score", "most unusual"], ["time", "latest"]].map(([v, text]) => h("option", { value: v, selected: filters.order === v }, text)))),
    Object.keys(filters).length ? h("a", { href: address.overview(), "data-link": true, class: "clear" }, "Clear all") : null,
    viewChooser(page),
    filters.search ? h("span", { class: "hint" }, `search: “${filters.search}”`) : null);
}

function choices(page, totals) {
  const select = byId("filter-category");
  if (!select || select.options.length > 2) return;
  show(select, h("option", { value: "" }, "all"), totals.categories.map((name) => h("option", { value: name, selected: page.filters.category === name }, name)));
}

function nothing(totals, filters) {
  if (!totals.events) return empty("Nothing was scored yet", "Send events to /v1/events or fixes to /v1/fixes, or show a finished run with `ustad serve runs/demo`.");
  if (Object.keys(filters).some((name) => name !== "order")) return empty("Nothing matches", "No alert fits these filters.", h("a", { href: address.overview(), "data-link": true }, "Clear the filters"));
  return empty("No alerts", "Nothing that was scored reaches the threshold. The slider above draws the line lower.");
}

const pageAt = (name) => (offset) => address.overview(Object.fromEntries(here().parameters), { [name]: offset || null });

// The words that lines say of events of this kind, as one choice.
const kindChoice = (name) => [...new Set(Object.keys(KINDS).filter((k) => k.startsWith(`${name}/`)).map((k) => KINDS[k][0]))].join(", ") || KINDS[name][0];
