// One agent: the weeks as rows of days, the map, and one event opened beside them.
import * as api from "./api.js";
import { colours } from "./colours.js";
import { byId, empty, failure, h, show, skeleton, toast } from "./dom.js";
import { drawer } from "./drawer.js";
import { address, casesFor, go, judged, nextCase, openCase, slidScore } from "./main.js";
import { agentMap } from "./map.js";
import { scoreChart } from "./scores.js";
import { timeline } from "./timeline.js";
import * as say from "./words.js";

const MOST = 1000;
let held = null; // the agent on show, so that the next event of the same agent needs no new drawing

export async function agentView(page, id, parameters) {
  const chosen = parameters.get("event"), day = parameters.get("day");
  const view = { id, chosen };
  bind(view, page);
  if (!held || held.id !== id || !held.root.isConnected) {
    leave();
    held = layout(id);
    held.loading = load(held, page);
  }
  const parts = held;
  try { await parts.loading; }
  catch (error) { if (parts === held) show(byId("main"), failure(error, () => agentView(page, id, parameters))); return view; }
  if (parts === held) await choose(parts, page, chosen, day);
  return view;
}

// What the chart and the map hold beyond their elements is given back.
function leave() {
  held?.redraw?.disconnect();
  held?.chart?.close();
  held?.drawn?.close();
  held = null;
}

function layout(id) {
  const parts = { id, head: h("div", { class: "head" }), scores: h("section", { class: "panel", "aria-label": "Scores" }), line: h("div", { class: "timeline-place" }), map: h("div", { class: "map", role: "region", "aria-label": "Map" }), key: h("div", { class: "key" }), case: h("div") };
  parts.root = h("div", { class: "agent" }, parts.head, h("div", { class: "columns agent-columns" },
    h("div", { class: "main-side" }, parts.scores, h("section", { class: "panel", "aria-label": "Timeline" }, h("h2", {}, "Days"), parts.key, parts.line)),
    h("div", { class: "side" }, h("section", { class: "panel map-panel", "aria-label": "Map" }, parts.map), parts.case)));
  show(parts.line, skeleton(20, "lane"));
  show(byId("main"), parts.root);
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
  return parts;
}

async function load(parts, page) {
  const [agent, events, places, moves, totals] = await Promise.all([
    api.agent(parts.id), api.agentEvents(parts.id, { limit: MOST }), page.about.has_place ? api.places(parts.id) : { places: [] }, api.movements(parts.id, { limit: 1000 }), api.summary()]);
  if (parts !== held) return; // another agent was opened meanwhile
  Object.assign(parts, { agent, events: events.events.reverse(), total: events.total, places: places.places, moves, colour: colours(events.events) });
  show(parts.head, h("h1", {}, parts.id), h("p", {}, `${say.count(agent.n_events)} known, ${say.count(agent.n_scored)} scored, ${agent.n_alerts} alert${agent.n_alerts === 1 ? "" : "s"}. Times are local to ${say.zoneName(agent.timezone)} (${agent.timezone}).`,
    parts.total > MOST ? ` The latest ${say.count(MOST)} of ${say.count(parts.total)} are shown.` : ""));
  show(parts.key, parts.colour.list.map(([name, colour]) => h("span", {}, h("i", { vars: { background: colour } }), name)), h("span", {}, h("i", { class: "hatch" }), "not observed"), h("span", {}, h("i", { class: "outlined" }), "alert"));
  parts.chart?.close();
  parts.chart = scoreChart(parts.scores, parts.events, agent.timezone, { raised: totals.alert_score, slid: slidScore(page.filters, totals.curve) }, (e) => go(address.agent(parts.id, page.filters, { event: e.id })));
  parts.drawn?.close();
  if (page.about.has_place) parts.drawn = agentMap(parts.map, page.about.tiles, parts);
  else parts.map.parentElement.hidden = true;
}

async function choose(parts, page, id, day) {
  const draw = () => {
    const event = parts.events.find((e) => e.id === id) || null, date = event ? say.local(event.started_at, event.timezone).day : dated;
    show(parts.line, timeline(parts, event, date, Math.max(300, parts.line.clientWidth), (e) => go(address.agent(parts.id, page.filters, { event: e.id }))));
  };
  const dated = day ? say.dayNumber(day) : null, gone = () => parts !== held || parts.chosen !== id;
  const mark = (...marked) => { parts.marked = marked; parts.drawn?.show(...marked); };
  Object.assign(parts, { draw, chosen: id, marked: null });
  draw();
  parts.chart.choose(id);
  parts.redraw?.disconnect();
  let width = parts.line.clientWidth;
  parts.redraw = new ResizeObserver(() => { if (Math.abs(parts.line.clientWidth - width) > 4) { width = parts.line.clientWidth; draw(); } });
  parts.redraw.observe(parts.line);
  parts.line.querySelector(".row-chosen")?.scrollIntoView({ block: "nearest" });
  if (!id) {
    mark(dated, null, null);
    const list = await overviewOf(parts);
    if (!gone()) show(parts.case, list);
    return;
  }
  show(parts.case, h("section", { class: "panel" }, skeleton(9, "item")));
  try {
    const detail = await api.event(id);
    if (gone()) return; // another event was opened meanwhile
    mark(say.local(detail.event.started_at, detail.event.timezone).day, detail.event, detail.features.find((f) => f.kind === "place"));
    const at = await position(page, id);
    if (!gone()) show(parts.case, drawer(detail, page.about, {
      close: () => go(address.agent(parts.id, page.filters)), give: (verdict) => give(parts, page, detail.event, verdict), open: (other) => go(address.agent(parts.id, page.filters, { event: other })),
      position: at,
    }));
  } catch (error) { if (!gone()) show(parts.case, h("section", { class: "panel" }, failure(error, () => choose(parts, page, id, day)))); }
}

// Draws again what came live, with the same event open: its panel, where a note may have been begun, is left alone.
async function renew(parts) {
  if (!parts.draw) return; // nothing was drawn yet
  parts.draw();
  parts.chart.choose(parts.chosen);
  if (parts.marked) parts.drawn?.show(...parts.marked);
  const list = await overviewOf(parts);
  if (!parts.chosen) show(parts.case, list);
}

async function position(page, id) {
  const cases = await casesFor(page.filters);
  const at = cases.findIndex((c) => c.id === id);
  return at < 0 ? "" : `case ${at + 1} of ${cases.length}`;
}

async function overviewOf(parts) {
  const alerts = parts.events.filter((e) => e.alert).sort((a, b) => b.score - a.score);
  const { alertLine } = await import("./overview.js");
  return h("section", { class: "panel", "aria-label": "Alerts of this agent" }, h("h2", {}, "Alerts"), alerts.length ? h("ol", { class: "alerts" }, alerts.slice(0, 30).map((a) => alertLine(a, false))) : empty("No alerts", "Nothing stood out so far. A click on a bar opens that event."));
}

// ---------------------------------------------------------------------------------------------- cases
async function give(parts, page, event, verdict) {
  const given = await api.giveVerdict(event.id, verdict);
  judged(given);
  const at = parts.events.findIndex((e) => e.id === event.id);
  if (at >= 0) parts.events[at] = given;
  if (verdict.verdict === "open") { leave(); go(address.agent(parts.id, page.filters)); return; }
  const following = nextCase(event.id, 1, true);
  toast(`${verdict.verdict === "confirmed" ? "Confirmed" : "Expected"}: saved.${following ? "" : " That was the last open case of this list."}`);
  if (following) openCase(following);
  else go(address.overview(page.filters));
}

function bind(view, page) {
  const press = (name) => { const button = document.querySelector(`[data-act="${name}"]`); if (!button) return false; button.click(); return true; };
  view.next = async (step) => {
    const cases = await casesFor(page.filters);
    const next = view.chosen ? nextCase(view.chosen, step) : cases[0];
    if (next) openCase(next);
    else toast(step > 0 ? "That was the last case of this list." : "This is the first case of this list.");
  };
  view.confirm = () => press("confirm");
  view.expect = () => press("expect");
  view.escape = () => go(view.chosen ? address.agent(view.id, page.filters) : address.overview(page.filters));
  view.arrived = async (alert) => {
    const parts = held;
    if (alert.agent_id !== view.id || parts?.id !== view.id || !parts.chart || !parts.root.isConnected) return;
    await load(parts, page).catch(() => null);
    if (parts === held) await renew(parts);
  };
}
