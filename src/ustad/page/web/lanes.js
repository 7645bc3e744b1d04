// Swim lanes: one row an agent, one cell a day. Score by one hue, alerts by a dot, weekends by a frame.
import { h } from "./dom.js";
import { isKept } from "./frozen.js";
import { address } from "./route.js";
import * as say from "./words.js";

// A score is −log₁₀ of how rare the event is; from 1 (one in ten) to 5 (one in a hundred thousand) it darkens.
const shade = (score) => `${Math.round(100 * Math.max(0.04, Math.min(1, (score - 1) / 4)))}%`;

// `least`: the scores from which on a day counts as an alert, by the slider and as typed; either may be none.
export function laneTable(found, least, filters) {
  const first = say.dayNumber(found.first), last = say.dayNumber(found.last);
  const days = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const short = say.shortNames(found.lanes.map((lane) => lane.agent_id));
  const labels = weeks(days).map(([d, length]) => h("th", { scope: "colgroup", colspan: length }, length > 2 || days.length < 10 ? say.shortDay(d) : null));
  return h("div", { class: "scroll" }, h("table", { class: "lanes" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "quiet" }, "Who")), labels)),
    h("tbody", {}, found.lanes.map((lane, i) => row(lane, short[i], days, least, filters)))),
    found.lanes.some((lane) => silentDay(lane, Math.max(...lane.cells.map((c) => c.score)), least)) ? h("p", { class: "hint" }, "* no alert: that day is marked for everybody, a rule hides it, verdicts taught otherwise, or its alert is on another day") : null);
}

// First day and length of each week that the days touch.
function weeks(days) {
  const found = [];
  for (const d of days) if (!found.length || say.weekday(d) === 0) found.push([d, 1]); else found.at(-1)[1] += 1;
  return found;
}

// Why somebody as unusual as an alert has none.
export function silentDay(lane, top, least) {
  if (least.slid !== null || least.raised === null || !say.atLeast(top, least.raised) || lane.cells.some((c) => c.alerts)) return null;
  const odd = lane.cells.find((c) => c.score === top && least.days[c.day]);
  return odd ? `No alert: ${say.dayText(odd.day)} is ${least.days[odd.day]}` : "No alert: a rule hides it, verdicts taught otherwise, or its alert is on another day";
}

function row(lane, short, days, least, filters) {
  const cells = new Map(lane.cells.map((c) => [say.dayNumber(c.day), c]));
  const top = Math.max(...lane.cells.map((c) => c.score));
  const why = silentDay(lane, top, least);
  const name = [h("span", { class: "who", "data-tip": short === lane.agent_id ? null : lane.agent_id, "aria-label": short === lane.agent_id ? null : lane.agent_id }, short), h("small", { "data-tip": why }, say.number(top), why ? " *" : "")];
  return h("tr", {},
    h("th", { scope: "row" }, isKept(lane.agent_id) ? h("a", { href: address.agent(lane.agent_id, filters), "data-link": true }, name) : h("span", { class: "still", "data-tip": "This file holds no days of this one; a larger --cases does." }, name)),
    days.map((d) => h("td", { class: say.isWeekend(d) ? "weekend" : null }, cells.has(d) ? cell(lane.agent_id, cells.get(d), least, filters) : h("span", { class: "cell none" }))));
}

function cell(agent, c, least, filters) {
  const alert = (least.slid === null ? c.alerts > 0 : !c.echo && say.atLeast(c.score, least.slid)) && (least.typed === null || say.atLeast(c.score, least.typed));
  const tip = `${agent}, ${say.dayText(c.day)}\nscore ${say.number(c.score)}, ${c.events} scored${c.alerts ? `, ${c.alerts} alert${c.alerts > 1 ? "s" : ""}` : ""}\n${c.reason || (least.raised !== null && say.atLeast(c.score, least.raised) ? "part of an alert of another day, or hidden" : "nothing stands out")}`;
  const to = address.agent(agent, filters, alert ? { event: c.worst } : { day: c.day });
  const link = isKept(agent) ? { href: to, "data-link": true, tabindex: -1 } : {};
  return h(isKept(agent) ? "a" : "span", { class: `cell${alert ? " alert" : ""}`, ...link, vars: { "--v": shade(c.score) }, "data-tip": tip, "aria-label": tip.replaceAll("\n", ", ") });
}
