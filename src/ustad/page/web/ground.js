// What a map stands on, without a network: land, waters, borders and names of the bundled world, streets of a given map or
// learned from everybody's trips, and the archive of tiles that the service was given.
import * as api from "./api.js";
import { css } from "./colours.js";
import { frozen } from "./frozen.js";

export const NO_GROUND = { box: null, land: [], lakes: [], rivers: [], borders: [], names: [], streets: [], streets_from: null, note: "" };
const ARCHIVE = "/v1/map.pmtiles", WITHIN = "map-archive"; // of the service, and in a report
const collection = (features) => ({ type: "FeatureCollection", features });
const feature = (type, coordinates, properties = {}) => ({ type: "Feature", properties, geometry: { type, coordinates } });

// A box around points with room to look around: its own size on every side, and at least 15 km.
export function boxAround(points) {
  const [lons, lats] = [0, 1].map((i) => points.map((p) => p[i]));
  const [west, east, south, north] = [Math.min(...lons), Math.max(...lons), Math.min(...lats), Math.max(...lats)];
  const wide = Math.max(0.2, east - west), high = Math.max(0.15, north - south);
  return [Math.max(-180, west - wide), Math.max(-85, south - high), Math.min(180, east + wide), Math.min(85, north + high)];
}

export const contains = ({ box }, inner) => Boolean(box) && (frozen || (box[0] <= inner[0] && box[1] <= inner[1] && box[2] >= inner[2] && box[3] >= inner[3]));

// The layers within a box; nothing where the service does not answer, for a map can be read without them.
export async function groundOf(box) {
  const [west, south, east, north] = box.map((v) => Number(v.toFixed(3)));
  return api.ground({ west, south, east, north }).catch(() => NO_GROUND);
}

const ring = ([west, south, east, north]) => [[west, south], [east, south], [east, north], [west, north], [west, south]];

export function groundFeatures(ground) {
  const areas = (rings) => collection(rings.map((r) => feature("Polygon", [r])));
  const lines = (paths) => collection(paths.map((p) => feature("LineString", p)));
  return {
    sea: ground.box ? areas([ring(ground.box)]) : collection([]), land: areas(ground.land), lakes: areas(ground.lakes), rivers: lines(ground.rivers), borders: lines(ground.borders),
    roads: collection(ground.streets.map((s) => feature("LineString", s.path, { size: s.size }))),
  };
}

const fill = (id, source, colour, more = {}) => ({ id, type: "fill", source, paint: { "fill-color": css(colour), "fill-antialias": false }, ...more });
const line = (id, source, colour, width, more = {}) => ({ id, type: "line", source, layout: { "line-join": "round", "line-cap": "round" }, paint: { "line-color": css(colour), "line-width": width, ...more } });

export const GROUND_SOURCES = ["sea", "land", "lakes", "rivers", "borders", "roads"];
export const groundLayers = () => [fill("sea", "sea", "--water"), fill("land", "land", "--map"), fill("lakes", "lakes", "--water"), line("rivers", "rivers", "--water", 1.5), line("borders", "borders", "--soft", 1, { "line-dasharray": [4, 2], "line-opacity": 0.6 })];
export const roadLayers = () => [line("roads", "roads", "--street", ["interpolate", ["linear"], ["zoom"], 9, ["+", 0.4, ["*", 0.6, ["get", "size"]]], 15, ["+", 1.5, ["*", 1.5, ["get", "size"]]]])];

// ------------------------------------------------------------------------------------------- tiles
// How a layer of somebody's map is drawn, by what it is called: the common schemas agree in these words.
const KINDS = [[/water|ocean|lake|river|marine/, "water"], [/build/, "building"], [/road|street|transport|highway|rail|path/, "road"], [/bound|admin|border/, "border"], [/place|settlement/, "place"], [/poi|label|name|point|addr|house/, "skip"], [/^earth$|^land$/, "skip"], [/land|park|green|wood|natural|site/, "green"]];
const kindOf = (layer) => KINDS.find(([words]) => words.test(layer.toLowerCase()))?.[1] || "road";
const only = (type) => ["==", ["geometry-type"], type];

function vectorLayers(name) {
  const kind = kindOf(name), source = "archive", of = { "source-layer": name };
  const area = (colour) => ({ ...fill(`archive-${name}`, source, colour), ...of, filter: only("Polygon") });
  const way = (colour, width, more) => ({ ...line(`archive-${name}-lines`, source, colour, width, more), ...of, filter: only("LineString") });
  if (kind === "water") return [area("--water"), way("--water", 1.2)];
  if (kind === "building") return [area("--building")];
  if (kind === "green") return [area("--green")];
  if (kind === "border") return [way("--soft", 1, { "line-dasharray": [4, 2], "line-opacity": 0.6 })];
  if (kind === "place") return [{ id: "archive-places", type: "circle", source, ...of, paint: { "circle-radius": 1, "circle-opacity": 0 } }]; // names are drawn beside the canvas
  if (kind === "road") return [way("--street", ["interpolate", ["linear"], ["zoom"], 8, 0.5, 12, 1.2, 16, 4])];
  return [];
}

const ORDER = ["green", "water", "building", "road", "border", "place", "skip"];

// Sources and layers of the archive of tiles; none where the service was given none.
export function archive(facts) {
  if (!facts || !globalThis.pmtiles) return { sources: {}, layers: [] };
  registerArchive();
  const url = `pmtiles://${frozen ? WITHIN : location.origin + ARCHIVE}`;
  if (facts.tiles === "raster") return { sources: { archive: { type: "raster", url, tileSize: 256 } }, layers: [{ id: "archive", type: "raster", source: "archive", paint: { "raster-opacity": 0.8 } }] };
  const names = facts.layers.toSorted((a, b) => ORDER.indexOf(kindOf(a)) - ORDER.indexOf(kindOf(b)));
  return { sources: { archive: { type: "vector", url } }, layers: names.flatMap(vectorLayers) };
}

let registered = false;
function registerArchive() {
  if (registered) return;
  registered = true;
  const { PMTiles, Protocol } = globalThis.pmtiles, protocol = new Protocol();
  if (frozen) protocol.add(new PMTiles(within()));
  globalThis.maplibregl.addProtocol("pmtiles", protocol.tile);
}

// The archive that a report holds.
function within() {
  const content = Uint8Array.from(atob(document.getElementById(WITHIN).textContent), (c) => c.charCodeAt(0));
  return { getKey: () => WITHIN, getBytes: async (offset, length) => ({ data: content.slice(offset, offset + length).buffer }) };
}

// Names of places that the archive's tiles in view hold, as the bundled world has them.
export function archiveNames(map) {
  if (!map.getLayer("archive-places")) return [];
  const seen = new Map();
  for (const { properties: p, geometry } of map.queryRenderedFeatures({ layers: ["archive-places"] })) {
    const name = p["name:en"] || p.name, rank = Number(p.rank ?? (p.population_rank === undefined ? 10 : 15 - p.population_rank));
    if (name && geometry.type === "Point" && !seen.has(name)) seen.set(name, { name, lon: geometry.coordinates[0], lat: geometry.coordinates[1], rank });
  }
  return [...seen.values()].sort((a, b) => a.rank - b.rank);
}
