// Which part of a list is shown, and links to the parts before and after it.
import { h } from "./dom.js";
import * as say from "./words.js";

// `to(offset)` is the address of the part that begins there.
export function pager(to, { total, from, size, shown }, word) {
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("span", {}, `${say.count(from + 1)}–${say.count(from + shown)} of ${say.count(total)} ${say.plural(word)}`),
    from > 0 ? h("a", { href: to(Math.max(0, from - size)), "data-link": true }, "← before") : null,
    from + shown < total ? h("a", { href: to(from + size), "data-link": true }, "next →") : null);
}
