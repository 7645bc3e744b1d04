"""What docs/threat-model.md claims: every test that it names exists, and nothing that is read can be executed."""

from __future__ import annotations

import ast
import json
import pickle
import re
import shutil
from pathlib import Path

import pytest

from ustad import artefact
from ustad.config import ConfigError
from ustad.detector import Detector
from ustad.files import write_json
from ustad.tables import DataError

ROOT = Path(__file__).parents[2]
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "jsonpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.load", "os.system"}


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "threat-model.md").read_text()))
    texts = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    written = {name for text in texts for name in re.findall(r"def (test_\w+)", text)}
    assert len(named) > 20
    assert named - written == set()


def test_every_claim_of_the_page_names_a_test_and_every_danger_without_one_is_said_to_be_open() -> None:
    """Lines of tables name the test that shows them; what is no line of a table stands under "Not protected"."""
    text = (ROOT / "docs" / "threat-model.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[2:]  # after what is worth attacking
    assert len(sections) >= 6
    for section in sections:
        claims, _, dangers = section.partition("**Not protected**")
        assert dangers.strip(), section.splitlines()[0]
        blocks = [block for block in claims.split("\n\n") if block.startswith("|")]
        for block in blocks:
            head, rule, *rows = block.strip().splitlines()
            assert re.fullmatch(r"\|(-+\|)+", rule), f"a table without a head: {head}"
            assert [row for row in rows if not re.search(r"`test_\w+`", row)] == []
        for line in dangers.strip().splitlines():
            assert line.startswith(("- ", "  ")), line


def test_nothing_that_is_read_can_be_executed() -> None:
    """No module that unpickles is imported, and nothing is called that runs what it is given."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not {name.split(".")[0] for name in names} & FORBIDDEN_MODULES, file
            elif isinstance(node, ast.Call):
                called, given = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert called not in FORBIDDEN_CALLS, file
                assert given.get("allow_pickle", "False") == "False", file
                assert called not in ("np.load", "numpy.load") or "allow_pickle" in given, file


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.marker,)  # type: ignore[return-value]  # called by whoever unpickles it


@pytest.mark.parametrize("preset", ["model", "model-best", "model-paper"])
def test_a_model_of_pickles_and_yaml_objects_runs_nothing(preset: str, tmp_path: Path) -> None:
    """Each file of a model in turn is one that would run something, with a manifest that vouches for it."""
    corpus, marker = ROOT / "tests" / "fuzz" / "corpus" / preset, tmp_path / "was run"
    objects = f"model: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{marker}']]\n"
    payloads = [pickle.dumps(Payload(marker)), objects.encode(), json.dumps({"__reduce__": "touch"}).encode()]
    for name in sorted(p.name for p in corpus.iterdir() if p.name not in (artefact.MANIFEST, "card.md")):
        for payload in payloads:
            place = tmp_path / "model"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(corpus, place)
            (place / name).write_bytes(payload)
            files = {p.name: artefact.checksum(p) for p in place.iterdir() if p.name != artefact.MANIFEST}
            write_json({"format": artefact.FORMAT, "files": files}, place / artefact.MANIFEST)
            try:
                Detector.load(place, device="cpu")
            except (DataError, ConfigError):
                continue
    assert not marker.exists()
    pickle.loads(payloads[0])
    assert marker.exists(), "the payload is one that runs where it is unpickled"
