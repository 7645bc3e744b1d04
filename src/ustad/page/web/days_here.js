// The days around an event in one strip: where they were at its hour of each day, and on which days they came here.
import { h, s } from "./dom.js";
import * as say from "./words.js";

const CELL = 13, GAP = 2, HEIGHT = 40;

export function daysHere(found, colour) {
  if (!found || found.days.length < 2) return null;
  const clock = say.clock(found.minute), cells = found.days.map((d) => ({ ...d, number: say.dayNumber(d.day), isToday: d.day === found.today }));
  return h("div", { class: "days-here" }, h("h3", {}, `Days before and after, at ${clock}, the middle of it`), strip(cells, colour, clock), h("p", { class: "sure" }, sentence(cells, clock)),
    found.learnt_until ? h("p", { class: "hint" }, `In the reason, “before” and “never” are of the days learnt from, until ${say.shortDay(say.dayNumber(found.learnt_until))}; visits after that count as since.`) : null,
    h("p", { class: "hint key" }, h("span", {}, h("i", { class: "mark-here" }), "here"), h("span", {}, h("i", { class: "mark-visit" }), "here at another hour"), h("span", {}, h("i", { class: "mark-none" }), "under way or not observed"), h("span", {}, h("i", { class: "outlined" }), "this day")));
}

function strip(cells, colour, clock) {
  const width = cells.length * (CELL + GAP) + GAP, svg = s("svg", { class: "strip", viewBox: `0 0 ${width} ${HEIGHT}`, width, role: "img", "aria-label": `Days before and after: ${sentence(cells, clock)}` });
  cells.forEach((d, i) => {
    const x = GAP + i * (CELL + GAP), tip = `${say.dayText(d.day)}\nat ${clock}: ${d.at === null ? "under way or not observed" : d.here ? `here (${d.at})` : d.at}${d.visits ? `\ncame here ${d.visits === 1 ? "once" : `${d.visits} times`} that day` : ""}`;
    if (say.isWeekend(d.number)) svg.append(s("rect", { class: "weekend", x: x - GAP / 2, y: 0, width: CELL + GAP, height: HEIGHT }));
    const box = s("rect", { class: d.at === null ? "day none" : "day", x, y: 4, width: CELL, height: CELL, rx: 2, "data-tip": tip });
    if (d.at !== null) box.style.fill = colour.of(d.at);
    svg.append(box);
    if (d.here) svg.append(s("path", { class: "here", d: `M${x + CELL / 2} 6l4.5 4.5-4.5 4.5-4.5-4.5z` }));
    else if (d.visits) svg.append(s("circle", { class: "visit", cx: x + CELL / 2, cy: 23, r: 2.5 }));
    if (d.isToday) svg.append(s("rect", { class: "today", x: x - 1, y: 3, width: CELL + 2, height: CELL + 2, rx: 3 }));
    if (i === 0 || say.weekday(d.number) === 0) svg.append(s("text", { x, y: 36 }, say.shortDay(d.number)));
  });
  return svg;
}

// Like with like: weekdays beside a weekday. Other days of the same incident are neither before nor after it. Days on which nobody knows where they were at that hour do not count.
export function sentence(cells, clock) {
  const today = cells.find((d) => d.isToday), isWeekend = say.isWeekend(today.number), others = cells.filter((d) => d.isToday || !d.incident), alike = others.filter((d) => say.isWeekend(d.number) === isWeekend && d.at !== null);
  const before = alike.filter((d) => d.number < today.number), after = alike.filter((d) => d.number > today.number);
  const both = (wanted) => `${of(before, wanted)} before${after.length ? ` and ${of(after, wanted)} after` : ""}`, of = (days, wanted) => `${days.filter(wanted).length} of ${days.length}`;
  const usual = mostFrequent(before.filter((d) => !d.here).map((d) => d.at)), visits = (side) => others.filter((d) => d.visits && side(d.number, today.number)).length;
  const parts = [`${isWeekend ? "Weekend days" : "Weekdays"} at ${clock}: here on ${both((d) => d.here)}`];
  if (usual) parts.push(`, ${usual}${today.at === usual ? " elsewhere" : ""} on ${both((d) => !d.here && d.at === usual)}`);
  parts.push(`. At any hour, here on ${dayCount(visits((a, b) => a < b))} before and ${visits((a, b) => a > b)} after.`);
  const own = cells.length - others.length;
  if (own) parts.push(` ${own} other day${own === 1 ? "" : "s"} of this incident not counted.`);
  if (before.length < 5) parts.push(` Only ${before.length} such day${before.length === 1 ? " is" : "s are"} known before.`);
  return parts.join("");
}

const dayCount = (n) => `${n} day${n === 1 ? "" : "s"}`;

function mostFrequent(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
}
