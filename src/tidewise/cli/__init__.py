"""The command line: every command teaches by example and speaks plainly when something is wrong."""

import sys

_LEFT = {
    "experiment": "; complete runs are kept, and the same experiment goes on with the others",
    "whatif": "; nothing was written, but for complete runs into the folder of --out",
    **dict.fromkeys(("explain", "history", "report"), "; nothing was written"),
}
"""What is left of a command that somebody stopped."""


def main() -> None:
    """Run the command line; see `tidewise --help`."""
    try:
        # Not at the top: this takes a second, in which somebody may already press Ctrl-C.
        from tidewise.cli.app import run  # noqa: PLC0415 - see above

        sys.exit(run())
    except KeyboardInterrupt:
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        sys.stderr.write(f"tidewise: stopped{_LEFT.get(command, '')}\n")
        sys.exit(130)  # what shells expect of a program that was stopped


__all__ = ["main"]
