"""The command line: verbs, nothing else. Each verb is one function of the library with options around it.

A failure is one line on standard error and a non-zero exit; `--debug` shows where it came from.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Annotated, NoReturn

import typer

from ustad import __version__, progress
from ustad.cli import demo, extract, forget, infer, lab, learn, report, score, serve, simulate, train, watch
from ustad.cli.shared import err, out
from ustad.config import ConfigError
from ustad.data_error import DataError
from ustad.torch_device import NO_TORCH

#: What this file gives is all that other rooms may import; a test refuses imports past it.
DOOR = ()

# Threads that wait for each other sleep instead of spinning: on a busy machine that is ten times faster.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(
    name="ustad",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Find unusual behaviour in human movement, and in any sequence of events, without labels.",
)
_debug = False


def _version(value: bool) -> None:
    if value:
        out.print(f"ustad {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of a failure.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only warnings.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    global _debug
    _debug = debug
    if quiet:
        progress.disable()
    else:
        progress.enable(err)


for verb in (
    demo.demo,
    simulate.simulate,
    extract.extract,
    extract.pois,
    lab.inject,
    train.train,
    score.score,
    learn.learn,
    forget.forget,
    report.report,
    serve.serve,
    watch.watch,
    extract.info,
):
    app.command()(verb)
app.add_typer(infer.schema)
app.add_typer(lab.app)


def run_process() -> NoReturn:
    """The process `ustad`: one verb, then out. The interpreter is not taken apart piece by piece: once torch was there
    that takes a second. Whoever asked to be called at the end is."""
    code: int | str | None = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if not isinstance(code, int) or not all(thread.daemon for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more: Python says so in its own way
        sys.exit(code)
    os._exit(code)


def main(arguments: list[str] | None = None) -> None:
    """Run one verb. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        with progress.print_warnings(err):
            app(args=arguments)
    except SystemExit as stop:
        if stop.code == 130:  # typer ends an interrupted verb without a word
            err.print("interrupted; finished files are complete (a stopped `ustad train` goes on with --resume)")
        raise
    except (DataError, ConfigError, ImportError, OSError) as error:
        _stop(NO_TORCH if getattr(error, "name", None) == "torch" else str(error) or type(error).__name__, error)
    except MemoryError as error:
        _stop("not enough memory; use fewer agents at a time", error)
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error} (`ustad --debug VERB …` shows where)"
        _stop(_device_problem(error) or message, error)


def _device_problem(error: Exception) -> str | None:
    """What to do when torch has no memory, or no GPU any more; none where it is something else. Torch is not imported
    for this: by now it is, or the error is not its own."""
    text = str(error)
    if type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text:
        return "not enough memory, also in small pieces; use fewer agents at a time, a smaller model, or --device cpu"
    if isinstance(error, RuntimeError) and "CUDA error" in text:
        return (
            f"the GPU failed ({text.splitlines()[0]}); what was written is complete: `ustad train` goes on with "
            "--resume, and --device cpu does without a GPU"
        )
    return None


def _stop(message: str, error: BaseException) -> None:
    if _debug:
        raise error
    err.print(f"[bold red]error:[/] {_escape(' '.join(message.split()))}", soft_wrap=True)
    sys.exit(1)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
