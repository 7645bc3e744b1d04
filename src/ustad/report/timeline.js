// The case-study timeline: a row a day, time of day across; what came before above, the scored period below.
const ROW = 14, BAR = 10, LABEL = 80, EDGE = 14;

function timeline(item, chosen, width, choose) {
  const events = item.events, before = item.before;
  const x = linear(0, 1440, LABEL, width - EDGE);
  const svg = s("svg", { class: "timeline", width, role: "group", "aria-label": `Days of ${named(item.id)}` });
  svg.append(s("defs", {}, s("pattern", { id: `hatch-${item.key}`, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("line", { x1: 0, y1: 0, x2: 0, y2: 5, stroke: "var(--gap)", "stroke-width": 1.4 }))));
  const first = Math.min(...events.day), last = Math.max(...events.day.map((d, i) => d + Math.floor((events.minute[i] + Math.max(0, events.length[i] - 1)) / 1440)));
  let top = 4;
  if (before) top = timelinePart(svg, item, x, top, Math.min(...before.day), first - 1, `Before: what the model could learn from${leftOut(item.left_out[0], "earlier")}`, before, null, choose);
  top = timelinePart(svg, item, x, top, first, Math.min(last, first + 200), `Scored${leftOut(item.left_out[1], "less unusual")}`, events, chosen, choose);
  svg.setAttribute("height", top);
  svg.setAttribute("viewBox", `0 0 ${width} ${top}`);
  return svg;
}

const leftOut = (n, which) => (n ? ` (${count(n)} ${which} ${plurals(DATA.words.event)} not shown)` : "");

function timelinePart(svg, item, x, top, first, last, title, stays, chosen, choose) {
  const rows = new Map();
  svg.append(s("text", { x: 0, y: top + 12, class: "strong" }, title));
  top += 18;
  for (let hour = 0; hour <= 24; hour += x(1440) < 520 ? 6 : 3) svg.append(s("text", { x: x(hour * 60), y: top + 10, "text-anchor": hour === 0 ? "start" : hour === 24 ? "end" : "middle" }, `${String(hour).padStart(2, "0")}:00`));
  top += 15;
  const start = top;
  for (let day = first; day <= last; day++) {
    if (weekday(day) === 0 && day > first) top += 4;
    rows.set(day, top);
    if (isWeekend(day)) svg.append(s("rect", { class: "weekend", x: 0, y: top, width: x(1440), height: ROW }));
    svg.append(s("text", { x: 2, y: top + 10.5, class: weekday(day) === 0 ? "strong" : null }, weekday(day) === 0 || day === first ? shortDate(day) : `${DAYS[weekday(day)]} ${dateOf(day).getUTCDate()}`));
    top += ROW;
  }
  for (let hour = 0; hour <= 24; hour += 3) svg.append(s("line", { class: "hour", x1: x(hour * 60), x2: x(hour * 60), y1: start, y2: top }));
  if (chosen !== null && chosen >= 0 && rows.has(stays.day[chosen])) svg.append(s("rect", { class: "row-chosen", x: 0, y: rows.get(stays.day[chosen]), width: x(1440), height: ROW }));
  for (const trip of item.trips) pieces(trip.d, trip.m, trip.l, rows, (y, a, b) => svg.append(s("line", { class: "trip", x1: x(a), x2: x(b), y1: y + ROW / 2, y2: y + ROW / 2 })));
  for (let i = 0; i < stays.day.length; i++) if (i !== chosen) drawStay(svg, item, x, rows, stays, i, chosen, choose);
  for (const [d, m, l] of item.gaps) pieces(d, m, l, rows, (y, a, b) => svg.append(s("rect", { x: x(a), y: y + (ROW - BAR) / 2, width: Math.max(1, x(b) - x(a)), height: BAR, fill: `url(#hatch-${item.key})`, "data-tip": `Not observed for ${duration(l)}` })));
  if (chosen !== null && chosen >= 0) drawStay(svg, item, x, rows, stays, chosen, chosen, choose);
  return top + 10;
}

// A span of time cut at midnights: draw(y, minute from, minute to) for each of its days that has a row.
function pieces(day, minute, length, rows, draw) {
  let left = Math.max(length, 1), from = minute, d = day;
  for (; left > 0 && d - day < 60; d++) {
    const part = Math.min(left, 1440 - from);
    if (rows.has(d)) draw(rows.get(d), from, from + part);
    left -= part;
    from = 0;
  }
}

function drawStay(svg, item, x, rows, stays, i, chosen, choose) {
  const scored = chosen !== null, alert = scored && stays.alert[i], category = stays.category[i];
  const words = `${when(stays.day[i], stays.minute[i], stays.length[i])}\n${category}${DATA.words.point ? "" : `, ${duration(stays.length[i])}`}${alert ? "\n" + stays.reason[i] : ""}`;
  const kind = alert ? "stay alerted" : "stay";
  let firstPiece = true;
  pieces(stays.day[i], stays.minute[i], stays.length[i], rows, (y, a, b) => {
    const wide = Math.max(DATA.words.point ? 4 : 1.5, x(b) - x(a) - 0.6);
    const attributes = { class: kind, x: x(a) + 0.3, y: y + (ROW - BAR) / 2, width: wide, height: BAR, rx: 2, fill: colour(category), "data-tip": words };
    if (scored) attributes.on = { click: () => choose(i) };
    if (scored && alert && firstPiece) Object.assign(attributes, { tabindex: "0", role: "button", "aria-label": `Alert: ${words}` });
    if (scored && alert && firstPiece) attributes.on.keydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); choose(i); } };
    svg.append(s("rect", attributes));
    if (i === chosen) svg.append(s("rect", { class: "chosen", x: x(a) - 1.7, y: y - 0.5, width: wide + 4, height: ROW + 1, rx: 3, fill: "none", "pointer-events": "none" }));
    if (firstPiece && wide > 7 * Math.min(category.length, 4) + 8 && rankOfCategory.get(category) > 0) svg.append(s("text", { class: "abbr", x: x(a) + 4, y: y + ROW - 4, style: { fill: inkOn(category) } }, category.slice(0, Math.max(2, Math.floor((wide - 6) / 5.6)))));
    firstPiece = false;
  });
  if (alert && rows.has(stays.day[i])) svg.append(s("text", { x: x(1440) + 3, y: rows.get(stays.day[i]) + 11, style: { fill: "var(--observed)" }, "aria-hidden": "true" }, "◂"));
}

function timelineLegend(item) {
  const seen = new Set([...(item.before ? item.before.category : []), ...item.events.category]);
  const known = DATA.categories.slice(0, COLOURED).filter((c) => seen.has(c) && c !== "unknown");
  const swatch = (look, words) => h("span", {}, h("i", look), words);
  return h("div", { class: "legend" },
    known.map((c) => swatch({ class: "swatch", style: { background: colour(c) } }, c)),
    known.length < seen.size && swatch({ class: "swatch", style: { background: "var(--other)" } }, "other or unknown"),
    swatch({ class: "swatch outline" }, "alert"),
    item.trips.length > 0 && swatch({ class: "swatch line" }, "trip"),
    item.gaps.length > 0 && swatch({ class: "swatch hatch" }, "not observed"));
}
