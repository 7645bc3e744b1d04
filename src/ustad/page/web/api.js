// Talking to the service: JSON in and out, errors as sentences, and the stream of new alerts. A report answers itself.
import { answer as keptAnswer, frozen } from "./frozen.js";

export class ServiceError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function ask(path, options = {}) {
  if (frozen) return keptAnswer(path);
  let answer;
  try { answer = await fetch(path, { headers: { Accept: "application/json", ...(options.body ? { "Content-Type": "application/json" } : {}) }, ...options }); }
  catch (error) { if (error.name === "AbortError") throw error; throw new ServiceError(0, "The service does not answer. Is it running?"); }
  if (answer.status === 401) { location.reload(); throw new ServiceError(401, "A key is needed."); }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) throw new ServiceError(answer.status, content?.error?.message || `The service answered with ${answer.status}.`);
  return content;
}

export function query(values) {
  const text = new URLSearchParams(Object.entries(values).filter(([, v]) => v !== null && v !== undefined && v !== "")).toString();
  return text ? `?${text}` : "";
}

const agentPath = (id) => `/v1/agents/${encodeURIComponent(id)}`;
export const about = () => ask("/v1/about");
export const summary = () => ask("/v1/summary");
export const devices = (wanted) => ask("/v1/devices" + query(wanted));
export const run = () => ask("/v1/run");
export const lanes = (wanted) => ask("/v1/lanes" + query(wanted));
export const alerts = (wanted) => ask("/v1/alerts" + query(wanted));
export const agents = (wanted) => ask("/v1/agents" + query(wanted));
export const agent = (id) => ask(agentPath(id));
export const agentEvents = (id, wanted) => ask(agentPath(id) + "/events" + query(wanted));
export const places = (id) => ask(agentPath(id) + "/places");
export const movements = (id, wanted) => ask(agentPath(id) + "/movements" + query(wanted));
export const ground = (box) => ask("/v1/ground" + query(box));
export const event = (id) => ask(`/v1/events/${id}`);
export const giveVerdict = (id, verdict) => ask(`/v1/alerts/${id}/verdict`, { method: "PUT", body: JSON.stringify(verdict) });

const send = (method, content) => ({ method, body: JSON.stringify(content) });
export const cases = (wanted) => ask("/v1/cases" + query(wanted));
export const case_ = (id) => ask(`/v1/cases/${encodeURIComponent(id)}`);
export const openCase = (content) => ask("/v1/cases", send("POST", content));
export const changeCase = (id, content) => ask(`/v1/cases/${encodeURIComponent(id)}`, send("PATCH", content));
export const watchlist = () => ask("/v1/watchlist");
export const watch = (id, content) => ask(agentPath(id) + "/watch", send("PUT", content));
export const views = () => ask("/v1/views");
export const saveView = (content) => ask("/v1/views", send("PUT", content));
export const deleteView = (name) => ask("/v1/views" + query({ name }), { method: "DELETE" });

export const rules = () => ask("/v1/rules");
export const previewRule = (content) => ask("/v1/rules/preview", send("POST", content));
export const addRule = (content) => ask("/v1/rules", send("POST", content));
export const endRule = (id) => ask(`/v1/rules/${encodeURIComponent(id)}`, { method: "DELETE" });
export const weights = () => ask("/v1/weights");
export const turnWeights = (on) => ask("/v1/weights", send("PUT", { on }));

// Calls `found(alert)` for every new alert and `state(connected)` when the connection comes or goes.
export function listen(found, state) {
  if (frozen) return null;
  const stream = new EventSource("/v1/alerts/stream");
  stream.addEventListener("open", () => state(true));
  stream.addEventListener("error", () => state(false));
  stream.addEventListener("alert", (message) => found(JSON.parse(message.data)));
  addEventListener("pagehide", () => stream.close());
  return stream;
}
