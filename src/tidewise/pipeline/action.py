"""Something that Spark computes beside the thread that waits for it, which is free to tell how it goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from tidewise.core import PermanentError, TemporaryError
from tidewise.pipeline.context import cause

if TYPE_CHECKING:
    from pyspark import SparkContext

Answer = TypeVar("Answer")

_POLL_S = 0.2
_BEGIN_S = 120.0
"""So long tasks may wait for a worker to take the first: executors take half a minute on a busy machine."""
_CANCEL_S = 30.0
"""By then a job that was cancelled is over; stopping Spark ends what is left."""
_GROUP = "tidewise"


class Action(Generic[Answer]):
    """A computation whose waiting thread hears Ctrl-C, and may cancel it."""

    def __init__(self, context: SparkContext, compute: Callable[[], Answer], *, called: str) -> None:
        """`called`: what Spark gives up where it does, as in "the sweep"."""
        self._context = context
        self._compute = compute
        self._called = called
        self._over = threading.Event()
        self._answers: list[Answer] = []
        self._problem: Exception | None = None

    def wait(self, poll: Callable[[], None] = lambda: None) -> Answer:
        """Its answer; `poll` is called meanwhile and once at the end, and may raise, which cancels it.

        PermanentError where Spark itself gives up; TemporaryError where nobody takes its tasks.
        """
        thread = threading.Thread(target=self._run, name=_GROUP, daemon=True)
        thread.start()
        waits_since_s: float | None = None
        try:
            while not self._over.wait(_POLL_S):
                poll()
                now_s = time.monotonic()
                waits_since_s = (waits_since_s or now_s) if self._waits() else None
                if waits_since_s is not None and now_s - waits_since_s > _BEGIN_S:
                    raise TemporaryError(
                        f"no worker of {self._context.master} took a task within {_BEGIN_S:.0f} s: look whether it has "
                        "free cores"
                    )
        finally:
            if not self._over.is_set():
                with suppress(*_lost_java()):  # a job without its Java is over
                    self._context.cancelJobGroup(_GROUP)
            thread.join(timeout=_CANCEL_S)
        poll()
        if self._problem is not None:
            raise self._in_words(self._problem) from self._problem
        return self._answers[0]

    def _waits(self) -> bool:
        """Whether there are tasks and nobody has taken any of them; not so without Java, which the answer tells."""
        tracker = self._context.statusTracker()
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except _lost_java():
            return False
        known = [stage for stage in stages if stage is not None]
        return bool(known) and all(stage.numActiveTasks + stage.numCompletedTasks == 0 for stage in known)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(_GROUP, _GROUP, interruptOnCancel=True)
            self._answers.append(self._compute())
        except Exception as error:  # noqa: BLE001 - raised again where its answer is waited for
            self._problem = error
        finally:
            self._over.set()

    def _in_words(self, problem: Exception) -> PermanentError:
        told = cause(str(problem))
        if "No module named 'tidewise" in told:
            return PermanentError(
                "the workers of this Spark lack this package: pip install 'tidewise[spark]' on each of them"
            )
        return PermanentError(f"Spark gave {self._called} up: {told}")


def _lost_java() -> tuple[type[Exception], ...]:
    """What a call raises where Java was killed."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with PySpark; no types

    return Py4JError, OSError
