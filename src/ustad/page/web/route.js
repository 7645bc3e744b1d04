// Where the page is. Over HTTP an address is a path; in a report, which is one file, it stands behind the #.
import { query } from "./api.js";
import { frozen } from "./frozen.js";

const FILTERS = ["per_day", "min_score", "first", "last", "kind", "category", "state", "search", "order", "watched"];
const PAGING = ["lanes_from", "alerts_from", "devices_from", "cases_from", "event", "day"];

export function here() {
  const [path, words] = frozen ? (location.hash.slice(1) || "/").split("?") : [location.pathname, location.search.slice(1)];
  return { path, parameters: new URLSearchParams(words || "") };
}

export const filtersOf = (parameters) => Object.fromEntries(FILTERS.map((name) => [name, parameters.get(name)]).filter(([, v]) => v));
// Everything in the address that says what is listed, for a link that keeps it.
export const filtersNow = () => Object.fromEntries([...here().parameters].filter(([name]) => !PAGING.includes(name)));

const link = (path, values = {}) => (frozen ? "#" : "") + path + query(values);
export const address = {
  overview: (filters = {}, more = {}) => link("/", { ...filters, ...more }),
  agent: (id, filters, more = {}) => link(`/agent/${encodeURIComponent(id)}`, { ...filters, ...more }),
  run: (filters = {}) => link("/run", filters),
  cases: (values = {}) => link("/cases", values),
  case: (id) => link(`/case/${encodeURIComponent(id)}`),
  rules: () => link("/rules"),
  devices: (values = {}) => link("/devices", values),
};

let arrive = () => null;
export const onArrival = (act) => { arrive = act; };

export function go(to, replace = false) {
  const { path, parameters } = here();
  if (to === link(path, Object.fromEntries(parameters))) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  arrive();
}
