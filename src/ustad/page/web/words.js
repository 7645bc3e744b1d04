// How things are said: times in the agent's own zone, durations as people say them, distances in km.
const formats = new Map();

function format(zone, options) {
  const name = zone + JSON.stringify(options);
  if (!formats.has(name)) {
    try { formats.set(name, new Intl.DateTimeFormat("en-GB", { timeZone: zone, hourCycle: "h23", ...options })); }
    catch { formats.set(name, new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", hourCycle: "h23", ...options })); }
  }
  return formats.get(name);
}

// Local date as days since 1970-01-01 and minutes since local midnight.
export function local(moment, zone) {
  const at = new Date(moment);
  const parts = {};
  for (const p of format(zone, { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" }).formatToParts(at)) parts[p.type] = Number(p.value);
  return { day: Date.UTC(parts.year, parts.month - 1, parts.day) / 864e5, minute: parts.hour * 60 + parts.minute + parts.second / 60 };
}

export const clock = (minute) => { const m = ((Math.round(minute) % 1440) + 1440) % 1440; return `${String(Math.floor(m / 60)).padStart(2, "0")}:${String(m % 60).padStart(2, "0")}`; };
const nearest = (moment) => new Date(Math.round(new Date(moment) / 6e4) * 6e4); // the minute that is shown, half a minute up as in the sentences
export const time = (moment, zone) => clock(local(nearest(moment), zone).minute);
export const date = (moment, zone) => format(zone, { weekday: "short", day: "numeric", month: "short" }).format(nearest(moment));
// The moment at which a local day ("2024-03-31") is over, whatever its clocks do; to the minute, in UTC.
export function endOfDay(day, zone) {
  const number = dayNumber(day);
  let before = (number + 1) * 1440 - 15 * 60, after = (number + 1) * 1440 + 15 * 60; // no zone is 15 hours off
  while (after - before > 1) { const middle = Math.floor((before + after) / 2); if (local(middle * 6e4, zone).day > number) after = middle; else before = middle; }
  return new Date(after * 6e4).toISOString();
}
// The last local day that is over at a moment or before it: what `endOfDay` was made from.
export const lastDayUntil = (moment, zone) => isoDay(local(new Date(moment) - 1, zone).day);
// Until when, in words: the end of a local day, or a local date and time.
export function untilText(moment, zone) {
  const day = lastDayUntil(moment, zone);
  return Date.parse(endOfDay(day, zone)) === Date.parse(moment) ? `the end of ${dayText(day)}` : `${dayText(isoDay(local(nearest(moment), zone).day))}, ${time(moment, zone)} ${zoneName(zone)} time`;
}
// The zone, or UTC where the browser does not know it, as in everything said here.
export const knownZone = (zone) => { try { return new Intl.DateTimeFormat("en-GB", { timeZone: zone }) && zone; } catch { return "UTC"; } };
export const zoneName = (zone) => zone.split("/").pop().replaceAll("_", " ");
export const span = (event) => `${date(event.started_at, event.timezone)}, ${time(event.started_at, event.timezone)}–${time(event.finished_at, event.timezone)}${daysLater(event)}`;
// " +1 d" where it ends on the next local day, as the minutes are shown.
function daysLater(event) {
  const later = local(nearest(event.finished_at), event.timezone).day - local(nearest(event.started_at), event.timezone).day;
  return later > 0 ? ` +${later} d` : "";
}
// Long names in a narrow column: the beginning and the end of each, as much as tells them apart.
export function shortNames(names, most = 16) {
  const cut = (name, tail) => name.length <= most ? name : `${name.slice(0, Math.max(4, most - 1 - tail))}…${name.slice(-tail)}`;
  for (let tail = 6; tail < Math.max(7, ...names.map((n) => n.length)); tail += 2) {
    const short = names.map((name) => cut(name, tail));
    if (new Set(short).size === new Set(names).size) return short;
  }
  return names;
}
export const what = (event) => event.place_name ? `${event.place_name}${event.category ? `, ${event.category}` : ""}` : event.category || "unknown";
// What a line says of an alert: its reason, after that of the stay that explains it where there is one; `short` cuts what came then.
export function story(event, short = false) {
  const own = event.reason || `${what(event)}, ${duration(minutesOf(event))}`, led = event.led_by;
  if (!led) return event.with_it ? `${own} ${event.with_it}` : own;
  const then = short ? own.split(/(?<=\.) (?=[A-Z])/)[0] : own;
  return `${led.reason || `${what(led)}, ${time(led.started_at, led.timezone)}–${time(led.finished_at, led.timezone)}.`} Then: ${then}`;
}
export const minutesOf = (event) => (new Date(event.finished_at) - new Date(event.started_at)) / 6e4;
export const dayText = (day) => new Date(day + "T12:00:00Z").toLocaleDateString("en-GB", { timeZone: "UTC", weekday: "short", day: "numeric", month: "short", year: "numeric" });
export const shortDay = (number) => new Date(number * 864e5).toLocaleDateString("en-GB", { timeZone: "UTC", day: "numeric", month: "short" });
export const days = (first, last) => { const form = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", day: "numeric", month: "short", year: "numeric" }); return form.formatRange(new Date(first + "T12:00:00Z"), new Date(last + "T12:00:00Z")); };
export const isoDay = (number) => new Date(number * 864e5).toISOString().slice(0, 10);
export const dayNumber = (iso) => Date.parse(iso + "T00:00:00Z") / 864e5;
export const weekday = (number) => (((number + 3) % 7) + 7) % 7; // 0 is Monday
export const isWeekend = (number) => weekday(number) > 4;
export const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

export function duration(minutes) {
  const m = Math.max(0, Math.round(minutes)), seconds = Math.round(minutes * 60);
  if (m === 0 && seconds > 0) return `${seconds} s`;
  if (m < 60) return `${m} min`;
  if (m < 48 * 60) { const hours = Math.floor(m / 60), rest = m % 60; return rest && hours < 10 ? `${hours} h ${rest} min` : `${Math.round(m / 60)} h`; }
  return `${Math.round(m / 1440)} days`;
}

export const distance = (km) => km < 1 ? `${Math.round(km * 1000)} m` : `${km < 10 ? km.toFixed(1) : Math.round(km)} km`;
export const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);
export const count = (n) => Math.round(n).toLocaleString("en-GB");
export const plural = (word) => /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}${/(s|x|z|ch|sh)$/.test(word) ? "es" : "s"}`; // as schema.plural
export const number = (v) => v === null || v === undefined ? "–" : Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 1 ? v.toFixed(1) : v.toPrecision(2);
export const atLeast = (score, least) => score >= least - 1e-9 * Math.abs(least) - 1e-12; // as ties.lowered
// Rarer than the usual events that a score is compared with can tell, nobody knows how rare.
export const rare = (p) => p === null || p === undefined ? "" : p < 1e-5 ? "fewer than 1 in 100,000" : p >= 0.01 ? `about ${Math.max(1, Math.round(p * 100))} in 100` : `about 1 in ${count(roundNice(1 / p))}`;
const roundNice = (n) => { const power = 10 ** Math.max(0, Math.floor(Math.log10(n)) - 1); return Math.round(n / power) * power; };

export const VERDICTS = { confirmed: "confirmed", expected: "explained", wrong: "wrong", open: "open" };
const SIGNS = { confirmed: "✓", expected: "○", wrong: "✗" };

export function state(event) {
  if (event.verdict) return [`${SIGNS[event.verdict.verdict]} ${VERDICTS[event.verdict.verdict]}`, event.verdict.verdict];
  if (event.hidden_by) return ["◌ hidden by a rule", "marked"];
  return event.marked_by ? ["◌ like one that was explained", "marked"] : null;
}

export function featureText(feature, value) {
  if (value === null || value === undefined) return "–";
  if (feature.display === "clock") return clock(value);
  if (feature.display === "duration") return duration(value);
  if (typeof value === "number") return `${number(value)}${feature.unit ? " " + feature.unit : ""}`;
  return String(value);
}
