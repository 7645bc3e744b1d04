// One case: who, the timeline, the map, and the chosen event with expected beside observed for each feature.
function drawCase(index, chosen) {
  const item = DATA.cases[index], place = clear(byId("case"));
  if (!item) { place.append(h("p", { class: "note" }, "This report holds no such case. Go back to the overview and choose one from there.")); return; }
  place.append(...caseParts(item, index, chosen, place.clientWidth));
}
function caseParts(item, index, chosen, width) {
  const choose = (i) => { location.hash = caseLink(index, i); };
  const event = chosen !== undefined && chosen >= 0 && chosen < item.events.day.length ? chosen : worstEvent(index);
  item.key = index;
  const wide = width > 900, lineWidth = Math.max(300, Math.floor(wide ? (width - 16) * 1.3 / 2.3 - 36 : width - 28));
  const when = h("section", { class: "panel", "aria-label": "Timeline" }, h("h2", {}, "When"), h("p", { class: "hint" }, `Local time, ${item.zones.join(", ")}. A row a day; weekends shaded.`), timelineLegend(item), h("div", { style: { "margin-top": "10px" } }, timeline(item, event, lineWidth, choose)));
  const left = h("div", {}, when), side = h("div", { class: "case-side" }, eventPanel(item, event));
  if (item.places) {
    const panel = h("section", { class: "panel", "aria-label": "Map" });
    drawMap(panel, item, event);
    (Number(when.querySelector("svg").getAttribute("height")) < 300 ? left : side).append(panel); // under a short timeline
  }
  return [caseHead(item, index, event), caseChips(item, index, event), h("div", { class: "case-grid" }, left, side)];
}
function caseHead(item, index, event) {
  const lane = DATA.lanes.find((l) => l.id === item.id), rank = rankOfAgent.get(item.id);
  const alerts = item.events.alert.reduce((a, b) => a + b, 0);
  const link = (to, words, name) => h("a", { class: "button", href: caseLink(to), "aria-label": name }, words);
  const facts = [`rank ${count(rank + 1)} of ${count(SUMMARY.agents)}`, plural(item.events.day.length, DATA.words.event), plural(alerts, "alert")];
  return h("div", {},
    h("div", { class: "case-head" }, h("h1", {}, capital(named(item.id))), h("span", { class: "hint" }, facts.join(" · ")),
      h("div", { class: "move" }, h("a", { class: "button", href: "#" }, "Overview"), index > 0 && link(index - 1, "‹ k", "Previous case"), index + 1 < DATA.cases.length && link(index + 1, "j ›", "Next case"))),
    lane && lane.reason && lane.reason !== item.events.reason[event] ? h("p", { class: "sentence" }, lane.reason) : null);
}
function orderedEvents(item) {
  return item.events.score.map((_, i) => i).sort((a, b) => item.events.alert[b] - item.events.alert[a] || item.events.score[b] - item.events.score[a]);
}
function caseChips(item, index, chosen) {
  const shown = orderedEvents(item).filter((i, n) => n < 1 || (item.events.alert[i] && n < 12));
  if (!shown.includes(chosen)) shown.push(chosen);
  return h("div", { class: "chips", role: "group", "aria-label": "Events of this case" }, shown.map((i) => h("a", { class: "button", href: caseLink(index, i), "aria-current": i === chosen ? "true" : null, "data-tip": item.events.reason[i] }, `${kindMark(item.events.kind[i])[0]} ${when(item.events.day[i], item.events.minute[i], null)}`)));
}

// ------------------------------------------------------------------------------------------- one event
function eventPanel(item, i) {
  const e = item.events, panel = h("section", { class: "panel", "aria-label": "Event", "aria-live": "polite" });
  const explained = kindMark(e.kind[i])[2];
  panel.append(
    h("div", { class: "event-head" }, h("h2", {}, when(e.day[i], e.minute[i], e.length[i])), h("span", { class: "hint" }, item.zones.join(", ")), e.alert[i] ? h("span", { class: "kind" }, "alert") : h("span", { class: "hint" }, "no alert"), kindChip(e.kind[i])),
    h("p", {}, e.reason[i] || "No reason was given."),
    h("p", { class: "hint" }, `score ${figure(e.score[i])}, p = ${chance(e.p[i])}${e.alert[i] || e.surprise[i] > 2 ? `. ${explained}` : ""}`));
  const rows = DATA.features.filter((f) => e.terms[f.name]).flatMap((f) => termRow(f, e.terms[f.name], i));
  if (e.terms.knn && e.terms.knn.share[i] !== null) rows.push(h("div", { class: "term-label" }, "as a whole"), h("div", { class: "term-words" }, `distance to the nearest known ${plurals(DATA.words.event)}`), shareBar(e.terms.knn.share[i]));
  if (rows.length) panel.append(h("div", { class: "terms" }, h("div", { class: "share-words" }, "feature"), h("div", { class: "share-words" }, "expected ± one spread, and observed"), h("div", { class: "share-words" }, "share of score"), rows));
  panel.append(h("div", { class: "words" }, uncertaintyWords(e, i), usualWords(item, i)));
  return panel;
}
function shareBar(share) {
  if (share === null || share === undefined) return h("div", { class: "share-words" }, "not scored");
  return h("div", { class: "share-row" }, h("div", { class: "share", role: "img", "aria-label": `${Math.round(100 * share)} per cent of the score` }, h("i", { style: { width: `${Math.round(100 * share)}%` } })), h("div", { class: "share-words" }, `${Math.round(100 * share)} %`));
}
function termRow(feature, term, i) {
  const share = term.share ? term.share[i] : null;
  return [h("div", { class: "term-label" }, feature.label), h("div", { class: "term-words" }, termBody(feature, term, i)), shareBar(share)];
}
function termBody(feature, term, i) {
  if (feature.kind === "categorical") {
    const same = term.expected[i] === term.observed[i];
    if (!term.expected[i]) return h("span", {}, h("b", {}, term.observed[i]));
    return same ? h("span", {}, h("b", {}, term.observed[i]), ", as expected") : h("span", {}, "expected ", h("b", {}, term.expected[i]), ", observed ", h("b", {}, term.observed[i]));
  }
  if (feature.kind === "vector") return h("span", {}, term.percentile && term.percentile[i] !== null ? `more unusual than ${Math.floor(1000 * term.percentile[i]) / 10} % of ${plurals(DATA.words.event)}` : "not known");
  const observed = term.observed[i], spread = term.spread[i], expected = feature.kind === "place" ? 0 : term.expected[i];
  if (observed === null || expected === null) return h("span", {}, observed === null ? "not observed" : h("b", {}, shown(feature, observed)));
  const words = feature.kind === "place"
    ? [h("b", {}, distance(observed)), " from the expected place", spread === null ? "" : `, ± ${distance(spread)}`]
    : ["expected ", h("b", {}, shown(feature, expected)), spread === null ? "" : ` ± ${spreadWords(feature, spread)}`, ", observed ", h("b", {}, shown(feature, observed))];
  return [featureAxis(feature, expected, spread || 0, observed), h("span", {}, words)];
}
function shown(feature, value) {
  if (feature.display === "clock") return clock(value);
  if (feature.display === "duration") return duration(value);
  if (feature.display === "distance") return distance(value);
  return `${figure(value)}${feature.unit ? ` ${feature.unit}` : ""}`;
}
function spreadWords(feature, value) { return feature.display === "clock" ? duration(value) : shown(feature, value); }

// A small axis: the band is one standard deviation around the expected value, the diamond is what was observed.
function featureAxis(feature, expected, spread, observed) {
  const W = 260, H = 22, cyclic = feature.kind === "cyclic", period = Number(feature.period) || 1440;
  const low = cyclic ? 0 : feature.kind === "place" || feature.display === "duration" ? 0 : Math.min(expected - 2.5 * spread, observed);
  const high = cyclic ? period : Math.max(expected + 2.5 * spread, observed, low + 1e-9) * (low < 0 ? 1 : 1.04);
  const x = linear(low, high, 6, W - 6), inside = (v) => Math.max(0, Math.min(W, v));
  const svg = s("svg", { class: "axis", viewBox: `0 0 ${W} ${H}`, width: "100%", "aria-hidden": "true" });
  svg.append(s("line", { class: "rail", x1: 0, x2: W, y1: H / 2, y2: H / 2 }));
  const band = (a, b) => svg.append(s("rect", { class: "band", x: inside(x(a)), y: 4, width: Math.max(1, inside(x(b)) - inside(x(a))), height: H - 8, rx: 3 }));
  const wraps = cyclic && (expected - spread < 0 || expected + spread > period);
  if (wraps && 2 * spread < period) {
    band(0, (expected + spread) % period > (expected - spread + period) % period ? period : (expected + spread + period) % period);
    band((expected - spread + period) % period, period);
  } else band(Math.max(low, expected - spread), Math.min(high, expected + spread));
  svg.append(s("line", { class: "expected", x1: x(expected), x2: x(expected), y1: 2, y2: H - 2 }), s("path", { class: "observed", d: `M${inside(x(observed))} ${H / 2 - 7}l6 7l-6 7l-6 -7z` }));
  return svg;
}

// ----------------------------------------------------------------------------------------------- words
function uncertaintyWords(e, i) {
  const eu = e.eu[i], au = e.au[i], night = e.minute[i] < 360 || e.minute[i] >= 1320 ? "nights" : "days";
  const epistemic = eu === null ? null : eu > 0.9 ? `The model has seen few ${night} like this (more uncertain than ${Math.round(100 * eu)} % of ${plurals(DATA.words.event)}).` : eu > 0.6 ? `The model has seen some ${night} like this.` : `The model knows ${night} like this well.`;
  const aleatoric = au === null ? null : au > 0.9 ? "What happens here varies much by itself." : au > 0.6 ? "What happens here varies somewhat by itself." : "What happens here is usually regular.";
  return [epistemic && h("p", {}, h("b", {}, "How sure the model was. "), epistemic), aleatoric && h("p", {}, h("b", {}, "How regular it is. "), aleatoric)];
}
// What the training days show at the minute the event began: on the same weekday, and on all days.
function usualWords(item, i) {
  const before = item.before;
  if (!before || DATA.words.point) return null;
  const day = item.events.day[i], minute = item.events.minute[i], same = new Map(), all = new Map();
  const days = new Set(), sameDays = new Set();
  for (let j = 0; j < before.day.length; j++) {
    const start = before.day[j] * 1440 + before.minute[j], end = start + before.length[j];
    for (let d = before.day[j]; d * 1440 <= end; d++) {
      const at = d * 1440 + minute;
      if (at < start || at >= end) continue;
      all.set(before.category[j], (all.get(before.category[j]) || 0) + 1);
      days.add(d);
      if (weekday(d) === weekday(day)) { same.set(before.category[j], (same.get(before.category[j]) || 0) + 1); sameDays.add(d); }
    }
  }
  const words = (counts) => [...counts].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([c, n]) => `${c} ${n}×`).join(", ");
  if (!days.size) return h("p", {}, h("b", {}, "Usually at this time. "), `Nothing is known of ${clock(minute)} from before.`);
  return h("p", {}, h("b", {}, "Usually at this time. "), `At ${clock(minute)} on ${LONG_DAYS[weekday(day)]}s: ${sameDays.size ? words(same) : "nothing known"}. On all ${count(days.size)} days known: ${words(all)}.`);
}
