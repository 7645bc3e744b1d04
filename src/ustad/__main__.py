"""`python -m ustad`."""

from ustad.cli import run_process

run_process()
