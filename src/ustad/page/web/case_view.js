// Cases: the list of them, and one case with its incidents, notes and history.
import * as api from "./api.js";
import { byId, empty, failure, h, show, skeleton } from "./dom.js";
import { exportButtons } from "./export.js";
import { caseName } from "./in_cases.js";
import { alertLine } from "./lines.js";
import { pager } from "./pager.js";
import { printCases } from "./print.js";
import { address, go } from "./route.js";
import { table } from "./run.js";
import * as say from "./words.js";

const ROWS = 50;
export const STATES = { open: "open", watching: "watching", explained: "explained", confirmed: "confirmed", wrong: "wrong: bad data or our mistake" };
const ACTS = { opened: "opened the case", state: "set the state to", assigned: "assigned it to", titled: "called it", note: "noted", attached: "attached an incident of", detached: "took out an incident of", verdict: "judged an incident of", looked: "looked" };

const moment = (at) => { const zone = Intl.DateTimeFormat().resolvedOptions().timeZone; return `${say.date(at, zone)} ${say.time(at, zone)}`; };

// ----------------------------------------------------------------------------------------------- list
export async function casesView(page, parameters) {
  const view = { escape: () => go(address.overview(page.filters)) }, from = Math.max(0, Number(parameters.get("cases_from")) || 0);
  const wanted = { state: parameters.get("case_state"), assignee: parameters.get("assignee") };
  page.view = view;
  show(byId("main"), h("section", { class: "panel" }, skeleton(12)));
  try {
    const found = await api.cases({ ...wanted, limit: ROWS, offset: from });
    if (page.view === view) show(byId("main"), listPanel(found, wanted, from, page.about));
  } catch (error) { if (page.view === view) show(byId("main"), failure(error, () => casesView(page, parameters))); }
}

function listPanel(found, wanted, from, about) {
  const to = (more) => address.cases({ case_state: wanted.state, assignee: wanted.assignee, ...more });
  const states = h("select", { id: "case-state", on: { change: (e) => go(to({ case_state: e.target.value || null })) } }, h("option", { value: "" }, "all"), Object.keys(STATES).map((s) => h("option", { value: s, selected: wanted.state === s }, s)));
  const mine = h("input", { type: "checkbox", id: "case-mine", checked: wanted.assignee === about.caller, on: { change: (e) => go(to({ assignee: e.target.checked ? about.caller : null })) } });
  const narrowed = wanted.state || wanted.assignee;
  return [h("form", { class: "filters", "aria-label": "Filters", on: { submit: (e) => e.preventDefault() } }, h("label", {}, "State", states), h("label", {}, mine, "assigned to me")),
    h("section", { class: "panel", id: "cases", "aria-label": "Cases" }, h("h2", {}, "Cases"),
      found.total ? [table(["Case", "State", "Assigned to", "Incidents", "Last change"], found.cases.map(row)), pager((offset) => to({ cases_from: offset || null }), { total: found.total, from, size: ROWS, shown: found.cases.length }, "case")]
        : narrowed ? empty("Nothing matches", "No case fits these filters.", h("a", { href: address.cases(), "data-link": true }, "Clear the filters")) : empty("No cases yet", "Open an alert and choose “Open a case” to follow it further, alone or with others."))];
}

const row = (c) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: address.case(c.id), "data-link": true }, caseName(c)), c.title ? h("small", {}, c.agents.slice(0, 5).join(", ")) : null), h("td", {}, c.state), h("td", {}, c.assignee || "–"), h("td", {}, say.count(c.n_incidents)), h("td", {}, moment(c.changed_at)));

// ------------------------------------------------------------------------------------------- one case
export async function caseView(page, id) {
  const view = { escape: () => go(address.cases()) };
  page.view = view;
  show(byId("main"), h("section", { class: "panel" }, skeleton(12)));
  try {
    const found = await api.case_(id);
    if (page.view === view) draw(page, view, found);
  } catch (error) { if (page.view === view) show(byId("main"), failure(error, () => caseView(page, id))); }
}

function draw(page, view, found) {
  const { case: c, incidents, history } = found, may = page.about.roles.includes("verdict");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const change = async (what) => {
    try { const changed = await api.changeCase(c.id, what); if (page.view === view) draw(page, view, changed); }
    catch (error) { problem.hidden = false; problem.textContent = `${error.message} What you typed is still here.`; }
  };
  document.title = `${caseName(c)} · ${document.title.split(" · ").slice(1).join(" · ")}`;
  show(byId("main"),
    h("div", { class: "head" }, h("h1", {}, caseName(c)), h("p", {}, `Case ${c.id}: ${c.state}, assigned to ${c.assignee || "nobody"}; opened ${moment(c.opened_at)} by ${c.opened_by}`), exports(c, incidents)),
    h("div", { class: "columns agent-columns" },
      h("div", { class: "main-side" }, h("section", { class: "panel", "aria-label": "Incidents" }, h("h2", {}, `${incidents.length} incident${incidents.length === 1 ? "" : "s"}`),
        incidents.length ? h("ol", { class: "alerts" }, incidents.map((i) => incidentLine(i, may ? () => change({ detach: [i.id] }) : null))) : empty("No incident is left", "Open an alert and attach it to this case."))),
      h("div", {}, may ? stateForm(c, change, problem) : h("section", { class: "panel" }, h("p", {}, `State: ${c.state}. Assigned to: ${c.assignee || "nobody"}.`)), h("section", { class: "panel", "aria-label": "History" }, h("h2", {}, "What was done"), may ? noteForm(change) : null, h("ol", { class: "history" }, history.toReversed().map(entry))))));
}

const exports = (c, incidents) => h("p", { class: "hint no-print" }, h("button", { type: "button", class: "plain", on: { click: () => printCases(incidents) } }, "Print"), " ", exportButtons(async () => incidents, `case-${c.id}`));

function incidentLine(item, detach) {
  const line = alertLine(item, false);
  if (detach) line.append(h("button", { type: "button", class: "plain hint detach no-print", on: { click: detach } }, "take out of this case"));
  return line;
}

function stateForm(c, change, problem) {
  const state = h("select", { id: "state" }, Object.entries(STATES).map(([value, text]) => h("option", { value, selected: c.state === value }, text)));
  const assignee = h("input", { id: "assignee", value: c.assignee, maxlength: 128, placeholder: "nobody" }), title = h("input", { id: "title", value: c.title, maxlength: 256, placeholder: caseName({ ...c, title: "" }) });
  const reason = h("input", { id: "reason", maxlength: 500, placeholder: "because …" }), because = h("div", { class: "because", hidden: true }, h("label", { for: "reason" }, "Because"), reason);
  state.addEventListener("change", () => { because.hidden = !["explained", "wrong"].includes(state.value); reason.required = state.value === "explained"; });
  const save = () => change({ title: title.value, assignee: assignee.value, ...(state.value === c.state ? {} : { state: state.value, reason: reason.value }) });
  return h("section", { class: "panel no-print", "aria-label": "State" }, h("form", { class: "verdict", on: { submit: (e) => { e.preventDefault(); save(); } } },
    h("div", { class: "because" }, h("label", { for: "title" }, "Title"), title, h("label", { for: "state" }, "State"), state, h("label", { for: "assignee" }, "Assigned to"), assignee), because,
    h("p", { class: "hint" }, "Explained, confirmed and wrong are verdicts on every incident of this case."), h("button", { type: "submit", class: "main" }, "Save"), problem));
}

function noteForm(change) {
  const note = h("textarea", { rows: 2, id: "note", placeholder: "Add a note", required: true, maxlength: 4000 });
  return h("form", { class: "verdict", "aria-label": "Note", on: { submit: (e) => { e.preventDefault(); change({ note: note.value }); } } }, h("label", { class: "quiet", for: "note" }, "Note"), note, h("button", { type: "submit", class: "main" }, "Add note"));
}

function entry(e) {
  const what = `${ACTS[e.act] || e.act}${e.agent_id ? ` ${e.agent_id}` : ""}`;
  return h("li", { class: e.act === "note" ? "noted" : null }, h("span", { class: "hint" }, moment(e.at), " "), h("b", {}, e.by), ` ${what}`, e.text ? (e.act === "note" ? h("span", { class: "block" }, e.text) : `${["attached", "detached", "verdict"].includes(e.act) ? ":" : ""} ${e.text}`) : null);
}
