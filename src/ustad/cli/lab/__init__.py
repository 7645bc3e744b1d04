"""`ustad lab …`: verbs for those who compare methods. `ustad.lab` is imported when a verb runs, not before."""

from __future__ import annotations

import typer

from ustad.cli.lab import baseline, benchmark, evaluate, experiment, methods, red_teams, tune

app = typer.Typer(name="lab", no_args_is_help=True, help="Compare methods: baselines, labels, searches, experiments.")
verbs = (baseline.train, tune.tune, evaluate.evaluate, methods.methods, experiment.experiment, benchmark.benchmark)
#: A verb that stands beside `simulate`.
inject = red_teams.inject
for verb in verbs:
    app.command()(verb)
