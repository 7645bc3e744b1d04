"""The tables of docs/evidence/hiding.md, written from result files.

python benchmarks/hiding_tables.py            writes them into the page, between their marks

`questions.json` is of benchmarks/questions.py, `cost_to_hide.json` of benchmarks/cost_to_hide.py, `lasting.json` of
benchmarks/lasting.py, `company.json` of benchmarks/company.py, `ways.json`
of benchmarks/ways.py, `household.json` of benchmarks/household.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from marked_pages import DOCS, read, table, write

PAGE = DOCS / "evidence" / "hiding.md"


def kinds() -> str:
    """Agents' AUROC by kind: the first red team's in the sets above, the second one's at its standard sizes."""
    content = read("questions")
    first: dict[str, list[float]] = {}
    for line in (line for line in content["lines"] if line["without"] == "none"):
        for kind, value in line["kinds"].items():
            first.setdefault(kind, []).append(value)
    old = sorted(((kind, float(np.mean(values))) for kind, values in first.items()), key=lambda pair: -pair[1])
    curves = read("cost_to_hide")["kinds"]
    new = sorted(
        ((kind, _standard(curve)) for kind, curve in curves.items()), key=lambda pair: -pair[1]["agents_auroc"]
    )
    rows: list[tuple[str, ...]] = []
    for n in range(max(len(old), len(new))):
        left = (old[n][0], f"{old[n][1]:.3f}") if n < len(old) else ("", "")
        right = ("", "", "")
        if n < len(new):
            right = (new[n][0], f"{new[n][1]['agents_auroc']:.3f}", f"{100 * new[n][1]['agents_caught']:.0f} %")
        rows.append((*left, *right))
    return table(("first red team", "agents AUROC", "second red team", "agents AUROC", "caught"), rows)


def _standard(curve: dict[str, Any]) -> dict[str, Any]:
    """The row of a kind's standard size."""
    return dict(min(curve["rows"], key=lambda row: abs(row["factor"] - 1.0)))


def cost() -> str:
    """The size of each kind at which half are missed, and the share caught at some sizes."""
    content = read("cost_to_hide")
    rows: list[tuple[str, ...]] = []
    for kind, curve in content["kinds"].items():
        measured = [row for row in curve["rows"] if row["agents_caught"] is not None]  # others had room for nobody
        hidden, smallest, largest = curve["half_hidden"], measured[0]["size"], measured[-1]["size"]
        half = (
            f"more than {_plain(largest)}"
            if hidden is None
            else f"{_plain(hidden)}"
            if hidden
            else f"below {_plain(smallest)}"
        )
        caught = ", ".join(f"{_plain(row['size'])}: {100 * row['agents_caught']:.0f} %" for row in measured)
        rows.append((kind, f"{half} {curve['unit']}", caught))
    settings = content["settings"]
    said = (
        f"Preset `{settings['scorer']}`, {len(settings['seeds'])} simulated {settings['preset']}s of "
        f"{settings['agents']:,} people (seeds {', '.join(map(str, settings['seeds']))}), {settings['share']:.0%} of "
        f"them anomalous, {settings['alerts_a_day_per_1000']} alerts a day per 1,000 people."
    )
    return f"{said}\n\n{table(('kind', 'half are missed at', 'caught, by size'), rows)}"


def _plain(size: float) -> str:
    return f"{size:,.0f}" if size >= 100 else f"{size:.3g}"


def lasting() -> str:
    """Lasting changes by kind, and false ones."""
    content = read("lasting")
    rows: list[tuple[str, ...]] = [
        (
            kind,
            str(figures["people"]),
            f"{100 * figures['found']:.0f} %",
            "" if figures["days"] is None else f"{figures['days']:.0f}",
            "" if figures["off"] is None else f"{figures['off']:.0f}",
        )
        for kind, figures in content["kinds"].items()
    ]
    rows.append(("all", str(content["people"]), f"{100 * content['found']:.0f} %", "", ""))
    false = ", ".join(f"{100 * share:.2f} %" for share in content["false"])
    said = (
        f"Of {content['normal']:,} people who go on as before, {false} ever have p ≤ 0.05, 0.01 and 0.001 in two to "
        f"four weeks. A change is told at p ≤ {content['level']:g}."
    )
    return f"{table(('change', 'people', 'found within 14 days', 'days until told', 'days off'), rows)}\n\n{said}"


def company() -> str:
    """Groups of people: true ones, p-values, and what each question is worth."""
    lines = read("company")["lines"]
    met = [line for line in lines if line["team"] == "meetings"]
    rows = [
        (
            line["city"],
            f"{line['true_groups']} of {line['groups']}",
            f"{line['people_named']} of {line['people']}",
            f"{line['precision']:.2f}",
            *(f"{line['ap'][name]:.3f}" for name in ("none", "new", "people", "summed")),
            f"{line['before']['true']} of {line['before']['pairs']}",
        )
        for line in met
    ]
    total = {n: sum(line[n] for line in met) for n in ("true_groups", "groups", "people_named", "people")}
    ap = [f"{np.mean([line['ap'][name] for line in met]):.3f}" for name in ("none", "new", "people", "summed")]
    old = {name: sum(line["before"][name] for line in met) for name in ("true", "pairs")}
    rows.append(
        (
            "all", f"{total['true_groups']} of {total['groups']}", f"{total['people_named']} of {total['people']}",
            f"{np.mean([line['precision'] for line in met]):.2f}", *ap, f"{old['true']} of {old['pairs']}",
        )
    )  # fmt: skip
    head = (
        "city",
        "true groups",
        "people named",
        "precision",
        "AP",
        "without new",
        "without people",
        "summed",
        "before",
    )
    small = np.mean([line["small_p"] for line in lines], axis=0)
    by_team = {
        team: np.mean([line["groups_a_day"] for line in lines if line["team"] == team])
        for team in ("nobody", "first red team")
    }
    said = (
        "Cities of 500 people, 24 of whom meet (`benchmarks/company.py`; `quick`). Precision is of the first group a "
        "day per 1,000 people, AP of pairs. Without a question: to how many the place is new, how many people go "
        "there. *Summed* adds how unusual the less unusual event is; it costs AP and only orders equally rare groups. "
        "*Before* is the rule that this one replaced."
    )
    rates = (
        f"Pairs of others have p ≤ 0.05, 0.01 and 0.001 {small[0]:.2f}, {small[1]:.2f} and {small[2]:.2f} times as "
        f"often as that says. {by_team['nobody']:.1f} groups a day per 1,000 people are told where nobody misbehaves, "
        f"and {by_team['first red team']:.1f} with the first red team."
    )
    return f"{said}\n\n{table(head, rows)}\n\n{rates}"


def ways() -> str:
    """Routes never taken, by the rule and with a look more, and what that costs the towns' own red team."""
    content = read("ways")
    lines, names = content["lines"], ("rule", "way", "longer", "way + longer")

    def mean(name: str, what: str, level: str) -> np.ndarray:
        return np.array(np.mean([line[name][what][level] for line in lines], axis=0))

    rows = [
        (
            name if name == "rule" else f"rule, {name}",
            *("{:.3f} / {:.3f}".format(*mean(name, "bent", level)) for level in ("events", "agents")),
            *("{:.3f} / {:.3f}".format(*mean(name, "own", level)) for level in ("events", "agents")),
            f"{mean(name, 'own', 'precision'):.3f}",
        )
        for name in names
    ]
    alone = {name: np.mean([line[f"{name} alone"] for line in lines], axis=0) for name in ("way", "longer")}
    head = ("judged by", "bent: events", "bent: people", "red team: events", "red team: people", "precision")
    gain = mean("way", "bent", "events")[1] - mean("rule", "bent", "events")[1]
    cost = {level: mean("way", "own", level)[1] - mean("rule", "own", level)[1] for level in ("events", "agents")}
    earns = gain >= content["gain"] and min(cost.values()) >= -content["loss"]
    said = (
        f"{len(lines)} towns from GPS (`benchmarks/ways.py`, {', '.join(line['set'] for line in lines)}); AUROC / AP. "
        "*Bent*: a tenth of the normal people take two usual trips by a way 1 km to the side, at the same times. By "
        "itself, the share of the path that is new to the person finds the stays after them with "
        f"{alone['way'][0]:.3f} / {alone['way'][1]:.3f}, the length of the trip with {alone['longer'][0]:.3f} / "
        f"{alone['longer'][1]:.3f}."
    )
    verdict = (
        f"To be built in, `way` must raise the AP of stays after bent trips by {content['gain']} (it does by "
        f"{gain:.3f}) and cost the red team at most {content['loss']} of AP (events {cost['events']:+.3f}, people "
        f"{cost['agents']:+.3f}): " + ("it earns its place." if earns else "**not built in**.")
    )
    return f"{said}\n\n{table(head, rows)}\n\n{verdict}"


def household() -> str:
    """Where the others of one's home are, as a question and as an explanation."""
    content = read("household")
    lines = content["lines"]
    rows = [
        (
            line["set"],
            *(
                " → ".join(f"{line[name][level][1]:.3f}" for name in ("rule", "apart"))
                for level in ("events", "agents")
            ),
            *("{} of {}".format(*line["explained"][which]) for which in ("with", "without", "alone")),
        )
        for line in lines
    ]
    gains = {
        level: float(np.mean([line["apart"][level][1] - line["rule"][level][1] for line in lines]))
        for level in ("events", "agents")
    }
    total = {which: np.sum([line["explained"][which] for line in lines], axis=0) for which in ("with", "without")}
    earns = max(gains.values()) >= content["gain"] and min(gains.values()) >= -content["loss"]
    share = {which: true / number for which, (true, number) in total.items()}
    explains = share["with"] <= content["half"] * share["without"]
    head = ("set", "AP of events", "AP of people", "true with the household", "without it", "living alone")
    said = (
        f"`apart` as a look more changes the AP of events by {gains['events']:+.3f} and of people by "
        f"{gains['agents']:+.3f}; {content['gain']} was asked: " + ("it earns its place. " if earns else "**gone**. ")
    )
    said += (
        "The first five incidents a day per 1,000 people are true in "
        f"{share['with']:.0%} where somebody of the household was there too, and in {share['without']:.0%} where "
        "nobody was: company of the household "
        + ("explains them." if explains else "explains nothing, and is not told.")
    )
    return f"{table(head, rows)}\n\n{said}"


BLOCKS = {
    "kinds": kinds, "cost to hide": cost, "lasting changes": lasting, "company": company, "ways": ways,
    "household": household,
}  # fmt: skip

if __name__ == "__main__":
    write(PAGE, BLOCKS)
