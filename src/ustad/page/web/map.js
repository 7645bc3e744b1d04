// The map: usual places as circles by visits, the day's way, the expected place as a ghost beside the observed one, and
// where somebody was at a time of the day. What it stands on is in `ground.js`.
import { css } from "./colours.js";
import { dayPlayer } from "./day_player.js";
import { h, show } from "./dom.js";
import { unpack } from "./frozen.js";
import { archive, archiveNames, boxAround, contains, GROUND_SOURCES, groundFeatures, groundLayers, groundOf, NO_GROUND, roadLayers } from "./ground.js";
import { fitting, labelsOf } from "./map_labels.js";
import { framed, sketch } from "./sketch.js";
import * as say from "./words.js";

const KM = 111.32; // of one degree of latitude
const collection = (features) => ({ type: "FeatureCollection", features });
const point = (lon, lat, properties = {}) => ({ type: "Feature", properties, geometry: { type: "Point", coordinates: [lon, lat] } });
const line = (coordinates, properties = {}) => ({ type: "Feature", properties, geometry: { type: "LineString", coordinates } });

function ellipse(lon, lat, east, north, steps = 64) {
  const wide = KM * Math.max(0.01, Math.cos(lat * Math.PI / 180));
  const ring = Array.from({ length: steps + 1 }, (_, i) => { const a = 2 * Math.PI * i / steps; return [lon + east * Math.cos(a) / wide, lat + north * Math.sin(a) / KM]; });
  return { type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [ring] } };
}

// Lines of latitude and longitude at a round step that suits the area.
function grid(bounds) {
  const width = Math.max(bounds[2] - bounds[0], bounds[3] - bounds[1], 0.01) * 8;
  const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10].find((v) => width / v <= 60) || 20;
  const lines = [];
  for (let v = Math.floor((bounds[0] - width) / step) * step; v <= bounds[2] + width; v += step) lines.push(line([[v, Math.max(-85, bounds[1] - width)], [v, Math.min(85, bounds[3] + width)]]));
  for (let v = Math.floor((bounds[1] - width) / step) * step; v <= bounds[3] + width; v += step) lines.push(line([[bounds[0] - width, v], [bounds[2] + width, v]]));
  return collection(lines);
}

const ANYWHERE = [-10, 35, 30, 65];
const homeOf = (places) => places.length ? boundsOf(places.slice(0, 12).map((p) => [p.lon, p.lat])) : null;

function boundsOf(points) {
  const lons = points.map((p) => p[0]), lats = points.map((p) => p[1]);
  return [Math.min(...lons), Math.min(...lats), Math.max(...lons), Math.max(...lats)];
}

const OWN_SOURCES = ["grid", "ways", "places", "way", "ghost", "link", "observed", "now"];

function style({ tiles, map: facts }) {
  const own = archive(facts), sources = { ...Object.fromEntries([...GROUND_SOURCES, ...OWN_SOURCES].map((n) => [n, { type: "geojson", data: collection([]) }])), ...own.sources };
  const layers = [{ id: "ground", type: "background", paint: { "background-color": css("--map") } }, ...groundLayers()];
  layers.push({ id: "grid", type: "line", source: "grid", paint: { "line-color": css("--line"), "line-width": 1 } });
  if (tiles) { sources.tiles = { type: "raster", tiles: [tiles], tileSize: 256 }; layers.push({ id: "tiles", type: "raster", source: "tiles", paint: { "raster-opacity": 0.7 } }); }
  layers.push(...own.layers, ...(tiles || own.layers.length ? [] : roadLayers()),
    { id: "ways", type: "line", source: "ways", layout: { "line-join": "round", "line-cap": "round" }, paint: { "line-color": css("--way"), "line-width": 1.5, "line-opacity": 0.25 } },
    { id: "places", type: "circle", source: "places", paint: { "circle-radius": ["get", "radius"], "circle-color": ["get", "colour"], "circle-opacity": 0.75, "circle-stroke-color": css("--panel"), "circle-stroke-width": 1.5 } },
    { id: "way", type: "line", source: "way", layout: { "line-join": "round", "line-cap": "round" }, paint: { "line-color": css("--way"), "line-width": 3 } },
    { id: "ghost", type: "fill", source: "ghost", filter: ["==", ["geometry-type"], "Polygon"], paint: { "fill-color": css("--score"), "fill-opacity": 0.14 } },
    { id: "ghost-edge", type: "line", source: "ghost", paint: { "line-color": css("--score"), "line-width": 1.5, "line-dasharray": [2, 2] } },
    { id: "link", type: "line", source: "link", paint: { "line-color": css("--score"), "line-width": 2, "line-dasharray": [1, 2] } },
    { id: "ghost-point", type: "circle", source: "ghost", filter: ["==", ["geometry-type"], "Point"], paint: { "circle-radius": 7, "circle-color": css("--map"), "circle-stroke-color": css("--score"), "circle-stroke-width": 2.5 } },
    { id: "observed", type: "circle", source: "observed", paint: { "circle-radius": 7, "circle-color": css("--observed"), "circle-stroke-color": css("--panel"), "circle-stroke-width": 2 } },
    { id: "now", type: "circle", source: "now", paint: { "circle-radius": 8, "circle-color": css("--focus"), "circle-stroke-color": css("--panel"), "circle-stroke-width": 3 } });
  return { version: 8, sources, layers };
}

// What the marks mean, and whose data the ground is.
function legend(parts, about) {
  const { ground, moves } = parts, item = (kind, text) => h("span", {}, h("i", { class: `mark-${kind}` }), text);
  const streets = about.tiles || about.map || ground.streets_from !== "trips" ? null : item("street", "streets: where at least 5 people went");
  const note = [about.map?.note, ground.note].filter(Boolean).join(" · ");
  return [item("place", "usual place, larger is more visits"), moves.trips.length ? item("way", "way of the day") : null, item("observed", "observed"), item("expected", "expected"), streets, note ? h("span", { class: "map-note" }, `Map: ${note}`) : null];
}

// In a report the library is packed into the file: its script runs from there, its worker from a copy in memory.
let worker = "/static/vendor/maplibre-gl/maplibre-gl-csp-worker.js";

export async function loadLibrary() {
  const text = (name) => unpack(document.getElementById(name).textContent);
  for (const name of ["map-library", "map-reader"].filter((id) => document.getElementById(id))) {
    const script = document.createElement("script");
    script.textContent = await text(name);
    document.head.append(script);
  }
  worker = URL.createObjectURL(new Blob([await text("map-worker")], { type: "text/javascript" }));
}

// Without WebGL the same map is drawn as plain lines.
function plainMap(holder, parts, { foot, player, draws }) {
  let wanted = [null, null, null];
  const draw = () => { show(holder, sketch(parts, ...wanted)); foot(); };
  const stand = async () => {
    const { points } = framed(parts, ...wanted);
    if (points.length) { parts.ground = await groundOf(boxAround(points)); if (holder.dataset.drawn) draw(); }
  };
  draws.move = (at) => { parts.now = at; if (holder.dataset.drawn) draw(); };
  draw();
  return { show(...what) { wanted = what; holder.dataset.drawn = "true"; player.show(what[0]); draw(); stand(); }, renew: draw, close() { delete holder.dataset.drawn; player.close(); } };
}

// Draws the agent's places; `show(day, event, place)` adds a day's way and one event and moves there, `renew()` draws
// what is in `parts` by now and moves nowhere.
export function agentMap(holder, about, parts) {
  const { maplibregl } = globalThis;
  parts.ground ??= NO_GROUND;
  const key = h("div", { class: "map-key key" }), draws = { move: () => null }, player = dayPlayer(parts, (at) => draws.move(at));
  const foot = () => show(key, legend(parts, about));
  holder.after(player.root, key);
  if (!maplibregl || !canDraw()) return plainMap(holder, parts, { foot, player, draws });
  maplibregl.setWorkerUrl(worker);
  let home = homeOf(parts.places);
  const map = new maplibregl.Map({ container: holder, style: style(about), bounds: home || ANYWHERE, fitBoundsOptions: { padding: 50, maxZoom: 14 }, attributionControl: false, dragRotate: false, pitchWithRotate: false, fadeDuration: 0 });
  map.touchZoomRotate.disableRotation();
  map.addControl(new maplibregl.NavigationControl({ showCompass: false }), "top-right");
  map.addControl(new maplibregl.ScaleControl({ unit: "metric" }));
  let wanted = [null, null, null], markers = [], isClosed = false;
  const put = (name, data) => map.getSource(name)?.setData(data), set = (name, features) => put(name, collection(features));
  const fixed = () => {
    const { places, ground } = parts, most = Math.max(1, ...places.map((p) => p.visits));
    put("grid", about.tiles || about.map || ground.streets.length ? collection([]) : grid(home || ANYWHERE));
    for (const [name, data] of Object.entries(groundFeatures(ground))) put(name, data);
    set("ways", parts.moves.trips.filter((t) => t.path.length > 1).map((t) => line(t.path)));
    set("places", places.map((p) => point(p.lon, p.lat, { radius: 4 + 14 * Math.sqrt(p.visits / most), colour: resolved(parts.colour.of(p.category)), text: `${p.category}: ${p.visits} visit${p.visits > 1 ? "s" : ""}, ${say.duration(p.hours * 60)} in all` })));
    foot();
  };
  const drawn = (moving) => {
    if (!map.getSource("places")) return;
    fixed();
    const [day, event, place] = wanted, { trips, seen, expected, points } = framed(parts, day, event, place);
    set("way", trips.map((t) => line(t.path)));
    set("observed", seen ? [point(...seen)] : []);
    set("ghost", expected ? [ellipse(...expected, ...(place.spread || [0.2, 0.2])), point(...expected)] : []);
    set("link", seen && expected ? [line([expected, seen])] : []);
    if (moving && (seen || expected || trips.length)) frame(boundsOf(points));
    label();
  };
  const label = () => {
    const [day, event, place] = wanted, { seen, expected } = framed(parts, day, event, place), view = map.getBounds();
    const towns = [...archiveNames(map), ...(about.tiles || about.map ? [] : parts.ground.names)].filter((n) => view.contains([n.lon, n.lat]));
    const placed = labelsOf({ seen, expected, places: parts.places, towns }).map((l) => ({ ...l, ...map.project(l.at) }));
    markers.forEach((m) => m.remove());
    markers = fitting(placed).map(({ at, text, kind, dy }) => new maplibregl.Marker({ element: h("span", { class: kind }, text), anchor: "center", offset: [0, dy] }).setLngLat(at).addTo(map));
  };
  // The ground of what is looked at: asked for anew where the view leaves what is there.
  const stand = async () => {
    const view = map.getBounds().toArray();
    if (contains(parts.ground, view.flat())) return;
    const ground = await groundOf(boxAround(view));
    if (isClosed) return;
    parts.ground = ground;
    fixed();
    label();
  };
  const frame = (bounds) => map.fitBounds(bounds, { padding: 48, maxZoom: 14, duration: 0 });
  draws.move = (at) => set("now", at ? [point(...at)] : []);
  map.on("load", () => { drawn(true); stand(); holder.dataset.drawn = "true"; });
  map.on("moveend", () => { label(); if (holder.dataset.drawn) stand(); });
  if (about.map) map.once("idle", label); // names are read from tiles, which come later
  map.on("mousemove", "places", (e) => { holder.dataset.tip = e.features[0].properties.text; });
  map.on("mouseleave", "places", () => { delete holder.dataset.tip; });
  map.on("error", () => null); // a tile that does not come leaves the ground plain
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => { if (holder.isConnected) { map.setStyle(style(about)); map.once("styledata", () => drawn(false)); } };
  scheme.addEventListener("change", recolour);
  return {
    show(day, event, place) { wanted = [day, event, place]; player.show(day); if (map.loaded() || map.getSource("places")) drawn(true); },
    renew() {
      const first = home === null;
      home ??= homeOf(parts.places);
      if (first && home) frame(home); // nothing was known yet, so nothing was looked at
      drawn(false);
    },
    close() { isClosed = true; player.close(); scheme.removeEventListener("change", recolour); delete holder.dataset.drawn; delete holder.dataset.tip; map.remove(); },
  };
}

function resolved(colour) {
  const probe = document.createElement("span");
  probe.style.color = colour;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function canDraw() {
  const canvas = document.createElement("canvas");
  return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl"));
}
