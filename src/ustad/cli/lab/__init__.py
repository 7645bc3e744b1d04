"""`ustad lab …`: verbs for those who compare methods. `ustad.lab` is imported when a verb runs, not before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import typer

from ustad import progress
from ustad.cli.lab import baseline, benchmark, evaluate, experiment, methods, red_teams, tune

app = typer.Typer(name="lab", no_args_is_help=True, help="Compare methods: baselines, labels, searches, experiments.")
verbs = (baseline.train, tune.tune, evaluate.evaluate, methods.methods, experiment.experiment, benchmark.benchmark)
#: A verb that stands beside `simulate`.
inject = red_teams.inject
for verb in verbs:
    app.command()(verb)

#: Verbs that stood beside `train` and `score` before version 0.3.
FORMER_VERBS = (tune.tune, evaluate.evaluate, methods.methods, experiment.experiment)


def add_former_names(parent: typer.Typer) -> None:
    """Let the verbs be called by their former names too, hidden from --help."""
    for verb in FORMER_VERBS:
        parent.command(hidden=True)(_say_new_name(verb))


def _say_new_name(verb: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(verb)
    def call(*arguments: Any, **options: Any) -> Any:
        progress.say(f"`ustad {verb.__name__}` is called `ustad lab {verb.__name__}` now")
        return verb(*arguments, **options)

    return call
