// Alerts as a file: CSV for a spreadsheet, GeoJSON for a map. Made in the browser, so that a report can do it too.
import { h, toast } from "./dom.js";

const COLUMNS = ["id", "agent_id", "started_at", "finished_at", "timezone", "category", "place_name", "lat", "lon", "score", "p_value", "kind", "reason", "incident_id"];
const values = (e) => ({ ...Object.fromEntries(COLUMNS.map((name) => [name, e[name]])), verdict: e.verdict?.verdict ?? null, verdict_reason: e.verdict?.reason ?? null, verdict_by: e.verdict?.by ?? null });

// A cell of CSV. A text that a spreadsheet would take for a formula is kept from being one.
function cell(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toCsv(events) {
  const names = [...COLUMNS, "verdict", "verdict_reason", "verdict_by"];
  return [names, ...events.map((e) => { const row = values(e); return names.map((name) => row[name]); })].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

export function toGeoJson(events) {
  const feature = (e) => { const { lat, lon, ...properties } = values(e); return { type: "Feature", geometry: lat === null || lon === null ? null : { type: "Point", coordinates: [lon, lat] }, properties }; };
  return JSON.stringify({ type: "FeatureCollection", features: events.map(feature) });
}

function save(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// Two buttons; `all()` gives the events to be written.
export function exportButtons(all, name) {
  const button = (text, act) => h("button", { type: "button", class: "plain", on: { click: async () => { try { act(await all()); } catch (error) { toast(error.message); } } } }, text);
  return h("span", { class: "export" }, button("CSV", (events) => save(`${name}.csv`, "text/csv", toCsv(events))), " ", button("GeoJSON", (events) => save(`${name}.geojson`, "application/geo+json", toGeoJson(events))));
}
