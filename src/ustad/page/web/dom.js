// Small helpers to build the page: elements, SVG, a tooltip, messages. No markup is ever made from data.
const SVG = "http://www.w3.org/2000/svg";

// Characters that turn the direction of a text, or that nobody sees, as their codes: an id must not look like another.
const UNSEEN = /[\u007f-\u009f\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
export const visible = (text) => text.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
const SAID = ["data-tip", "aria-label", "title"];

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    else if (name === "vars") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value === true ? "" : SAID.includes(name) ? visible(String(value)) : value);
  }
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) element.append(typeof child === "string" ? visible(child) : child);
  return element;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const byId = (id) => document.getElementById(id);
export const show = (place, ...children) => place.replaceChildren(...children.flat(3).filter((c) => c).map((c) => typeof c === "string" ? visible(c) : c));

// What comes, as grey shapes, while it is loading.
export const skeleton = (rows, kind = "line") => h("div", { class: "skeleton", "aria-busy": "true", "aria-label": "Loading" }, Array.from({ length: rows }, () => h("span", { class: kind })));

export const empty = (title, text, ...more) => h("div", { class: "empty" }, h("b", {}, title), h("p", {}, text), ...more);

export function failure(error, again) {
  return h("div", { class: "empty failed", role: "alert" }, h("b", {}, "That did not work"), h("p", {}, error.message), again ? h("button", { type: "button", on: { click: again } }, "Try again") : null);
}

export function toast(text, open) {
  const item = open ? h("button", { type: "button", class: "toast", on: { click: () => { item.remove(); open(); } } }, text) : h("div", { class: "toast" }, text);
  byId("toasts").append(item);
  setTimeout(() => item.remove(), 8000);
}

// One tooltip for everything that carries data-tip; it also shows on keyboard focus.
export function tooltips() {
  const tip = byId("tip");
  const place = (x, y) => {
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
  };
  const enter = (target, x, y) => {
    const holder = target.closest?.("[data-tip]");
    tip.hidden = !holder;
    if (!holder) return;
    tip.textContent = holder.dataset.tip;
    place(x, y);
  };
  document.addEventListener("mousemove", (e) => enter(e.target, e.clientX, e.clientY));
  document.addEventListener("focusin", (e) => { const box = e.target.getBoundingClientRect(); if (e.target.matches(":focus-visible")) enter(e.target, box.left, box.bottom - 12); });
  document.addEventListener("focusout", () => { tip.hidden = true; });
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);
}
