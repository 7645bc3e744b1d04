"""What the results page says between its tables."""

from __future__ import annotations

from ustad.lab.evaluation.result_files import Line

OTHER_DATA = (
    "The published figures are the paper's, on its own data: SimLA and SimJordan are private, and its NUMOSIM extract "
    "is 20,000 chosen agents. Ours are simulated by `ustad simulate` under the same names, so they are **other data "
    "than the paper's**: directions can be compared, values only roughly. AUPR depends on how many anomalies there "
    "are and cannot be compared between different shares of them."
)
SMALL = (
    "**This is a small run**: few agents, more of them anomalous than in the paper, small networks, few seeds. It "
    "shows that every experiment works and how its figures look; its verdicts are about this run and say little "
    "about the paper."
)
GPS = "What remains with raw GPS?"
FROM_GPS = (
    "Nobody has true stays. Here (`ustad lab experiment gps`) the same simulated people and red team are scored from "
    "their true stays and from those that `ustad extract` finds in what a logger, a phone, an app or antennas "
    "(`sparse`) record of them."
)
HOW_TO_RUN = """## How to run it again
Finished cells are not run again, so a run that was stopped goes on; `--figures-only` makes tables, figures and page
from the files alone.

```
make experiments-small                                                    all seven at a small size, two CPU cores
ustad lab experiment all --data numosim-la:2000 --seeds 1-5 --workers 12 --device cuda --out results/paper --cells-only
ustad lab experiment all … --cut-again --begin-minutes 5 --minutes 6      what a limit of time had cut, once more
ustad lab experiment prediction --data numosim-la:2000 --seeds 101-101 --methods ustad-plain --category-weight 5 \\
    --device cuda --out results/search --cells-only                       the search of λ, once for each λ
ustad lab experiment detection,prediction,scores --data numosim-la:5000 --seeds 101-101 --size large --no-past \\
    --methods ustad-plain --try as-is --try category_weight=5 --out results/search --cells-only         what was tried
ustad lab experiment detection,prediction,scores --data numosim-la:20000 --seeds 1-5 --size large --no-past \\
    --device cuda --out results/large --cells-only
ustad lab experiment detection,prediction,scores --data simla:5000 --data simjordan:5000 --data town:5000 --seeds 1-5 \\
    --size large --no-past --device cuda --out results/sets --cells-only
ustad lab experiment all --figures-only --out results/paper --also results/sets --also results/large \\
    --also results/gps --also results/search --page docs/evidence/results.md --figures docs/figures/results
```"""
NOT_SEARCHED = (
    "Not searched: the paper tries settings of each method on each of its data sets. Here every method has one "
    "setting, within the ranges that the paper names, where it names one. λ and a few settings were tried on "
    "development people: see “What was tried on development seeds”."
)
SPREAD = """± is the sample standard deviation over data sets: each seed has other simulated people, and with
them other first weights, steps and samples. The standard error of an AUROC of 0.75 over so many
agents (Hanley and McNeil) is what one data set leaves open."""
TRAINING_SPREAD = """± is the standard deviation over seeds of a method (first weights, order of steps, samples) on
one and the same data set: {data}. How much a figure would move with other people is not in it."""
QUESTIONS = {
    "prediction": "Q1 · How well are masked events predicted?",
    "detection": "Q2 · Are anomalies found?",
    "uncertainty": "Q3 · Do the uncertainties say how sure a prediction is?",
    "scores": "Q4 · Which part of the score finds what?",
    "cases": "Q5 · What do the events it finds look like?",
}
#: Experiments that belong to a question without a table of their own above the fold.
ALSO = {"scores": ("injections", "epistemic")}
INTRODUCTIONS = {
    "prediction": "One event at a time is masked in the test weeks and predicted from its window.",
    "detection": ("Every method learns from the training weeks and scores the test weeks; none sees a label."),
    "uncertainty": (
        "Events are sorted by their total uncertainty (AU + EU, or the one that the variant has) and the most "
        "uncertain left out. USTAD-none has nothing to sort by: its line is flat. The paper's AU of a kind of place is "
        "the variance of the true kind's logit: it is known only afterwards, and small where an improbable kind came "
        "true, so the sum can put wrong predictions among the surest. Added up, EU is that of kind of place and "
        "weekday (entropies in nats): EU of numbers, in squared encoded units, is hundreds of times smaller. The "
        "dotted line sorts each feature by its own AU + EU instead; USTAD-EU knows a kind of place by its entropy "
        "alone. Every network, of fewer weeks too, is trained until validation stands still: with patience as long in "
        "steps as with all weeks or, apart, as long in epochs, which are fewer steps of fewer weeks."
    ),
    "scores": "One model, its events scored in different ways.",
    "injections": (
        "The six injections of the paper, into agents that are not labelled otherwise; each kind and all together. "
        "Boxes: quartiles, whiskers at the 5th and 95th percentile; losses are scaled to [0, 1] by feature, averaged."
    ),
    "epistemic": "Test events: loss against EU by feature, and how EU goes with the distance to the training events.",
    "cases": (
        "The marked stay is the event. Each rule chooses twice: among all events, without labels, and among labelled "
        "ones. The table counts, for the twenty people whose events come first by a rule, how many of these events no "
        "label speaks of: what is rarest is seldom what was inserted."
    ),
}
PAST_ONLY = (
    "`past only`: the same model, asked with nothing later than the event in its window, which it has not met in "
    "training."
)
WITH_NEIGHBOURS = "In the boxes of these results the stays beside changed ones are counted with them."


def introduce(experiment: str, lines: list[Line]) -> str:
    """What is said before an experiment's tables; what explains some lines alone only where they are there."""
    words = [INTRODUCTIONS[experiment]]
    if any(line.get("window") == "past" for line in lines):
        words.append(PAST_ONLY)
    if any("boxes" in line["result"] and "boxes_without" not in line["result"] for line in lines):
        words.append(WITH_NEIGHBOURS)
    return " ".join(words)
