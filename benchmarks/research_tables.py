"""The tables of docs/researchers.md, from the result files of the experiments.

python benchmarks/research_tables.py          writes them into the page, between their marks
"""

from __future__ import annotations

from statistics import fmean

from marked_pages import DOCS, table, write
from small_experiments import say_duration
from ustad.lab.evaluation.claim_verdicts import TOO_FEW
from ustad.lab.evaluation.claims import judge_claims, question_of
from ustad.lab.evaluation.code_states import say_older_code
from ustad.lab.evaluation.experiments import read_results
from ustad.lab.evaluation.fairness_tables import say_wider
from ustad.lab.evaluation.first_screen import count_confirmed
from ustad.lab.evaluation.page import generated_from
from ustad.lab.evaluation.result_tables import Line, Results
from ustad.lab.evaluation.standing import say_lead, say_trips
from ustad.lab.evaluation.stopping import OLDER_MARK, has_ended

PAGE = DOCS / "researchers.md"
RESULTS = DOCS.parent / "results"
NUMOSIM = "numosim-la (2,000 agents)"
LEVELS = ("events", "incidents", "agents")
#: How the page calls a method, and whether its calibrated figures are meant.
ROWS = {
    ("ustad-default", False): "preset `best`",
    ("ustad-quick", False): "preset `quick`",
    ("ustad-plain", False): "preset `paper` without trips",
    ("ustad-plain", True): "the same, calibrated instead of ranked",
    ("ustad-trips", False): "with trips, scored too (older code)",
    ("transformer", False): "Transformer",
    ("sensitive-hue", False): "SensitiveHUE",
    ("distance", False): "distance to own places (a trivial rule)",
    ("visit-rate", False): "visit rate (how often a place is visited, against before)",
}
PUBLIC = {
    "ustad-default": "preset `best`", "ustad-quick": "preset `quick`", "ustad-plain": "preset `paper` without trips",
    "transformer": "Transformer", "sensitive-hue": "SensitiveHUE", "nov-online": "Nov-Online",
    "visit-rate": "visit rate", "distance": "distance to own places", "ibat": "IBAT", "gm-vsae": "GM-VSAE",
    "atrom": "ATROM",
}  # fmt: skip


def figures(lines: list[Line], level: str, calibrated: bool = False) -> str:
    """Mean AUROC and average precision over data sets; a dash where the level was not measured."""
    results = [line["result"].get("calibrated", {}) if calibrated else line["result"] for line in lines]
    parts = [result[level] for result in results if level in result]
    return f"{fmean(p['auroc'] for p in parts):.2f} / {fmean(p['ap'] for p in parts):.2f}" if parts else "–"


#: What the paper's claims are about, by the question of the results page.
CLAIMS_ON = {"Q1": "predictions", "Q2": "detection", "Q3": "uncertainties", "Q4": "parts of its score"}


def all_results() -> Results:
    """Those that the results page is made from."""
    page = (DOCS / "evidence" / "results.md").read_text(encoding="utf-8")
    return read_results(*(DOCS.parent / place for place in generated_from(page)))


def numosim_lines() -> list[Line]:
    """Detection on 2,000 people, five data sets."""
    results = read_results(RESULTS / "paper")
    lines = [*results["detection"], *results["detection with trips"]]
    return [line for line in lines if line["data"] == NUMOSIM and line["window"] == "day"]


def on_claims() -> str:
    """How many of the paper's claims are confirmed, by what they are about."""
    claims = [claim for claim in judge_claims(all_results()) if claim.effects and not claim.is_ours]
    by_question = {name: [claim for claim in claims if question_of(claim.text) == name] for name in CLAIMS_ON}
    counts = (f"{words} {count_confirmed(by_question[name]).split(' (')[0]}" for name, words in CLAIMS_ON.items())
    n_few = sum(claim.verdict == TOO_FEW for claim in claims)
    return (
        f"- **The paper's claims, one by one.** Confirmed on simulated data: {', '.join(counts)}.\n"
        f"  Of these {n_few} have too few data sets to be decided.\n"
        "  [The table](evidence/results.md#the-papers-claims-one-by-one) has each with its effect."
    )


def against_deep() -> str:
    """Where the paper's score stands among deep baselines, with trips and without."""
    results, sentences = all_results(), []
    for level, name in (("events", "Events"), ("agents", "People")):
        words = (say_lead(results["detection"], NUMOSIM, level, what) for what in ("auroc", "ap"))
        by_area, by_precision = words
        sentences.append(f"{name}: {by_area} by AUROC, {by_precision} by average precision.")
    sentences += say_trips(results, NUMOSIM)
    text = " ".join(sentences).replace("agents", "people")
    rule = f" {OLDER_MARK}: stopped by an older rule." if OLDER_MARK in text else ""
    link = "([where USTAD stands](evidence/results.md#where-ustad-stands))"
    return (
        f"- **Against deep baselines** the paper's score, without trips and of 2,000 people, stands so. {text}{rule}\n"
        f"  Other cities and 20,000 people were run less often\n  {link}."
    )


def in_short() -> str:
    """The page's first sentence."""
    lines = numosim_lines()
    # By incident `best` compares with others only where its events were counted by the same rule.
    ours = "ustad-quick" if say_wider(lines) else "ustad-default"
    (events, incidents), paper = (
        [figures([x for x in lines if x["method"] == method], level).split(" / ")[0] for level in LEVELS[:2]]
        for method in (ours, "ustad-plain")
    )
    return (
        f"**On simulated NUMOSIM, {ROWS[ours, False].removeprefix('preset ')} finds events with AUROC {events}, by "
        f"incident with {incidents}; the paper's score has\n{paper[0]} and {paper[1]}.** Every method has the same "
        "data, weeks and evaluation, and none sees a label."
    )


def on_numosim() -> str:
    """Our presets, the paper's, two deep baselines and two rules: means over five data sets."""
    lines, rows = numosim_lines(), []
    for (method, calibrated), name in ROWS.items():
        own = [line for line in lines if line["method"] == method]
        rows.append((name, *(figures(own, level, calibrated) for level in LEVELS)))
    older = say_older_code(lines, {"ustad-default": "preset `best`", "ustad-quick": "preset `quick`"})
    note = " ".join(filter(None, (say_wider(lines), older)))
    return table(("", "events", "events by incident", "people"), rows) + (f"\n\n{note}" if note else "")


def on_public_data() -> str:
    """People of Urban Patterns of Life, one run of each method, the best first."""
    lines = read_results(RESULTS / "benchmark")["detection"]
    lines.sort(key=lambda line: -line["result"]["agents"]["auroc"])
    rows = [
        (PUBLIC[line["method"]], figures([line], "agents"), _limit(line) if "training" in line else "–")
        for line in lines
    ]
    return table(("", "people", "training"), rows)


def _limit(line: Line) -> str:
    """Whether a network was trained to its end."""
    return (
        "ended"
        if has_ended(line)
        else f"cut after {line['training']['seconds'] / 60:.0f} min on a {line['device'].upper()}"
    )


BLOCKS = {
    "in short": in_short,
    "numosim": on_numosim,
    "claims": on_claims,
    "against deep": against_deep,
    "public data": on_public_data,
    "small": say_duration,
}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
