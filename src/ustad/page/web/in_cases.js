// Beside an event: the cases that hold its incident, and a way to open one or to add it to one that is open.
import * as api from "./api.js";
import { h, show, toast } from "./dom.js";
import { address, go } from "./route.js";

export const caseName = (c) => c.title || `${c.agents.slice(0, 2).join(", ") || "nobody"}${c.agents.length > 2 ? ` and ${c.agents.length - 2} more` : ""}`;

export function casesOf(event, held, about) {
  const links = held.map((c, i) => [i ? ", " : "", h("a", { href: address.case(c.id), "data-link": true }, caseName(c)), ` (${c.state})`]);
  const problem = h("span", { class: "problem", role: "alert" });
  const attempt = async (act) => { try { await act(); } catch (error) { problem.textContent = error.message; } };
  const opened = async () => { const made = await api.openCase({ incidents: [event.id] }); go(address.case(made.case.id)); };
  const choice = h("select", { "aria-label": "Add to a case", hidden: true });
  const others = async () => {
    const found = (await api.cases({ limit: 50 })).cases.filter((c) => ["open", "watching"].includes(c.state) && !held.some((k) => k.id === c.id));
    choice.hidden = false;
    show(choice, h("option", { value: "" }, found.length ? "which case?" : "no other case is open"), found.map((c) => h("option", { value: c.id }, caseName(c))));
    choice.focus();
  };
  choice.addEventListener("change", () => choice.value && attempt(async () => { await api.changeCase(choice.value, { attach: [event.id] }); toast("Added to the case."); go(address.case(choice.value)); }));
  const buttons = about.roles.includes("verdict") ? [h("button", { type: "button", class: "plain", "data-act": "case", on: { click: () => attempt(opened) } }, "Open a case"), " ", h("button", { type: "button", class: "plain", on: { click: () => attempt(others) } }, "Add to a case"), " ", choice, problem] : [];
  return links.length || buttons.length ? h("p", { class: "in-cases hint" }, links.length ? ["In the case ", links, ". "] : null, buttons) : null;
}
