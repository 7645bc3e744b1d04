// One agent: the weeks as rows of days, the map, and one event opened beside them.
import * as api from "./api.js";
import { colours } from "./colours.js";
import { byId, empty, failure, h, show, skeleton, toast } from "./dom.js";
import { drawer } from "./drawer.js";
import { casesFor, judged, nextCase, nextOpen, openCase, slidScore } from "./cases.js";
import { alertLine } from "./lines.js";
import { address, go } from "./route.js";
import { agentMap } from "./map.js";
import { watchButton } from "./saved.js";
import { scoreChart } from "./scores.js";
import { timeline } from "./timeline.js";
import * as say from "./words.js";

const MOST = 1000;
let held = null; // the agent on show, so that the next event of the same agent needs no new drawing

export async function agentView(page, id, parameters) {
  const chosen = parameters.get("event"), day = parameters.get("day");
  const view = { id, chosen };
  bind(view, page);
  page.view = view;
  if (!held || held.id !== id || held.perDay !== page.filters.per_day || !held.root.isConnected) {
    leaveAgent();
    held = { ...layout(id), perDay: page.filters.per_day };
    held.loading = load(held, page);
  }
  const parts = held;
  try { await parts.loading; }
  catch (error) { if (parts === held) show(byId("main"), failure(error, () => agentView(page, id, parameters))); return; }
  if (parts === held) await choose(parts, page, chosen, day);
}

// What the chart and the map hold beyond their elements is given back; what was asked for is not waited for.
export function leaveAgent() {
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
  const turn = parts.turn = (parts.turn || 0) + 1;
  const [agent, events, places, moves, totals] = await Promise.all([
    api.agent(parts.id), api.agentEvents(parts.id, { limit: MOST }), page.about.has_place ? api.places(parts.id) : { places: [] }, api.movements(parts.id, { limit: 1000 }), api.summary(), page.library]);
  if (parts !== held || turn !== parts.turn) return; // another agent was opened, or more came live, meanwhile
  const limits = { raised: totals.alert_score, slid: slidScore(page.filters, totals.curve) };
  Object.assign(parts, { agent, limits, days: page.about.days, events: [...events.events].reverse().map((e) => asSlid(e, limits)), total: events.total, places: places.places, moves, colour: colours(events.events, page.about.categories) });
  show(parts.head, h("h1", {}, parts.id), h("p", {}, `${say.count(agent.n_events)} ${say.plural(page.about.event_word)} known, ${say.count(agent.n_scored)} scored, ${alertsOf(parts)}. Times are local to ${say.zoneName(agent.timezone)} (${agent.timezone}).`,
    parts.total > MOST ? ` The latest ${say.count(MOST)} of ${say.count(parts.total)} are shown.` : ""),
    agent.order_note && !limits.slid && h("p", { class: "hint" }, agent.order_note),
    agent.change && h("p", { class: "changed" }, h("strong", {}, "Changed. "), agent.change));
  show(parts.key, parts.colour.list.map(([name, colour]) => h("span", {}, h("i", { vars: { background: colour } }), name)), h("span", {}, h("i", { class: "hatch" }), "not observed"), h("span", {}, h("i", { class: "outlined" }), "alert"));
  watchButton(parts.id, page.about).then((button) => button && parts.head.append(button)).catch(() => null);
  if (parts.chart) { // what came live is added; what was zoomed to stays
    parts.chart.renew(parts.events, limits);
    parts.drawn?.renew();
    return;
  }
  parts.chart = scoreChart(parts.scores, parts.events, agent.timezone, limits, (e) => go(address.agent(parts.id, page.filters, { event: e.id })));
  if (page.about.has_place) parts.drawn = agentMap(parts.map, page.about, parts);
  else parts.map.parentElement.hidden = true;
}

// An event as the page speaks of it: where the slider is used, an alert is what leads an incident and reaches its score.
export const asSlid = (event, { slid }) => slid === null ? event : { ...event, alert: event.score !== null && !event.echo && say.atLeast(event.score, slid) };

function alertsOf(parts) {
  const slid = parts.limits.slid !== null, n = slid ? parts.events.filter((e) => e.alert).length : parts.agent.n_alerts;
  return `${say.count(n)} alert${n === 1 ? "" : "s"}${slid ? ` at ${parts.perDay} a day` : ""}`;
}

async function choose(parts, page, id, day) {
  const draw = () => {
    const event = parts.events.find((e) => e.id === parts.shown) || null, date = event ? say.local(event.started_at, event.timezone).day : dated;
    show(parts.line, timeline(parts, event, date, Math.max(300, parts.line.clientWidth), (e) => go(address.agent(parts.id, page.filters, { event: e.id }))));
  };
  const dated = day ? say.dayNumber(day) : null, gone = () => parts !== held || parts.chosen !== id;
  Object.assign(parts, { draw, chosen: id, shown: id });
  draw();
  parts.chart.choose(id);
  parts.redraw?.disconnect();
  let width = parts.line.clientWidth;
  parts.redraw = new ResizeObserver(() => { if (Math.abs(parts.line.clientWidth - width) > 4) { width = parts.line.clientWidth; draw(); } });
  parts.redraw.observe(parts.line);
  if (innerWidth > 900) parts.line.querySelector(".row-chosen")?.scrollIntoView({ block: "nearest" });
  if (!id) {
    parts.drawn?.show(dated, null, null);
    show(parts.case, overviewOf(parts));
    return;
  }
  show(parts.case, h("section", { class: "panel" }, skeleton(9, "item")));
  try {
    const alert = await api.event(id), led = alert.event.led_by?.reason ? alert.event.led_by.id : null;
    const detail = led ? await api.event(led) : alert; // what explains the alert is shown, not the way back from it
    if (gone()) return; // another event was opened meanwhile
    if (led) { parts.shown = led; draw(); parts.chart.choose(led); }
    parts.drawn?.show(say.local(detail.event.started_at, detail.event.timezone).day, detail.event, detail.features.find((f) => f.kind === "place"));
    const at = await position(page, id);
    if (!gone()) show(parts.case, drawer(detail, page.about, {
      close: () => go(address.agent(parts.id, page.filters)), give: (verdict) => give(parts, page, alert.event, verdict), lead: led ? alert.event : null, open: (other) => go(address.agent(parts.id, page.filters, { event: other })),
      position: at, colour: parts.colour, places: parts.places, before: (e) => eventBefore(parts.events, e), incident: parts.events.filter((e) => e.incident_id && e.incident_id === detail.event.incident_id).sort((a, b) => (a.started_at < b.started_at ? -1 : 1)),
      absences: (parts.moves.absences || []).filter((one) => one.instead === detail.event.id || (one.incident_id && one.incident_id === detail.event.incident_id)),
    }));
    if (!gone() && innerWidth <= 900) parts.case.scrollIntoView({ block: "start" }); // it stands above or below what was tapped
  } catch (error) { if (!gone()) show(parts.case, h("section", { class: "panel" }, failure(error, () => choose(parts, page, id, day)))); }
}

// The scored event right before one, by time.
export function eventBefore(events, event) {
  const earlier = events.filter((e) => e.score !== null && e.started_at < event.started_at);
  return earlier.reduce((last, e) => (!last || e.started_at > last.started_at ? e : last), null);
}

// Draws again what came live, with the same event open: its panel, where a note may have been begun, is left alone.
function renew(parts) {
  if (!parts.draw) return; // nothing was drawn yet
  parts.draw();
  if (!parts.chosen) show(parts.case, overviewOf(parts));
}

async function position(page, id) {
  const cases = await casesFor(page.filters);
  const at = cases.findIndex((c) => c.id === id);
  return at < 0 ? "" : `case ${at + 1} of ${cases.length}`;
}

function overviewOf(parts) {
  const alerts = parts.events.filter((e) => e.alert).sort((a, b) => b.score - a.score);
  return h("section", { class: "panel", "aria-label": "Alerts of this agent" }, h("h2", {}, "Alerts"), alerts.length ? h("ol", { class: "alerts" }, alerts.slice(0, 30).map((a) => alertLine(a, false))) : empty("No alerts", "Nothing stood out so far. A click on a bar opens that event."));
}

// ---------------------------------------------------------------------------------------------- cases
async function give(parts, page, event, verdict) {
  const given = await api.giveVerdict(event.id, verdict);
  judged(given);
  const at = parts.events.findIndex((e) => e.id === event.id);
  parts.events.forEach((e, i) => { if (i === at || (given.incident_id && e.incident_id === given.incident_id)) parts.events[i] = asSlid({ ...e, verdict: given.verdict, marked_by: null }, parts.limits); });
  const isLeft = () => parts !== held || parts.chosen !== event.id; // something else was opened while it was saved
  if (verdict.verdict === "open") { if (!isLeft()) { leaveAgent(); go(address.agent(parts.id, page.filters)); } return; }
  const following = await nextOpen(given, page.filters);
  toast(`${say.capital(say.VERDICTS[verdict.verdict])}: saved.${following ? "" : " No open alert is left in this list."}`);
  if (isLeft()) return;
  if (following) openCase(following);
  else go(address.overview(page.filters));
}

function bind(view, page) {
  const press = (name) => { const button = document.querySelector(`[data-act="${name}"]`); if (!button) return false; button.click(); return true; };
  view.next = async (step) => {
    const cases = await casesFor(page.filters);
    if (page.view !== view) return;
    const next = view.chosen ? nextCase(view.chosen, step) : cases[0];
    if (next) openCase(next);
    else toast(step > 0 ? "That was the last case of this list." : "This is the first case of this list.");
  };
  view.confirm = () => press("confirm");
  view.expect = () => press("expect");
  view.wrong = () => press("wrong");
  view.openCase = () => press("case");
  view.escape = () => go(view.chosen ? address.agent(view.id, page.filters) : address.overview(page.filters));
  view.arrived = async (alert) => {
    const parts = held;
    if (alert.agent_id !== view.id || parts?.id !== view.id || !parts.chart || !parts.root.isConnected) return;
    await load(parts, page).catch(() => null);
    if (parts === held) renew(parts);
  };
}
