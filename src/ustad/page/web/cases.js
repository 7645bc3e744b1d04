// What the views share, and the list that j, k and a verdict walk through: the alerts of the present filters.
import * as api from "./api.js";
import { isKept } from "./frozen.js";
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
    first_day: filters.first, last_day: filters.last, kind: filters.kind, category: filters.category, state: filters.state, search: filters.search, order: filters.order,
    min_score: higher(slid, typed), raised: slid === null && typed !== null ? true : null,
  };
}

export const openCase = (item, replace = false) => go(address.agent(item.agent_id, page.filters, { event: item.id }), replace);

export function nextCase(id, step = 1, onlyOpen = false) {
  const at = page.cases.findIndex((c) => c.id === id);
  for (let i = at + step; i >= 0 && i < page.cases.length; i += step) if (isKept(page.cases[i].agent_id) && (!onlyOpen || (!page.cases[i].verdict && page.cases[i].id !== id))) return page.cases[i];
  return null;
}

export function judged(item) {
  const at = page.cases.findIndex((c) => c.id === item.id);
  if (at >= 0) page.cases[at] = item;
}
