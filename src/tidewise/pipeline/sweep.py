"""One function over many tasks as one Spark job: told while it goes on, and a task that fails is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidewise.core import PermanentError
from tidewise.pipeline.action import Action
from tidewise.pipeline.context import spark_context, told_error

if TYPE_CHECKING:
    from pyspark import Accumulator

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Ended = list[tuple[int, str | None]]
"""Which tasks have ended, each with what went wrong in it."""


def sweep(
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    *,
    master: str = "local[*]",
    called: Callable[[Task], str] = str,
    progress: Callable[[int], None] | None = None,
) -> list[Answer]:
    """The answers of `work` to all tasks, in their order, each computed as a Spark task of its own.

    `work` is a function of a module that the workers have: on a cluster of other machines this package has to be
    installed there. Tasks and answers are pickled. `called` names a task, `progress` is told how many have ended. The
    first task that fails ends the sweep: PermanentError, with its name. TemporaryError where nobody takes any task.
    """
    if not tasks:
        return []
    with spark_context(master) as context:
        ended: Accumulator[Ended] = context.accumulator([], _Listed())  # type: ignore[arg-type]  # it asks for no more

        def check() -> int:
            """How many tasks have ended, all of them well."""
            failed = [(index, sentence) for index, sentence in ended.value if sentence is not None]
            if failed:
                index, sentence = failed[0]
                raise PermanentError(f"{called(tasks[index])} failed: {sentence}")
            return len({index for index, _ in ended.value})

        def tell() -> None:
            done = check()
            if progress is not None:
                progress(done)

        def compute() -> list[Answer]:
            numbered = context.parallelize(list(enumerate(tasks)), len(tasks))
            return numbered.mapPartitions(partial(_answer, work, ended)).collect()

        return Action(context, compute, called="the sweep").wait(tell)


class _Listed:
    """How Spark adds up what tasks tell: in one list."""

    def zero(self, _value: Ended) -> Ended:
        return []

    def addInPlace(self, ended: Ended, more: Ended) -> Ended:  # noqa: N802 - Spark's name for it
        ended += more
        return ended


def _answer(
    work: Callable[[Task], Answer], ended: Accumulator[Ended], numbered: Iterable[tuple[int, Task]]
) -> Iterator[Answer]:
    """Runs on the workers."""
    for index, task in numbered:
        try:
            answer = work(task)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told with the name of its task
            ended.add([(index, told_error(error))])
            return
        ended.add([(index, None)])
        yield answer
