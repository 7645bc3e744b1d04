// A report on paper: after the view on show every alert on a page of its own, then the data and the model.
import * as api from "./api.js";
import { page } from "./cases.js";
import { colours } from "./colours.js";
import { drawer } from "./drawer.js";
import { byId, h, show } from "./dom.js";
import { boxAround, groundOf } from "./ground.js";
import { here } from "./route.js";
import { runPanels } from "./run.js";
import { sketch } from "./sketch.js";
import { timeline } from "./timeline.js";
import * as say from "./words.js";

const MOST = 40, WIDTH = 900; // cases on paper; pixels of a timeline

// What paper shows is fetched from the file in time: a browser that prints does not wait.
export async function printing() {
  const cases = (await api.alerts({ limit: MOST })).alerts;
  const [facts, ...ready] = await Promise.all([api.run(), ...cases.map(caseOf)]);
  const run = () => here().path === "/run" ? null : h("div", { class: "run-page" }, runPanels(facts, page.about));
  addEventListener("beforeprint", () => show(byId("print"), ready.map(casePage), run()));
  addEventListener("afterprint", () => show(byId("print")));
  document.documentElement.dataset.printable = ready.length;
}

// One case on paper: each of its incidents on a page of its own, after what the page itself shows.
export async function printCases(incidents) {
  show(byId("print"), (await Promise.all(incidents.slice(0, MOST).map(caseOf))).map(casePage));
  addEventListener("afterprint", () => show(byId("print")), { once: true });
  print();
}

async function caseOf(line) {
  const id = line.agent_id;
  const [agent, events, places, moves, detail] = await Promise.all([api.agent(id), api.agentEvents(id, { limit: 1000 }), page.about.has_place ? api.places(id) : { places: [] }, api.movements(id, { limit: 1000 }), api.event(line.id)]);
  const ground = places.places.length ? await groundOf(boxAround(places.places.slice(0, 12).map((p) => [p.lon, p.lat]))) : null;
  return { agent, ground, events: events.events.toReversed(), places: places.places, moves, detail, colour: colours(events.events, page.about.categories) };
}

function casePage(parts) {
  const { event } = parts.detail, day = say.local(event.started_at, event.timezone).day;
  const days = timeline(parts, event, day, WIDTH, () => null);
  const map = page.about.has_place ? sketch(parts, day, event, parts.detail.features.find((f) => f.kind === "place")) : null;
  return h("div", { class: "case-page" }, h("h1", {}, parts.agent.agent_id), h("div", { class: "columns agent-columns" },
    h("div", {}, days), h("div", {}, map, drawer(parts.detail, page.about, { position: "" }))));
}
