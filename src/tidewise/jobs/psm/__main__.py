"""The price search machine as a program: one query, by its name."""

from __future__ import annotations

from tidewise.jobs.program import parsed
from tidewise.jobs.psm.medians import SLIDE, WINDOW
from tidewise.jobs.psm.queries import QUERIES, medians_over
from tidewise.jobs.query_program import query_options, run_asked
from tidewise.jobs.records.kinds import KINDS

KIND = KINDS["psm"]


def main(arguments: list[str] | None = None) -> None:
    """Run until stopped, or for `--seconds`."""
    parser = query_options(QUERIES, KIND, description="Answers one query of the price search machine.")
    sizes = parser.add_argument_group("the query q2")
    sizes.add_argument("--window", type=int, metavar="CLICKS", help=f"last clicks of a product ({WINDOW})")
    sizes.add_argument("--slide", type=int, metavar="CLICKS", help=f"clicks from one answer to the next ({SLIDE})")
    options = parsed(parser, arguments)
    given = {name: size for name, size in (("window", options.window), ("slide", options.slide)) if size is not None}
    for name, size in given.items():
        if options.query != "q2":
            parser.error(f"--{name} is for --query q2, not for {options.query}; leave it out")
        if size < 1:
            parser.error(f"--{name} is a number of clicks, 1 or more, not {size}")
    queries = {**QUERIES, "q2": medians_over(**({"window": WINDOW, "slide": SLIDE} | given))}
    run_asked(parser, options, queries, KIND)


if __name__ == "__main__":
    main()
