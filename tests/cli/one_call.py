"""One call of the command line, in this process."""

from ustad.cli import main


def run(capsys, *arguments):
    """Exit code, standard output and standard error of one call."""
    try:
        main([str(a) for a in arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    captured = capsys.readouterr()
    return code, captured.out, captured.err
