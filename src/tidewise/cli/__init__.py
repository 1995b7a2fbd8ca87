"""The command line: every command teaches by example and speaks plainly when something is wrong."""

from tidewise.cli.app import main

__all__ = ["main"]
