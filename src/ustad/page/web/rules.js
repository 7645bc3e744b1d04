// Rules that hide explained alerts: chosen beside a verdict with a preview, listed with a way to undo them.
import * as api from "./api.js";
import { byId, empty, failure, h, show, skeleton, toast } from "./dom.js";
import { address, go } from "./route.js";
import { table } from "./run.js";
import { kindWords } from "./kinds.js";
import * as say from "./words.js";

const AROUND = 60; // minutes before and after the hour of an event

// Beside "Explained, because …": what else to hide. `content(reason, until)` is the rule to be made, or null.
export function ruleChooser(event, until) {
  const at = say.local(event.started_at, event.timezone).minute, from = Math.floor(((at - AROUND + 1440) % 1440) / 30) * 30, to = Math.ceil(((at + AROUND) % 1440) / 30) * 30;
  const box = (id, text, checked) => { const input = h("input", { type: "checkbox", id, checked }); return [input, h("label", { for: id }, input, ` ${text}`)]; };
  const [hide, hideLabel] = box("hide", "Also hide what is like it, of this person");
  const parts = [
    event.lat !== null ? ["place", "within 500 m of here", true, { lat: event.lat, lon: event.lon, radius_km: 0.5 }] : null,
    ["hours", `begun between ${say.clock(from)} and ${say.clock(to)}`, true, { from_minute: from, to_minute: to }],
    event.kind ? ["kind", `of the kind “${kindWords(event.kind)[0]}”`, false, { kind: event.kind }] : null,
    event.category ? ["category", `at ${event.category}`, false, { category: event.category }] : null,
  ].filter((p) => p).map(([id, text, checked, scope]) => { const [input, label] = box(`hide-${id}`, text, checked); return { input, label, scope }; });
  const told = h("p", { class: "hint", role: "status" }), scope = h("div", { class: "scope", hidden: true }, parts.map((p) => p.label), told);
  const content = (reason, moment) => hide.checked ? Object.assign({ agent_id: event.agent_id, reason, until: moment }, ...parts.filter((p) => p.input.checked).map((p) => p.scope)) : null;
  const preview = async () => {
    scope.hidden = !hide.checked;
    if (!hide.checked) return;
    try { const seen = await api.previewRule(content("preview", until())); told.textContent = `Would hide ${say.count(seen.hidden)} of the ${say.count(seen.alerts)} alerts of the last 30 days; ${seen.confirmed ? `${say.count(seen.confirmed)} of them confirmed` : "none of them is confirmed"}. Scores stay, and it can be undone.`; }
    catch (error) { told.textContent = error.message; }
  };
  for (const input of [hide, ...parts.map((p) => p.input)]) input.addEventListener("change", preview);
  return { content, preview, root: h("div", { class: "hiding" }, hideLabel, scope) };
}

// ----------------------------------------------------------------------------------------------- list
export async function rulesView(page) {
  const view = { escape: () => go(address.overview(page.filters)) };
  page.view = view;
  show(byId("main"), h("section", { class: "panel" }, skeleton(8)));
  let taught = await api.weights().catch(() => null);
  const draw = ({ rules }) => page.view === view && show(byId("main"), panel(rules, page.about, undo), weightsPanel(taught, page.about, async (on) => { try { taught = await api.turnWeights(on); draw({ rules }); toast(on ? "From now on alerts follow what verdicts taught." : "From now on alerts follow the score alone."); } catch (error) { toast(error.message); } }));
  const undo = async (id) => { try { draw(await api.endRule(id)); toast("Undone: what it hid is shown again."); } catch (error) { toast(error.message); } };
  try { draw(await api.rules()); }
  catch (error) { if (page.view === view) show(byId("main"), failure(error, () => rulesView(page))); }
}

function panel(rules, about, undo) {
  const may = about.roles.includes("verdict");
  const row = (r) => h("tr", {}, h("th", { scope: "row" }, scopeWords(r), h("small", {}, `${r.reason} (${r.by})`)), h("td", {}, say.dayText(say.lastDayUntil(r.until, "UTC"))), h("td", {}, r.state), h("td", {}, say.count(r.hides)),
    h("td", {}, may && r.state !== "ended" ? h("button", { type: "button", class: "plain", on: { click: () => undo(r.id) } }, "Undo") : null));
  return h("section", { class: "panel", id: "rules", "aria-label": "Rules" }, h("h2", {}, "What is hidden, and why"),
    h("p", { class: "hint" }, "Nothing is hidden unless somebody said so. Scores stay as they are. ", h("a", { href: address.overview({ state: "hidden" }), "data-link": true }, "List what is hidden")),
    rules.length ? table(["Alerts of", "Until", "State", "Hides", ""], rules.map(row)) : empty("No rules", "“Explained …” beside an alert can also hide what is like it."));
}

// What verdicts taught: how much each question counts, what it changes, and the switch.
function weightsPanel(taught, about, turn) {
  if (!taught || !taught.change) return null;
  const { change } = taught, may = about.roles.includes("verdict");
  const label = taught.on ? "In force: alerts follow the learnt score." : "Switched off: alerts follow the score alone.";
  return h("section", { class: "panel", id: "weights", "aria-label": "What verdicts taught" }, h("h2", {}, "What verdicts taught"),
    h("p", {}, `${label} `, taught.by ? `Turned by ${taught.by}. ` : "", may ? h("button", { type: "button", class: "plain", on: { click: () => turn(!taught.on) } }, taught.on ? "Switch off" : "Switch on") : null),
    h("p", { class: "sure" }, `Of the ${say.count(change.alerts)} alerts by score of the last 30 days ${say.count(change.go)} go, ${change.confirmed ? `${say.count(change.confirmed)} of them confirmed` : "none of them confirmed"}; ${say.count(change.come)} others come.`),
    h("p", { class: "hint" }, "Scores stay as they are, and so do alerts that were raised."),
    table(["Question", "Counts"], Object.entries(taught.weights).sort((a, b) => b[1] - a[1]).map(([name, weight]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, weight.toFixed(2))))));
}

function scopeWords(r) {
  return [r.agent_id ?? "everybody", r.lat !== null ? `within ${say.distance(r.radius_km)} of a place` : "", r.category ? `at ${r.category}` : "", r.from_minute !== null ? `begun ${say.clock(r.from_minute)}–${say.clock(r.to_minute)}` : "", r.kind ? `“${kindWords(r.kind)[0]}”` : ""].filter(Boolean).join(", ");
}
