// Addresses, search, keyboard, printing. Each view has an address, so that it can be sent to a colleague.
function readAddress() { return new URLSearchParams(location.hash.slice(1)); }

function show(view) {
  for (const name of ["overview", "case", "about"]) byId(name).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}
function route() {
  const address = readAddress();
  byId("tip").hidden = true;
  if (address.has("case")) {
    const index = Number(address.get("case"));
    const same = !byId("case").hidden && byId("case").dataset.index === String(index);
    show("case");
    byId("case").dataset.index = String(index);
    drawCase(index, address.has("event") ? Number(address.get("event")) : undefined);
    document.title = `${DATA.cases[index] ? DATA.cases[index].id : "No case"} · ${DATA.title}`;
    if (!same) scrollTo(0, 0);
  } else {
    show(address.has("about") ? "about" : "overview");
    document.title = DATA.title;
    if (address.has("q") || address.has("kind") || address.has("n")) applyFilters(address);
  }
}
function applyFilters(address) {
  state.query = address.get("q") || "";
  state.kind = address.get("kind") || "";
  const n = Number(address.get("n"));
  if (n >= 1) state.rate = Math.min(Math.round(n), DATA.top.length);
  byId("search").value = state.query;
  drawAlerts();
  const select = document.querySelector("#alerts-controls select");
  if (select) select.value = state.kind;
}
function keepAddress() {
  if (byId("overview").hidden) return;
  const address = new URLSearchParams();
  if (state.query) address.set("q", state.query);
  if (state.kind) address.set("kind", state.kind);
  if (state.rate !== (SUMMARY.alerts || Math.min(20, DATA.top.length))) address.set("n", state.rate);
  history.replaceState(null, "", `#${address}`);
}

// ------------------------------------------------------------------------------------------------ search
function search() {
  const words = byId("search").value.trim(), list = clear(byId("found"));
  state.query = words;
  listAlerts();
  list.hidden = !words;
  if (!words) return;
  const small = words.toLowerCase(), found = [];
  for (let i = 0; i < DATA.agents.id.length && found.length < 12; i++) if (DATA.agents.id[i].toLowerCase().includes(small)) found.push(i);
  for (const i of found) {
    const id = DATA.agents.id[i], index = caseOf.get(id);
    const inside = [h("b", {}, id), h("small", {}, `rank ${count(i + 1)}, score ${figure(DATA.agents.score[i])}, ${plural(DATA.agents.alerts[i], "alert")}${index === undefined ? ", no case view" : ""}`)];
    list.append(h("li", {}, index === undefined ? h("span", {}, inside) : h("a", { href: caseLink(index) }, inside)));
  }
  if (!found.length) list.append(h("li", {}, h("span", {}, `No ${DATA.words.entity} is called that; the list of alerts is filtered by its sentences.`)));
}

// ---------------------------------------------------------------------------------------------- keyboard
function step(by) {
  if (!byId("case").hidden) {
    const next = Number(byId("case").dataset.index) + by;
    if (DATA.cases[next]) location.hash = caseLink(next);
    return;
  }
  const lines = [...document.querySelectorAll("#alerts a, #alerts .still")];
  if (!lines.length) return;
  state.current = Math.max(0, Math.min(lines.length - 1, state.current + by));
  lines.forEach((line, i) => line.classList.toggle("current", i === state.current));
  lines[state.current].focus();
}
function stepEvent(by) {
  if (byId("case").hidden) return;
  const index = Number(byId("case").dataset.index), item = DATA.cases[index], order = orderedEvents(item);
  const address = readAddress(), now = order.indexOf(address.has("event") ? Number(address.get("event")) : worstEvent(index));
  const next = order[Math.max(0, Math.min(order.length - 1, now + by))];
  location.hash = caseLink(index, next);
}
function key(event) {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape") {
    byId("found").hidden = true;
    if (typing) event.target.blur();
    else if (!byId("help").open && byId("overview").hidden) location.hash = "";
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const acts = { j: () => step(1), k: () => step(-1), n: () => stepEvent(1), p: () => stepEvent(-1), "/": () => byId("search").focus(), "?": () => byId("help").showModal() };
  if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
}

// -------------------------------------------------------------------------------------------------- print
function beforePrint() {
  const place = clear(byId("print"));
  DATA.cases.forEach((item, index) => place.append(h("div", { class: "case-page" }, ...caseParts(item, index, undefined, 1600))));
}

function begin() {
  byId("title").textContent = DATA.title;
  byId("made").textContent = `Made ${DATA.made}. This file holds everything it shows and fetches nothing.`;
  startTips();
  drawTiles(); drawLanes(); drawAlerts(); drawFigures(); drawScatter(); drawCalibration(); drawAbout();
  addEventListener("hashchange", route);
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", () => clear(byId("print")));
  document.addEventListener("keydown", key);
  byId("search").addEventListener("input", () => { search(); keepAddress(); });
  byId("search").addEventListener("keydown", (e) => { const link = byId("found").querySelector("a"); if (e.key === "Enter" && link) location.hash = link.getAttribute("href"); });
  document.addEventListener("click", (e) => { if (!e.target.closest(".finder") || e.target.closest(".found a")) byId("found").hidden = true; });
  byId("alerts-controls").addEventListener("change", keepAddress);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("skip").addEventListener("click", () => byId("main").focus());
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => { if (!byId("case").hidden) route(); }, 150); });
  route();
}
begin();
