"""The facade: `Detector(config).fit(train).score(test)`, `save` and `load`.

It puts the rooms together: days are split, sources of evidence are fitted, a judge is calibrated and scores. Everything
that decides a result is in its configuration.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import ustad
from ustad import artefact, model_files, progress, trip_features
from ustad.calendar_days import Calendar
from ustad.carrying_on import check_same_events, check_shape
from ustad.config import Config
from ustad.dataset import Dataset, Split
from ustad.events.encoder import Encoder
from ustad.evidence_source import Source
from ustad.files import as_table
from ustad.frames import without_index
from ustad.judges import Trainer, check_calendar, describe, divide_periods, has_network, load_judge, paper_judge
from ustad.lessons import Lessons
from ustad.periods import (
    adopt_extraction,
    as_data,
    check_extraction,
    scored_days,
    training_periods,
)
from ustad.schema import EventSchema, mobility_schema, plural
from ustad.scores import Scores
from ustad.scoring import scored_parts
from ustad.scoring.alerts import AlertRule
from ustad.scoring.judge import Judge, Reasons, Request
from ustad.scoring.paper_judge import PaperJudge
from ustad.scoring.scored_parts import ScoredParts
from ustad.tables import DataError, identity_hash
from ustad.torch_device import choose_device, torch_version
from ustad.trip_features import TripFeatures
from ustad.versions import find_model

if TYPE_CHECKING:  # torch, which the preset quick does without
    from ustad.network.inference.paper_network import PaperNetwork


class Detector:
    """Finds unusual events and entities.

    >>> detector = Detector().fit("runs/demo/data")  # doctest: +SKIP
    >>> scores = detector.score("runs/demo/data")  # doctest: +SKIP
    """

    def __init__(self, config: Config | str = "best", device: str = "auto") -> None:
        self.config = Config.preset(config) if isinstance(config, str) else config
        self.device = choose_device(device, network=has_network(self.config))
        self.encoder: Encoder | None = None
        self.judge: Judge | None = None  # ours or the paper's, with its sources of evidence
        self.trips = TripFeatures("none")
        self.facts: dict[str, Any] = {}
        self._extraction: list[str] = []  # settings of the extraction that the training data said
        self._days_off: tuple[int, ...] = ()  # local dates that habits take for weekend days

    @property
    def schema(self) -> EventSchema:
        return self._encoder().schema

    def _repr_html_(self) -> str:
        from ustad.notebook import detector_html

        return detector_html(describe(self.config, self.encoder.schema if self.encoder else None), self.facts)

    # ---------------------------------------------------------------------------------------- fitting
    def fit(
        self,
        data: Any,
        *,
        directory: Path | None = None,
        resume: bool = False,
        start: Detector | None = None,
        everything: bool = False,
        calendar: Calendar | None = None,
    ) -> Detector:
        """Learn from a data set's training weeks; its validation week stops early and calibrates.

        A table or a path is split by date as a data set is. With `everything` all of it is learnt from, for data you
        have split yourself: its last quarter of days becomes the validation part. `start` is a fitted detector whose
        weights the network begins with (`Detector(start.config)`); all else comes from `data` alone. Days of a
        `calendar` are learnt, and compared, as weekend days.
        """
        check_calendar(self.config, calendar)
        lessons = self.prepare(data, start, everything)
        self.encoder, self._days_off = lessons.encoder, lessons.days_off(calendar)
        self.judge = self._trainer(directory, resume, start.require_judge().sources if start is not None else ()).fit(
            lessons
        )
        self.facts = {**self._facts(lessons), **self.judge.facts()}
        return self

    def _trainer(self, directory: Path | None, resume: bool, start: tuple[Source, ...]) -> Trainer:
        return Trainer(
            self.config, self.device, directory=directory, resume=resume, start=start, days_off=self._days_off
        )

    def prepare(self, data: Any, start: Detector | None = None, everything: bool = False) -> Lessons:
        """Split, trips, encoder: everything before the network."""
        if start is not None:
            check_shape(self.config, start.config)
        data = as_data(data, companions=trip_features.needed_companions(self.config))
        self.config = adopt_extraction(self.config, data)
        self._extraction = sorted(data.meta.get("extraction") or {})
        periods = training_periods(data, self.config, everything)
        if periods.schema.name != "mobility":  # trips lead from stay to stay
            self.config = self.config.replace({"model.trips": "none"})
        self.trips = start.trips if start else TripFeatures.fit(periods.trips, periods.train, self.config, self.device)
        self.config = self.config.replace({"model.trips": self.trips.how})
        train = self.trips.attach(periods.train, periods.trips)
        validation = self.trips.attach(periods.validation, periods.trips)
        schema = periods.schema
        if schema.name == "mobility":
            model = self.config.model
            schema = mobility_schema(model.trips, model.trip_size, model.log_duration, model.ends_seen)
        if start is not None:
            check_same_events(schema, start.schema)
        train, *groups = divide_periods(self.config, train, validation, schema)
        encoder = start._encoder() if start else Encoder.fit(train, schema, self.config.model.scaling)
        return Lessons(encoder, train, *groups)

    # ---------------------------------------------------------------------------------------- scoring
    def score(
        self,
        data: Any,
        context: Any = None,
        *,
        rule: AlertRule | None = None,
        everything: bool = False,
        reasons: Reasons = "flagged",
        coverage: float | None = None,
        details: bool = False,
    ) -> Scores:
        """Score events and entities.

        Data (a data set, a path or a table) are scored in their test part, with the days before as context: what comes
        after the weeks that were learnt from. With `everything`, or a table with `context` (a table of what came
        before), all of it is scored. Never uses labels.

        `Scores.details` has what was measured of the events of incidents; with `details` of every event. `coverage`
        asks for all of them, with prediction intervals `low_f`, `high_f` and sets `set_f` that hold so large a share of
        normal events (preset `paper`).
        """
        request = Request.of(rule, reasons, coverage, details)
        parts = self._run(data, context, everything, request, entities=None)
        scores = parts.whole()
        return replace(scores, run={**scores.run, **self.run_facts(parts.span.first, parts.span.last)})

    def score_parts(
        self,
        data: Any,
        context: Any = None,
        *,
        rule: AlertRule | None = None,
        everything: bool = False,
        reasons: Reasons = "flagged",
        coverage: float | None = None,
        details: bool = False,
        entities: int | None = None,
    ) -> ScoredParts:
        """The same scores in parts of so many entities (2,000), with memory bounded by the part.

        Iterate over it for the `Scores` of each part; afterwards its `notes` say rule, threshold and warnings.
        """
        request = Request.of(rule, reasons, coverage, details)
        return self._run(
            data, context, everything, request, entities=scored_parts.ENTITIES if entities is None else entities
        )

    def _run(self, data: Any, context: Any, everything: bool, request: Request, *, entities: int | None) -> ScoredParts:
        events, earlier = self._scored_part(data, context, everything)
        return ScoredParts(
            self.require_judge(),
            events,
            earlier,
            request,
            entities=entities,
            without=trip_features.COLUMNS,
            at_once=3 if str(self.device).startswith("cuda") else 1,
        )

    def _scored_part(self, data: Any, context: Any, everything: bool) -> tuple[pa.Table, pa.Table | None]:
        """The events to score and, where there are any, those before them, both with what is known of trips."""
        is_table = not isinstance(data, (Dataset, str, Path))
        data = as_data(data, self.schema, trip_features.needed_companions(self.config))
        check_extraction(self.config, self.facts.get("extraction", []), data)
        if is_table and context is not None:
            before = as_data(without_index(as_table(context, "context")), self.schema).events
            return self._with_trips(data.events, before, None)
        split = None if everything else self.scored_days(data)
        if split is None:
            return self._with_trips(data.events, None, data.trips)
        events = data.between(split.test_first, split.test_last)
        before = data.between(split.train_first, split.test_first - 1)
        progress.say(f"{split.describe()}; {before.num_rows:,} events before the test part are context, not scored")
        return self._with_trips(events, before, data.trips)

    def _with_trips(
        self, events: pa.Table, before: pa.Table | None, trips: pa.Table | None
    ) -> tuple[pa.Table, pa.Table | None]:
        earlier = self.trips.attach(before, trips) if before is not None and before.num_rows else None
        return self.trips.attach(events, trips), earlier

    def scored_days(self, data: Dataset) -> Split | None:
        """The split whose test part is scored, or None where all of the data is."""
        return scored_days(data, self.config.split, self.facts["last_day"], self.facts.get("learned_until"))

    def scoring_from(self, day: str | None) -> Detector:
        """Score from this day on (2024-04-01), instead of what comes after the weeks that were learnt from."""
        if day is not None:
            self.config = self.config.replace({"split.train_until": "", "split.test_from": day})
        return self

    def run_facts(self, first_day: int, last_day: int) -> dict[str, Any]:
        """What is said of a run beside its notes; days since 1970-01-01 of the scored events."""
        return {
            "method": "ustad",
            "version": ustad.__version__,
            "seed": self.config.seed,
            "schema": self.schema.to_dict(),
            "trained": self.facts,
            "first_day": first_day,
            "last_day": last_day,
        }

    def forget(self, *entities: Any) -> Detector:
        """Drop what is kept of some entities: habits, reference weeks, history and training events; then `save`.

        Weights of the networks and distributions that calibrate stay: no entity can be told apart in them.
        """
        absent = int((~self.knows(entities)).sum())
        if absent or not entities:
            words = plural(self.schema.entity_word)
            raise DataError(f"{absent} of {len(entities)} {words} are not in this model; nothing was forgotten")
        self.judge = self.require_judge().forget(entities)
        self.facts = {**self.facts, **self.judge.facts()}
        return self

    def knows(self, entities: Any) -> np.ndarray:
        """Of which of these entities something is kept: bool [n]."""
        hashes = identity_hash(entities)
        return np.isin(hashes, self.require_judge().knows(hashes))

    # ---------------------------------------------------------------------------------------- storing
    def save(self, path: Path | str) -> None:
        """Write the model directory; it appears whole or not at all."""
        with artefact.writing(Path(path)) as place:
            self.write(place)

    def write(self, place: Path) -> None:
        """The files of the model into a directory that `artefact.writing` gave, where others may lie beside them."""
        model_files.write_encoder(place, self._encoder(), self.config, self.trips)
        self.require_judge().save(place)
        model_files.write_facts(
            place, self.facts, self.config, self.schema, scores_by=describe(self.config, self.schema)
        )

    @classmethod
    def load(cls, path: Path | str, device: str = "auto", whole: bool = True) -> Detector:
        """Read a model directory (or the version in use of several) after checking it. Nothing in it is executed.

        Without the `whole` of it, what grows with the entities (reference events, habits) is left on disk, for a
        caller who brings it in parts.
        """
        path = find_model(Path(path))
        files = artefact.check(path)
        if "config.yaml" not in files:
            raise DataError(
                f"{path}: a model of another method than ustad; `ustad score` reads it, or lab.baselines.storage.load"
            )
        with artefact.explaining(path):
            return cls._read(path, files, device, whole)

    @classmethod
    def _read(cls, path: Path, files: dict[str, str], device: str, whole: bool) -> Detector:
        detector = cls(Config.from_model(path / "config.yaml"), device)
        detector.encoder, detector.trips = model_files.read_encoder(path, files, detector.config)
        detector.judge = load_judge(path, detector.encoder, detector.config, detector.device, whole=whole, files=files)
        detector.facts = model_files.read_facts(path)
        return detector

    def _encoder(self) -> Encoder:
        if self.encoder is None:
            raise DataError("this detector is not fitted; call fit first, or load a model directory")
        return self.encoder

    def require_judge(self) -> Judge:
        """The judge of a detector that is fitted."""
        if self.judge is None:
            raise DataError("this detector is not fitted; call fit first, or load a model directory")
        return self.judge

    def paper(self) -> PaperJudge[PaperNetwork]:
        """The paper's judge, where that scores."""
        return paper_judge(self.judge)

    def _facts(self, lessons: Lessons) -> dict[str, Any]:
        return {
            **lessons.facts(),
            "extraction": self._extraction,
            "seed": self.config.seed,
            "device": str(self.device),
            "versions": {"ustad": ustad.__version__, "torch": torch_version(), "python": platform.python_version()},
        }
