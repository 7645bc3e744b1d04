// The run as a whole: what the data was like, whether p-values are what they say, figures, drift, and the model's card.
import * as api from "./api.js";
import { byId, empty, failure, h, s, show, skeleton } from "./dom.js";
import { frozen, isKept } from "./frozen.js";
import { address, go } from "./route.js";
import { kindNames, kindWords } from "./kinds.js";
import * as say from "./words.js";

const WIDE = 620, HIGH = 320, LEFT = 52, RIGHT = 12, UPPER = 14, LOWER = 40;

export async function runView(page) {
  const view = { escape: () => go(address.overview(page.filters)) };
  page.view = view;
  show(byId("main"), h("section", { class: "panel" }, skeleton(12)));
  try {
    const facts = await api.run();
    if (page.view === view) show(byId("main"), runPanels(facts, page.about));
  } catch (error) { if (page.view === view) show(byId("main"), failure(error, () => runView(page))); }
}

export function runPanels(facts, about) {
  const panels = [together(facts), figures(facts, about), drift(facts, about), scatter(facts, about), calibration(facts, about), quality(facts), card(facts)].filter((p) => p);
  if (!panels.length) return empty("Nothing is known of a run", "This service scores what comes in; a finished run brings its figures along.");
  return h("div", { class: "columns even" }, panels, frozen || !about.has_place ? null : counts());
}

// For who may know of nobody: the service counts only groups that are large enough.
const counts = () => panel("counts", "How many people were where", h("p", { class: "hint" }, "By hour and area of the latest week, only where at least as many people were as the service is set to. Nobody can be told from it: ", h("a", { href: "/v1/counts?form=csv", download: "counts.csv" }, "a table (CSV)"), "."));

const panel = (id, title, ...inside) => h("section", { class: "panel", id, "aria-label": title }, h("h2", {}, title), ...inside);

// ------------------------------------------------------------------------------------------ together
const together = ({ together: groups }) => (groups || []).length ? panel("together", "Several people together",
  h("p", { class: "hint" }, "At one time at a place that is new to them and that few people go to. No part of anybody's score: one first visit is nothing unusual, two at once are. The rarest first."),
  table(["What", "Who", "As rare among pairs of a normal week"], groups.map((g) => h("tr", {}, h("th", { scope: "row" }, g.reason),
    h("td", {}, g.agent_ids.map((who, i) => [i ? ", " : "", isKept(who) ? h("a", { href: address.agent(who), "data-link": true }, who) : who])), h("td", { class: "short" }, say.rare(g.p_value)))))) : null;

// ------------------------------------------------------------------------------------------- figures
function figures({ figures: rows, groups }, about) {
  if (!rows.length) return null;
  const word = { events: about.event_word, agents: about.entity_word };
  const levels = ["events", "agents"].filter((l) => rows.some((r) => r[l].auroc !== null || r[l].reason));
  const own = rows[0], labelled = levels.filter((l) => own[l].n).map((l) => `${say.count(own[l].positives)} of ${say.count(own[l].n)} ${say.plural(word[l])} are labelled (${(100 * own[l].positives / own[l].n).toFixed(2)} %)`);
  const cell = (value, range) => h("td", {}, value === null ? "–" : value.toFixed(3), range?.length === 2 && range[0] !== null ? h("small", {}, `${range[0].toFixed(3)} – ${range[1].toFixed(3)}`) : null);
  const names = ["Method", ...levels.flatMap((l) => [`${word[l]} AUROC`, `${word[l]} AP`])];
  return panel("figures", "Against the labels",
    h("p", { class: "hint" }, `${labelled.join("; ")}. AP is average precision; chance gives the labelled share. Small figures: 95 % of bootstraps over ${say.plural(about.entity_word)}. Scores never used the labels. ${levels.map((l) => own[l].reason).filter(Boolean).join(" ")}`),
    table(names, rows.map((r, i) => h("tr", { class: i ? null : "own" }, h("th", { scope: "row" }, r.method), levels.map((l) => [cell(r[l].auroc, r[l].auroc_range), cell(r[l].ap, r[l].ap_range)])))),
    groups.length ? h("details", {}, h("summary", {}, "By what was labelled"), table(["Labelled as", "Level", "Count", "AUROC", "AP"], groups.map((g) => h("tr", {}, h("th", { scope: "row" }, g.value), h("td", {}, g.level), h("td", {}, say.count(g.n)), cell(g.auroc), cell(g.ap))))) : null);
}

export const table = (names, rows) => h("div", { class: "table-place" }, h("table", { class: "plain-table" }, names ? h("thead", {}, h("tr", {}, names.map((n) => h("th", { scope: "col" }, n)))) : null, h("tbody", {}, rows)));

// ------------------------------------------------------------------------------------------- scatter
// What parts the kinds is a rule about the event, not a line across one plane; so each kind has its own field.
function scatter({ scatter: dots }, about) {
  if (!dots) return null;
  const known = kindNames, named = dots.kinds.some((k) => known.includes(k));
  const kinds = named ? [...new Set(["predictable", "novel", "unsure", ...dots.kinds.filter((k) => k)])] : dots.kinds;
  return panel("scatter", "Uncertainty against surprise",
    h("p", { class: "hint" }, `${say.count(dots.x.length)} of ${say.count(dots.of)} ${say.plural(about.event_word)}: all of the most unusual and a sample of the rest. Up: rarer. Right: the network was less sure of what drove its own score, ranked among all.${dots.line === null ? "" : " Shaded, above the dashed line: alerts, drawn large."}`),
    h("div", { class: "regions" }, kinds.map((kind) => region(dots, kind, about))));
}

function region(dots, kind, about) {
  const [short, meaning] = kindWords(kind), [all, alerts] = dots.counts[kind] || [0, 0];
  const counted = `${say.count(all)} ${all === 1 ? about.event_word : say.plural(about.event_word)}, ${alerts ? `${say.count(alerts)} alert${alerts === 1 ? "" : "s"}` : "no alert"}`;
  const name = kindNames.includes(kind) ? kind : "other";
  return h("figure", { class: `region ${name}` }, h("figcaption", { "data-tip": meaning }, h("b", {}, short || "all"), h("small", {}, counted)), field(dots, kind, `${short || "all"}: ${counted}. Uncertainty of the network across, surprise upwards.`));
}

function field(dots, kind, words) {
  const width = 320, height = 210, left = 44, right = 8, upper = 8, lower = 30;
  const highest = Math.max(4, Math.ceil(Math.max(...dots.y)));
  const x = (v) => left + v * (width - left - right), y = (v) => height - lower - v / highest * (height - lower - upper);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": words });
  if (dots.line !== null) svg.append(s("rect", { class: "alerts-field", x: left, y: upper, width: width - left - right, height: Math.max(0, y(dots.line) - upper) }));
  for (let v = 0; v <= highest; v += highest > 6 ? 2 : 1) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, v === 0 ? "1" : v < 3 ? `1/${10 ** v}` : `1/10${raised(v)}`));
  for (const [v, word, anchor] of [[0, "surest", "start"], [0.5, "half of all", "middle"], [1, "least sure", "end"]]) svg.append(s("text", { x: x(v), y: height - lower + 16, "text-anchor": anchor }, word));
  if (dots.line !== null) svg.append(s("line", { class: "rule", x1: left, x2: width - right, y1: y(dots.line), y2: y(dots.line) }));
  for (let i = 0; i < dots.x.length; i++) if (dots.x[i] !== null && dots.kinds[dots.kind[i]] === kind) svg.append(s("circle", { class: dots.alert[i] ? "dot alert" : "dot", cx: x(dots.x[i]), cy: y(dots.y[i]), r: dots.alert[i] ? 4 : 1.7 }));
  return svg;
}

const raised = (v) => [...String(v)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

// --------------------------------------------------------------------------------------- calibration
function calibration({ calibration: data }, about) {
  if (!data) return null;
  const low = Math.min(-1, Math.floor(Math.log10(data.at[0]))), log = (v) => Math.max(low, Math.log10(Math.max(v, 1e-12)));
  const x = (v) => LEFT + (v - low) / -low * (WIDE - LEFT - RIGHT), y = (v) => HIGH - LOWER - (v - low) / -low * (HIGH - LOWER - UPPER);
  const svg = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "chart", role: "img", "aria-label": `Share of ${say.plural(about.event_word)} at or below each p-value against the p-value` });
  for (let v = low; v <= 0; v++) {
    const word = v === 0 ? "1" : v >= -2 ? String(10 ** v) : `10${raised(v)}`;
    svg.append(s("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: y(v), y2: y(v) }), s("line", { class: "grid", x1: x(v), x2: x(v), y1: UPPER, y2: HIGH - LOWER }), s("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, word), s("text", { x: x(v), y: HIGH - LOWER + 16, "text-anchor": "middle" }, word));
  }
  const edge = (sign) => data.at.map((p) => [x(log(p)), y(log(Math.max(p + sign * 1.96 * Math.sqrt(p * (1 - p) / data.n), 10 ** low)))]);
  const join = (points) => points.map((q) => q.map((v) => v.toFixed(1)).join(",")).join(" ");
  svg.append(s("polygon", { class: "chance", points: join([...edge(1), ...edge(-1).reverse()]) }), s("line", { class: "rule", x1: x(low), y1: y(low), x2: x(0), y2: y(0) }),
    s("polyline", { class: "curve", points: join(data.at.map((p, i) => [x(log(p)), y(log(data.share[i]))])) }), s("text", { x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 6, "text-anchor": "middle" }, "p-value"), s("text", { x: LEFT + 8, y: UPPER + 14, class: "strong" }, `share of ${say.plural(about.event_word)} at or below`));
  return panel("calibration", "Are the p-values what they say?", h("p", { class: "hint" }, "On the dashed line: as many rare scores as there should be. Above it: more, either because something unusual happened or because life has changed since training. The grey band is chance."), svg);
}

// --------------------------------------------------------------------------------------------- drift
function drift({ drift: alarm }, about) {
  if (!alarm) return null;
  const limit = say.count(10 ** alarm.log_limit), percent = (share) => `${(100 * share).toFixed(1)} %`;
  const words = alarm.raised_on ? `No: the drift alarm is on since ${say.dayText(alarm.raised_on)}. Small p-values come more often than chance allows. Train again; until then expect more false alarms.` : alarm.events ? "Nothing speaks against it." : "No event was scored yet.";
  const rows = [["Evidence of a change", `${evidence(alarm.log_evidence)}; at most ${evidence(alarm.log_peak)}; alarm at ${limit}`], [`${say.capital(say.plural(about.event_word))} watched`, `${say.count(alarm.events)} on ${say.count(alarm.days)} days`]];
  if (alarm.events) rows.push(["With p ≤ 0.05", `${percent(alarm.share_05)}, should be about 5 %`], ["With p ≤ 0.01", `${percent(alarm.share_01)}, should be about 1 %`]);
  return panel("drift", "Does the model still fit?", h("p", { class: alarm.raised_on ? "note" : null }, words),
    table(null, rows.map(([what, value]) => h("tr", {}, h("th", { scope: "row" }, what), h("td", {}, value)))),
    h("p", { class: "hint" }, `The evidence begins at 1. While life is as in the weeks of calibration, it reaches ${limit} for one model in ${limit}, however long it is watched.`));
}

const evidence = (log) => log < -1 ? "below 0.1" : log < 4 ? String(Number((10 ** log).toPrecision(2))) : `10${raised(Math.floor(log))}`;

// ----------------------------------------------------------------------------------- quality and card
function quality({ quality: rows }) {
  return rows.length ? panel("quality", "Data quality", table(["What", "Typical", "5 – 95 %, or share"], rows.map((r) => h("tr", {}, h("th", { scope: "row" }, r.what), h("td", { class: "short" }, r.typical), h("td", { class: "short" }, r.range))))) : null;
}

function card({ card: blocks, facts }) {
  if (!blocks.length && !facts.length) return null;
  return h("section", { class: "panel card", id: "card", "aria-label": "Model" }, h("h2", {}, "Model"), blocks.map(block),
    facts.length ? [h("h3", {}, "This run"), table(null, facts.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value))))] : null);
}

const text = (parts) => parts.map(([kind, words]) => (kind === "text" ? words : h(kind, {}, words)));

function block({ kind, parts, items, head, rows }) {
  if (kind === "ul") return h("ul", {}, items.map((i) => h("li", {}, text(i))));
  if (kind === "table") return table(null, [h("tr", {}, head.map((c) => h("th", { scope: "col" }, text(c)))), ...rows.map((r) => h("tr", {}, r.map((c) => h("td", {}, text(c)))))]);
  return h(kind, {}, text(parts));
}
