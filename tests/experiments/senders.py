"""Sending processes that start in no time, and some that are only made up: what each does is the topic's name."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

import pytest

from tidewise.experiments.produce import Production
from tidewise.jobs.schedule import Schedule
from tidewise.kafka.lateness import Lateness
from tidewise.kafka.sending import SendProgress, SendReport

RECORDS = 100
REPEATED_S = 5.0


def fork_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked from a process that has imported all this once: spawned ones would each take seconds to do so."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload([__name__])
    monkeypatch.setattr(multiprocessing, "get_context", lambda _how: forking)


def a_report(*, acknowledged: int = RECORDS, failed: int = 0, unsent: int = 0) -> SendReport:
    return SendReport(
        due=acknowledged + failed + unsent,
        sent=acknowledged + failed,
        acknowledged=acknowledged,
        failed=failed,
        unsent=unsent,
        seconds=1.0,
        sent_late=Lateness(),
        acknowledged_late=Lateness(),
        offsets={},
        problems={"it broke": failed} if failed else {},
    )


def send_nothing(pipe: Connection, production: Production, _partitions: int, process: int, _processes: int) -> None:
    """The first process reports at once; the second hangs, or repeats itself, for ever or a while, or reports too."""
    pipe.send("ready")
    schedule = pipe.recv()
    assert isinstance(schedule, Schedule)
    if process == 0 and production.topic != "all-hang":
        pipe.send(a_report())
        return
    if "hang" in production.topic:
        pipe.poll(600.0)  # nothing comes but the end
        time.sleep(600.0)
    end_s = time.monotonic() + {"repeats": 600.0, "rests": REPEATED_S, "moves": REPEATED_S}.get(production.topic, 0.0)
    sent = 0
    while time.monotonic() < end_s:
        sent += production.topic == "moves"
        pipe.send(SendProgress(due=sent, sent=sent, acknowledged=0, failed=0, behind_s=0.0))
        time.sleep(0.2)
    pipe.send(a_report())
