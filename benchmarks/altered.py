"""Real or altered: would a model that tells real days from altered ones find what the present rule does not?

    OMP_NUM_THREADS=1 python benchmarks/altered.py --cache DIRECTORY

No label is learnt from. The last week before the test is altered in nine ways (`altered_days.py`), and boosted trees
learn which stays were changed, from what habits answer about a stay and the one before it; a higher answer never
lowers their log-odds. `both` sees the stay after it too, which live scores cannot; `facts` sees plain facts of both
stays beside the answers (`altered_facts.py`), with any effect on the log-odds. What the model says of
the real week calibrates it, of each fifth of the people by a model of the others. Then the towns' own red team is
looked for, which the model has never seen: by the present rule, by the rule with the log-odds as one more look, and by
the log-odds alone. Last, each way to alter is left out of the lessons and looked for in people who were not learnt
from. Development seeds alone. Writes benchmarks/results/altered.json and docs/evidence/altered.md; `--page` writes the
page anew from the file. One run writes all of it: nothing is added to a file that is there.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier

from altered_days import ALTERATIONS, alter
from altered_facts import FACTS, plain_facts
from marked_pages import table
from measured import write_result
from questions import SCHEMA, TOWNS, Town, label_every_stay, measure_scores
from ustad import progress
from ustad.config import SplitConfig
from ustad.dataset import Dataset, Split
from ustad.distribution import FOLDS
from ustad.events.visits import read_visits
from ustad.evidence_source import Answerer, Answers, Arrays
from ustad.habits.habit_source import HabitSource
from ustad.habits.history import Habits
from ustad.habits.population import Population
from ustad.habits.questions import TERMS, compare
from ustad.habits.stages import HistoryInquiry
from ustad.lab.evaluation.detection_metrics import auroc
from ustad.lessons import take_whole_week
from ustad.scoring.adding_judge import AddingJudge, p_values
from ustad.scoring.incidents import find_incidents

RESULTS = Path(__file__).parent / "results" / "altered.json"
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "altered.md"
SETS = (
    "town-101", "town-102", "town-104", "simla-101", "simla-102", "simjordan-101", "simjordan-102", "numosim-la-101",
    "numosim-la-102",
)  # fmt: skip
QUESTIONS = tuple(name for name in TERMS if name != "silence")
RULE = "the present rule"
LEVELS = ("events", "agents")
#: To be built in, the log-odds must raise the AP of events and of people by at least this, as a mean over the sets.
GAIN = 0.01


@dataclass(frozen=True)
class Sight:
    """What a model sees: stays by how far they are from the one that is judged, and what of each."""

    stays: tuple[int, ...]
    names: tuple[str, ...] = QUESTIONS


SIGHTS = {"before": Sight((0, -1)), "both": Sight((0, -1, 1)), "facts": Sight((0, -1), (*QUESTIONS, *FACTS))}
#: What live scores can see: these may be built in, and one way to alter is left out of their lessons.
LIVE = ("before", "facts")


@dataclass(frozen=True)
class Lesson:
    """A week that was altered in one way: N stays by person and time."""

    kind: str
    raw: Arrays  # question or fact → value [N]
    entity: np.ndarray  # [N]
    group: np.ndarray  # [N] which fifth of the people each belongs to
    is_changed: np.ndarray  # bool [N]

    @property
    def is_learnt(self) -> np.ndarray:
        """Changed stays, those beside them, and every third of the others: bool [N]."""
        changed = self.is_changed
        beside = np.r_[changed[1:], False] | np.r_[False, changed[:-1]]
        return changed | beside | (np.arange(len(changed)) % 3 == 0)


def look_around(raw: Arrays, entity: np.ndarray, sight: Sight) -> np.ndarray:
    """What is seen of each stay and its neighbours, NaN where there is none: float64 [N, names · stays]."""
    own, at, parts = np.stack([raw[name] for name in sight.names], axis=1), np.arange(len(entity)), []
    for far in sight.stays:
        other = np.clip(at + far, 0, len(at) - 1)
        is_there = (at + far == other) & (entity[other] == entity)
        parts.append(np.where(is_there[:, None], own[other], np.nan))
    return np.concatenate(parts, axis=1)


def learn(lessons: Iterable[Lesson], groups: Iterable[int], sight: Sight) -> HistGradientBoostingClassifier:
    """Changed stays against all others of the same weeks, each half of the weight."""
    values, truth = [], []
    for lesson in lessons:
        chosen = np.isin(lesson.group, list(groups)) & lesson.is_learnt
        values.append(look_around(lesson.raw, lesson.entity, sight)[chosen])
        truth.append(lesson.is_changed[chosen])
    x, y = np.concatenate(values), np.concatenate(truth)
    model = HistGradientBoostingClassifier(
        max_iter=60,
        learning_rate=0.12,
        max_leaf_nodes=8,
        min_samples_leaf=50,
        l2_regularization=5.0,
        early_stopping=False,
        monotonic_cst=[int(name in QUESTIONS) for name in sight.names] * len(sight.stays),
        random_state=0,
    )
    return model.fit(x, y, sample_weight=np.where(y, 0.5 / y.mean(), 0.5 / (1 - y.mean())))


@dataclass
class Altered(Answerer):
    """The model as a source of evidence."""

    habits: HabitSource
    model: HistGradientBoostingClassifier
    sight: Sight
    name: ClassVar[str] = "altered"
    looks: ClassVar[dict[str, tuple[str, ...]]] = {"altered": ("altered",)}

    def answer(self, inquiry: HistoryInquiry) -> Answers:
        raw = by_visit(inquiry, self.habits.compare_inquiry(inquiry)[0].terms)
        raw |= plain_facts(inquiry.history.trained_habits, inquiry.visits)
        odds = self.model.decision_function(look_around(raw, inquiry.visits.entity, self.sight))
        return Answers({"altered": odds[inquiry.order]})


def by_visit(inquiry: HistoryInquiry, raw: Arrays) -> dict[str, np.ndarray]:
    """Answers about events, in the order of the visits."""
    result = {name: np.full(len(inquiry.visits), np.nan) for name in QUESTIONS}
    for name, values in result.items():
        values[inquiry.order] = raw[name]
    return result


@dataclass
class Trial:
    """One town: what is known before its test, and its figures."""

    data: Dataset
    split: Split = field(init=False)

    def __post_init__(self) -> None:
        self.split = split = self.data.split(SplitConfig())
        train = self.data.between(split.train_first, split.validation_first - 1)
        week = self.data.between(split.validation_first, split.test_first - 1)
        self.train, self.week = take_whole_week(train, week, SCHEMA)
        self.calibrates = np.ones(self.week.num_rows, bool)
        self.habits, self.inquiry, self.answers = HabitSource.learn(self.train, self.week, SCHEMA, self.calibrates)

    @cached_property
    def lessons(self) -> list[Lesson]:
        """The week altered in each way, compared with the weeks before it alone."""
        frame = self.habits.frame
        before = read_visits(self.train, SCHEMA, frame)
        known, people = Habits.fit(before), Population.fit(before, len(frame.categories) + 1)
        lessons = []
        for seed, kind in enumerate(ALTERATIONS):
            events, is_changed = alter(self.week, (kind,), seed=seed)
            visits = read_visits(events, SCHEMA, frame)
            terms = compare(known, people, self.habits.recurrence, visits, period=self.inquiry.test_days).terms
            group = (visits.entity_key % FOLDS).astype(np.int64)[visits.entity]
            raw = {**terms, **plain_facts(known, visits)}
            lessons.append(Lesson(kind, raw, visits.entity, group, is_changed[visits.row]))
        return lessons

    def judge_rule(self) -> AddingJudge:
        return AddingJudge.fit((self.habits, ()), self.inquiry, [self.answers], self.calibrates)

    def learn_altered(self, sight: Sight) -> tuple[Answerer, Answers]:
        """The model, and what it says of the real week: of nobody whom it has learnt from."""
        visits = self.inquiry.visits
        raw = by_visit(self.inquiry, self.answers.raw) | plain_facts(self.inquiry.history.trained_habits, visits)
        around = look_around(raw, visits.entity, sight)
        group, odds = (visits.entity_key % FOLDS).astype(np.int64)[visits.entity], np.empty(len(visits))
        for i in range(FOLDS):
            if (group == i).any():
                others = learn(self.lessons, set(range(FOLDS)) - {i}, sight)
                odds[group == i] = others.decision_function(around[group == i])
        source = Altered(self.habits, learn(self.lessons, range(FOLDS), sight), sight)
        return source, Answers({"altered": odds[self.inquiry.order]})

    def judge_altered(self, source: Answerer, answers: Answers, without: tuple[str, ...] = ()) -> AddingJudge:
        """The rule with the log-odds; or these alone, without its own questions."""
        both = [self.answers, answers]
        return AddingJudge.fit((self.habits, (source,)), self.inquiry, both, self.calibrates, without=without)

    def measure(self, judge: AddingJudge) -> dict[str, Any]:
        """Figures of the test weeks, as in `questions.py`."""
        test = self.data.between(self.split.test_first, self.split.test_last)
        judged = judge.judge(test, pa.concat_tables([self.train, self.week]))
        p_value = p_values(judged.score)
        incidents = find_incidents(test, SCHEMA, p_value, judged.score)
        for name, values in {"score": judged.score, "p_value": p_value, "echo": incidents.echo}.items():
            test = test.append_column(name, pa.array(values))
        test = test.append_column("incident_id", pa.array(incidents.incident_id.tolist(), pa.string()))
        agents = pa.table({"agent_id": pa.array(judged.entity_ids.tolist()), "score": judged.agent_score})
        return measure_scores(self.data, test, agents, self.split.test_last - self.split.test_first + 1)

    def leave_one_out(self, sight: Sight) -> dict[str, dict[str, float]]:
        """By way to alter: AUROC of its changed stays among the others, in a fifth of the people. By the rule, by the
        model that has learnt it from other people, and by one that has never seen it."""
        learnt, looks, figures = set(range(1, FOLDS)), self.judge_rule().looks, {}
        whole = learn(self.lessons, learnt, sight)
        for lesson in self.lessons:
            mine, around = lesson.group == 0, look_around(lesson.raw, lesson.entity, sight)
            without = learn([one for one in self.lessons if one.kind != lesson.kind], learnt, sight)
            truth = lesson.is_changed[mine]
            if truth.any() and not truth.all():
                raw = {name: values[mine] for name, values in lesson.raw.items()}
                scores = {"rule": looks.weigh(raw)[2]}
                scores |= {"learnt": whole.decision_function(around[mine])}
                scores |= {"left_out": without.decision_function(around[mine])}
                figures[lesson.kind] = {name: auroc(truth, values) for name, values in scores.items()}
        return figures


def measure_town(town: Town, cache: Path) -> dict[str, Any]:
    progress.disable()
    label_every_stay()
    trial = Trial(town.open(cache))
    judges = {RULE: trial.judge_rule()}
    for name, sight in SIGHTS.items():
        source, answers = trial.learn_altered(sight)
        judges[with_rule(name)] = trial.judge_altered(source, answers)
        judges[f"{name}: alone"] = trial.judge_altered(source, answers, tuple(TERMS))
    figures = {name: trial.measure(judge) for name, judge in judges.items()}
    print(town.name, {name: one["events"] + one["agents"] for name, one in figures.items()}, flush=True)
    left_out = {name: trial.leave_one_out(SIGHTS[name]) for name in LIVE}
    print(town.name, left_out, flush=True)
    return {"set": town.name, "figures": figures, "left_out": left_out}


def with_rule(name: str) -> str:
    return f"{name}: with the rule"


# ------------------------------------------------------------------------------------------------ the page
def write_page(results: dict[str, Any]) -> str:
    """Means over the sets, each set, and what follows."""
    lines = results["lines"]
    return "\n".join(
        [
            "# Real or altered",
            "",
            f"Written by `benchmarks/altered.py` in one run of {results['processor_s'] / 60:.0f} minutes of processor "
            f"time on {results['date']}: {len(lines)} development towns and cities of seeds from 100 on.",
            "",
            "A model learns, without labels, which stays of a real week were altered by us. Its log-odds are "
            "looked at as one more piece of evidence. `before` sees what habits answer about a stay and the one before "
            "it, `both` the next too. `facts` sees plain facts of the stay and the one before it beside the answers: "
            "minutes of start and end, length, visits to the place, minutes to the nearest own start and end there.",
            "",
            "## The towns' own red team",
            "",
            "Means over the sets, AUROC / AP. Precision is of the first five incidents a day per 1,000 people.",
            "",
            table(("judged by", "events", "agents", "precision"), [_row(lines, name) for name in lines[0]["figures"]]),
            "",
            f"AP of each set, by the rule and with {' and '.join(f'`{name}`' for name in LIVE)} beside it:",
            "",
            table(("set", "events", "agents"), [_pairs(line) for line in lines]),
            "",
            "## One way to alter left out",
            "",
            "AUROC of changed stays among the other stays of the altered week, in a fifth of the people whom no model "
            "has learnt from.",
            "",
            table(
                ("altered", RULE, *(f"{name}: {what}" for name in LIVE for what in ("learnt", "never seen"))),
                [(kind, *(f"{figure:.3f}" for figure in _left_out(lines, kind))) for kind in ALTERATIONS],
            ),
            "",
            "## What follows",
            "",
            *conclude(lines),
            "",
        ]
    )


def _row(lines: list[dict[str, Any]], name: str) -> tuple[str, ...]:
    pairs = [f"{mean_of(lines, name, level, 0):.3f} / {mean_of(lines, name, level, 1):.3f}" for level in LEVELS]
    return (name, *pairs, f"{np.mean([line['figures'][name]['precision'] for line in lines]):.3f}")


def _pairs(line: dict[str, Any]) -> tuple[str, ...]:
    figures = [line["figures"][name] for name in (RULE, *map(with_rule, LIVE))]
    return (line["set"], *(" → ".join(f"{one[level][1]:.3f}" for one in figures) for level in LEVELS))


def _left_out(lines: list[dict[str, Any]], kind: str) -> list[float]:
    """Means over the sets: by the rule, then of each that live scores can see, learnt and left out."""

    def mean(name: str, what: str) -> float:
        return float(np.mean([line["left_out"][name][kind][what] for line in lines if kind in line["left_out"][name]]))

    return [mean(LIVE[0], "rule"), *(mean(name, what) for name in LIVE for what in ("learnt", "left_out"))]


def mean_of(lines: list[dict[str, Any]], name: str, level: str, at: int) -> float:
    return float(np.mean([line["figures"][name][level][at] for line in lines]))


def conclude(lines: list[dict[str, Any]]) -> list[str]:
    """Whether the log-odds earn a place, by the rule that was set before the run."""
    text = [
        f"To be built in, the log-odds must raise the AP of events and of people by {GAIN} each. Of what live scores "
        "can see, a stay and the one before it:",
        "",
    ]
    unseen = [_left_out(lines, kind) for kind in ALTERATIONS]
    for i, name in enumerate(LIVE):
        gains = [mean_of(lines, with_rule(name), level, 1) - mean_of(lines, RULE, level, 1) for level in LEVELS]
        known, better = (sum(row[1 + 2 * i + k] > row[0] for row in unseen) for k in (0, 1))
        text.append(
            f"- `{name}` changes it by {gains[0]:+.3f} and {gains[1]:+.3f}: "
            + ("the goal is met." if all(gain >= GAIN for gain in gains) else "**not built in**.")
            + f" Of {len(unseen)} ways to alter, {known} are found better than by the rule when they were learnt, and "
            f"{better} when they were not."
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, help="where simulated data are kept; a directory of their own if absent")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write the page from the result file, measure nothing")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(write_page(json.loads(RESULTS.read_text())))
        return
    cache = options.cache or Path(tempfile.mkdtemp(prefix="altered-"))
    towns = [town for town in TOWNS if town.name in options.sets]
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        lines = list(pool.map(partial(measure_town, cache=cache), towns))
    seconds = [sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    write_result(options.out, {"lines": lines, "processor_s": sum(seconds)})
    if options.out == RESULTS:
        PAGE.write_text(write_page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
