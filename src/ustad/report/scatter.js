// Uncertainty against surprise, one region for each kind of unusual event, side by side on the same axes.
// What parts the kinds is a rule about the event (its place, what drove its score, how unsure the model was), not a
// line across one plane; so each kind has its own field, and only the alert rule is drawn as a line.
const REGIONS = ["predictable", "unsure", "novel", "unobserved"];
const FIELD = { width: 320, height: 210, left: 44, right: 8, upper: 8, lower: 36 };

function drawScatter() {
  const place = clear(byId("scatter")), dots = DATA.scatter;
  place.append(h("h2", {}, "Uncertainty against surprise"));
  if (!dots) { place.append(h("p", { class: "hint" }, "The scores came without uncertainties (the method has none, or they were switched off).")); return; }
  const shown = regionsOf(dots);
  place.append(
    h("p", { class: "hint" }, `${count(dots.x.length)} of ${count(dots.of)} ${plurals(DATA.words.event)}: all of the most unusual and a sample of the rest. Up: rarer. Right: the model was less sure of what drove the score, ranked among all.${dots.line === null ? "" : " Shaded, above the dashed line: alerts, drawn large."}`),
    h("div", { class: "regions" }, shown.map((kind) => region(dots, kind))));
}
// The three regions always, then whatever else the events are called.
function regionsOf(dots) {
  if (!dots.kinds.some((kind) => REGIONS.includes(kind))) return dots.kinds;
  const others = dots.kinds.filter((kind) => kind && !REGIONS.slice(0, 3).includes(kind));
  return [...REGIONS.slice(0, 3), ...others];
}
function region(dots, kind) {
  const [mark, short, meaning] = kindMark(kind), [all, alerts] = dots.counts[kind] || [0, 0];
  const words = `${plural(all, DATA.words.event)}, ${alerts ? plural(alerts, "alert") : "no alert"}`;
  return h("figure", { class: `region ${REGIONS.includes(kind) ? kind : "other"}` },
    h("figcaption", { "data-tip": meaning }, h("b", {}, h("i", {}, mark), kind || "all"), short && short !== kind ? `: ${short}` : "", h("small", {}, words)),
    field(dots, kind, `${kind || "all"}, ${short}: ${words}. Uncertainty of the model across, surprise upwards.`));
}
function field(dots, kind, words) {
  const { width, height, left, right, upper, lower } = FIELD;
  const highest = Math.max(4, Math.ceil(Math.max(...dots.y)));
  const x = linear(0, 1, left, width - right), y = linear(0, highest, height - lower, upper);
  const rarity = (v) => (v === 0 ? "1" : v < 3 ? `1/${10 ** v}` : `1/10${small(v)}`);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": words });
  if (dots.line !== null) svg.append(s("rect", { class: "alerts-field", x: left, y: upper, width: width - left - right, height: Math.max(0, y(dots.line) - upper) }));
  for (let v = 0; v <= highest; v += highest > 6 ? 2 : 1) svg.append(s("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), stroke: "var(--line)" }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, rarity(v)));
  for (const [v, word, anchor] of [[0, "surest", "start"], [0.5, "half of all", "middle"], [1, "least sure", "end"]]) svg.append(s("text", { x: x(v), y: height - lower + 16, "text-anchor": anchor }, word));
  if (dots.line !== null) svg.append(s("line", { class: "rule", x1: left, x2: width - right, y1: y(dots.line), y2: y(dots.line) }));
  for (let i = 0; i < dots.x.length; i++) if (dots.x[i] !== null && dots.kinds[dots.kind[i]] === kind) svg.append(scatterDot(kind, dots.alert[i], x(dots.x[i]), y(dots.y[i])));
  return svg;
}
function scatterDot(kind, alert, x, y) {
  if (!alert) return s("circle", { class: "dot", cx: x, cy: y, r: 1.7 });
  if (kind === "novel") return s("path", { class: "dot alert", d: `M${x} ${y - 5}l5 5l-5 5l-5 -5z` });
  if (kind === "predictable") return s("path", { class: "dot alert", d: `M${x} ${y - 5}l5 9h-10z` });
  if (kind === "unobserved") return s("rect", { class: "dot alert", x: x - 4, y: y - 4, width: 8, height: 8 });
  return s("circle", { class: "dot alert", cx: x, cy: y, r: 4 });
}
