"""The paper's claims: what each says, what is measured for it, and their table.

In go results; out come claims with effects by data set, seed and part. `claim_verdicts` judges them by one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ustad.lab.evaluation.claim_effects import (
    MONOTONE,
    NEAR_HALF,
    NEARLY_ALL,
    STAYS,
    WEAK,
    Effects,
    ahead_of_deep,
    ahead_of_nov_online,
    au_changes_less,
    au_helps_numbers,
    au_stays,
    best_of_all,
    both_beats,
    both_is_best_injected,
    certain_half_by_entropy,
    certain_half_is_right,
    distance_finds_novel,
    distance_finds_recurring,
    error_rises_with_what_is_kept,
    eu_fails_on_novel,
    eu_falls_with_accuracy,
    eu_falls_with_data,
    eu_helps_categories,
    far_where_unsure,
    frequent_kinds_are_sure,
    loss_beats_error,
    loss_finds_predictable,
    loss_is_highest_on_predictable,
    most_for_agents,
    predictable_have_more_loss,
    predicts_better,
    rejecting_by_its_own,
    rejecting_helps,
    trajectories_say_little,
    weak_overall,
)
from ustad.lab.evaluation.claim_verdicts import RULE, Claim, Effect
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.result_tables import LEVELS, WHATS, Results, select_lines

__all__ = ["CLAIMS", "claims_table", "judge_claims", "question_of", "whole_texts"]

#: A data set and a seed; None: over all seeds.
Place = tuple[str, int | None]
AHEAD = tuple(ahead_of_deep(what) for what in WHATS)
BEST_INJECTED = tuple(both_is_best_injected(what) for what in WHATS)
#: (what the paper says, what is measured, how)
CLAIMS: tuple[tuple[str, str, Callable[[Results], Effects]], ...] = (
    (
        "Training with uncertainty predicts better than without",
        "relative gain of USTAD over Dual-Tr, per feature",
        predicts_better,
    ),
    (
        "USTAD predicts every feature better than every other method",
        "relative gain over the best of the paper's other predictors, if all were run, on its worst feature",
        best_of_all,
    ),
    (
        "Rejecting the most uncertain 5 % improves prediction",
        "relative gain with rejection, per feature",
        rejecting_helps,
    ),
    (
        "– the same, each feature by its own uncertainty (ours)",
        "relative gain without the 5 % that the feature itself is least sure of, per feature",
        rejecting_by_its_own,
    ),
    (
        "The most certain half has nearly all kinds of place right",
        f"accuracy of the surest half minus {NEARLY_ALL}",
        certain_half_is_right,
    ),
    (
        "– the same, by the entropy of the kind of place alone (ours)",
        f"accuracy of the surest half of USTAD-EU minus {NEARLY_ALL}",
        certain_half_by_entropy,
    ),
    (
        "Per kind of place, EU falls as accuracy rises",
        "minus rank correlation of EU and accuracy over kinds with 20 events or more",
        eu_falls_with_accuracy,
    ),
    (
        "Frequent kinds of place have low EU",
        "minus rank correlation of EU and frequency over kinds with 20 events or more",
        frequent_kinds_are_sure,
    ),
    (
        "Errors rise steadily with the share that is kept",
        f"rank correlation of share and error, of the feature where it is least, minus {MONOTONE}",
        error_rises_with_what_is_kept,
    ),
    (
        "AU helps numbers most",
        "relative gain of USTAD-AU over USTAD-EU, per numeric feature",
        au_helps_numbers("ustad-eu"),
    ),
    (
        "– the same, over no uncertainty at all",
        "relative gain of USTAD-AU over USTAD-none, per numeric feature",
        au_helps_numbers("ustad-none"),
    ),
    ("EU helps categories most", "accuracy of USTAD-EU minus that of USTAD-AU", eu_helps_categories("ustad-au")),
    (
        "– the same, over no uncertainty at all",
        "accuracy of USTAD-EU minus that of USTAD-none",
        eu_helps_categories("ustad-none"),
    ),
    (
        "EU falls with more training data",
        "ln (EU after 1 week / EU after 3 weeks), per feature, patience as long in steps",
        eu_falls_with_data("equal"),
    ),
    (
        "– EU, with patience as long in epochs (ours)",
        "the same, patience as long in epochs: fewer steps",
        eu_falls_with_data("fewer"),
    ),
    (
        "AU stays the same with more training data",
        f"{STAYS} (.35 in the paper's own table) minus the change of ln AU, 1 to 3 weeks, of the feature where it is "
        "most",
        au_stays,
    ),
    (
        "– AU changes less than EU (ours)",
        "size of the change of ln EU minus that of ln AU, 1 to 3 weeks, per feature, patience as long in steps",
        au_changes_less("equal"),
    ),
    (
        "– AU changes less than EU, with patience as long in epochs (ours)",
        "the same, patience as long in epochs: fewer steps",
        au_changes_less("fewer"),
    ),
    ("EU and distance correlate weakly overall", f"{WEAK} minus the absolute value of Pearson's r", weak_overall),
    (
        "Events of high EU lie further from the training events",
        "median distance of the 5 % highest EU / of the 5 % lowest, minus 1",
        far_where_unsure,
    ),
    (
        "EU alone fails on novel events",
        "AUROC of the distance minus that of EU, by novel kind of injection, changed stays only",
        eu_fails_on_novel,
    ),
    *(
        (
            f"Loss beats prediction error: {level}, by {word}",
            f"{word} of loss minus that of PE",
            loss_beats_error(level, what),
        )
        for level in LEVELS
        for what, word in WHATS.items()
    ),
    (
        "Loss beats prediction error most for agents",
        "gain for agents minus gain for events, AUROC",
        most_for_agents,
    ),
    (
        "Loss finds predictable anomalies",
        "AUROC of loss minus that of the distance, by predictable kind of injection, changed stays only",
        loss_finds_predictable,
    ),
    (
        "Predictable injections have more loss than novel ones",
        "ln (median loss of each predictable kind / the highest median of a novel kind and of normal events), boxes of "
        "changed stays",
        predictable_have_more_loss,
    ),
    (
        "– by AUROC of changed stays (ours)",
        "AUROC of loss on each predictable kind minus its highest on a novel kind, changed stays only",
        loss_is_highest_on_predictable,
    ),
    (
        "Distance finds novel anomalies",
        "AUROC of the distance on each novel kind minus its highest on a predictable kind, changed stays only",
        distance_finds_novel,
    ),
    (
        "A large distance identifies recurring anomalies",
        "AUROC of the distance on recurring events minus that on non-recurring ones",
        distance_finds_recurring,
    ),
    *(
        (
            f"Loss & kNN beats {name}, by {word}",
            f"{word} of loss & kNN minus that of {name}, by level",
            both_beats(other, what),
        )
        for other, name in (("loss", "loss alone"), ("pe_au_eu", "PE + AU + EU"))
        for what, word in WHATS.items()
    ),
    *(
        (
            f"Loss & kNN is the best score on diverse injections, by {word}",
            f"{word} minus that of the best of loss, kNN, EU, all types together, changed stays only",
            is_best,
        )
        for is_best, word in zip(BEST_INJECTED, WHATS.values(), strict=True)
    ),
    *(
        (
            f"USTAD is ahead of every deep baseline by more than the spread, by {word}",
            f"{word} minus the best deep baseline's, minus the larger standard deviation, by level",
            ahead,
        )
        for ahead, word in zip(AHEAD, WHATS.values(), strict=True)
    ),
    (
        "– Nov-Online, for which the paper prints no figure (ours)",
        "AUROC of USTAD minus that of Nov-Online, by level",
        ahead_of_nov_online,
    ),
    (
        "Methods for trajectories are near chance",
        f"{NEAR_HALF} minus the distance of their agents' AUROC from 0.5, by method",
        trajectories_say_little,
    ),
)


#: Claims that compare with a limit or with the best of several: where one fails, its opposite is not shown.
LIMITED_EFFECTS = (
    *AHEAD,
    *BEST_INJECTED,
    best_of_all,
    certain_half_is_right,
    certain_half_by_entropy,
    weak_overall,
    error_rises_with_what_is_kept,
    au_stays,
    trajectories_say_little,
)
#: Claims whose effects have the spread over data sets in them already.
OVER_SEEDS = AHEAD


#: The questions of the paper, by what the claims about them begin with; what is not named is of Q4.
_QUESTIONS = {
    "Q1": ("Training", "USTAD predicts", "Rejecting", "– the same, each"),
    "Q2": ("USTAD is ahead", "– Nov", "Methods"),
    "Q3": (
        "The most", "– the same, by", "Per kind", "Frequent", "Errors", "EU falls", "– EU", "AU stays", "– AU",
        "AU helps", "EU helps", "– the same, over", "EU and distance", "Events of high EU",
    ),
}  # fmt: skip


def question_of(text: str) -> str:
    """Q1 … Q4: the question of the paper that a claim answers."""
    return next((number for number, words in _QUESTIONS.items() if text.startswith(words)), "Q4")


def whole_texts(texts: Sequence[str]) -> list[str]:
    """Claims that read alone: one that begins with a dash says what it is about first."""
    whole, about = [], ""
    for text in texts:
        about = about if text.startswith("– ") else text
        rest = text.removeprefix("– ").removeprefix("the same, ")
        whole.append(f"{about}: {rest}" if text.startswith("– ") else text)
    return whole


def judge_claims(results: Results) -> list[Claim]:
    """Every claim with its effects in these results."""
    lines = [line for part in results.values() for line in part]
    seeds: dict[Place, Results] = {}
    whole: dict[Place, Results] = {}
    for data, seed in dict.fromkeys((line["data"], line["seed"]) for line in lines):
        seeds[data, seed] = {name: select_lines(part, data=data, seed=seed) for name, part in results.items()}
        whole[data, None] = {name: select_lines(part, data=data) for name, part in results.items()}
    claims = []
    for text, measure, find in CLAIMS:
        effects = tuple(_find_effects(find, whole if find in OVER_SEEDS else seeds))
        claims.append(Claim(text, measure, effects, find in LIMITED_EFFECTS))
    return claims


def _find_effects(find: Callable[[Results], Effects], groups: dict[Place, Results]) -> Iterator[Effect]:
    for (data, seed), group in groups.items():
        for part, value in find(group):
            yield Effect(data, seed, part, float(value))


def claims_table(results: Results) -> str:
    """The rule, and every claim with its verdict and figures."""
    rows = [
        (claim.text, f"**{claim.verdict}**{claim.exceptions}{claim.doubts}", claim.figures, claim.means, claim.measure)
        for claim in judge_claims(results)
    ]
    heads = ("the paper says", "here", "effect", "mean effect by city", "measured as")
    return f"{RULE}\n\n{Table('', '', heads, tuple(rows)).markdown().rstrip()}"
