// Plays one day: where the person was at a time, from stays and trips. Nothing is said of times that were not observed.
import { h } from "./dom.js";
import * as say from "./words.js";

const DAY = 1440, STEP = 6, EVERY_MS = 90; // minutes of a step, milliseconds between steps

// Stays and trips that touch a local day, with minutes since its midnight.
export function dayParts(parts, day) {
  const minutes = (thing, zone) => [thing.started_at, thing.finished_at].map((m) => { const at = say.local(m, zone); return (at.day - day) * DAY + at.minute; });
  const during = ([from, to]) => from < DAY && to >= 0;
  const stays = parts.events.filter((e) => e.lat !== null).map((e) => ({ event: e, span: minutes(e, e.timezone) })).filter((s) => during(s.span));
  const trips = parts.moves.trips.filter((t) => t.path.length > 1).map((t) => ({ path: t.path, span: minutes(t, parts.agent.timezone) })).filter((t) => during(t.span));
  return { stays, trips };
}

// Where somebody was at a minute of the day: a place and words, or no place where it was not observed.
export function whereAt({ stays, trips }, minute) {
  const covers = ({ span }) => span[0] <= minute && minute <= span[1];
  const stay = stays.find(covers);
  if (stay) return { at: [stay.event.lon, stay.event.lat], text: `at ${say.what(stay.event)}` };
  const trip = trips.find(covers);
  if (trip) return { at: along(trip.path, (minute - trip.span[0]) / Math.max(1e-9, trip.span[1] - trip.span[0])), text: "on the way" };
  return { at: null, text: "not observed" };
}

// The point at a share of a path's length.
export function along(path, share) {
  const narrow = Math.cos(path[0][1] * Math.PI / 180);
  const long = path.slice(1).map((p, i) => Math.hypot((p[0] - path[i][0]) * narrow, p[1] - path[i][1]));
  let left = Math.min(1, Math.max(0, share)) * long.reduce((a, b) => a + b, 0);
  for (let i = 0; i < long.length; i++) {
    if (left <= long[i]) { const part = long[i] ? left / long[i] : 0; return [0, 1].map((k) => path[i][k] + part * (path[i + 1][k] - path[i][k])); }
    left -= long[i];
  }
  return path[path.length - 1];
}

// A button and a slider; `move(point or null)` is called with every step. `show(day)` chooses the day, null for none.
export function dayPlayer(parts, move) {
  let known = null, timer = null;
  const button = h("button", { type: "button", on: { click: () => (timer ? stop() : play()) } });
  const slider = h("input", { type: "range", min: 0, max: DAY, step: STEP, value: 0, "aria-label": "Time of this day", on: { input: () => { stop(); draw(); } } });
  const text = h("output", {});
  const root = h("div", { class: "player", hidden: true }, button, slider, text);
  const draw = () => {
    const minute = Number(slider.value), { at, text: words } = whereAt(known, Math.min(minute, DAY - 0.01));
    text.textContent = `${minute === DAY ? "24:00" : say.clock(minute)} ${words}`;
    slider.setAttribute("aria-valuetext", text.textContent);
    move(at);
  };
  const label = () => { button.textContent = timer ? "❚❚ Pause" : "▶ Play the day"; };
  const stop = () => { clearInterval(timer); timer = null; label(); };
  const play = () => {
    if (Number(slider.value) >= DAY) slider.value = 0;
    timer = setInterval(() => { slider.value = Number(slider.value) + STEP; draw(); if (Number(slider.value) >= DAY) stop(); }, EVERY_MS);
    label();
    draw();
  };
  label();
  return {
    root,
    show(day) {
      stop();
      known = day === null ? null : dayParts(parts, day);
      root.hidden = !known || !(known.stays.length + known.trips.length);
      slider.value = 0;
      text.textContent = "";
      move(null);
    },
    close: stop,
  };
}
