"""What a user installs: one version, pins that fit the bounds, extras that exist, files that travel with the wheel."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ustad

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "ustad"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
REQUIREMENTS = [Requirement(r) for r in chain(PROJECT["project"]["dependencies"], *EXTRAS.values())]
OURS = "ustad"


def pinned_versions() -> dict[str, str]:
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines if line)}


def test_the_version_stands_in_one_place_and_the_changelog_begins_with_it():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ustad.__version__"}
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert first is not None
    assert first[1] == ustad.__version__


@pytest.mark.parametrize("requirement", [r for r in REQUIREMENTS if r.name != OURS], ids=str)
def test_what_is_required_is_pinned_to_a_version_that_its_bound_allows(requirement):
    assert pinned_versions()[canonicalize_name(requirement.name)] in requirement.specifier


def test_all_is_every_extra_but_those_of_developers():
    (everything,) = (Requirement(r) for r in EXTRAS["all"])
    assert everything.name == OURS
    assert everything.extras == set(EXTRAS) - {"all", "dev", "docs"}


@pytest.mark.parametrize("place", ["src", "docs", "README.md", "examples", "benchmarks"])
def test_extras_that_are_named_exist(place):
    files = [p for p in (ROOT / place).rglob("*") if p.suffix in (".py", ".md")] or [ROOT / place]
    named = {e for p in files for part in re.findall(r"ustad\[([a-z,]+)\]", p.read_text()) for e in part.split(",")}
    assert named <= set(EXTRAS)


def test_every_file_beside_the_code_travels_with_the_wheel():
    globs = PROJECT["tool"]["setuptools"]["package-data"]
    packages = {p.parent for p in PACKAGE.rglob("__init__.py")}
    packed = {f for package in packages for glob in globs["*"] for f in package.glob(glob)}
    packed |= {f for glob in globs["ustad.page"] for f in (PACKAGE / "page").glob(glob)}
    beside = {f for f in PACKAGE.rglob("*") if f.is_file() and f.suffix not in (".py", ".pyc", ".nbi", ".nbc")}
    assert PACKAGE / "py.typed" in packed
    assert beside - packed == set()
