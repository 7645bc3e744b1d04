// The map, drawn from the data itself: usual places, the day's path, the expected place beside the observed one.
const MAP_W = 560, MAP_H = 360;
const mapView = { scope: "day", zoom: 1, dx: 0, dy: 0 };

function drawMap(place, item, chosen) {
  const redraw = () => { clear(place); place.append(mapHead(redraw), mapFigure(item, chosen, redraw), mapLegend(item, chosen)); };
  redraw();
}
function mapHead(redraw) {
  const button = (label, act, pressed, name) => h("button", { type: "button", class: "button", "aria-pressed": pressed === undefined ? null : String(pressed), "aria-label": name || null, on: { click: () => { act(); redraw(); } } }, label);
  const scope = (name) => () => Object.assign(mapView, { scope: name, zoom: 1, dx: 0, dy: 0 });
  return h("div", { class: "map-head" }, h("h2", {}, "Where"), button("This day", scope("day"), mapView.scope === "day"), button("All places", scope("all"), mapView.scope === "all"),
    button("+", () => { mapView.zoom *= 1.6; }, undefined, "Zoom in"), button("−", () => { mapView.zoom /= 1.6; }, undefined, "Zoom out"));
}

// The part of the plane to show: what belongs to the day (and home), or everything.
function extent(item, chosen) {
  const places = item.places, xs = [], ys = [];
  const take = (x, y) => { if (x !== null && y !== null) { xs.push(x); ys.push(y); } };
  const day = chosen < 0 ? null : item.events.day[chosen];
  if (mapView.scope === "all" || day === null) places.x.forEach((x, i) => take(x, places.y[i]));
  else {
    item.events.day.forEach((d, i) => { if (d === day) { const p = item.event_place[i]; take(places.x[p], places.y[p]); } });
    const { ex, ey, sx, sy } = item.events;
    if (ex[chosen] !== null) for (const sign of [-1, 1]) take(ex[chosen] + sign * (sx[chosen] || 0), ey[chosen] + sign * (sy[chosen] || 0));
    const usual = places.visits.indexOf(Math.max(...places.visits));
    if (usual >= 0 && places.visits[usual] > 0) take(places.x[usual], places.y[usual]);
  }
  const middle = (v) => (Math.min(...v) + Math.max(...v)) / 2, size = (v) => Math.max(...v) - Math.min(...v);
  const km = Math.max(size(xs) / (MAP_W - 110), size(ys) / (MAP_H - 100), 0.6 / MAP_W) / mapView.zoom;
  return { x: middle(xs) + mapView.dx, y: middle(ys) + mapView.dy, km };
}

function mapFigure(item, chosen, redraw) {
  const view = extent(item, chosen);
  const X = (x) => MAP_W / 2 + (x - view.x) / view.km, Y = (y) => MAP_H / 2 - (y - view.y) / view.km;
  const svg = s("svg", { viewBox: `0 0 ${MAP_W} ${MAP_H}`, class: "map", role: "img", "aria-label": mapWords(item, chosen) });
  drawGrid(svg, view, X, Y);
  for (const trip of item.trips) if (trip.p) svg.append(s("path", { class: "street", d: pathData(trip.p, X, Y) }));
  drawPlaces(svg, item, X, Y);
  if (chosen >= 0) { drawDay(svg, item, chosen, X, Y); drawExpected(svg, item, chosen, view, X, Y); }
  drawScale(svg, view);
  letDrag(svg, view, redraw);
  return svg;
}
function letDrag(svg, view, redraw) {
  let from = null;
  const scale = () => view.km * MAP_W / svg.getBoundingClientRect().width;
  svg.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY]; });
  svg.addEventListener("pointerup", (e) => {
    if (!from || Math.hypot(e.clientX - from[0], e.clientY - from[1]) < 6) { from = null; return; }
    mapView.dx -= (e.clientX - from[0]) * scale();
    mapView.dy += (e.clientY - from[1]) * scale();
    from = null;
    redraw();
  });
}
function pathData(deltas, X, Y) {
  let x = 0, y = 0, d = "";
  for (let i = 0; i + 1 < deltas.length; i += 2) {
    x += deltas[i]; y += deltas[i + 1];
    d += `${i ? "L" : "M"}${X(x / 100).toFixed(1)} ${Y(y / 100).toFixed(1)}`;
  }
  return d;
}
function drawGrid(svg, view, X, Y) {
  const step = niceStep(view.km * MAP_W, 6), halfW = view.km * MAP_W / 2, halfH = view.km * MAP_H / 2;
  for (let v = Math.ceil((view.x - halfW) / step) * step; v < view.x + halfW; v += step) svg.append(s("line", { class: "grid", x1: X(v), x2: X(v), y1: 0, y2: MAP_H }));
  for (let v = Math.ceil((view.y - halfH) / step) * step; v < view.y + halfH; v += step) svg.append(s("line", { class: "grid", x1: 0, x2: MAP_W, y1: Y(v), y2: Y(v) }));
}
function drawScale(svg, view) {
  const km = niceStep(view.km * 150, 1.01), long = km / view.km;
  svg.append(s("path", { d: `M${14} ${MAP_H - 20}v6h${long}v-6`, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }), s("text", { x: 14 + long / 2, y: MAP_H - 20, "text-anchor": "middle" }, distance(km)), s("text", { x: MAP_W - 14, y: 20, "text-anchor": "end" }, "north ↑"));
}
function drawPlaces(svg, item, X, Y) {
  const places = item.places, most = Math.max(1, ...places.visits);
  const order = places.x.map((_, i) => i).sort((a, b) => places.visits[b] - places.visits[a]);
  for (const i of order) {
    const known = places.visits[i] > 0, words = `${places.category[i]}\n${known ? `${plural(places.visits[i], "visit")} before` : "not seen before"}${places.now[i] ? `, ${places.now[i]} in the scored period` : ""}`;
    svg.append(s("circle", { cx: X(places.x[i]), cy: Y(places.y[i]), r: known ? 4 + 12 * Math.sqrt(places.visits[i] / most) : 5, fill: known ? colour(places.category[i]) : "var(--map)", "fill-opacity": known ? .75 : 1, stroke: known ? "var(--map)" : colour(places.category[i]), "stroke-width": known ? 1 : 2.5, "data-tip": words }));
  }
}
function drawDay(svg, item, chosen, X, Y) {
  const day = item.events.day[chosen], places = item.places;
  const rows = item.events.day.map((d, i) => i).filter((i) => item.events.day[i] === day);
  if (rows[0] > 0) rows.unshift(rows[0] - 1);
  const trips = item.trips.filter((t) => t.d === day && t.p);
  if (trips.length) for (const trip of trips) svg.append(s("path", { class: "path", d: pathData(trip.p, X, Y) }));
  else svg.append(s("polyline", { class: "path", points: rows.map((i) => `${X(places.x[item.event_place[i]]).toFixed(1)},${Y(places.y[item.event_place[i]]).toFixed(1)}`).join(" ") }));
}
function drawExpected(svg, item, chosen, view, X, Y) {
  const e = item.events, p = item.event_place[chosen], ox = X(item.places.x[p]), oy = Y(item.places.y[p]);
  if (e.ex[chosen] !== null) {
    const ex = X(e.ex[chosen]), ey = Y(e.ey[chosen]);
    const rx = (e.sx[chosen] || 0) / view.km, ry = (e.sy[chosen] || 0) / view.km;
    const km = Math.hypot(item.places.x[p] - e.ex[chosen], item.places.y[p] - e.ey[chosen]);
    if (rx > 0) svg.append(s("ellipse", { class: "ghost wide", cx: ex, cy: ey, rx: 2 * rx, ry: 2 * ry }), s("ellipse", { class: "ghost", cx: ex, cy: ey, rx: Math.max(rx, 3), ry: Math.max(ry, 3) }));
    if (Math.hypot(ox - ex, oy - ey) > 24) {
      svg.append(s("line", { class: "apart", x1: ex, y1: ey, x2: ox, y2: oy }));
      if (Math.hypot(ox - ex, oy - ey) > 110) svg.append(s("text", { x: (ex + ox) / 2, y: (ey + oy) / 2 - 6, "text-anchor": "middle" }, distance(km)));
    }
    svg.append(s("path", { d: `M${ex - 6} ${ey}h12M${ex} ${ey - 6}v12`, stroke: "var(--score)", "stroke-width": 2.5 }), mapLabel(ex, ey, "expected", oy < ey ? 20 : -12));
  }
  svg.append(s("path", { d: `M${ox} ${oy - 9}l9 9l-9 9l-9 -9z`, fill: "var(--observed)", stroke: "var(--map)", "stroke-width": 1.5 }), mapLabel(ox, oy, "observed", e.ex[chosen] !== null && oy < Y(e.ey[chosen]) ? -14 : 24));
}
function mapLabel(x, y, words, shift) {
  return s("text", { class: "label", x: Math.min(Math.max(x, 34), MAP_W - 34), y: Math.min(Math.max(y + shift, 14), MAP_H - 8), "text-anchor": "middle" }, words);
}
function mapWords(item, chosen) {
  if (chosen < 0 || item.events.ex[chosen] === null) return "Map of usual places";
  const p = item.event_place[chosen];
  return `Map: observed ${distance(Math.hypot(item.places.x[p] - item.events.ex[chosen], item.places.y[p] - item.events.ey[chosen]))} from the expected place`;
}
function pathWords(item) {
  const drawn = item.trips.filter((t) => t.p).length, all = item.trips.length;
  return drawn && drawn < all ? ` Of ${plural(all, "trip")} the paths of the latest ${count(drawn)} are drawn; on other days a straight line joins the ${plurals(DATA.words.event)}.` : "";
}
function mapLegend(item, chosen) {
  const p = chosen < 0 ? -1 : item.event_place[chosen];
  return h("div", {}, h("p", { class: "hint", style: { "margin-top": "6px" } }, "Filled circles: places visited before, larger is more often. Rings: not visited before. Dashed: expected place, one and two standard deviations.", pathWords(item)),
    p >= 0 && h("details", { class: "coords" }, h("summary", {}, "Show coordinates"), h("span", {}, `observed ${item.places.lat[p]}, ${item.places.lon[p]} (WGS84)`)));
}
