"""The facade: `Detector(config).fit(train).score(test)`, `save` and `load`.

It puts the rooms together: split by date, trips to vectors, encoder, network, training, reference and
calibration, scores. Everything that decides a result is in its configuration.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

import ustad
from ustad import artefact, progress
from ustad.card import area, card
from ustad.config import Config
from ustad.dataset import Dataset, event_days, zone_of
from ustad.events.encoder import Encoder
from ustad.events.history import History
from ustad.events.windows import EventTensors, make_windows
from ustad.mobility.trips import trip_arrays
from ustad.model.network import DualTransformer
from ustad.model.paths import PathEncoder, fit_paths
from ustad.periods import Periods, as_data, query_period, split_entities, training_periods, trips_to
from ustad.schema import EventSchema, mobility_schema
from ustad.scores import Scores
from ustad.scoring.alerts import AlertRule
from ustad.scoring.model import ScoringModel, fit_reference
from ustad.scoring.score import notes, score_events
from ustad.tables import DataError, as_table
from ustad.training.loop import FitResult, fit

#: Columns that trips bring into the events; they are no part of the score table.
TRIP_COLUMNS = ("trip_summary", "trip_shape", "trip_speed")


class Detector:
    """Finds unusual events and entities.

    >>> detector = Detector("fast").fit("runs/demo/data")  # doctest: +SKIP
    >>> scores = detector.score("runs/demo/data")  # doctest: +SKIP
    """

    def __init__(self, config: Config | str = "fast", device: str = "auto") -> None:
        self.config = Config.preset(config) if isinstance(config, str) else config
        self.device = choose_device(device)
        self.model: ScoringModel | None = None
        self.paths: PathEncoder | None = None
        self.facts: dict[str, Any] = {}

    @property
    def schema(self) -> EventSchema:
        return self._fitted().encoder.schema

    # ---------------------------------------------------------------------------------------- fitting
    def fit(
        self,
        data: Any,
        directory: Path | None = None,
        resume: bool = False,
        start: Detector | None = None,
    ) -> Detector:
        """Learn from a data set's training weeks; its validation week stops early and calibrates.

        A table instead of a data set is all training: its last quarter of days becomes the validation part.
        `start` is a fitted detector to carry on from, with the same schema.
        """
        periods = training_periods(data, self.config)
        schema, trips = self._choose_schema(periods)
        self.config = self.config.replace({"model.trips": trips})
        train_trips = trips_to(periods.trips, periods.train) if trips != "none" else None
        self.paths = start.paths if start else self._fit_paths(train_trips)
        train = self._prepare(periods.train, train_trips)
        validation = self._prepare(periods.validation, periods.trips)
        encoder = start._fitted().encoder if start else Encoder.fit(train, schema)
        stopping, calibration = split_entities(validation, schema.entity)
        network = self._new_network(encoder, start)
        result = self._train(network, encoder, train, stopping, directory, resume)
        progress.say("building the reference and calibrating")
        known = train.filter(pc.is_in(train[schema.entity], pc.unique(calibration[schema.entity])))
        week = pa.concat_tables([known, calibration], promote_options="permissive")
        first = int(event_days(calibration, schema).min())
        self.model = fit_reference(network, encoder, self.config, train, week, first, self.device)
        self.facts = self._facts(train, validation, result)
        return self

    def _choose_schema(self, periods: Periods) -> tuple[EventSchema, str]:
        """The schema to learn, and how trips enter: as configured where the data has trips, else not at all."""
        if periods.schema.name != "mobility":
            return periods.schema, "none"
        trips = self.config.model.trips
        if trips != "none" and (periods.trips is None or periods.trips.num_rows == 0):
            progress.say("the data has no trips; going on without them")
            trips = "none"
        return mobility_schema(trips, self.config.model.trip_size, self.config.model.log_duration), trips

    def _fit_paths(self, trips: pa.Table | None) -> PathEncoder | None:
        if trips is None or self.config.model.trips != "embedding":
            return None
        arrays = trip_arrays(trips)
        whole = ~arrays.crosses_gap
        return fit_paths(
            arrays.shape[whole], arrays.speed[whole], self.config.model.trip_size, self.config.seed, self.device
        )

    def _prepare(self, events: pa.Table, trips: pa.Table | None) -> pa.Table:
        """Events with the vector columns of the trips that led to them, null where there was none."""
        if self.config.model.trips == "none":
            return events
        if trips is None:
            progress.say("the data has no trips; what the model expects of them is left out of the scores")
            return _without_trips(events)
        arrays = trip_arrays(trips_to(trips, events))
        if self.config.model.trips == "summary":
            vectors = {"trip_summary": arrays.summary}
        else:
            shape, speed = self.paths.encode(arrays.shape, arrays.speed)  # type: ignore[union-attr]  # fitted with embeddings
            vectors = {"trip_shape": shape, "trip_speed": speed}
        known = ~arrays.crosses_gap
        at = pc.index_in(events["stay_id"], pa.array(arrays.destination_stay_id[known], events["stay_id"].type))
        for name, values in vectors.items():
            column = pa.FixedSizeListArray.from_arrays(pa.array(values[known].ravel()), values.shape[1])
            events = events.append_column(name, column.cast(pa.list_(pa.float32())).take(at.combine_chunks()))
        return events

    def _new_network(self, encoder: Encoder, start: Detector | None) -> DualTransformer:
        torch.manual_seed(self.config.seed)
        network = DualTransformer(encoder.fields, self.config.model, self.config.window.max_events)
        if start is not None:
            network.load_state_dict(start._fitted().network.state_dict())
        return network.to(self.device)

    def _train(
        self,
        network: DualTransformer,
        encoder: Encoder,
        train: pa.Table,
        stopping: pa.Table,
        directory: Path | None,
        resume: bool,
    ) -> FitResult:
        arrays = encoder.encode(train)
        windows = make_windows(arrays, self.config.window)
        held, questions = query_period(encoder, train, stopping, self.config)
        return fit(
            network,
            EventTensors(arrays, self.device),
            windows,
            (EventTensors(held, self.device), questions),
            self.config,
            self.device,
            directory=directory,
            resume=resume,
        )

    # ---------------------------------------------------------------------------------------- scoring
    def score(self, data: Any, context: Any = None, rule: AlertRule | None = None, everything: bool = False) -> Scores:
        """Score events and entities.

        A data set (or a path to one) is scored in its test part, with the days before as context; a table is
        scored whole, with `context` (a table) as what came before. Never uses labels.
        """
        model = self._fitted()
        events, before, trips = self._scored_part(data, context, everything)
        prepared = self._prepare(events, trips)
        earlier = self._prepare(before, trips) if before is not None and before.num_rows else None
        scored, agents = score_events(model, prepared, earlier, rule=rule, device=self.device)
        scored = scored.drop_columns([c for c in TRIP_COLUMNS if c in scored.column_names])
        return Scores(scored, agents, {**notes(scored), **self._run_facts(events)})

    def _scored_part(
        self, data: Any, context: Any, everything: bool
    ) -> tuple[pa.Table, pa.Table | None, pa.Table | None]:
        data = as_data(data)
        if not isinstance(data, Dataset):
            before = as_table(context, "context") if context is not None else None
            return data, before, None
        if everything:
            return data.events, None, data.trips
        try:
            split = data.split(self.config.split)
        except DataError:
            return data.events, None, data.trips  # too short to be split: all of it is new
        return (
            data.between(split.test_first, split.test_last),
            data.between(split.train_first, split.test_first - 1),
            data.trips,
        )

    def _run_facts(self, events: pa.Table) -> dict[str, Any]:
        schema = self.schema
        return {
            "method": "ustad",
            "version": ustad.__version__,
            "seed": self.config.seed,
            "schema": schema.to_dict(),
            "trained": self.facts,
            "first_day": int(event_days(events, schema).min()),
            "last_day": int(event_days(events, schema).max()),
        }

    # ---------------------------------------------------------------------------------------- storing
    def save(self, path: Path | str) -> None:
        """Write the model directory; it appears whole or not at all."""
        model = self._fitted()
        with artefact.writing(Path(path)) as place:
            self.config.to_yaml(place / "config.yaml")
            (place / "schema.json").write_text(json.dumps(model.encoder.schema.to_dict(), indent=2))
            (place / "encoder.json").write_text(json.dumps(model.encoder.to_dict()))
            save_file(
                {k: v.cpu().contiguous() for k, v in model.network.state_dict().items()}, place / "model.safetensors"
            )
            if self.paths is not None:
                save_file(self.paths.state_dict(), place / "trips.safetensors")
            save_arrays(
                {k: np.ascontiguousarray(v) for k, v in model.to_tensors().items()}, place / "reference.safetensors"
            )
            if model.history is not None:
                model.history.save(place / "history.parquet")
            (place / "facts.json").write_text(json.dumps(self.facts, indent=2))
            (place / "card.md").write_text(card(self.facts, self.config))

    @classmethod
    def load(cls, path: Path | str, device: str = "auto") -> Detector:
        """Read a model directory after checking it. Nothing in it is executed."""
        path = Path(path)
        files = artefact.check(path)
        detector = cls(Config.from_yaml(path / "config.yaml"), device)
        encoder = Encoder.from_dict(json.loads((path / "encoder.json").read_text()))
        network = DualTransformer(encoder.fields, detector.config.model, detector.config.window.max_events)
        network.load_state_dict(load_file(path / "model.safetensors"))
        network.to(detector.device).eval()
        history = History.load(path / "history.parquet", encoder.schema) if "history.parquet" in files else None
        tensors = load_arrays(path / "reference.safetensors")
        detector.model = ScoringModel.from_tensors(network, encoder, detector.config, tensors, history)
        if "trips.safetensors" in files:
            detector.paths = PathEncoder.from_state_dict(load_file(path / "trips.safetensors"))
        detector.facts = json.loads((path / "facts.json").read_text())
        return detector

    def _fitted(self) -> ScoringModel:
        if self.model is None:
            raise DataError("this detector is not fitted; call fit first, or load a model directory")
        return self.model

    def _facts(self, train: pa.Table, validation: pa.Table, result: FitResult) -> dict[str, Any]:
        schema = self._fitted().encoder.schema
        days = event_days(train, schema)
        zone = zone_of(train, schema)
        zones = [zone] if isinstance(zone, str) else sorted(set(pc.unique(zone).to_pylist()))
        return {
            "events": train.num_rows,
            "entities": len(pc.unique(train[schema.entity])),
            "validation_events": validation.num_rows,
            "first_day": str(np.datetime64(int(days.min()), "D")),
            "last_day": str(np.datetime64(int(days.max()), "D")),
            "timezones": zones,
            "area": area(train) if {"lat", "lon"} <= set(train.column_names) else None,
            "validation_loss": result.best_loss,
            "epochs": result.epochs,
            "seconds": round(result.seconds, 1),
            "seed": self.config.seed,
            "device": str(self.device),
            "versions": {"ustad": ustad.__version__, "torch": torch.__version__, "python": platform.python_version()},
        }


def _without_trips(events: pa.Table) -> pa.Table:
    for name in TRIP_COLUMNS:
        events = events.append_column(name, pa.nulls(events.num_rows, pa.list_(pa.float32())))
    return events


def choose_device(name: str) -> torch.device:
    """auto: CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise DataError(f"device '{name}' is not one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise DataError("no CUDA device is available here; use --device cpu")
    return torch.device(name)
