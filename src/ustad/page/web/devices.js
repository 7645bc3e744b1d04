// When each device was last heard of, the longest silent first. Looks again every few seconds while it is shown.
import * as api from "./api.js";
import { byId, empty, failure, h, show, skeleton } from "./dom.js";
import { pager } from "./pager.js";
import { address, go } from "./route.js";
import { table } from "./run.js";
import * as say from "./words.js";

const ROWS = 50, AGAIN_MS = 10000;
const APPS = { owntracks: "OwnTracks", overland: "Overland", gpslogger: "GPSLogger", osmand: "Traccar client", traccar: "Traccar server" };

export async function devicesView(page, parameters) {
  const view = { escape: () => go(address.overview(page.filters)) }, from = Math.max(0, Number(parameters.get("devices_from")) || 0);
  page.view = view;
  show(byId("main"), h("section", { class: "panel" }, skeleton(12)));
  const look = async () => {
    if (page.view !== view) return;
    try {
      const { total, devices } = await api.devices({ limit: ROWS, offset: from });
      if (page.view === view) show(byId("main"), panel(devices, { total, from, size: ROWS, shown: devices.length }, page.about));
    } catch (error) { if (page.view === view) show(byId("main"), failure(error, () => devicesView(page, parameters))); return; }
    setTimeout(look, AGAIN_MS);
  };
  await look();
}

function panel(devices, part, about) {
  if (!part.total) return empty("No device has a key yet", "A phone sends here by itself once it has one: ustad serve … --create-key \"NAME\" --agent AGENT. The documentation says what to set in its app, under Phones.");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return h("section", { class: "panel", id: "devices", "aria-label": "Devices" }, h("h2", {}, "Devices"),
    h("p", { class: "hint" }, `The longest silent first. Times are ${say.zoneName(zone)} time. Left out are fixes that came late, were imprecise, or had a wrong clock or no position.`),
    table(["Device", say.capital(about.entity_word), "App", "Last heard", "Latest fix", "Battery", "Fixes", "Left out"], devices.map((d) => row(d, zone))),
    pager((offset) => address.devices({ devices_from: offset || null }), part, "device"));
}

function row(d, zone) {
  return h("tr", {}, h("th", { scope: "row" }, d.name), h("td", {}, d.n_events ? h("a", { href: address.agent(d.agent_id), "data-link": true }, d.agent_id) : d.agent_id), h("td", {}, d.app ? APPS[d.app] || d.app : "–"),
    h("td", {}, ...ago(d.heard_at, zone)), h("td", {}, ...ago(d.fixed_at, zone)), h("td", {}, d.battery === null ? "–" : `${Math.round(d.battery)} %`),
    h("td", {}, say.count(d.n_fixes)), h("td", {}, say.count(d.n_left_out)));
}

// How long ago, with the moment itself below; a clock ahead of ours is now.
const ago = (moment, zone) => moment ? [`${say.duration(Math.max(0, Date.now() - Date.parse(moment)) / 6e4)} ago`, h("small", {}, `${say.date(moment, zone)} ${say.time(moment, zone)}`)] : ["never"];
