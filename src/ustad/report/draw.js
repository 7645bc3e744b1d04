// Shared by every view: the data, elements without markup from data, words for numbers and times, colours.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

// ---------------------------------------------------------------------------------------------- elements
// Text only ever enters the page as text nodes and attributes, so nothing in the data can become markup.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const clear = (element) => { element.replaceChildren(); return element; };

// ------------------------------------------------------------------------------------------------- words
const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const weekday = (day) => ((day + 3) % 7 + 7) % 7;
const isWeekend = (day) => weekday(day) > 4;
function dateOf(day) { return new Date(day * 864e5); }
function shortDate(day) { const d = dateOf(day); return `${DAYS[weekday(day)]} ${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]}`; }
function longDate(day) { return `${shortDate(day)} ${dateOf(day).getUTCFullYear()}`; }
function clock(minute) {
  const m = ((Math.round(minute) % 1440) + 1440) % 1440;
  return `${String(Math.floor(m / 60)).padStart(2, "0")}:${String(m % 60).padStart(2, "0")}`;
}
function duration(minutes) {
  const m = Math.round(Math.abs(minutes)), seconds = Math.round(Math.abs(minutes) * 60), sign = minutes < 0 && seconds ? "−" : "";
  if (m === 0 && seconds) return `${sign}${seconds} s`; // as words.minutes_words
  if (m < 60) return `${sign}${m} min`;
  if (m < 1440) return `${sign}${Math.floor(m / 60)} h${m % 60 ? ` ${m % 60} min` : ""}`;
  const hours = Math.round(m / 60);
  return `${sign}${Math.floor(hours / 24)} d${hours % 24 ? ` ${hours % 24} h` : ""}`;
}
function distance(km) { return km < 1 ? `${Math.round(km * 100) * 10} m` : `${km < 10 ? km.toFixed(1) : Math.round(km)} km`; }
function count(n) { return n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en"); }
function plural(n, word) { return `${count(n)} ${n === 1 ? word : plurals(word)}`; }
function plurals(word) { return /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}${/(s|x|z|ch|sh)$/.test(word) ? "es" : "s"}`; } // as schema.plural
function figure(v) {
  if (v === null || v === undefined) return "–";
  const a = Math.abs(v);
  return a >= 100 ? count(v) : a >= 10 ? v.toFixed(1) : a >= 1 ? v.toFixed(2) : a >= 0.001 || a === 0 ? v.toFixed(3) : v.toExponential(1);
}
function chance(p) {
  if (p === null || p === undefined) return "–";
  if (p >= 0.001) return p.toFixed(3);
  const [lead, power] = p.toExponential(1).split("e");
  return `${lead} × 10${small(power)}`;
}
function when(day, minute, length) {
  const midnights = Math.floor(Math.round(minute) / 1440), start = `${shortDate(day + midnights)}, ${clock(minute)}`; // the nearest minute may be the next day's first
  if (DATA.words.point || length === null) return start;
  const end = minute + length, later = Math.floor(end / 1440) - midnights;
  return `${start}–${clock(end)}${later ? ` (+${later} d)` : ""}`;
}
const named = (id) => (id.toLowerCase().startsWith(DATA.words.entity) ? id : `${DATA.words.entity} ${id}`);
const capital = (word) => (/^\w*_/.test(word) ? word : word.charAt(0).toUpperCase() + word.slice(1));

const KINDS = {
  predictable: ["▲", "expected otherwise", "The model was sure of something else."],
  novel: ["◆", "not seen before", "Unlike anything in what the model learned from."],
  unsure: ["●", "the model was unsure", "Far from what was expected, but the model was not sure what to expect."],
  unobserved: ["□", "data missing", "Driven by what was not observed: look at the data before the person."],
};
const kindMark = (kind) => (KINDS[kind] || ["○", kind || "", ""]);
const kindChip = (kind) => kind ? h("span", { class: "kind", "data-tip": kindMark(kind)[2] }, `${kindMark(kind)[0]} ${kind}`) : null;

// ----------------------------------------------------------------------------------------------- colours
const COLOURED = 10;
const rankOfCategory = new Map(DATA.categories.map((word, i) => [word, i]));
function colour(category) {
  const rank = rankOfCategory.get(category);
  return rank === undefined || rank >= COLOURED || category === "unknown" ? "var(--other)" : `var(--c${rank})`;
}
// Darkness of a cell: surprise (−log10 p) against what the darkest one means.
const DARKEST = Math.min(6, Math.max(4, ...DATA.top.slice(0, 1).map((e) => Math.ceil(-Math.log10(Math.max(e.p, 1e-12))))));
const darkness = (surprise) => Math.max(0, Math.min(1, (surprise - 0.9) / (DARKEST - 0.9)));
const SMALL_DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const small = (n) => [...String(n)].map((c) => (c === "-" ? "⁻" : SMALL_DIGITS[c])).join("");
// Text that reads on a bar of this category: light on the darker colours.
const inkOn = (category) => ([1, 3, 6, 7].includes(rankOfCategory.get(category)) ? "#fff" : "#10131a");

// ------------------------------------------------------------------------------------------------ scales
const linear = (from, to, low, high) => (v) => low + (high - low) * (to === from ? 0.5 : (v - from) / (to - from));
function niceStep(span, parts) {
  const raw = span / parts, power = 10 ** Math.floor(Math.log10(raw || 1)), lead = raw / power;
  return (lead > 5 ? 10 : lead > 2 ? 5 : lead > 1 ? 2 : 1) * power;
}

// ---------------------------------------------------------------------------------------------- tooltips
function startTips() {
  const tip = byId("tip");
  const show = (event) => {
    const target = event.target.closest("[data-tip]");
    if (!target || !target.dataset.tip) { tip.hidden = true; return; }
    tip.textContent = target.dataset.tip;
    tip.hidden = false;
    const box = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(6, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 6);
    const above = box.top - own.height - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : Math.min(box.bottom + 6, innerHeight - own.height - 4)}px`;
  };
  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);
}

// ------------------------------------------------------------------------------------- where things lie
const caseOf = new Map(DATA.cases.map((c, i) => [c.id, i]));
const rankOfAgent = new Map(DATA.agents.id.map((id, i) => [id, i]));
function caseLink(index, event) { return `#case=${index}${event === undefined || event < 0 ? "" : `&event=${event}`}`; }
// The most unusual event of a case, or the most unusual one of a day.
function worstEvent(index, day) {
  const events = DATA.cases[index].events;
  let best = -1;
  for (let i = 0; i < events.day.length; i++) {
    if (day !== undefined && events.day[i] !== day) continue;
    if (best < 0 || events.score[i] > events.score[best]) best = i;
  }
  return best;
}
function eventIndex(index, name, day, minute) {
  const events = DATA.cases[index].events;
  return events.day.findIndex((d, i) => d === day && events.minute[i] === minute && (!name || events.event[i] === name));
}
