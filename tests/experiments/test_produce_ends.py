"""What producing promises where something breaks at the end: the report is there, and nobody waits for ever."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.experiments.senders import RECORDS, REPEATED_S, fork_senders, send_nothing
from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.experiments import produce as module
from tidewise.experiments import senders
from tidewise.experiments.produce import Production, produce
from tidewise.jobs.schedule import Schedule
from tidewise.kafka import topics
from tidewise.kafka.topics import Reach

DAY_S = 86_400.0


class Broker:
    """A topic of two partitions that grows by what it is told between the first and the second time it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.after: dict[int, Reach] | Exception = {n: Reach(first=0, following=10 + RECORDS) for n in range(2)}

    def ends(self, _address: str, _topic: str) -> dict[int, Reach]:
        self.asked += 1
        if self.asked == 1:
            return {n: Reach(first=0, following=10) for n in range(2)}
        if isinstance(self.after, Exception):
            raise self.after
        return self.after


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made_up = Broker()
    names = ("fine", "hangs", "all-hang", "repeats", "rests", "moves")
    monkeypatch.setattr(topics, "describe", lambda _: dict.fromkeys(names, 2))
    monkeypatch.setattr(topics, "ends", made_up.ends)
    monkeypatch.setattr(senders, "send_share", send_nothing)
    monkeypatch.setattr(module, "_GRACE_S", 2.5)
    fork_senders(monkeypatch)
    return made_up


def production(topic: str, *, at_once: bool = False, retry_s: float = 0.3) -> Production:
    return Production(job="ysb", brokers="127.0.0.1:1", topic=topic, at_once=at_once, retry_s=retry_s, flush_s=0.2)


def lasting(seconds: float) -> Schedule:
    return Schedule(began_unix_s=0.0, step_s=seconds, rates_per_s=(1.0,), after="stop")


@pytest.mark.usefixtures("broker")
def test_a_report_that_adds_up_is_written_and_returned(tmp_path: Path) -> None:
    produced = produce(production("fine"), lasting(0.1), folder=tmp_path)
    assert (produced.report.acknowledged, produced.grew_by, produced.lost, produced.silent) == (200, 200, 0, 0)
    written = json.loads((tmp_path / "report.json").read_text())
    assert (written["topic_grew_by"], written["lost"], written["processes_without_report"]) == (200, 0, 0)


def test_a_broker_that_is_gone_at_the_end_costs_no_report(broker: Broker, tmp_path: Path) -> None:
    broker.after = TemporaryError("no Kafka broker answers at 127.0.0.1:1")
    said: list[str] = []
    produced = produce(production("fine"), lasting(0.1), folder=tmp_path, say=said.append)
    assert (produced.report.acknowledged, produced.grew_by, produced.lost) == (200, None, None)
    assert said == [
        "by how many records the topic grew could not be told: no Kafka broker answers at 127.0.0.1:1",
    ]
    assert json.loads((tmp_path / "report.json").read_text())["topic_grew_by"] is None


def test_a_topic_made_anew_with_fewer_partitions_has_lost_what_it_held(broker: Broker) -> None:
    broker.after = {0: Reach(first=0, following=50)}
    produced = produce(production("fine"), lasting(0.1))
    assert (produced.grew_by, produced.lost) == (30, 170)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(("topic", "at_once"), [("hangs", False), ("hangs", True), ("repeats", True)])
def test_a_process_that_does_nothing_is_given_up_and_the_other_is_heard(topic: str, at_once: bool) -> None:
    said: list[str] = []
    produced = produce(production(topic, at_once=at_once), lasting(0.1), say=said.append)
    assert (produced.silent, produced.report.acknowledged, produced.whole) == (1, RECORDS, True)
    assert said == ["sending process 2 gave no report and did nothing for 3 s: what it sent is not counted"]
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("broker")
def test_where_all_hang_it_is_an_error_and_nothing_is_left() -> None:
    with pytest.raises(PermanentError, match="no sending process gave a report"):
        produce(production("all-hang"), lasting(0.1))
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    ("topic", "at_once", "seconds"), [("rests", False, 10 * REPEATED_S), ("moves", True, 0.1), ("moves", False, 0.1)]
)
def test_a_process_with_nothing_to_send_yet_or_much_to_catch_up_is_waited_for(
    topic: str, at_once: bool, seconds: float
) -> None:
    produced = produce(production(topic, at_once=at_once), lasting(seconds))
    assert (produced.silent, produced.report.acknowledged) == (0, 2 * RECORDS)


@pytest.mark.usefixtures("broker")
def test_a_process_that_does_not_stop_is_given_up_too() -> None:
    stop, said = threading.Event(), list[str]()
    stop.set()
    produced = produce(production("hangs", retry_s=600.0), lasting(600.0), stop=stop, say=said.append)
    assert (produced.silent, produced.whole) == (1, False)
    assert said == ["sending process 2 gave no report within 2.7 s of the end: what it sent is not counted"]


@pytest.mark.usefixtures("broker")
def test_at_once_ends_now_unless_it_is_said_when_it_began() -> None:
    before_s = time.time()
    produced = produce(production("fine", at_once=True), lasting(30 * DAY_S))
    assert before_s <= produced.schedule.began_unix_s + 30 * DAY_S <= time.time()
    began = produce(production("fine", at_once=True), lasting(30 * DAY_S), began_unix_s=5.0)
    assert began.schedule.began_unix_s == 5.0


@pytest.mark.usefixtures("broker")
def test_by_the_clock_it_begins_now() -> None:
    before_s = time.time()
    assert produce(production("fine"), lasting(600.0)).schedule.began_unix_s >= before_s


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_sent(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(BadInputError, match=r"nothing can be written into the folder .*: Read-only file system; name"):
        produce(production("fine"), lasting(0.1), folder=tmp_path)
    assert broker.asked == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("broker")
def test_a_disk_that_is_full_at_the_end_costs_the_file_but_not_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def fill(path: Path, text: str, encoding: str | None = None) -> int:
        if path.name == "report.json":
            write(path, text[:10], encoding=encoding)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, encoding=encoding)

    monkeypatch.setattr(Path, "write_text", fill)
    produced = produce(production("fine"), lasting(0.1), folder=tmp_path)
    assert produced.report.acknowledged == 200
    assert produced.unwritten is not None
    assert produced.unwritten.endswith("report.json: No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.json"]
