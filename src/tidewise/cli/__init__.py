"""The command line: every command teaches by example and speaks plainly when something is wrong."""

import sys


def main() -> None:
    """Run the command line; see `tidewise --help`."""
    try:
        # Not at the top: this takes a second, in which somebody may already press Ctrl-C.
        from tidewise.cli.app import run  # noqa: PLC0415 - see above

        sys.exit(run())
    except KeyboardInterrupt:
        sys.stderr.write("tidewise: stopped; complete runs are kept, and the same experiment goes on with the others\n")
        sys.exit(130)  # what shells expect of a program that was stopped


__all__ = ["main"]
