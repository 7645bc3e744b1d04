// The page: which view an address means, the keyboard, printing, and live alerts.
import * as api from "./api.js";
import { agentView, leaveAgent } from "./agent.js";
import { caseView, casesView } from "./case_view.js";
import { forgetCases, openCase, page } from "./cases.js";
import { devicesView } from "./devices.js";
import { byId, h, show, toast, tooltips, visible } from "./dom.js";
import { frozen, isKept } from "./frozen.js";
import { loadLibrary } from "./map.js";
import { overview } from "./overview.js";
import { printing } from "./print.js";
import { address, filtersOf, go, here, onArrival } from "./route.js";
import { rulesView } from "./rules.js";
import { runView } from "./run.js";
import { lastFilters, rememberFilters } from "./saved.js";

// Each view puts itself in `page.view` before it loads: what an earlier one still waits for finds that it was left.
async function route() {
  const { path, parameters } = here(), before = api.query(page.filters);
  page.filters = filtersOf(parameters);
  if (api.query(page.filters) !== before) forgetCases();
  byId("search").value = page.filters.search || "";
  byId("tip").hidden = true;
  const [, kind, text] = path.match(/^\/(agent|case)\/(.+)$/) || [], one = kind ? decodeURIComponent(text) : null;
  const id = kind === "agent" ? one : null, title = id ? visible(id) : one ? `Case ${visible(one)}` : TITLES[path] || TITLES["/"];
  if (path === "/") rememberFilters(page.filters);
  trail(id, title);
  document.title = `${title} · ${name()}`;
  if (id) { await agentView(page, id, parameters); return; }
  leaveAgent();
  if (one) { await caseView(page, one); return; }
  await ({ "/run": runView, "/cases": casesView, "/rules": rulesView, "/devices": devicesView }[path] || overview)(page, parameters);
}

const TITLES = { "/": "Overview", "/cases": "Cases", "/rules": "Rules", "/run": "Data and model", "/devices": "Devices" };

const name = () => page.about?.run ? `ustad · ${page.about.run}` : "ustad";

function trail(id, title) {
  const link = (path, to) => h("a", TITLES[path] === title && !id ? { "aria-current": "page" } : { href: to, "data-link": true }, TITLES[path]);
  const reads = !frozen && page.about?.roles.includes("read"); // a key that sees coarse positions has no other views
  show(byId("trail"), link("/", address.overview(page.filters)), id ? h("a", { "aria-current": "page" }, id) : null, reads ? link("/cases", address.cases()) : null, reads ? link("/rules", address.rules()) : null, title.startsWith("Case ") ? h("a", { "aria-current": "page" }, title) : null, (frozen || reads) && (page.about?.run || page.about?.live) ? link("/run", address.run(page.filters)) : null, reads && page.about?.devices ? link("/devices", address.devices()) : null);
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
    c: () => page.view?.confirm?.(), e: () => page.view?.expect?.(), w: () => page.view?.wrong?.(), n: () => page.view?.openCase?.(), o: () => go(address.overview(page.filters)),
    "/": () => byId("search").focus(), "?": () => byId("help").showModal(),
  }[e.key];
  if (run && run() !== false) e.preventDefault();
}

function links(e) {
  if (e.target.closest(".skip")) { e.preventDefault(); byId("main").focus(); return; } // an # would be an address
  const link = e.target.closest("a[data-link]");
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
  e.preventDefault();
  go(link.getAttribute("href"));
}

// Somebody's whole name opens that one; a part of names narrows the lists.
async function find(text) {
  const isOne = frozen ? isKept(text) : text && (await api.agents({ search: text, limit: 200 }).catch(() => ({ agents: [] }))).agents.some((a) => a.agent_id === text);
  go(isOne ? address.agent(text) : address.overview({ ...page.filters, search: text }));
}

// ----------------------------------------------------------------------------------------------- live
function live() {
  const sign = byId("live");
  if (frozen) { sign.hidden = true; return; }
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
  onArrival(route);
  addEventListener("popstate", route);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("finder").addEventListener("submit", (e) => { e.preventDefault(); find(byId("search").value.trim()); byId("search").blur(); });
  try { page.about = await api.about(); }
  catch (error) { show(byId("main"), h("p", { role: "alert" }, error.message)); return; }
  byId("name").textContent = name();
  if (page.about.caller && page.about.caller !== "local") { byId("caller").hidden = false; show(byId("caller").firstElementChild, page.about.caller); }
  byId("made").textContent = page.about.made || "";
  document.querySelector(".brand").setAttribute("href", address.overview());
  document.documentElement.classList.toggle("frozen", frozen);
  if (frozen && page.about.has_place) page.library = loadLibrary(); // waited for where a map is drawn
  const { path, parameters } = here();
  if (path === "/" && !parameters.size && Object.keys(lastFilters()).length) history.replaceState(null, "", address.overview(lastFilters()));
  await route();
  live();
  if (frozen) await printing();
}

start();
