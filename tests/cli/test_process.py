"""The process `ustad` ends with its verb's exit code, after whoever asked to be called at the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = "import atexit, sys; from ustad.cli import run_process; atexit.register(print, 'called at the end'); "


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["no-such-verb"], 2), (["score", "no", "no"], 1)])
def test_a_process_ends_with_the_code_of_its_verb_and_calls_exit_functions(words: list[str], code: int) -> None:
    process = run(f"sys.argv[1:] = {words}; run_process()")
    assert process.returncode == code
    assert process.stdout.endswith("called at the end\n")


def test_a_process_whose_thread_still_works_waits_for_it() -> None:
    work = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('done'))).start(); "
    process = run(work + "sys.argv[1:] = ['--version']; run_process()")
    assert process.returncode == 0
    assert "done" in process.stdout
