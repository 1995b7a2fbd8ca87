"""Nexmark as a program: one query, by its name."""

from __future__ import annotations

from tidewise.jobs.nexmark.queries import QUERIES
from tidewise.jobs.query_program import run_query
from tidewise.jobs.records.kinds import KINDS

KIND = KINDS["nexmark"]


def main(arguments: list[str] | None = None) -> None:
    """Run until stopped, or for `--seconds`."""
    run_query(QUERIES, KIND, description="Answers one query of Nexmark.", arguments=arguments)


if __name__ == "__main__":
    main()
