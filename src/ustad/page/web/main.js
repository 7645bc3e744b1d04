// The page: which view an address means, the keyboard, the case list one works through, and live alerts.
import * as api from "./api.js";
import { agentView, leaveAgent } from "./agent.js";
import { byId, h, show, toast, tooltips, visible } from "./dom.js";
import { overview } from "./overview.js";

const FILTERS = ["per_day", "min_score", "first", "last", "kind", "category", "state", "search", "order"];
const page = { about: null, view: null, cases: [], filters: {}, refresh: null };

// ------------------------------------------------------------------------------------------ addresses
export function filtersOf(parameters) {
  return Object.fromEntries(FILTERS.map((name) => [name, parameters.get(name)]).filter(([, v]) => v));
}

export const address = {
  overview: (filters, more = {}) => "/" + api.query({ ...filters, ...more }),
  agent: (id, filters, more = {}) => `/agent/${encodeURIComponent(id)}` + api.query({ ...filters, ...more }),
};

export function go(to, replace = false) {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  route();
}

// Each view puts itself in `page.view` before it loads: what an earlier one still waits for finds that it was left.
async function route() {
  const parameters = new URLSearchParams(location.search), before = api.query(page.filters);
  page.filters = filtersOf(parameters);
  if (api.query(page.filters) !== before) forgetCases();
  byId("search").value = page.filters.search || "";
  byId("tip").hidden = true;
  const match = location.pathname.match(/^\/agent\/(.+)$/);
  if (match) {
    const id = decodeURIComponent(match[1]);
    trail(h("a", { href: address.overview(page.filters), "data-link": true }, "Overview"), h("a", { "aria-current": "page" }, id));
    document.title = `${visible(id)} · ustad`;
    await agentView(page, id, parameters);
  } else {
    trail(h("a", { "aria-current": "page" }, "Overview"));
    document.title = "Overview · ustad";
    leaveAgent();
    await overview(page, parameters);
  }
}

const trail = (...links) => show(byId("trail"), ...links);

// ---------------------------------------------------------------------------------------------- cases
// The list that j, k and a verdict walk through: the alerts of the present filters. Of several questions the answer to
// the latest is kept, whichever comes last.
let asked = 0;

export async function loadCases(wanted) {
  const turn = ++asked;
  const found = await api.alerts({ ...wanted, limit: 200 });
  if (turn === asked) page.cases = found.alerts;
  return found;
}

function forgetCases() {
  asked += 1;
  page.cases = [];
}

export async function casesFor(filters) {
  if (!page.cases.length) {
    await loadCases(alertFilter(filters, filters.per_day ? (await api.summary()).curve : []));
  }
  return page.cases;
}

// The score at the slider's alerts a day; none where alerts count as they were raised.
export const slidScore = (filters, curve) => filters.per_day ? curve[Math.min(Number(filters.per_day), curve.length) - 1]?.score ?? null : null;

// The least score that was typed; none where nothing, or no number, was.
export function typedScore(filters) {
  const value = Number.parseFloat(filters.min_score);
  return Number.isFinite(value) ? value : null;
}

// The higher of two least scores, either of which may be none.
export const higher = (a, b) => a === null ? b : b === null ? a : Math.max(a, b);

// The slider draws its own line through all scores; the filter only narrows what was raised.
export function alertFilter(filters, curve) {
  const slid = slidScore(filters, curve), typed = typedScore(filters);
  return {
    first_day: filters.first, last_day: filters.last, kind: filters.kind, category: filters.category, state: filters.state, search: filters.search, order: filters.order,
    min_score: higher(slid, typed), raised: slid === null && typed !== null ? true : null,
  };
}

export const openCase = (item, replace = false) => go(address.agent(item.agent_id, page.filters, { event: item.id }), replace);

export function nextCase(id, step = 1, onlyOpen = false) {
  const at = page.cases.findIndex((c) => c.id === id);
  for (let i = at + step; i >= 0 && i < page.cases.length; i += step) if (!onlyOpen || (!page.cases[i].verdict && page.cases[i].id !== id)) return page.cases[i];
  return null;
}

export function judged(item) {
  const at = page.cases.findIndex((c) => c.id === item.id);
  if (at >= 0) page.cases[at] = item;
}

// ------------------------------------------------------------------------------------------- keyboard
function keyboard(e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const typing = e.target.closest("input, select, textarea, dialog");
  if (e.key === "Escape") { if (typing) e.target.blur(); else page.view?.escape?.(); return; }
  if (typing) return;
  const run = {
    j: () => page.view?.next?.(1), k: () => page.view?.next?.(-1), ArrowDown: null,
    Enter: () => e.target.closest("a, button") ? false : page.view?.open?.(),
    c: () => page.view?.confirm?.(), e: () => page.view?.expect?.(), o: () => go(address.overview(page.filters)),
    "/": () => byId("search").focus(), "?": () => byId("help").showModal(),
  }[e.key];
  if (run && run() !== false) e.preventDefault();
}

function links(e) {
  const link = e.target.closest("a[data-link]");
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
  e.preventDefault();
  go(link.getAttribute("href"));
}

// ----------------------------------------------------------------------------------------------- live
function live() {
  const sign = byId("live");
  api.listen(
    (alert) => {
      if (!page.view?.cases) forgetCases();
      toast(`New: ${alert.agent_id}. ${alert.reason || "An unusual event."}`, () => openCase(alert));
      page.view?.arrived?.(alert);
    },
    (connected) => { sign.textContent = !connected ? "○ not connected" : page.about.live ? "● live" : "○ finished run"; sign.classList.toggle("off", !connected || !page.about.live); },
  );
}

async function start() {
  tooltips();
  document.addEventListener("keydown", keyboard);
  document.addEventListener("click", links);
  addEventListener("popstate", route);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("finder").addEventListener("submit", (e) => { e.preventDefault(); go(address.overview({ ...page.filters, search: byId("search").value.trim() })); byId("search").blur(); });
  try { page.about = await api.about(); }
  catch (error) { show(byId("main"), h("p", { role: "alert" }, error.message)); return; }
  if (page.about.run) byId("name").textContent = `ustad · ${page.about.run}`;
  await route();
  live();
}

start();
