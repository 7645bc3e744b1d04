// The map as plain lines: for paper, and where the browser has no WebGL. The same places, ways and marks.
import { s } from "./dom.js";
import { fitting, labelsOf } from "./map_labels.js";
import * as say from "./words.js";

const WIDTH = 560, HEIGHT = 300, EDGE = 46;
const KM = 111.32; // of one degree of latitude
const STEPS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000];

// What the map of a day frames: the event, what was expected, the day's ways and the most usual place; else the places.
export function framed(parts, day, event, place) {
  const zone = parts.agent.timezone, hasPath = (t) => t.path.length > 1;
  const trips = day === null ? [] : parts.moves.trips.filter((t) => hasPath(t) && [t.started_at, t.finished_at].some((m) => say.local(m, zone).day === day));
  const seen = event && event.lat !== null ? [event.lon, event.lat] : null;
  const expected = place?.expected?.lat !== null && place?.expected?.lat !== undefined ? [place.expected.lon, place.expected.lat] : null;
  const marks = [seen, expected].filter((p) => p);
  const home = parts.places.map((p) => [p.lon, p.lat]);
  const points = marks.length || trips.length ? [...marks, ...trips.flatMap((t) => t.path), ...home.slice(0, 1)] : home.slice(0, 12);
  return { trips, seen, expected, points };
}

export function sketch(parts, day, event, place) {
  const { trips, seen, expected, points } = framed(parts, day, event, place);
  if (!points.length) return null;
  const [lons, lats] = [0, 1].map((i) => points.map((p) => p[i])), middle = (v) => (Math.min(...v) + Math.max(...v)) / 2;
  const lon = middle(lons), lat = middle(lats), east = KM * Math.max(0.01, Math.cos(lat * Math.PI / 180));
  const size = (v, unit) => (Math.max(...v) - Math.min(...v)) * unit;
  const km = Math.max(size(lons, east) / (WIDTH - 2 * EDGE), size(lats, KM) / (HEIGHT - 2 * EDGE), 0.6 / WIDTH); // of one pixel
  const at = ([x, y]) => [WIDTH / 2 + (x - lon) * east / km, HEIGHT / 2 - (y - lat) * KM / km];
  const path = (t) => t.path.map((p, i) => `${i ? "L" : "M"}${at(p).map((v) => v.toFixed(1)).join(" ")}`).join("");
  const svg = s("svg", { class: "sketch", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words(place, seen, expected) });
  drawGround(svg, parts.ground, path);
  for (const t of parts.moves.trips) if (t.path.length > 1) svg.append(s("path", { class: "ways", d: path(t) }));
  drawPlaces(svg, parts, at);
  for (const t of trips) svg.append(s("path", { class: "way", d: path(t) }));
  drawMarks(svg, { seen, expected, spread: place?.spread, at, km });
  drawNames(svg, parts, { seen, expected, at });
  if (parts.now) { const [x, y] = at(parts.now); svg.append(s("circle", { class: "now", cx: x, cy: y, r: 7 })); }
  drawScale(svg, km);
  return svg;
}

function drawGround(svg, ground, path) {
  if (!ground) return;
  const draw = (name, paths) => svg.append(...paths.map((p) => s("path", { class: name, d: path({ path: p }) })));
  if (ground.box) svg.append(s("rect", { class: "water", width: WIDTH, height: HEIGHT }));
  draw("land", ground.land);
  draw("water", ground.lakes);
  draw("river", ground.rivers);
  draw("border", ground.borders);
  for (const street of ground.streets) svg.append(s("path", { class: `street size-${street.size}`, d: path(street) }));
}

// Names of own places and of towns that are in the picture and do not overlap.
function drawNames(svg, parts, { seen, expected, at }) {
  const isShown = ({ x, y }) => x > 0 && x < WIDTH && y > 14 && y < HEIGHT;
  const placed = labelsOf({ seen, expected, places: parts.places, towns: parts.ground?.names || [] }).map((l) => { const [x, y] = at(l.at); return { ...l, x, y }; });
  for (const l of fitting(placed).filter((n) => n.kept || isShown(n))) svg.append(l.kept ? label(l.x, l.y + l.dy + (l.dy > 0 ? 2 : 5), l.text) : s("text", { class: l.kind, x: l.x, y: l.y + l.dy + 4, "text-anchor": "middle" }, l.text));
}

function drawPlaces(svg, parts, at) {
  const most = Math.max(1, ...parts.places.map((p) => p.visits));
  for (const p of parts.places) {
    const [x, y] = at([p.lon, p.lat]), dot = s("circle", { cx: x, cy: y, r: 4 + 12 * Math.sqrt(p.visits / most), class: "place", "data-tip": `${p.category}: ${p.visits} visit${p.visits > 1 ? "s" : ""}` });
    dot.style.fill = parts.colour.of(p.category);
    svg.append(dot);
  }
}

function drawMarks(svg, { seen, expected, spread, at, km }) {
  if (expected) {
    const [x, y] = at(expected), [wide, high] = spread || [0.2, 0.2];
    svg.append(s("ellipse", { class: "ghost", cx: x, cy: y, rx: Math.max(3, wide / km), ry: Math.max(3, high / km) }));
    if (seen) svg.append(s("line", { class: "apart", x1: x, y1: y, x2: at(seen)[0], y2: at(seen)[1] }));
    svg.append(s("circle", { class: "expected", cx: x, cy: y, r: 6 }));
  }
  if (seen) { const [x, y] = at(seen); svg.append(s("path", { class: "observed", d: `M${x} ${y - 8}l8 8-8 8-8-8z` })); }
}

const label = (x, y, text) => s("text", { class: "strong", x: Math.min(Math.max(x, 3.2 * text.length + 4), WIDTH - 3.2 * text.length - 4), y: Math.min(Math.max(y, 12), HEIGHT - 6), "text-anchor": "middle" }, text);

function drawScale(svg, km) {
  const step = STEPS.findLast((v) => v <= 140 * km) || STEPS[0], long = step / km;
  svg.append(s("path", { class: "scale", d: `M14 ${HEIGHT - 18}v6h${long}v-6` }), s("text", { x: 14 + long / 2, y: HEIGHT - 18, "text-anchor": "middle" }, say.distance(step)), s("text", { x: WIDTH - 12, y: 18, "text-anchor": "end" }, "north ↑"));
}

const words = (place, seen, expected) => seen && expected && place.error !== null ? `Map: observed ${say.distance(place.error)} from the expected place` : "Map of usual places";
