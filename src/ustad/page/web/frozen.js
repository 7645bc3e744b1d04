// The answers of a report: written into the file, each agent's packed apart, and found here instead of asked for.
// Lists are narrowed as the service narrows them.
import { atLeast } from "./words.js";

const holder = document.getElementById("answers");
export const frozen = holder !== null;
const kept = frozen ? JSON.parse(holder.textContent) : { answers: {}, agents: {} };
const opened = new Map(); // agent → its answers by address

export async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

export const isKept = (agent) => !frozen || Object.hasOwn(kept.agents, agent);

export async function openAgent(agent) {
  if (!opened.has(agent)) {
    if (!isKept(agent)) throw new Error(`${agent} is not in this file. A report written with a larger --cases holds more, and \`ustad serve\` shows everybody.`);
    opened.set(agent, JSON.parse(await unpack(kept.agents[agent])));
  }
  return opened.get(agent);
}

// What the service would answer at this address.
export async function answer(address) {
  const [path, words] = address.split("?"), wanted = Object.fromEntries(new URLSearchParams(words || ""));
  if (path === "/v1/alerts") return alerts(wanted);
  if (path === "/v1/lanes") return lanes(wanted);
  if (Object.hasOwn(kept.answers, path)) return kept.answers[path];
  const name = path.match(/^\/v1\/agents\/([^/]+)/);
  const own = name ? await openAgent(decodeURIComponent(name[1])) : [...opened.values()].find((a) => a[path]) || await ownerOf(path);
  if (own?.[path]) return own[path];
  const event = eventOf(path);
  if (!event) throw new Error("That is not in this file.");
  return bare(event);
}

// An event of an open agent whose details were left out: what its line says.
const eventOf = (path) => [...opened.values()].flatMap((a) => Object.entries(a).find(([at]) => at.endsWith("/events"))[1].events).find((e) => path === `/v1/events/${e.id}`);
const bare = (event) => ({ event, features: [], knn: { distance: null, pct: null, share: 0 }, history_days: null, questions: null, nearest: [], usually: { weekday: null, minute: null, days: 0, what: [] }, verdicts: [], partial: true });

// The answers of the agent whose event this is: of those that are open, else of a line that names it.
async function ownerOf(path) {
  const id = path.split("/").pop(), line = kept.answers["/v1/alerts"].alerts.find((e) => e.id === id);
  return line ? openAgent(line.agent_id) : null;
}

// ---------------------------------------------------------------------------------------------- lists
function page(found, wanted, name) {
  const offset = Number(wanted.offset) || 0;
  return { total: found.length, offset, [name]: found.slice(offset, offset + (Number(wanted.limit) || 50)) };
}

function alerts(wanted) {
  const found = kept.answers["/v1/alerts"].alerts.filter((e) => matches(e, wanted) && (e.alert || (wanted.min_score !== undefined && !wanted.raised)));
  if (wanted.order === "time") found.sort((a, b) => (a.started_at < b.started_at ? 1 : a.started_at > b.started_at ? -1 : 0));
  return { ...page(found, wanted, "alerts"), next_since: 0 };
}

const named = (agent, search) => !search || agent.toLowerCase().includes(search.toLowerCase());

function matches(e, wanted) {
  return named(e.agent_id, wanted.search) && (!wanted.first_day || e.day >= wanted.first_day) && (!wanted.last_day || e.day <= wanted.last_day)
    && (!wanted.kind || e.kind === wanted.kind) && (!wanted.category || e.category === wanted.category)
    && (wanted.min_score === undefined || atLeast(e.score, Number(wanted.min_score))) && (!wanted.state || wanted.state === "open");
}

// As in the service, the last four weeks where no days are given.
function lanes(wanted) {
  const all = kept.answers["/v1/lanes"], last = wanted.last || all.last, first = wanted.first || later(all.first, weeksBefore(last));
  const inside = (c) => c.day >= first && c.day <= last;
  const cut = all.lanes.map((lane) => ({ ...lane, cells: lane.cells.filter(inside) })).filter((lane) => lane.cells.length && chosen(lane, wanted, first, last));
  const top = (lane) => Math.max(...lane.cells.map((c) => c.score));
  return { ...page(cut.sort((a, b) => top(b) - top(a)), wanted, "lanes"), first, last };
}

function chosen(lane, wanted, first, last) {
  if (!(wanted.kind || wanted.category || wanted.state || wanted.raised)) return named(lane.agent_id, wanted.search) && (wanted.min_score === undefined || lane.cells.some((c) => atLeast(c.score, Number(wanted.min_score))));
  return alerts({ ...wanted, offset: 0, limit: 1e9, first_day: first, last_day: last }).alerts.some((e) => e.agent_id === lane.agent_id);
}

const later = (a, b) => (a > b ? a : b);
const weeksBefore = (day) => new Date(Date.parse(`${day}T00:00:00Z`) - 27 * 864e5).toISOString().slice(0, 10);
