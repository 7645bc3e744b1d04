// What an analyst keeps: people who are watched, views by name, and the filters of the last visit.
import * as api from "./api.js";
import { h, show, toast } from "./dom.js";
import { frozen } from "./frozen.js";
import { address, go } from "./route.js";

const KEY = "ustad filters", LEFT_OUT = ["search"]; // a browser keeps nobody's name

export function rememberFilters(filters) {
  if (frozen) return;
  const kept = Object.fromEntries(Object.entries(filters).filter(([name]) => !LEFT_OUT.includes(name)));
  try { localStorage.setItem(KEY, JSON.stringify(kept)); } catch { /* then they are not remembered */ }
}

export function lastFilters() {
  try { return frozen ? {} : JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return {}; }
}

// A star beside a person's name: watched or not.
export async function watchButton(agent, about) {
  if (frozen || !about.roles.includes("read")) return null;
  const isWatched = (list) => list.watched.some((w) => w.agent_id === agent), may = about.roles.includes("verdict");
  const button = h("button", { type: "button", class: "plain hint watch", disabled: !may });
  const tell = (watched) => { button.textContent = watched ? "★ watched" : "☆ watch"; button.setAttribute("aria-pressed", watched); };
  button.addEventListener("click", async () => {
    try { tell(isWatched(await api.watch(agent, { watched: button.getAttribute("aria-pressed") !== "true" }))); }
    catch (error) { toast(error.message); }
  });
  tell(isWatched(await api.watchlist()));
  return button;
}

// Saved views in the bar of filters: choose one, save this one, delete one.
export function viewChooser(page) {
  if (frozen || !page.about.roles.includes("read")) return null;
  const here = address.overview(page.filters), may = page.about.roles.includes("verdict");
  const select = h("select", { id: "saved-views", "aria-label": "Saved views" }), save = h("button", { type: "button", class: "plain", id: "save-view" }, "Save this view"), remove = h("button", { type: "button", class: "plain", hidden: true }, "Delete it");
  const draw = ({ views }) => {
    const present = views.find((v) => v.address === here);
    show(select, h("option", { value: "" }, views.length ? "choose …" : "none yet"), views.map((v) => h("option", { value: v.address, selected: v === present }, v.name)));
    remove.hidden = !present || !may;
    save.hidden = Boolean(present) || !may || !Object.keys(page.filters).length;
    remove.onclick = () => act(api.deleteView(present.name));
  };
  const act = (answer) => answer.then(draw).catch((error) => toast(error.message));
  select.addEventListener("change", () => select.value && go(select.value));
  save.addEventListener("click", () => { const name = prompt("Save this view as"); if (name?.trim()) act(api.saveView({ name: name.trim(), address: here })); });
  act(api.views());
  return h("span", { class: "saved" }, h("label", { for: "saved-views" }, "Views ", select), " ", save, " ", remove);
}
