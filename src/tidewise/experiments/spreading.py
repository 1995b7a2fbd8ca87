"""How the runs of an experiment are computed: one after the other in this process, or side by side by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar

from tidewise.core import BadInputError
from tidewise.pipeline import spark_context, sweep

Task = TypeVar("Task")
Answer = TypeVar("Answer")

THIS_PROCESS = "none"
"""Instead of a Spark master: no Spark at all."""


class Spreader(Protocol):
    """Computes `work` for all tasks, wherever it likes: `work` can be pickled, and answers the same everywhere."""

    def __call__(
        self,
        work: Callable[[Task], Answer],
        tasks: Sequence[Task],
        *,
        called: Callable[[Task], str],
        is_on: Callable[[Task], bool],
        progress: Callable[[int, Sequence[Task]], None],
    ) -> list[Answer]:
        """The answers in the order of the tasks.

        `called` names a task in errors, `is_on` can tell from outside that one is being computed, and `progress` is
        told how many have ended and which are on. The first that fails ends it all.
        """


def in_this_process(
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    *,
    called: Callable[[Task], str],  # noqa: ARG001 - an error of this process tells by itself what it is about
    is_on: Callable[[Task], bool],  # noqa: ARG001 - that is known here
    progress: Callable[[int, Sequence[Task]], None],
) -> list[Answer]:
    """One after the other; needs neither Java nor Spark."""
    answers = []
    for index, task in enumerate(tasks):
        progress(index, (task,))
        answers.append(work(task))
    return answers


@contextmanager
def spread_over(master: str) -> Iterator[Spreader]:
    """Tasks of this Spark master, which is started with the first and stays for all; `none`: this process."""
    if master == THIS_PROCESS:
        yield in_this_process
        return
    with ExitStack() as stack:
        is_up = False

        def on_spark(
            work: Callable[[Task], Answer],
            tasks: Sequence[Task],
            *,
            called: Callable[[Task], str],
            is_on: Callable[[Task], bool],
            progress: Callable[[int, Sequence[Task]], None],
        ) -> list[Answer]:
            nonlocal is_up
            if not is_up:
                try:
                    stack.enter_context(spark_context(master))
                except BadInputError as error:
                    raise BadInputError(
                        f"{error}; or do without Spark, one run after the other: --master none"
                    ) from error
                is_up = True

            def tell(done: int) -> None:
                progress(done, [task for task in tasks if is_on(task)])

            return sweep(work, tasks, master=master, called=called, progress=tell)

        yield on_spark
