"""Settings of `ustad serve` from the environment: one variable for each, and an option counts before it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ustad.cli.serve import serve
from ustad.page.store import Store
from ustad.service.keys import Keys
from ustad.service.settings import LIMITS, Settings, limits_in

app = typer.Typer()
app.command()(serve)
#: Options that are no settings: what to do instead of serving.
ABOUT_KEYS = {"create_key", "roles", "agent", "expires", "remove_key"}
GIVEN = {
    "map": "town.pmtiles", "history": "data",
    "store": "sqlite://", "host": "127.0.0.2", "port": "9000", "keep": "90d", "alerts-per-day": "5", "tiles": "http://t",
    "pois": "pois.parquet", "timezone": "Europe/Helsinki", "lateness": "60", "ahead": "12h", "rate-limit": "50",
    "proxy-headers": "127.0.0.1", "notify": "notify.yaml", "weights": "weights.json", "audit": "reads.jsonl",
    "device": "cpu", "workers": "3",
}  # fmt: skip


@pytest.fixture
def serve_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls the verb and returns the settings it would have served with."""
    (tmp_path / "manifest.json").write_text("{}")
    served: list[Settings] = []
    monkeypatch.setattr("ustad.service.app.serve", lambda settings, started: served.append(settings))

    def call(*arguments: str, target: bool = True, **environment: str) -> Settings:
        result = CliRunner().invoke(app, [str(tmp_path)] * target + list(arguments), env=environment)
        assert result.exit_code == 0, result.output
        return served[-1]

    return call


def variable(name: str) -> str:
    return "USTAD_SERVE_" + name.upper().replace("-", "_")


def test_variables_say_what_options_say(serve_with: Any) -> None:
    by_options = serve_with(*(part for name, value in GIVEN.items() for part in (f"--{name}", value)))
    by_variables = serve_with(**{variable(name): value for name, value in GIVEN.items()})
    assert by_variables == by_options
    assert by_options != serve_with()


def test_every_setting_has_a_variable() -> None:
    command = typer.main.get_command(app)
    options = {p.name: p.envvar for p in command.params if p.name not in ABOUT_KEYS | {"help"}}
    options = {name: envvar for name, envvar in options.items() if "completion" not in str(name)}
    assert options == {name: variable(str(name)) for name in options}
    assert set(options) == {name.replace("-", "_") for name in GIVEN} | {"target"}
    by_option = {"model", "run", "lateness_s", "keep_days", "ahead_days"}  # called otherwise than their option
    assert {f.name for f in fields(Settings)} == (set(options) | by_option | set(LIMITS)) - {
        "target", "keep", "lateness", "ahead"
    }  # fmt: skip


def test_an_option_counts_before_its_variable(serve_with: Any) -> None:
    assert serve_with("--port", "9001", USTAD_SERVE_PORT="9000").port == 9001


def test_what_to_serve_can_come_from_the_environment(serve_with: Any, tmp_path: Path) -> None:
    assert serve_with(target=False, USTAD_SERVE_TARGET=str(tmp_path)).model == tmp_path


def test_limits_without_an_option_come_from_the_environment(serve_with: Any) -> None:
    settings = serve_with(USTAD_SERVE_MAX_QUEUE="8000", USTAD_SERVE_BODY_SECONDS="2.5", USTAD_SERVE_MAX_BATCH="")
    assert (settings.max_queue, settings.body_seconds, settings.max_batch) == (8000, 2.5, Settings.max_batch)


def test_a_variable_of_another_kind_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="USTAD_SERVE_MAX_QUEUE takes a whole number, got 'many'"):
        limits_in({"USTAD_SERVE_MAX_QUEUE": "many"}, "USTAD_SERVE_")
    result = CliRunner().invoke(app, [str(tmp_path)], env={"USTAD_SERVE_PORT": "tcp://10.0.0.1:8350"})
    assert result.exit_code == 2
    assert "USTAD_SERVE_PORT" in result.output


def test_variables_that_kubernetes_sets_for_a_service_called_ustad_are_left_alone(serve_with: Any) -> None:
    assert serve_with(USTAD_PORT="tcp://10.0.0.1:8350", USTAD_SERVICE_HOST="10.0.0.1").port == 8350


def test_a_key_goes_into_the_store_of_the_environment(serve_with: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    result = CliRunner().invoke(app, [str(tmp_path), "--create-key", "k"], env={"USTAD_SERVE_STORE": url})
    assert result.exit_code == 0
    assert [caller.name for caller in Keys(Store(url), open_without=False).all().values()] == ["k"]
