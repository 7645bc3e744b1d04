"""What is fuzzed: everything that reads bytes somebody else may have written.

A target takes bytes and either reads them or refuses them with a DataError or ConfigError; anything else it raises is a
finding. `corpus/TARGET/` holds the files that cases are made from, all written by our own tests and writers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ustad import artefact, progress
from ustad.config import Config, ConfigError, ExtractionConfig
from ustad.files import write_json
from ustad.mobility.exports import read_given_stays
from ustad.mobility.extraction import collect, extract_partition, make_setting, valid_pieces
from ustad.mobility.fix_store import AgentNumbers, MemoryStore
from ustad.mobility.formats import expand
from ustad.mobility.given_stays import choose_files
from ustad.mobility.osm import read_categories, read_osm
from ustad.mobility.places import read_pois
from ustad.mobility.readers import check_stays, open_data
from ustad.mobility.reading import Reading
from ustad.mobility.summary import ExtractionSummary
from ustad.mobility.tracker import StayTracker
from ustad.mobility.whose import choose_agents
from ustad.schema import EventSchema
from ustad.scores import Scores
from ustad.tables import DataError

CORPUS = Path(__file__).parent / "corpus"
REFUSED = (DataError, ConfigError)
MOST_FIXES = 5000  # more are read, and not extracted


@dataclass(frozen=True)
class Target:
    """`run` gets the path of a file whose name is that of the corpus file that the case was made from."""

    name: str
    run: Callable[[Path], Any]


# ------------------------------------------------------------------------------------------------------ readers
def read_fixes(path: Path) -> None:
    """As `ustad extract` reads a file, up to the stays."""
    for on_error in ("skip", "fail"):  # the second raises what the first leaves out
        reading = Reading("Europe/Helsinki", "utc", on_error)  # type: ignore[arg-type]  # one of two words
        files, given = choose_files(expand([path]), reading)
        choose_agents(files, None, reading)
        if given:
            check_stays(read_given_stays(files, reading), str(path), reading)
            continue
        setting = make_setting(ExtractionConfig(), None, None, reading)
        store, agents, rows = MemoryStore(), AgentNumbers(), 0
        for table in valid_pieces(files, reading, ExtractionSummary(path.parent)):
            collect(table, store, agents, setting.config)
            rows += table.num_rows
        if 0 < rows <= MOST_FIXES:
            for part in store.partitions(agents, MOST_FIXES):
                extract_partition(part, setting)


def read_stays(path: Path) -> None:
    open_data(path, timezone="Europe/Helsinki", on_error="skip")
    open_data(path)


def read_data_directory(path: Path) -> None:
    """One file of a data directory, the others as they should be."""
    place = _beside(path, "data")
    open_data(place).split(Config().split)


def read_scores(path: Path) -> None:
    Scores.load(_beside(path, "scores"))


def read_model(path: Path) -> None:
    """One file of a model directory, with a manifest that vouches for it: what a stranger can hand over."""
    from ustad.detector import Detector

    place = _beside(path, path.parent.name)
    if path.name != artefact.MANIFEST:
        files = {p.name: artefact.checksum(p) for p in place.iterdir() if p.name != artefact.MANIFEST}
        write_json({"format": artefact.FORMAT, "files": files}, place / artefact.MANIFEST)
    Detector.load(place, device="cpu")


def _beside(path: Path, name: str) -> Path:
    """A copy of the corpus' directory with this one file in it."""
    place = path.parent / "whole" / name
    files = _corpus_files(name)
    place.mkdir(parents=True, exist_ok=True)
    for one, content in {**files, path.name: path.read_bytes()}.items():  # what an earlier case left is put right
        there = place / one
        if not there.exists() or there.read_bytes() != content:
            there.write_bytes(content)
    return place


@cache
def _corpus_files(name: str) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in (CORPUS / name).iterdir()}


def read_config(path: Path) -> None:
    Config.from_yaml(path)


def read_schema(path: Path) -> None:
    EventSchema.from_yaml(path)


def read_places(path: Path) -> None:
    read_osm(path) if path.suffix == ".osm" else read_pois(path)


def read_rules(path: Path) -> None:
    read_categories(path)


# ------------------------------------------------------------------------------------------------------- states
def read_tracker(path: Path) -> None:
    """The state of live extraction, and that what was taken up can go on."""
    tracker = StayTracker.from_bytes(path.read_bytes())
    tracker.finish()


class LiveTarget:
    """The state of live scores, taken up by a small model; made when it is first needed."""

    def __init__(self) -> None:
        self.live: Any = None

    def __call__(self, path: Path) -> None:
        if self.live is None:
            from ustad.detector import Detector
            from ustad.live.live_judges import make_live
            from ustad.scoring.adding_judge import AddingJudge

            model = Detector.load(CORPUS / "model", device="cpu").judge
            if not isinstance(model, AddingJudge):
                raise ValueError("the corpus' model is one of habits")
            self.live = make_live(model, device="cpu", p_value=0.01, most=4)
        self.live.from_bytes("agent 0", path.read_bytes())


# -------------------------------------------------------------------------------------------------------- bodies
class BodyTarget:
    """A request of the service: the first line says method and path, the rest is the body. Nothing may answer 500."""

    def __init__(self) -> None:
        self.client: Any = None
        self.keys: dict[str, str] = {}

    def __call__(self, path: Path) -> None:
        self._client()
        head, _, body = path.read_bytes().partition(b"\n")
        method, _, url = head.decode("latin-1").strip().partition(" ")
        try:
            address = "/" + _url(url).lstrip("/")
            key = self.keys["phone" if address.startswith("/device") else "everybody"]
            is_json = body.lstrip()[:1] in (b"{", b"[", b"")
            kind = "application/json" if is_json else "application/x-www-form-urlencoded"
            headers = {"Content-Type": kind, "Authorization": f"Bearer {key}"}
            answer = self._client().request(_token(method), address, content=body, headers=headers)
        except (ValueError, TypeError) as error:  # httpx refuses what is no address
            if "httpx" in type(error).__module__:
                return
            raise
        if answer.status_code >= 500 and answer.status_code != 503:
            raise AssertionError(f"{answer.status_code}: {answer.text[:200]}")
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        if answer.status_code >= 400 and is_json and not {"code", "message"} <= set(answer.json()["error"]):
            raise AssertionError(f"an error of another shape: {answer.text[:200]}")

    def _client(self) -> Any:
        if self.client is None:
            from service_example import PlainScorer, client_of

            from ustad.service.app import create_app
            from ustad.service.keys import ROLES, create_key
            from ustad.service.settings import Settings

            chosen = Settings(store="sqlite://", ahead_days=0, rate_limit=0)
            self.client = client_of(create_app(chosen, PlainScorer()))
            self.client.__enter__()
            store = self.client.app.state.service.store
            self.keys = {"everybody": create_key(store, "everybody", list(ROLES))}
            self.keys["phone"] = create_key(store, "phone", [], agent="a")
        return self.client

    def close(self) -> None:
        if self.client is not None:
            self.client.__exit__(None, None, None)


def _token(method: str) -> str:
    """A method that can be sent."""
    return "".join(c for c in method if c.isascii() and c.isalpha()).upper()[:10] or "POST"


def _url(url: str) -> str:
    """An address that can be sent and answered: streams have no end."""
    printable = "".join(c for c in url if 32 < ord(c) < 127)
    return "v1/alerts" if "stream" in printable else printable[:4000]


TARGETS: dict[str, Target] = {
    name: Target(name, run)
    for name, run in {
        "fixes": read_fixes, "stays": read_stays, "data": read_data_directory, "scores": read_scores,
        "model": read_model, "model-best": read_model, "model-paper": read_model,
        "config": read_config, "schema": read_schema, "pois": read_places, "rules": read_rules,
        "tracker": read_tracker, "live": LiveTarget(), "http": BodyTarget(),
    }.items()
}  # fmt: skip


def quiet() -> None:
    """Nothing is shown of what readers say of their input."""
    warnings.simplefilter("ignore")
    progress.disable()
