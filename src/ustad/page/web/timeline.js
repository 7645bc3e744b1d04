// The weeks as rows of days, time of day across: stays as bars, trips as thin lines, gaps hatched, alerts outlined, visits
// that did not come as hollow marks.
import { s } from "./dom.js";
import * as say from "./words.js";

const ROW = 15, BAR = 11, LABEL = 82, EDGE = 8, MOST_DAYS = 200;

export function timeline(parts, chosen, day, width, open) {
  const x = (minute) => LABEL + minute / 1440 * (width - LABEL - EDGE);
  const svg = s("svg", { class: "timeline", width, role: "group", "aria-label": "Days of this agent" });
  svg.append(s("defs", {}, s("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("line", { class: "hatching", x1: 0, y1: 0, x2: 0, y2: 5 }))));
  const known = parts.events.filter((e) => e.score === null), scored = parts.events.filter((e) => e.score !== null);
  const begin = scored.length ? at(scored[0]).day : Infinity;
  let top = 2;
  if (known.length) top = block(svg, parts, { x, top, width, open, chosen, day, title: "Before: what was usual", first: at(known[0]).day, last: Math.min(begin - 1, lastDay(known)) });
  if (scored.length) top = block(svg, parts, { x, top, width, open, chosen, day, title: "Scored", first: begin, last: lastDay(scored) });
  top = named(svg, parts, top);
  svg.setAttribute("height", top);
  svg.setAttribute("viewBox", `0 0 ${width} ${top}`);
  return svg;
}

const at = (event) => say.local(event.started_at, event.timezone);
const lastDay = (events) => Math.max(...events.slice(-50).map((e) => say.local(Math.max(new Date(e.started_at), new Date(e.finished_at) - 6e4), e.timezone).day));

// Holidays and other days with a name, where one of this person's events is.
function named(svg, parts, top) {
  const own = new Set(parts.events.map((e) => e.day));
  for (const [day, name] of Object.entries(parts.days || {})) {
    if (!own.has(day)) continue;
    svg.append(s("text", { x: 2, y: top + 11 }, `* ${say.dayText(day)}: ${name}`));
    top += ROW;
  }
  return top;
}

function block(svg, parts, b) {
  const rows = new Map();
  const first = Math.max(b.first, b.last - MOST_DAYS + 1);
  svg.append(s("text", { x: 0, y: b.top + 13, class: "strong" }, b.title));
  for (let hour = 0; hour <= 24; hour += b.width < 560 ? 6 : 3) svg.append(s("text", { x: b.x(hour * 60), y: b.top + 30, "text-anchor": hour === 24 ? "end" : hour === 0 ? "start" : "middle" }, `${String(hour).padStart(2, "0")}:00`));
  let top = b.top + 36;
  const start = top;
  for (let d = first; d <= b.last; d++) {
    if (say.weekday(d) === 0 && d > first) top += 5;
    rows.set(d, top);
    const name = parts.days?.[say.isoDay(d)];
    if (say.isWeekend(d) || name) svg.append(s("rect", { class: "weekend", x: 0, y: top, width: b.width, height: ROW }));
    if (d === b.day) svg.append(s("rect", { class: "row-chosen", x: 0, y: top, width: b.width, height: ROW }));
    svg.append(s("text", { x: 2, y: top + 11, class: say.weekday(d) === 0 || d === first ? "strong" : null, "data-tip": name || null }, `${say.DAYS[say.weekday(d)]} ${say.weekday(d) === 0 || d === first ? say.shortDay(d) : new Date(d * 864e5).getUTCDate()}${name ? " *" : ""}`));
    top += ROW;
  }
  for (let hour = 0; hour <= 24; hour += 3) svg.append(s("line", { class: "hour", x1: b.x(hour * 60), x2: b.x(hour * 60), y1: start, y2: top }));
  const zone = parts.agent.timezone;
  for (const trip of parts.moves.trips) pieces(trip, zone, rows, (y, from, to) => svg.append(s("line", { class: "trip", x1: b.x(from), x2: b.x(to), y1: y + ROW / 2, y2: y + ROW / 2 })));
  for (const event of parts.events) bar(svg, parts, b, rows, event);
  for (const gap of parts.moves.gaps) pieces(gap, zone, rows, (y, from, to) => svg.append(s("rect", { class: "gap", x: b.x(from), y: y + (ROW - BAR) / 2, width: Math.max(1, b.x(to) - b.x(from)), height: BAR, "data-tip": `Not observed for ${say.duration(say.minutesOf(gap))}` })));
  for (const one of parts.moves.absences || []) pieces(one, zone, rows, (y, from, to) => svg.append(s("rect", { class: "absence", x: b.x(from) + 0.5, y: y + 0.5, width: Math.max(2, b.x(to) - b.x(from) - 1), height: ROW - 1, rx: 3, "data-tip": one.reason })));
  return top + 12;
}

function bar(svg, parts, b, rows, event) {
  const scored = event.score !== null;
  const judged = say.state(event);
  const tip = `${say.span(event)}\n${say.what(event)}, ${say.duration(say.minutesOf(event))}${scored ? `\nscore ${say.number(event.score)}` : ""}${event.alert ? `\n${event.reason || ""}` : ""}${judged ? `\n${judged[0]}` : ""}`;
  let label = event.alert ? 0 : -1;
  pieces(event, event.timezone, rows, (y, from, to) => {
    const classes = ["stay", event.alert ? "alerted" : "", b.chosen?.id === event.id ? "chosen" : "", judged ? "judged" : ""].filter(Boolean).join(" ");
    const box = s("rect", { class: classes, x: b.x(from) + 0.4, y: y + (ROW - BAR) / 2, width: Math.max(2, b.x(to) - b.x(from) - 0.8), height: BAR, rx: 2, "data-tip": tip, tabindex: label, role: scored ? "button" : null, "aria-label": scored ? tip.replaceAll("\n", ", ") : null, on: scored ? { click: () => b.open(event), keydown: (e) => { if (e.key === "Enter") b.open(event); } } : {} });
    box.style.fill = parts.colour.of(event.category);
    label = -1;
    svg.append(box);
  });
}

// A span of time cut at local midnights: draw(y, minute from, minute to) for each of its days that has a row.
function pieces(thing, zone, rows, draw) {
  const from = say.local(thing.started_at, zone), to = say.local(thing.finished_at, zone);
  for (let d = from.day; d <= to.day && d - from.day < 60; d++) {
    const begin = d === from.day ? from.minute : 0, end = d === to.day ? to.minute : 1440;
    if (rows.has(d) && (end > begin || from.day === to.day)) draw(rows.get(d), begin, Math.max(end, begin + 1));
  }
}
