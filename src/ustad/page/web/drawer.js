// One event: its reason, what was expected beside what was observed, what is near it, and the verdict.
import * as api from "./api.js";
import { h, s } from "./dom.js";
import { daysHere } from "./days_here.js";
import { casesOf } from "./in_cases.js";
import { ruleChooser } from "./rules.js";
import { frozen, isKept } from "./frozen.js";
import { address } from "./route.js";
import { kindWords } from "./kinds.js";
import { homePlace, kmApart, NEAR_KM } from "./map_labels.js";
import * as say from "./words.js";

const WIDTH = 240, HEIGHT = 30;
const SAME_KM = 0.05; // as near as this is the same place
const UNREMARKABLE = 0.5; // a surprise below this is nothing to speak of: one in three usual events

export function drawer(detail, about, act) {
  const event = detail.event, told = event.led_by || event, [kind, meaning] = kindWords(told.kind, told.term);
  const scored = event.score !== null;
  return h("section", { class: "panel drawer", "aria-label": "Event" },
    h("div", { class: "drawer-head" }, h("div", {}, h("h2", {}, say.span(told)), h("p", { class: "hint" }, `${[say.what(told), say.minutesOf(told) ? say.duration(say.minutesOf(told)) : "", event.led_by ? `then ${say.what(event)} ${say.span(event)}` : "", `${say.zoneName(event.timezone)} time`].filter(Boolean).join(", ")}`, act.position ? ` · ${act.position}` : "")),
      act.close ? h("button", { type: "button", class: "round", "aria-label": "Close", on: { click: act.close } }, "×") : null),
    scored ? event.reason && h("p", { class: "sentence" }, say.story(event)) : h("p", { class: "sentence" }, "Known, not scored: this is what was learnt from."),
    scored ? h("p", { class: "facts" }, h("b", {}, `Score ${say.number(event.score)}`), ` ${say.rare(event.p_value)} usual events are as unusual. `, act.lead ? `The incident's score is ${say.number(act.lead.score)}: that of what came then, ${say.what(act.lead)} ${say.span(act.lead)}. ` : "", detail.learned_score === null || detail.learned_score === undefined ? "" : `By what verdicts taught it counts as ${say.number(detail.learned_score)}. `, h("span", { class: `kind ${told.kind || ""}` }, kind), " ", meaning) : null,
    act.incident?.length > 1 ? incident(event, act, about) : null,
    act.absences?.length ? h("div", { class: "absences" }, h("h3", {}, "What did not happen"), h("ul", { class: "usually" }, act.absences.map((one) => h("li", {}, one.reason, h("span", { class: "hint" }, ` · ${say.rare(one.p_value)} such visits of usual people do not come`))))) : null,
    act.colour ? daysHere(detail.days, act.colour) : null,
    detail.partial ? h("p", { class: "hint" }, "What is behind its score is in this file for the most unusual ones only.") : null,
    scored ? verdictForm(event, about, act.give) : null,
    scored && !frozen ? casesOf(event, detail.cases || [], about) : null,
    detail.questions ? questions(detail.questions, about) : null,
    detail.features.length ? features(detail, about) : null,
    usually(detail.usually, about),
    detail.company ? company(detail.company) : null,
    neighbours(detail, about, act.open),
    history(detail.verdicts, event.timezone),
    event.lat !== null ? coordinates(event) : null);
}

// What belongs to the same incident: its events by time, each with how far from home, its own score and reason, and what
// joins it to those before; a verdict is of them all.
function incident(event, act, about) {
  const name = (e) => `${say.span(e)}, ${say.what(e)}`, home = act.places && homePlace(act.places);
  const facts = (e, i) => [home && e.lat !== null ? fromHome([e.lon, e.lat], home) : "", `score ${say.number(e.score)}`, i ? joinedBy(e, act) : "", e.id !== event.id && e.reason ? e.reason : ""].filter(Boolean).map((text) => ` · ${text}`).join("");
  return h("div", { class: "incident" }, h("h3", {}, `One incident of ${act.incident.length} ${say.plural(about.event_word)}`),
    h("ul", { class: "usually" }, act.incident.map((e, i) => h("li", {}, e.id === event.id ? h("b", {}, name(e)) : h("a", { href: "#", on: { click: (click) => { click.preventDefault(); act.open(e.id); } } }, name(e)), e.echo ? "" : " · the most unusual", h("span", { class: "hint" }, facts(e, i))))),
    frozen ? null : h("p", { class: "hint" }, "One verdict judges them all."));
}

function fromHome(at, home) {
  const km = kmApart(at, [home.lon, home.lat]);
  return km <= NEAR_KM ? "at home" : `${say.distance(km)} from home`;
}

// Why an event is in the incident, as `scoring/incidents.py` joins them: it came right after one of it, or is one more of
// the same.
export function joinedBy(event, { incident, before }) {
  const last = before(event);
  if (last && incident.some((e) => e.id === last.id) && new Date(event.started_at) - new Date(last.started_at) <= 864e5) return "next after the one before";
  return "again here at about the same hour, within a week";
}

// --------------------------------------------------------------------------------------------- questions
// What makes a score: each question with its share, and the plain facts behind it.
function questions(found, about) {
  const facts = [];
  if (found.new_place) facts.push("Not one of their own places in the days learnt from.");
  if (found.visits_now) facts.push(`${found.visits_now === 1 ? "The first" : `Number ${found.visits_now}`} of their ${say.plural(about.event_word)} here since the model was made.`);
  if (found.km_from_own_places) facts.push(`${say.distance(found.km_from_own_places)} from the nearest own place.`);
  const speaks = found.terms.filter((t) => t.share >= 0.005), context = found.terms.filter((t) => t.share < 0.005 && t.surprise >= UNREMARKABLE), rest = found.terms.filter((t) => t.share < 0.005 && t.surprise < UNREMARKABLE);
  const rarity = (t) => h("span", { class: "hint" }, ` · ${say.rare(10 ** -t.surprise)} usual events`), meter = (share) => h("span", { class: "meter" }, h("i", { vars: { width: `${Math.round(100 * share)}%` } }));
  return h("div", {}, h("h3", {}, "What makes it unusual"), facts.length ? h("p", { class: "sure" }, facts.join(" ")) : null,
    h("ul", { class: "usually questions" }, speaks.map((t) => h("li", {}, meter(t.share), `${t.label}: ${Math.round(100 * t.share)} % of the score`, speaks.length > 1 ? rarity(t) : null)), context.map((t) => h("li", { class: "context" }, meter(0), `${t.label}: not counted`, rarity(t)))),
    context.length ? h("p", { class: "hint" }, `The score is that of ${speaks.length === 1 ? "the one question that is rarest by itself" : "the rarest questions together"}, measured once more on usual events, because one of many questions is easily rare. What is not counted has the odds of that question alone.`) : null,
    rest.length ? h("p", { class: "hint" }, `As usual: ${rest.map((t) => t.label).join("; ")}.`) : null);
}

// ------------------------------------------------------------------------------------------- features
function features(detail, about) {
  const shares = !detail.questions; // else the shares stand above, question by question
  return h("div", {}, h("h3", {}, "Expected and observed"), h("table", { class: "features" },
    h("thead", {}, h("tr", {}, ["", "expected ± spread, ◆ observed", ...(shares ? ["share"] : [])].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, detail.features.map((f) => featureRow(f, shares)), shares && detail.knn.share ? wholeRow(detail.knn, about) : null)));
}

function wholeRow(knn, about) {
  return h("tr", {}, h("th", { scope: "row" }, "as a whole"), h("td", {}, `distance to the nearest training ${say.plural(about.event_word)}`), shareCell(knn));
}

function featureRow(f, shares) {
  const [expected, observed] = texts(f);
  return h("tr", { class: f.scored ? null : "unscored" },
    h("th", { scope: "row" }, f.label),
    h("td", {}, axis(f), h("span", { class: "values" }, h("span", {}, expected), h("b", {}, observed))),
    shares ? shareCell(f, f.scored) : null);
}

const shareCell = (f, scored = true) => h("td", { class: "share", "data-tip": scored ? `${Math.round(100 * f.share)} % of what makes it unusual; more unusual than ${(100 * (f.pct ?? 0)).toFixed(1)} % of usual events` : "Not part of the score" }, h("span", { class: "meter" }, h("i", { vars: { width: `${Math.round(100 * f.share)}%` } })), scored ? `${Math.round(100 * f.share)} %` : "–");

function texts(f) {
  if (f.kind === "place") return [!f.spread ? "–" : Math.max(...f.spread) < SAME_KM ? "one place" : `within ${say.distance(Math.max(...f.spread))}`, f.error === null ? "–" : f.error < SAME_KM ? "there" : `${say.distance(f.error)} away`];
  if (f.kind === "vector") return ["", f.pct === null ? "not observed" : f.pct > 0.99 ? "very different from usual" : f.pct > 0.9 ? "different from usual" : "much as usual"];
  const spread = f.spread === null || f.spread === undefined ? "" : ` ± ${f.display === "clock" || f.display === "duration" ? say.duration(f.spread) : say.number(f.spread)}`;
  const isWide = f.display === "duration" ? f.spread > f.expected / 2 : f.display === "clock" && f.spread > 180;
  const expected = f.expected === null || f.expected === undefined ? "–" : isWide ? (f.display === "clock" ? "at any hour" : `varies, about ${say.featureText(f, f.expected)}`) : say.featureText(f, f.expected) + (typeof f.expected === "number" ? spread : "");
  return [expected, say.featureText(f, f.observed)];
}

// A small axis: the band of what was expected, a tick in its middle, a diamond where it was observed.
function axis(f) {
  const middle = f.kind === "place" ? 0 : f.expected, seen = f.kind === "place" ? f.error : f.observed;
  const spread = f.kind === "place" ? (f.spread ? Math.max(...f.spread) : 0) : f.spread || 0;
  if (typeof middle !== "number" || typeof seen !== "number") return null;
  const low = f.display === "clock" ? 0 : Math.min(0, middle, seen), high = f.display === "clock" ? 1440 : Math.max(middle + 2 * spread, seen, 1e-6) * 1.08;
  const x = (v) => 6 + (Math.max(low, Math.min(high, v)) - low) / (high - low) * (WIDTH - 12);
  const svg = s("svg", { class: "axis", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  svg.append(s("line", { class: "base", x1: 6, x2: WIDTH - 6, y1: 16, y2: 16 }));
  const bands = f.display === "clock" ? wrapped(middle - spread, middle + spread) : [[middle - spread, middle + spread]];
  for (const [from, to] of bands) svg.append(s("rect", { class: "band", x: x(from), y: 10, width: Math.max(2, x(to) - x(from)), height: 12, rx: 3 }));
  svg.append(s("line", { class: "middle", x1: x(middle), x2: x(middle), y1: 8, y2: 24 }));
  svg.append(s("path", { class: "seen", d: `M${x(seen)} 9l7 7-7 7-7-7z` }));
  if (f.display === "clock") for (const hour of [0, 6, 12, 18, 24]) svg.append(s("text", { x: x(hour * 60), y: 30, "text-anchor": hour === 0 ? "start" : hour === 24 ? "end" : "middle" }, hour));
  return svg;
}

function wrapped(from, to) {
  if (to - from >= 1440) return [[0, 1440]];
  const a = ((from % 1440) + 1440) % 1440, b = ((to % 1440) + 1440) % 1440;
  return a <= b ? [[a, b]] : [[a, 1440], [0, b]];
}

function usually(usual, about) {
  if (!usual.weekday) return null;
  const what = usual.what.length ? h("ul", { class: "usually" }, usual.what.map((w) => h("li", {}, h("span", { class: "meter" }, h("i", { vars: { width: `${Math.round(100 * w.share)}%` } })), `${w.category}: ${w.days} of ${usual.days}`))) : h("p", { class: "sure" }, "Never observed at this hour of this weekday before.");
  return h("div", {}, h("h3", {}, `Usually on a ${usual.weekday} at ${say.clock(usual.minute)}`), what);
}

// Whether other people do this at this hour, who else was there who is usually not, and who usually is and was not.
function company({ peers, others }) {
  const lines = [];
  if (peers?.people) lines.push(`${peers.alike ? `${say.count(peers.alike)} of` : "None of"} the ${say.count(peers.people)} other ${peers.people === 1 ? "person" : "people"} who came somewhere at this hour, on the ${peers.days} days before, came to: ${peers.category}.`);
  if (others) lines.push(others.people ? `${say.count(others.people)} other ${others.people === 1 ? "person was" : "people were"} there at the same time${others.new.length ? "; usually not there: " : "."}` : "Nobody else was there at the same time.");
  if (!lines.length) return null;
  const links = (people, tell) => people.map((n, i) => [i ? ", " : "", isKept(n.agent_id) ? h("a", { href: address.agent(n.agent_id), "data-link": true }, n.agent_id) : n.agent_id, ` (${tell(n)})`]);
  const missed = others?.missed || [], where = (n) => n.where === null ? "not observed then" : `then at: ${n.where}`;
  return h("div", { class: "company" }, h("h3", {}, "Other people"), h("p", { class: "sure" }, lines.join(" "), links(others?.new || [], (n) => n.visits ? "once before" : "never before")),
    missed.length ? h("p", { class: "sure" }, "Usually here at this hour and missed: ", links(missed, (n) => `${n.days} of ${n.of} such days; ${where(n)}`), ".") : null);
}

// Near in everything the network looks at (all training events), and near in place and time (the agent's own).
function neighbours(detail, about, open) {
  const all = detail.knn.pct === null || detail.knn.pct === undefined ? null : h("p", { class: "sure" }, h("span", { class: "meter" }, h("i", { vars: { width: `${Math.round(100 * detail.knn.pct)}%` } })),
    `Farther from the nearest training ${say.plural(about.event_word)} of everybody than ${(Math.floor(1000 * detail.knn.pct) / 10).toFixed(1)} % of usual ones`, h("span", { class: "hint" }, ` (mean distance ${say.number(detail.knn.distance)})`));
  const own = nearest(detail.nearest, open);
  return all || own ? h("div", { class: "neighbours" }, h("h3", {}, "Nearest known events"), all, own) : null;
}

function nearest(items, open) {
  if (!items.length) return null;
  return h("div", {}, h("p", { class: "hint" }, "Their own, nearest in place, time of day and length:"), h("ul", { class: "nearest" }, items.map((n) => h("li", {}, open ? h("button", { type: "button", class: "plain", on: { click: () => open(n.id) } }, `${say.span(n)}: ${say.what(n)}`) : `${say.span(n)}: ${say.what(n)}`, h("span", { class: "hint" }, [n.km === null ? "" : `${say.distance(n.km)} away`, `${n.hours} h apart in the day`].filter(Boolean).join(", "))))));
}

function history(verdicts, zone) {
  if (!verdicts.length) return null;
  return h("div", {}, h("h3", {}, "Verdicts so far"), h("ul", { class: "nearest" }, verdicts.map((v) => h("li", {}, `${say.VERDICTS[v.verdict] || v.verdict}${v.reason ? `: ${v.reason}` : ""}${v.note ? ` (${v.note})` : ""}`, h("span", { class: "hint" }, `by ${v.by}, ${say.date(v.at, "UTC")} ${say.time(v.at, "UTC")} UTC${v.until ? `, until ${say.untilText(v.until, zone)}` : ""}`)))));
}

function coordinates(event) {
  const place = h("span");
  return h("p", { class: "hint" }, h("button", { type: "button", class: "plain", on: { click: () => { place.textContent = ` ${event.lat.toFixed(5)}, ${event.lon.toFixed(5)}`; } } }, "Show coordinates"), place);
}

// -------------------------------------------------------------------------------------------- verdict
function verdictForm(event, about, give) {
  if (frozen) return null;
  if (!about.roles.includes("verdict")) return h("p", { class: "hint" }, "This key may look, not decide.");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const until = say.isoDay(say.local(Date.now() + 90 * 864e5, event.timezone).day);
  const note = h("textarea", { rows: 2, id: "note", placeholder: "Note (optional)" });
  const reason = h("input", { id: "reason", list: "reasons", required: true, maxlength: 500, placeholder: "because …" });
  const ends = h("input", { type: "date", id: "until", value: until });
  const moment = () => ends.value ? say.endOfDay(ends.value, event.timezone) : say.endOfDay(until, event.timezone), rule = ruleChooser(event, moment);
  ends.addEventListener("change", rule.preview);
  const more = h("div", { class: "because", hidden: true }, h("label", { for: "reason" }, "Explained, because"), reason,
    h("datalist", { id: "reasons" }, ["new place of work", "moved house", "travel", "holiday", "sickness", "a known appointment", "a fault in the data"].map((r) => h("option", { value: r }))),
    h("label", { for: "until", "data-tip": `To the end of this day in ${say.zoneName(event.timezone)}` }, "until"), ends, rule.root, h("button", { type: "submit", class: "main" }, "Save"));
  const send = async (verdict) => {
    try {
      const hidden = verdict.verdict === "expected" ? rule.content(reason.value, moment()) : null;
      if (hidden) await api.addRule(hidden);
      await give({ note: note.value, ...verdict });
    }
    catch (error) { problem.hidden = false; problem.textContent = `${error.message} What you typed is still here.`; }
  };
  const judged = say.state(event);
  return h("form", { class: "verdict", "aria-label": "Verdict", on: { submit: (e) => { e.preventDefault(); send({ verdict: "expected", reason: reason.value, until: ends.value ? say.endOfDay(ends.value, event.timezone) : null }); } } },
    judged ? h("p", { class: `state ${judged[1]}` }, judged[0], event.verdict?.reason ? `: ${event.verdict.reason}` : "", event.verdict ? h("button", { type: "button", class: "plain", on: { click: () => send({ verdict: "open" }) } }, "take back") : null) : null,
    h("div", { class: "buttons" },
      h("button", { type: "button", "data-act": "confirm", on: { click: () => send({ verdict: "confirmed" }) } }, "Confirmed ", h("kbd", {}, "c")),
      h("button", { type: "button", "data-act": "expect", "aria-expanded": "false", on: { click: (e) => { more.hidden = false; e.currentTarget.setAttribute("aria-expanded", "true"); reason.focus(); } } }, "Explained … ", h("kbd", {}, "e")),
      h("button", { type: "button", "data-act": "wrong", "data-tip": "The data is bad, or the program is mistaken", on: { click: () => send({ verdict: "wrong", reason: reason.value }) } }, "Wrong ", h("kbd", {}, "w"))),
    more, h("label", { class: "quiet", for: "note" }, "Note"), note, problem);
}
