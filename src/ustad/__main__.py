"""`python -m ustad`."""

from ustad.cli import main

main()
