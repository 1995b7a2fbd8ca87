"""One function over many tasks as one Spark job: told while it goes on, and a task that fails is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from tidewise.core import PermanentError, TemporaryError
from tidewise.pipeline.context import cause, spark_context

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Ended = list[tuple[int, str | None]]
"""Which tasks have ended, each with what went wrong in it."""

_POLL_S = 0.2
_BEGIN_S = 120.0
"""By then a first task has to have begun: executors take half a minute on a busy machine."""
_CANCEL_S = 30.0
"""By then a job that was cancelled is over; stopping Spark ends what is left."""
_GROUP = "tidewise-sweep"


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

        with _Job(context, partial(_answer, work, ended), list(enumerate(tasks))) as job:
            give_up_s = time.monotonic() + _BEGIN_S
            began = False
            while not job.over.wait(_POLL_S):
                done = check()
                if progress is not None:
                    progress(done)
                began = began or done > 0 or job.is_running()
                if not began and time.monotonic() > give_up_s:
                    raise TemporaryError(
                        f"no worker of {master} took a task within {_BEGIN_S:.0f} s: look whether it has free cores"
                    )
            check()
            return job.answers()


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
            ended.add([(index, f"{type(error).__name__}: {' '.join(str(error).split())}")])
            return
        ended.add([(index, None)])
        yield answer


def _lost_java() -> tuple[type[Exception], ...]:
    """What a call raises where Java was killed."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with PySpark; no types

    return Py4JError, OSError


class _Job(Generic[Task, Answer]):
    """A Spark job beside this thread, which must be free to tell how it goes and to hear Ctrl-C."""

    def __init__(
        self,
        context: SparkContext,
        work: Callable[[Iterable[tuple[int, Task]]], Iterable[Answer]],
        numbered: Sequence[tuple[int, Task]],
    ) -> None:
        self.over = threading.Event()
        self._context = context
        self._work = work
        self._numbered = numbered
        self._answers: list[Answer] = []
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=_GROUP, daemon=True)

    def __enter__(self) -> _Job[Task, Answer]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.over.is_set():
            with suppress(*_lost_java()):  # a job without its Java is over
                self._context.cancelJobGroup(_GROUP)
        self._thread.join(timeout=_CANCEL_S)

    def is_running(self) -> bool:
        """Whether any task is on a worker; not so without Java, which the answers tell."""
        tracker = self._context.statusTracker()
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except _lost_java():
            return False
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def answers(self) -> list[Answer]:
        """All of them, once it is over; PermanentError where Spark itself gave up."""
        if self._problem is not None:
            raise PermanentError(f"Spark gave the sweep up: {cause(str(self._problem))}") from self._problem
        return self._answers

    def _run(self) -> None:
        try:
            self._context.setJobGroup(_GROUP, _GROUP, interruptOnCancel=True)
            tasks = self._context.parallelize(self._numbered, len(self._numbered))
            self._answers = tasks.mapPartitions(self._work).collect()
        except Exception as error:  # noqa: BLE001 - raised again where the answers are asked for
            self._problem = error
        finally:
            self.over.set()
