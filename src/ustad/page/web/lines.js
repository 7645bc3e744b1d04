// An alert as one line: when, who, kind, score, the sentence. The list and an agent's own alerts are made of these.
import { h } from "./dom.js";
import { address, filtersNow } from "./route.js";
import { kindWords } from "./kinds.js";
import * as say from "./words.js";

export function alertLine(item, chosen) {
  const verdict = say.state(item);
  const inside = lineParts(item, verdict);
  return h("li", { class: [chosen ? "chosen" : "", verdict ? "judged" : ""].join(" ").trim() || null },
    h("a", { href: address.agent(item.agent_id, filtersNow(), { event: item.id }), "data-link": true }, inside));
}

function lineParts(item, verdict) {
  const told = item.led_by || item, [kind, about] = kindWords(told.kind, told.term);
  return [
    h("span", { class: "when" }, say.date(told.started_at, told.timezone), " ", h("b", {}, say.time(told.started_at, told.timezone))),
    h("span", { class: "who" }, item.agent_id),
    h("span", { class: `kind ${told.kind || ""}`, "data-tip": about }, kind),
    verdict ? h("span", { class: `state ${verdict[1]}` }, verdict[0]) : h("span", { class: "score", "data-tip": `Score ${say.number(item.score)}: ${say.rare(item.p_value)} usual events are as unusual` }, say.number(item.score)),
    h("span", { class: "reason" }, say.story(item, true))];
}
