"""The command line: every command teaches by example and speaks plainly when something is wrong."""

import sys

STOPPED = 130
"""The exit code of a program that somebody stopped."""


def main() -> None:
    """Run the command line; see `tidewise --help`."""
    try:
        # Not at the top: this takes a second, in which somebody may already press Ctrl-C.
        from tidewise.cli.app import run  # noqa: PLC0415 - see above

        sys.exit(run())
    except KeyboardInterrupt:
        sys.stderr.write("tidewise: stopped; runs that were complete are kept, the one that was on is not\n")
        sys.exit(STOPPED)


__all__ = ["main"]
