"""Whose Java it is, and what is left of a sweep when it dies: told without starting any."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import NoReturn

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkContext, java_gateway

from tidewise.core import PermanentError
from tidewise.pipeline import context as contexts
from tidewise.pipeline import sweep
from tidewise.pipeline.context import spark_context


class Gateway:
    """Stands for a Java process."""

    jvm = None

    def __init__(self, process: subprocess.Popen[bytes] | None = None) -> None:
        self.proc = process
        self.ended = False

    def shutdown(self) -> None:
        self.ended = True


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs in this process yet, and nothing is looked for on this machine."""
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        monkeypatch.setattr(SparkContext, name, None)
    for name in ("find_spark", "find_java"):
        monkeypatch.setattr(contexts, name, lambda: None)


def _started(monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None] = lambda: None) -> None:
    """Spark starts at once, and takes Ctrl-C for itself."""

    def start(_master: str, gateway: Gateway) -> SimpleNamespace:
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        signal.signal(signal.SIGINT, _cancel_jobs)
        return SimpleNamespace(stop=stop)

    monkeypatch.setattr(contexts, "_start", start)


def _cancel_jobs(_signal: int, _frame: FrameType | None) -> None:
    """What Spark does at Ctrl-C."""


@pytest.mark.usefixtures("no_java")
def test_a_context_without_a_session_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    running: object = SimpleNamespace()
    monkeypatch.setattr(SparkContext, "_active_spark_context", running)
    with spark_context("local[2]") as context:
        assert context is running


@pytest.mark.usefixtures("no_java")
def test_java_that_was_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Gateway()
    monkeypatch.setattr(SparkContext, "_gateway", theirs)
    monkeypatch.setattr(java_gateway, "launch_gateway", _never)
    _started(monkeypatch)
    with spark_context("local[2]"):
        pass
    assert SparkContext._gateway is theirs
    assert not theirs.ended


@pytest.mark.usefixtures("no_java")
def test_our_own_java_ends_and_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Gateway()
    monkeypatch.setattr(java_gateway, "launch_gateway", lambda *_, **__: ours)
    _started(monkeypatch)
    with spark_context("local[2]"):
        assert SparkContext._gateway is ours
    assert SparkContext._gateway is None
    assert ours.ended


@pytest.mark.usefixtures("no_java")
def test_whatever_goes_wrong_at_the_end_ctrl_c_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Gateway()
    monkeypatch.setattr(java_gateway, "launch_gateway", lambda *_, **__: ours)
    _started(monkeypatch, stop=_never)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(AssertionError, match="not to be called"), spark_context("local[2]"):
            assert signal.getsignal(signal.SIGINT) is _cancel_jobs
        assert signal.getsignal(signal.SIGINT) is before
        assert ours.ended
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("no_java")
def test_java_that_does_not_end_is_killed_and_the_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.PIPE)
    try:
        monkeypatch.setattr(contexts, "_END_S", 0.2)
        monkeypatch.setattr(java_gateway, "launch_gateway", lambda *_, **__: Gateway(deaf))
        _started(monkeypatch)
        answers = []
        with spark_context("local[2]"):
            answers.append(1)
        assert answers == [1]
        assert deaf.poll() == -signal.SIGKILL
    finally:
        deaf.kill()
        deaf.wait()


class Killed:
    """A context whose Java was killed: every call fails, that of the job after a while."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def accumulator(self, value: object, _how: object) -> SimpleNamespace:
        return SimpleNamespace(value=value)

    def setJobGroup(self, *_: object, **__: object) -> NoReturn:  # noqa: N802 - Spark's name for it
        self.over.wait(1.0)
        raise Py4JNetworkError("Answer from Java side is empty")

    def statusTracker(self) -> SimpleNamespace:  # noqa: N802 - the same
        return SimpleNamespace(getActiveStageIds=self.fail)

    def cancelJobGroup(self, _group: str) -> NoReturn:  # noqa: N802 - the same
        self.over.set()
        self.fail()

    def fail(self) -> NoReturn:
        raise Py4JError("An error occurred while trying to connect to the Java server")


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def context(_master: str) -> Iterator[Killed]:
        yield Killed()

    monkeypatch.setattr(sys.modules["tidewise.pipeline.sweep"], "spark_context", context)


@pytest.mark.usefixtures("killed")
def test_java_that_is_killed_is_told_in_a_sentence() -> None:
    with pytest.raises(PermanentError, match="Spark gave the sweep up: Answer from Java side is empty"):
        sweep(math.sqrt, [1.0])


@pytest.mark.usefixtures("killed")
def test_a_sweep_that_is_left_says_why_and_not_that_java_is_gone() -> None:
    def leave(_done: int) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(math.sqrt, [1.0], progress=leave)


def _never(*_: object, **__: object) -> NoReturn:
    raise AssertionError("not to be called")
