// An agent's scores over time: a dot an event, alerts larger, the line from which alerts are raised. Dragging zooms,
// hovering tells the event, a click opens it; the arrow keys go from event to event and Enter opens.
import { css } from "./colours.js";
import { h, show } from "./dom.js";
import * as say from "./words.js";

const HEIGHT = 150, NEAR = 14; // pixels within which a click means a dot

// Draws into `holder`, which is hidden until there is a score; `choose(id)` rings one event, `renew` draws other events
// with the same part of time in view. The dashed line is at the score `slid` where the slider of alerts a day is used,
// else at `raised`; either may be null.
export function scoreChart(holder, events, zone, limits, open) {
  const place = h("div", { class: "scores", tabindex: 0, role: "img", "aria-describedby": "scores-help" });
  const spoken = h("p", { class: "quiet", role: "status" });
  const all = h("button", { type: "button", class: "plain", hidden: true }, "Show all");
  show(holder, h("h2", {}, "Scores"), h("p", { class: "hint", id: "scores-help" }, "Drag to zoom, click a dot to open it; with the keyboard ← → and Enter. ", all), place, spoken);
  const view = { chosen: null, at: -1 };
  const column = (wanted) => scored.map((e) => wanted(e) ? e.score : null);
  const data = () => [scored.map(seconds), column((e) => !e.alert), column((e) => e.alert), column((e) => e.id === view.chosen)];
  let plot = null, scored = [], least = null;

  function draw() {
    const { uPlot } = globalThis, zoom = plot && !all.hidden ? { min: plot.scales.x.min, max: plot.scales.x.max } : null;
    plot?.destroy();
    plot = null;
    holder.hidden = !uPlot || !scored.length;
    if (holder.hidden) return;
    plot = new uPlot(options(uPlot, place.clientWidth, say.knownZone(zone), least, scored, hooks), data(), place);
    if (zoom) plot.setScale("x", zoom);
  }

  function renew(events, { raised, slid }) {
    const at = scored[view.at]?.id;
    scored = events.filter((e) => e.score !== null);
    least = slid ?? raised;
    view.at = scored.findIndex((e) => e.id === at);
    if (scored.length) place.setAttribute("aria-label", summary(scored, least, slid !== null));
    draw();
  }
  const hooks = {
    drawAxes: [(u) => line(u, least)], // under the dots
    setCursor: [(u) => { const e = nearest(u, scored); if (e) u.over.dataset.tip = told(e); else delete u.over.dataset.tip; }],
    setScale: [(u, name) => { if (name === "x") all.hidden = u.scales.x.min <= u.data[0][0] && u.scales.x.max >= u.data[0].at(-1); }],
    ready: [(u) => {
      let from = 0;
      u.over.addEventListener("mousedown", (e) => { from = e.clientX; });
      u.over.addEventListener("click", (e) => { const found = nearest(u, scored); if (found && Math.abs(e.clientX - from) < 4) open(found); });
    }],
  };
  const move = (step) => {
    view.at = Math.max(0, Math.min(scored.length - 1, view.at < 0 ? (step > 0 ? 0 : scored.length - 1) : view.at + step));
    const e = scored[view.at], left = plot.valToPos(plot.data[0][view.at], "x"), top = plot.valToPos(e.score, "y");
    plot.setCursor({ left, top });
    spoken.textContent = told(e).replaceAll("\n", ", ");
  };
  place.addEventListener("keydown", (e) => {
    if (e.key === "ArrowRight" || e.key === "ArrowLeft") move(e.key === "ArrowRight" ? 1 : -1);
    else if (e.key === "Enter" && view.at >= 0) open(scored[view.at]);
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  all.addEventListener("click", () => { plot.setData(plot.data); place.focus(); });
  renew(events, limits);
  const wide = new ResizeObserver(() => { if (plot && place.clientWidth && Math.abs(place.clientWidth - plot.width) > 2) plot.setSize({ width: place.clientWidth, height: HEIGHT }); });
  wide.observe(place);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw);
  return {
    renew,
    choose(id) { view.chosen = id; view.at = scored.findIndex((e) => e.id === id); plot?.setData(data(), false); plot?.redraw(); },
    close() { wide.disconnect(); scheme.removeEventListener("change", draw); plot?.destroy(); },
  };
}

function options(uPlot, width, zone, least, scored, hooks) {
  const top = Math.max(1, least ?? 0, ...scored.map((e) => e.score)) * 1.12, bottom = Math.min(0, ...scored.map((e) => e.score));
  const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
  const dots = (size, fill, edge = fill) => ({ paths: () => null, points: { show: true, size, fill, stroke: edge, width: 1 } });
  return {
    width, height: HEIGHT, hooks, legend: { show: false }, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), zone),
    cursor: { y: false, drag: { x: true, y: false }, points: { show: false } },
    scales: { x: { time: true, range: roomy(seconds(scored[0]), seconds(scored.at(-1))) }, y: { range: () => [bottom, top] } },
    axes: [{ ...axis, values: DATES }, { ...axis, size: 34 }],
    series: [{}, dots(5, css("--score")), dots(10, css("--observed"), css("--panel")), dots(15, "transparent", css("--ink"))],
  };
}

const seconds = (event) => new Date(event.started_at) / 1e3;

// All of it with some room at both ends, once: what was zoomed to, and what is drawn anew, stays as it is. A single
// moment, which uPlot widens to one side, is in the middle.
function roomy(first, last) {
  const room = Math.max(3600, 0.015 * (last - first));
  return (u, from, to) => from === first && (to === last || first === last) ? [first - room, last + room] : [from, to];
}

// Days as the page says them (7 Feb), hours where a day or two fill the chart.
const DATES = [
  [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
];

// The dashed line from which alerts are raised, with its score.
function line(u, least) {
  if (least === null || least === undefined) return;
  const { ctx } = u, y = u.valToPos(least, "y", true), { left, width } = u.bbox, ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = css("--observed");
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(left, y);
  ctx.lineTo(left + width, y);
  ctx.stroke();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  ctx.fillText(`alerts from ${say.number(least)}`, left + width - 4 * ratio, y - 2 * ratio);
  ctx.restore();
}

// The event whose dot is under the pointer, or next to it.
function nearest(u, scored) {
  const apart = (i) => Math.hypot(u.valToPos(u.data[0][i], "x") - u.cursor.left, u.valToPos(scored[i].score, "y") - u.cursor.top);
  let best = null, least = NEAR;
  for (let i = 0; i < scored.length; i++) if (apart(i) <= least) { best = scored[i]; least = apart(i); }
  return best;
}

const told = (e) => `${say.span(e)}\n${say.what(e)}\nscore ${say.number(e.score)}${e.alert ? ", alert" : ""}${e.reason ? `\n${e.reason}` : ""}`;

// What the chart shows, for those who do not see it.
function summary(scored, least, isSlid) {
  const top = scored.reduce((a, b) => (b.score > a.score ? b : a)), alerts = scored.filter((e) => e.alert).length;
  const days = say.days(...[scored[0], scored.at(-1)].map((e) => say.isoDay(say.local(e.started_at, e.timezone).day)));
  return `Scores over time: ${scored.length} scored, ${days}; the highest is ${say.number(top.score)} (${say.span(top)}); ${alerts} alert${alerts === 1 ? "" : "s"}${least === null || least === undefined ? "" : `, ${isSlid ? "" : "raised "}from a score of ${say.number(least)}`}.`;
}
