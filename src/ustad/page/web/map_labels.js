// Names on a map: the observed and the expected place, the person's own places, and towns, where they do not overlap.
import { distance } from "./words.js";

const HEIGHT = 17, LETTER = 6.6, MOST_TOWNS = 20, STREETS = 13; // names of main streets have this rank or more
export const NEAR_KM = 0.15; // nearer is the same own place, as in habits
const VISIBLE_KM = 0.03; // two marks of one place that are farther apart are seen as two
const HOMES = /^(home|house|apartment|residen|dwelling|lodging)/i, WORKS = /^(work|office|workplace|job)/i;

const longest = (places, pattern) => places.filter((p) => pattern.test(p.category)).sort((a, b) => b.hours - a.hours)[0];
// Where they live: of the places of such a kind that with the most hours; none where no kind says so.
export const homePlace = (places) => longest(places, HOMES);

// What the person's most used places are called: home and work where the category says so, else its name or category.
export function ownNames(places, most = 6) {
  const home = homePlace(places), work = longest(places, WORKS);
  const called = (p) => p === home ? "home" : p === work ? "work" : p.name || p.category;
  const chosen = [home, work, ...places].filter((p, i, all) => p && all.indexOf(p) === i && (p === home || p === work || p.visits > 1));
  return chosen.slice(0, most).map((p) => ({ at: [p.lon, p.lat], text: called(p) }));
}

// Of labels with a place in pixels those that fit, earlier ones first: above their place or below it. `kept` stays
// whatever it covers.
export function fitting(labels) {
  const taken = [];
  const boxOf = ({ x, y, text }, dy) => { const wide = text.length * LETTER / 2 + 8, middle = y + dy; return [x - wide, middle - HEIGHT / 2, x + wide, middle + HEIGHT / 2]; };
  const isFree = (box) => !taken.some((o) => o[0] < box[2] && o[2] > box[0] && o[1] < box[3] && o[3] > box[1]);
  return labels.flatMap((label) => {
    const dy = [label.dy, -label.dy].find((side) => isFree(boxOf(label, side))) ?? (label.kept ? label.dy : null);
    if (dy === null) return [];
    taken.push(boxOf(label, dy));
    return [{ ...label, dy }];
  });
}

export const kmApart = ([lon, lat], [other, north]) => Math.hypot((lon - other) * Math.cos(lat * Math.PI / 180), lat - north) * 111.32;
// Whether two places are one to somebody who looks at the map.
const isNear = (one, other) => kmApart(one, other) <= NEAR_KM;

const town = (place) => ({ at: [place.lon, place.lat], text: place.name, kind: place.rank >= STREETS ? "map-town map-street" : "map-town", dy: 0 });

// All labels of a view in order of importance.
export function labelsOf({ seen, expected, places, towns }) {
  const own = ownNames(places), named = new Set(), isOne = seen && expected && isNear(seen, expected);
  const called = (word, at) => { const p = own.find((o) => isNear(o.at, at)); if (p) named.add(p); return p ? `${word}: ${p.text}` : word; };
  const off = isOne && kmApart(seen, expected) >= VISIBLE_KM ? ` (${distance(kmApart(seen, expected))} off)` : "";
  const marks = [seen && { at: seen, text: called(isOne ? "observed and expected" : "observed", seen) + off, kind: "map-label observed", dy: -18, kept: true }, expected && !isOne && { at: expected, text: called("expected", expected), kind: "map-label expected", dy: 18, kept: true }];
  const names = own.filter((p) => !named.has(p)).map((p) => ({ ...p, kind: "map-name", dy: -16 }));
  return [...marks.filter(Boolean), ...names, ...towns.slice(0, MOST_TOWNS).map(town)];
}
