// What the views share, and the list that j, k and a verdict walk through: the alerts of the present filters.
import * as api from "./api.js";
import { address, go } from "./route.js";

export const page = { about: null, view: null, cases: [], filters: {}, library: null };

// Of several questions the answer to the latest is kept, whichever comes last.
let asked = 0;

export async function loadCases(wanted) {
  const turn = ++asked;
  const found = await api.alerts({ ...wanted, limit: 200 });
  if (turn === asked) page.cases = found.alerts;
  return found;
}

export function forgetCases() {
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
    first_day: filters.first, last_day: filters.last, kind: filters.kind, category: filters.category, state: filters.state, search: filters.search, order: filters.order, watched: filters.watched,
    min_score: higher(slid, typed), raised: slid === null && typed !== null ? true : null,
  };
}

export const openCase = (item, replace = false) => go(address.agent(item.agent_id, page.filters, { event: item.id }), replace);

export function nextCase(id, step = 1, onlyOpen = false) {
  const at = page.cases.findIndex((c) => c.id === id);
  for (let i = at + step; i >= 0 && i < page.cases.length; i += step) if (!onlyOpen || (!page.cases[i].verdict && page.cases[i].id !== id)) return page.cases[i];
  return null;
}

// The next alert that nobody has judged: further down the list, else from its top, else beyond what was loaded.
export async function nextOpen(item, filters) {
  const at = page.cases.findIndex((c) => isOf(c, item)), order = [...page.cases.slice(at + 1), ...page.cases.slice(0, Math.max(0, at))];
  const open = order.find((c) => !c.verdict && !c.marked_by && !c.hidden_by && !isOf(c, item));
  if (open || (filters.state && filters.state !== "open")) return open || null;
  const curve = filters.per_day ? (await api.summary()).curve : [];
  return (await api.alerts({ ...alertFilter(filters, curve), state: "open", limit: 1 })).alerts[0] || null;
}

const isOf = (c, item) => c.id === item.id || (item.incident_id !== null && c.incident_id === item.incident_id && c.agent_id === item.agent_id);

// What was said of one event of an incident is said of the line that stands for it.
export function judged(item) {
  page.cases = page.cases.map((c) => c.id === item.id ? item : isOf(c, item) ? { ...c, verdict: item.verdict, marked_by: null } : c);
}
