// The overview: tiles, lanes, ranked events with a slider, figures, calibration.
const SUMMARY = DATA.summary;
const FIRST_LINES = innerWidth < 960 ? 15 : 60;
const state = { rate: null, kind: "", query: "", shown: FIRST_LINES, current: -1 };

function drawTiles() {
  const last = SUMMARY.firstDay + SUMMARY.days - 1;
  const tiles = [
    [count(SUMMARY.events), `${plurals(DATA.words.event)} scored`],
    [count(SUMMARY.agents), plurals(DATA.words.entity)],
    [plural(SUMMARY.days, "day"), `${shortDate(SUMMARY.firstDay)} – ${longDate(last)}`],
    [count(SUMMARY.alerts), `alerts, of ${plural(SUMMARY.alertAgents, DATA.words.entity)}`],
    [SUMMARY.byChance === null ? "–" : figure(SUMMARY.byChance), "as unusual by chance alone"],
  ];
  clear(byId("tiles")).append(...tiles.map(([value, words]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, words))));
  if (SUMMARY.rule) byId("tiles").append(h("div", { class: "tile" }, h("b", { class: "wordy" }, SUMMARY.rule), h("span", {}, "alert rule")));
  clear(byId("notes")).append(...(SUMMARY.notes.length ? [h("div", { class: "note" }, SUMMARY.notes.map((text) => h("p", {}, capital(text))))] : []));
}

// ------------------------------------------------------------------------------------------------- lanes
function drawLanes() {
  byId("lanes-title").textContent = `Most unusual ${plurals(DATA.words.entity)}, day by day`;
  byId("lanes-hint").textContent = `The first ${count(DATA.lanes.length)} of ${count(SUMMARY.agents)}. The stronger the colour, the more unusual; a dot is an alert; weekends are framed.`;
  const days = [...Array(SUMMARY.days).keys()].map((i) => SUMMARY.firstDay + i);
  const head = h("tr", {}, h("th", { scope: "col" }, capital(DATA.words.entity)));
  for (let i = 0; i < days.length;) {
    let n = 1;
    while (i + n < days.length && weekday(days[i + n]) !== 0) n++;
    head.append(h("th", { scope: "colgroup", colspan: n }, n > 2 ? shortDate(days[i]).replace(/^\w+ /, "") : ""));
    i += n;
  }
  const rows = DATA.lanes.map((lane, rank) => h("tr", {}, laneName(lane, rank), days.map((day, i) => laneCell(lane, day, lane.cells[i]))));
  clear(byId("lanes")).append(h("table", { class: "lanes", "aria-label": `Unusual days of ${plurals(DATA.words.entity)}` }, h("thead", {}, head), h("tbody", {}, rows)));
  clear(byId("lanes-legend")).append(h("span", {}, "expected", h("i", { class: "ramp" }), `1 in ${count(10 ** DARKEST)} or rarer`));
}
function laneName(lane, rank) {
  const index = caseOf.get(lane.id);
  const inside = [h("span", { class: "who" }, lane.id), h("small", {}, figure(lane.score))];
  const tip = `${rank + 1}. ${named(lane.id)}\n${plural(lane.n ?? 0, DATA.words.event)}\n${lane.reason || ""}`;
  return h("th", { scope: "row" }, index === undefined ? h("span", { "data-tip": `${tip}\nNo case view in this report.` }, inside) : h("a", { href: caseLink(index), "data-tip": tip }, inside));
}
function laneCell(lane, day, cell) {
  const kind = isWeekend(day) ? "weekend" : null;
  if (!cell) return h("td", { class: kind }, h("span", { class: "cell none", "data-tip": `${shortDate(day)}: no ${DATA.words.event} began on this day` }));
  const [surprise, alert, reason] = cell;
  const words = `${shortDate(day)}${alert ? " · alert" : ""}\n1 in ${count(10 ** surprise)}\n${reason}`;
  const open = () => { const i = caseOf.get(lane.id); if (i !== undefined) location.hash = caseLink(i, worstEvent(i, day)); };
  return h("td", { class: kind }, h("button", { type: "button", tabindex: "-1", class: alert ? "cell alert" : "cell", style: { "--v": `${Math.round(100 * darkness(surprise))}%` }, "data-tip": words, "aria-label": `${lane.id}, ${words}`, on: { click: open } }));
}

// ------------------------------------------------------------------------------------------------ alerts
function drawAlerts() {
  const top = DATA.top, days = SUMMARY.days;
  if (state.rate === null) state.rate = Math.max(1, Math.min(top.length, SUMMARY.alerts || Math.min(20, top.length)));
  drawAlertControls(top.length, days);
  listAlerts();
}
function drawAlertControls(most, days) {
  const scale = 1000, position = (n) => Math.round(scale * Math.log(n) / Math.log(Math.max(most, 2)));
  const output = h("output", {});
  const say = () => {
    const cut = DATA.top[state.rate - 1], chanceCount = cut ? cut.p * SUMMARY.events : 0;
    output.textContent = `${figure(state.rate / days)} a day: ${count(state.rate)} in all, about ${figure(chanceCount)} by chance`;
  };
  const slide = (event) => { state.rate = Math.max(1, Math.min(most, Math.round(most ** (event.target.value / scale)))); state.shown = FIRST_LINES; say(); listAlerts(); };
  const kinds = [...new Set(DATA.top.map((e) => e.kind).filter(Boolean))].sort();
  const choose = (event) => { state.kind = event.target.value; listAlerts(); };
  fill(clear(byId("alerts-controls")), {}, [
    h("label", {}, "How many", h("input", { type: "range", min: 0, max: scale, value: position(state.rate), "aria-label": "Alerts per day", on: { input: slide } }), output),
    kinds.length > 1 && h("label", {}, "Kind", h("select", { on: { change: choose } }, h("option", { value: "" }, "all"), kinds.map((k) => h("option", { value: k }, k)))),
  ]);
  say();
}
function chosenAlerts() {
  const words = state.query.toLowerCase();
  return DATA.top.slice(0, state.rate).filter((e) => (!state.kind || e.kind === state.kind) && (!words || `${e.id} ${e.reason}`.toLowerCase().includes(words)));
}
function listAlerts() {
  const rows = chosenAlerts(), list = clear(byId("alerts"));
  byId("alerts-title").textContent = SUMMARY.alerts ? "Alerts, most unusual first" : `Most unusual ${plurals(DATA.words.event)}`;
  let wasAlert = true;
  for (const event of rows.slice(0, state.shown)) {
    if (SUMMARY.alerts && wasAlert && !event.alert) list.append(h("li", { class: "rule-line" }, "Below the alert rule from here on"));
    wasAlert = event.alert;
    list.append(h("li", {}, alertLine(event)));
  }
  const more = byId("alerts-more");
  clear(more);
  if (!rows.length) more.textContent = state.query || state.kind ? "Nothing matches. Clear the search or choose another kind." : `No ${plurals(DATA.words.event)}.`;
  else if (rows.length > state.shown) more.append(h("button", { type: "button", class: "button", on: { click: () => { state.shown += 120; listAlerts(); } } }, `Show more (${count(rows.length - state.shown)} left)`));
  else if (state.rate === DATA.top.length && SUMMARY.events > DATA.top.length) more.textContent = `This file lists the first ${count(DATA.top.length)}; the rest is in the score table.`;
  state.current = -1;
}
function alertLine(event) {
  const index = caseOf.get(event.id);
  const inside = [
    h("div", { class: "meta" }, h("b", {}, when(event.day, event.minute, event.length)), h("span", {}, named(event.id)), kindChip(event.kind)),
    h("div", {}, event.reason || `score ${figure(event.score)}, p = ${chance(event.p)}`),
  ];
  if (index === undefined) return h("div", { class: "still", tabindex: "0", "data-tip": "No case view in this report: write it with more cases." }, inside);
  return h("a", { href: caseLink(index, eventIndex(index, event.event, event.day, event.minute)) }, inside);
}

// ----------------------------------------------------------------------------------------------- figures
function drawFigures() {
  const rows = SUMMARY.evaluation;
  byId("figures").hidden = !rows.length;
  if (!rows.length) return;
  const cell = (value, range) => h("td", {}, value === null ? "–" : value.toFixed(3), range && range.length === 2 && range[0] !== null ? h("small", {}, `${range[0].toFixed(3)} – ${range[1].toFixed(3)}`) : null);
  const levels = ["events", "agents"].filter((level) => rows.some((r) => r[level].auroc !== null || r[level].reason));
  const own = rows[0];
  const facts = levels.map((l) => own[l].n ? `${count(own[l].positives)} of ${count(own[l].n)} ${plurals(l === "events" ? DATA.words.event : DATA.words.entity)} are labelled (${(100 * own[l].positives / own[l].n).toFixed(2)} %)` : "").filter(Boolean);
  const reasons = levels.map((l) => own[l].reason).filter(Boolean);
  clear(byId("figures")).append(
    h("h2", {}, "Against the labels"),
    h("p", { class: "hint" }, `${facts.join("; ")}. AP is average precision; chance gives the labelled share. Small figures: 95 % of bootstraps over ${plurals(DATA.words.entity)}. Scores never used the labels. ${reasons.join(" ")}`),
    h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Method"), levels.map((l) => { const word = l === "events" ? DATA.words.event : DATA.words.entity; return [h("th", { scope: "col" }, `${word} AUROC`), h("th", { scope: "col" }, `${word} AP`)]; }))),
      h("tbody", {}, rows.map((r, i) => h("tr", { class: i ? null : "own" }, h("th", { scope: "row" }, r.method), levels.map((l) => [cell(r[l].auroc, r[l].aurocRange), cell(r[l].ap, r[l].apRange)]))))));
  if (SUMMARY.groups.length) byId("figures").append(h("details", {}, h("summary", {}, "By what was labelled"), h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, ["Labelled as", "Level", "Count", "AUROC", "AP"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, SUMMARY.groups.map((g) => h("tr", {}, h("th", { scope: "row" }, g.value), h("td", {}, g.level), h("td", {}, count(g.n)), cell(g.auroc), cell(g.ap)))))));
}

// ------------------------------------------------------------------------------------------- calibration
function drawCalibration() {
  const place = clear(byId("calibration")), data = DATA.calibration;
  place.append(h("h2", {}, "Are the p-values what they say?"));
  if (!data) { place.append(h("p", { class: "hint" }, "The scores came without p-values: they were ranked among themselves.")); return; }
  const W = 620, H = 340, left = 52, right = 12, upper = 14, lower = 40, low = Math.floor(Math.log10(data.at[0]));
  const x = linear(low, 0, left, W - right), y = linear(low, 0, H - lower, upper), log = (v) => Math.max(low, Math.log10(Math.max(v, 1e-12)));
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", role: "img", "aria-label": "Share of events at or below each p-value against the p-value" });
  for (let v = low; v <= 0; v++) {
    const word = v === 0 ? "1" : v >= -2 ? String(10 ** v) : `10${small(v)}`;
    svg.append(s("line", { x1: left, x2: W - right, y1: y(v), y2: y(v), stroke: "var(--line)" }), s("line", { x1: x(v), x2: x(v), y1: upper, y2: H - lower, stroke: "var(--line)" }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, word), s("text", { x: x(v), y: H - lower + 16, "text-anchor": "middle" }, word));
  }
  const edge = (sign) => data.at.map((p) => [x(log(p)), y(log(Math.max(p + sign * 1.96 * Math.sqrt(p * (1 - p) / data.n), 10 ** low)))]);
  const join = (points) => points.map((q) => q.map((v) => v.toFixed(1)).join(",")).join(" ");
  svg.append(
    s("polygon", { points: join([...edge(1), ...edge(-1).reverse()]), fill: "color-mix(in srgb, var(--soft) 22%, transparent)" }),
    s("line", { x1: x(low), y1: y(low), x2: x(0), y2: y(0), stroke: "var(--soft)", "stroke-dasharray": "4 3" }),
    s("polyline", { points: join(data.at.map((p, i) => [x(log(p)), y(log(data.share[i]))])), fill: "none", stroke: "var(--score)", "stroke-width": 2.5, "stroke-linejoin": "round" }),
    s("text", { x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }, "p-value"), s("text", { x: left + 8, y: upper + 14, class: "strong" }, `share of ${plurals(DATA.words.event)} at or below`));
  place.append(h("p", { class: "hint" }, "On the dashed line: as many rare scores as there should be. Above it: more, either because something unusual happened or because life has changed since training. The grey band is chance."), svg);
}

// --------------------------------------------------------------------------------------------- about, run
function drawAbout() {
  const rows = DATA.quality;
  clear(byId("quality")).append(rows.length
    ? h("table", { class: "plain" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "What"), h("th", { scope: "col" }, "Typical"), h("th", { scope: "col" }, "5 – 95 %, or share"))), h("tbody", {}, rows.map((r) => h("tr", {}, h("th", { scope: "row" }, r.what), h("td", { class: "short" }, r.typical), h("td", { class: "short" }, r.range)))))
    : h("p", { class: "hint" }, "Nothing was recorded about the quality of this data. Stays made by `ustad extract` bring it along."));
  if (DATA.run.length) clear(byId("run")).append(h("h3", {}, "This run"), h("table", { class: "plain" }, h("tbody", {}, DATA.run.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value))))));
}
