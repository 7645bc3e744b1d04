"""Images, manifests and the unit: they name settings, paths and files that exist, and ask for no rights."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
PLACES = [ROOT / "Containerfile", ROOT / "compose.yaml", ROOT / "deploy/systemd/serve.env", *MANIFESTS]


def objects() -> dict[str, Any]:
    return {o["kind"]: o for path in MANIFESTS for o in yaml.safe_load_all(path.read_text())}


@pytest.mark.parametrize("path", PLACES, ids=lambda p: p.name)
def test_settings_that_are_named_are_settings_of_serve(path):
    from ustad.cli import app

    verb = typer.main.get_command(app).commands["serve"]
    known = {p.envvar for p in verb.params if getattr(p, "envvar", None)}
    named = set(re.findall(r"USTAD_SERVE_[A-Z_]+", path.read_text()))
    assert named
    assert named <= known


def test_the_image_copies_what_is_there_and_runs_as_nobody_special():
    text = (ROOT / "Containerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M) for name in line.split()}
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    assert re.search(r"^USER 10001$", text, re.M)
    ignored = (ROOT / ".containerignore").read_text()
    assert {f"!{name}" for name in copied} <= set(ignored.splitlines())
    assert (ROOT / ".dockerignore").read_text() == ignored


def test_what_the_probes_ask_is_answered_without_a_key():
    guard = pytest.importorskip("ustad.service.request_checks", reason="the service's libraries are not installed")
    container = objects()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    asked = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    asked |= set(re.findall(r"8350(/\w+)", (ROOT / "Containerfile").read_text()))
    assert asked == {"/healthz", "/readyz"}
    assert asked <= guard.OPEN_PATHS


def test_the_pod_and_the_service_have_no_rights_they_do_not_need():
    pod = objects()["Deployment"]["spec"]
    inside = pod["template"]["spec"]["containers"][0]["securityContext"]
    assert pod["replicas"] == 1
    assert pod["strategy"]["type"] == "Recreate"
    assert pod["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert inside["readOnlyRootFilesystem"]
    assert inside["capabilities"]["drop"] == ["ALL"]
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["ustad"]
    assert composed["read_only"]
    assert composed["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in composed["ports"])


def test_manifests_keep_the_schema_of_kubernetes():
    validator = pytest.importorskip("kubernetes_validate")
    for path in MANIFESTS:
        for item in yaml.safe_load_all(path.read_text()):
            validator.validate(item, "1.31", strict=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["ustad.service", "ustad-watch.service", "ustad-watch.timer"])
def test_systemd_takes_the_unit(tmp_path, name):
    for other in (ROOT / "deploy/systemd").iterdir():
        (tmp_path / other.name).write_text(other.read_text())
    text = (ROOT / "deploy/systemd" / name).read_text()
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/ustad/bin/ustad", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert not [line for line in done.stderr.splitlines() if f"{name}:" in line], done.stderr
