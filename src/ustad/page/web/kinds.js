// Words for the stored kinds and their meaning. Written by `python benchmarks/words_page.py`; do not edit.
export const KINDS = {
  "predictable": ["not as expected", "What happened is not what was expected."],
  "predictable/start": ["unexpected time", "A known place, but not at this hour or not for so long."],
  "predictable/duration": ["unexpected time", "A known place, but not at this hour or not for so long."],
  "predictable/end": ["unexpected time", "A known place, but not at this hour or not for so long."],
  "predictable/leaving": ["unexpected time", "A known place, but not at this hour or not for so long."],
  "predictable/memory_start": ["unexpected time", "A known place, but not at this hour or not for so long."],
  "predictable/memory_duration": ["unexpected time", "A known place, but not at this hour or not for so long."],
  "predictable/memory_place": ["unexpected place", "Not where they were expected at this hour."],
  "predictable/poi": ["unexpected place", "Not where they were expected at this hour."],
  "predictable/x": ["unexpected place", "Not where they were expected at this hour."],
  "predictable/y": ["unexpected place", "Not where they were expected at this hour."],
  "predictable/elsewhere": ["missed routine", "At this hour they are usually somewhere else."],
  "novel": ["not seen before", "Nothing like it is in what was learnt from."],
  "novel/recurrence": ["new place", "Not among the places of the days learnt from."],
  "novel/distance": ["new place", "Not among the places of the days learnt from."],
  "novel/new_kind": ["new place", "Not among the places of the days learnt from."],
  "novel/start": ["new place", "Not among the places of the days learnt from."],
  "novel/duration": ["new place", "Not among the places of the days learnt from."],
  "novel/end": ["new place", "Not among the places of the days learnt from."],
  "novel/leaving": ["new place", "Not among the places of the days learnt from."],
  "novel/memory_start": ["new place", "Not among the places of the days learnt from."],
  "novel/memory_duration": ["new place", "Not among the places of the days learnt from."],
  "novel/elsewhere": ["new place", "Not among the places of the days learnt from."],
  "novel/memory_place": ["new place", "Not among the places of the days learnt from."],
  "novel/knn": ["unlike anything known", "Nothing like it was seen in training."],
  "routine": ["new routine", "A place that they now visit more often than in all of their history."],
  "unsure": ["seen too little", "Unusual, but few cases like this are known."],
  "unobserved": ["not fully observed", "What makes it unusual rests on a time that nobody observed."],
};
export const kindNames = Object.keys(KINDS).filter((name) => !name.includes("/"));
// In words and what it means, by the question that leads where that says more.
export const kindWords = (name, term) => KINDS[`${name}/${term}`] || KINDS[name] || [name || "", ""];
