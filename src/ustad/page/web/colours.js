// A colour for each category: ten that colour-blind people can tell apart, the rest grey. Common names keep theirs.
const KNOWN = { home: 0, work: 1, eatout: 2, exercise: 3, visit: 4, buygoods: 5, shop: 5, school: 6, healthcare: 7, services: 8, recreation: 9, leisure: 9, restaurant: 2, food: 2 };

// `everywhere`: the categories of the whole run, the most frequent first, so that each has one colour on every page;
// where that is not known, those of these events.
export function colours(events, everywhere = []) {
  const counts = new Map();
  for (const e of events) if (e.category) counts.set(e.category, (counts.get(e.category) || 0) + 1);
  const names = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  const taken = assigned(everywhere.length ? everywhere : names);
  const of = (name) => taken.has(name) ? `var(--c${taken.get(name)})` : "var(--other)";
  const list = names.filter((n) => taken.has(n)).map((n) => [n, of(n)]);
  if (names.length > list.length || events.some((e) => !e.category)) list.push([names.length > list.length ? "others" : "unknown", "var(--other)"]);
  return { of, list };
}

function assigned(names) {
  const taken = new Map(), isFree = (i) => ![...taken.values()].includes(i);
  for (const name of names) { const at = KNOWN[name.toLowerCase().replace(/[^a-z]/g, "")]; if (at !== undefined && isFree(at)) taken.set(name, at); }
  for (const name of names) if (!taken.has(name) && taken.size < 10) taken.set(name, Array.from({ length: 10 }, (_, i) => i).find(isFree));
  return taken;
}

// A colour of the style sheet as it is now, light or dark, for what is drawn without it.
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
