// The map: usual places as circles by visits, the day's way, the expected place as a ghost beside the observed one.
// Without a tile server the ground is a plain grid with the agent's own ways as streets.
import { css } from "./colours.js";
import { show } from "./dom.js";
import { frozen, unpack } from "./frozen.js";
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

function style(tiles) {
  const sources = Object.fromEntries(["grid", "streets", "places", "way", "ghost", "link", "observed"].map((n) => [n, { type: "geojson", data: collection([]) }]));
  const layers = [{ id: "ground", type: "background", paint: { "background-color": css("--map") } }];
  if (tiles) { sources.tiles = { type: "raster", tiles: [tiles], tileSize: 256 }; layers.push({ id: "tiles", type: "raster", source: "tiles", paint: { "raster-opacity": 0.7 } }); }
  else layers.push({ id: "grid", type: "line", source: "grid", paint: { "line-color": css("--line"), "line-width": 1 } });
  layers.push(
    { id: "streets", type: "line", source: "streets", layout: { "line-join": "round", "line-cap": "round" }, paint: { "line-color": css("--street"), "line-width": 2, "line-opacity": 0.8 } },
    { id: "places", type: "circle", source: "places", paint: { "circle-radius": ["get", "radius"], "circle-color": ["get", "colour"], "circle-opacity": 0.75, "circle-stroke-color": css("--panel"), "circle-stroke-width": 1.5 } },
    { id: "way", type: "line", source: "way", layout: { "line-join": "round", "line-cap": "round" }, paint: { "line-color": css("--way"), "line-width": 3 } },
    { id: "ghost", type: "fill", source: "ghost", filter: ["==", ["geometry-type"], "Polygon"], paint: { "fill-color": css("--score"), "fill-opacity": 0.14 } },
    { id: "ghost-edge", type: "line", source: "ghost", paint: { "line-color": css("--score"), "line-width": 1.5, "line-dasharray": [2, 2] } },
    { id: "link", type: "line", source: "link", paint: { "line-color": css("--score"), "line-width": 1.5, "line-dasharray": [1, 2] } },
    { id: "ghost-point", type: "circle", source: "ghost", filter: ["==", ["geometry-type"], "Point"], paint: { "circle-radius": 7, "circle-color": css("--map"), "circle-stroke-color": css("--score"), "circle-stroke-width": 2.5 } },
    { id: "observed", type: "circle", source: "observed", paint: { "circle-radius": 7, "circle-color": css("--observed"), "circle-stroke-color": css("--panel"), "circle-stroke-width": 2 } });
  return { version: 8, sources, layers };
}

// In a report the library is packed into the file: its script runs from there, its worker from a copy in memory.
let worker = "/static/vendor/maplibre-gl/maplibre-gl-csp-worker.js";

export async function loadLibrary() {
  const text = (name) => unpack(document.getElementById(name).textContent);
  const script = document.createElement("script");
  script.textContent = await text("map-library");
  document.head.append(script);
  worker = URL.createObjectURL(new Blob([await text("map-worker")], { type: "text/javascript" }));
}

// Without WebGL the same map is drawn as plain lines.
function plainMap(holder, parts) {
  let wanted = [null, null, null];
  const draw = () => show(holder, sketch(parts, ...wanted));
  draw();
  return { show(...what) { wanted = what; draw(); holder.dataset.drawn = "true"; }, renew: draw, close() { delete holder.dataset.drawn; } };
}

// Draws the agent's places; `show(day, event, place)` adds a day's way and one event and moves there, `renew()` draws
// what is in `parts` by now and moves nowhere.
export function agentMap(holder, tiles, parts) {
  const { maplibregl } = globalThis;
  if (!maplibregl || !canDraw()) return plainMap(holder, parts);
  maplibregl.setWorkerUrl(worker);
  let home = homeOf(parts.places);
  const map = new maplibregl.Map({ container: holder, style: style(tiles), bounds: home || ANYWHERE, fitBoundsOptions: { padding: 50, maxZoom: 14 }, attributionControl: false, dragRotate: false, pitchWithRotate: false, fadeDuration: 0 });
  map.touchZoomRotate.disableRotation();
  map.addControl(new maplibregl.NavigationControl({ showCompass: false }), "top-right");
  map.addControl(new maplibregl.ScaleControl({ unit: "metric" }));
  let wanted = [null, null, null], markers = [];
  const set = (name, features) => map.getSource(name)?.setData(collection(features));
  const fixed = () => {
    const { places } = parts, most = Math.max(1, ...places.map((p) => p.visits));
    map.getSource("grid")?.setData(grid(home || ANYWHERE));
    set("streets", parts.moves.trips.filter((t) => t.path.length > 1).map((t) => line(t.path)));
    set("places", places.map((p) => point(p.lon, p.lat, { radius: 4 + 14 * Math.sqrt(p.visits / most), colour: resolved(parts.colour.of(p.category)), text: `${p.category}: ${p.visits} visit${p.visits > 1 ? "s" : ""}, ${say.duration(p.hours * 60)} in all` })));
  };
  const drawn = (moving) => {
    if (!map.getSource("places")) return;
    fixed();
    const [day, event, place] = wanted, { trips, seen, expected, points } = framed(parts, day, event, place);
    set("way", trips.map((t) => line(t.path)));
    set("observed", seen ? [point(...seen)] : []);
    set("ghost", expected ? [ellipse(...expected, ...(place.spread || [0.2, 0.2])), point(...expected)] : []);
    set("link", seen && expected ? [line([expected, seen])] : []);
    markers.forEach((m) => m.remove());
    markers = [];
    if (seen) label(seen, "observed");
    if (expected) label(expected, "expected");
    if (moving && (seen || expected || trips.length)) frame(boundsOf(points));
  };
  const label = (at, text) => {
    const element = document.createElement("span");
    element.className = `map-label ${text}`;
    element.textContent = text;
    markers.push(new maplibregl.Marker({ element, anchor: text === "observed" ? "bottom" : "top", offset: [0, text === "observed" ? -10 : 10] }).setLngLat(at).addTo(map));
  };
  const frame = (bounds) => map.fitBounds(bounds, { padding: 48, maxZoom: 14, duration: 0 });
  map.on("load", () => { drawn(true); holder.dataset.drawn = "true"; });
  map.on("mousemove", "places", (e) => { holder.dataset.tip = e.features[0].properties.text; });
  map.on("mouseleave", "places", () => { delete holder.dataset.tip; });
  map.on("error", () => null); // a tile that does not come leaves the ground plain
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => { if (holder.isConnected) { map.setStyle(style(tiles)); map.once("styledata", () => drawn(false)); } };
  scheme.addEventListener("change", recolour);
  return {
    show(day, event, place) { wanted = [day, event, place]; if (map.loaded() || map.getSource("places")) drawn(true); },
    renew() {
      const first = home === null;
      home ??= homeOf(parts.places);
      if (first && home) frame(home); // nothing was known yet, so nothing was looked at
      drawn(false);
    },
    close() { scheme.removeEventListener("change", recolour); delete holder.dataset.drawn; delete holder.dataset.tip; map.remove(); },
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
