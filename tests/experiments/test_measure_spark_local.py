"""The order of a measurement and what it writes down, on a job that only pretends; real Spark is measured by hand."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tidewise.control import SystemClock
from tidewise.core import (
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    JobStatus,
    LatencyMethod,
    Mechanism,
    Observation,
    TemporaryError,
)
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.job import SparkJob
from tidewise.experiments import measure_spark_local as program
from tidewise.experiments.spark_measurement import SparkMeasurement, read_measurement
from tidewise.jobs.schedule import read_schedule

PER_CORE = 20_000.0
"""What the pretended job can do."""


@dataclass
class _Pretended:
    """A job that commits a batch every 20 ms and is changed in 50 ms."""

    clock: SystemClock
    configuration: Configuration
    applications: dict[str, SimpleNamespace] = field(default_factory=dict)
    recoveries: list[SimpleNamespace] = field(default_factory=list)
    outcomes: dict[str, ChangeOutcome] = field(default_factory=dict)
    asked: list[Mechanism] = field(default_factory=list)
    refuses: int = 0
    silent_until_s: float = 0.0
    batch_id: int = 0

    def __post_init__(self) -> None:
        self.news = threading.Condition(threading.RLock())
        self.active_key = "app"
        self.applications["app"] = SimpleNamespace(
            committed_unix_s={"q": time.time()}, spark_id="s", process=SimpleNamespace(pid=os.getpid())
        )
        self._offset_s = time.time() - self.clock.now_s()
        self._executors = self.configuration.executors
        self._lost_until_s = 0.0

    @property
    def fleet(self) -> _Pretended:
        return self

    @property
    def active(self) -> SimpleNamespace:
        found = self.applications[self.active_key]
        lost = 1 if self.clock.now_s() < self._lost_until_s else 0
        found.executor_ids = tuple(str(number) for number in range(self.configuration.executors - lost))
        return found

    def run_time_s(self, unix_s: float) -> float:
        return unix_s - self._offset_s

    def observed(self) -> Configuration:
        return self.configuration

    def detail(self) -> SimpleNamespace:
        now_s, application = time.time(), self.active
        if now_s - application.committed_unix_s["q"] >= 0.02 and self.clock.now_s() >= self.silent_until_s:
            application.committed_unix_s["q"] = now_s
            self.batch_id += 1
        rows = 100 if self.batch_id % 2 else 300
        took_ms = 15.0 if self.batch_id % 2 else 15.0 + 200_000 / PER_CORE / (0.5 * self.configuration.executors)
        query = SimpleNamespace(batch_id=self.batch_id, rows=rows, durations_ms={"triggerExecution": took_ms})
        return SimpleNamespace(queries=(query,))

    def reports(self) -> list[Observation]:
        return [
            Observation(
                time_s=self.clock.now_s(),
                window_s=1.0,
                configuration=self.configuration,
                status=JobStatus.RUNNING,
                input_rate_per_s=1.0,
                processed_rate_per_s=1.0,
                backlog_records=0.0,
                latency_p50_s=1.0,
                latency_p95_s=2.0,
                latency_p99_s=3.0,
                latency_method=LatencyMethod.EVENT_TIME,
                state_mib=4.0,
            )
        ]

    def change(self, request: ChangeRequest) -> None:
        if self.refuses:
            self.refuses -= 1
            raise TemporaryError("another change is on")
        self.asked.append(request.mechanism)
        self.configuration = request.target
        done_s = self.clock.now_s() + 0.05
        if request.mechanism is not Mechanism.LIVE:
            self.silent_until_s = done_s + 0.2
        self.outcomes[request.request_id] = ChangeOutcome(
            request_id=request.request_id,
            status=ChangeStatus.APPLIED,
            finished_at_s=self.silent_until_s or done_s,
            configuration=request.target,
        )

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        outcome = self.outcomes[request_id]
        return outcome if outcome.finished_at_s <= self.clock.now_s() else None

    def inject(self, kind: str) -> None:
        now_s = self.clock.now_s()
        self.silent_until_s, self._lost_until_s = now_s + 0.4, now_s + 0.5
        if kind == "kill-driver":
            self.recoveries.append(SimpleNamespace(died_at_s=now_s + 0.1))


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Pretended:
    clock = SystemClock()
    job = _Pretended(clock=clock, configuration=program._START)
    limits = SimpleNamespace(cpu_s=lambda _app, _name: time.monotonic())
    cluster = SimpleNamespace(cpu_limits=limits, executor_processes=lambda _app: ())

    @contextmanager
    def running() -> Iterator[program._Measuring]:
        yield program._Measuring(
            job=cast("SparkJob", job),
            cluster=cast("LocalCluster", cluster),
            clock=clock,
            load=program._Load(tmp_path / "schedule.json", 100.0),
        )

    monkeypatch.setattr(program, "_running", running)
    watch = program._Measuring.watch
    monkeypatch.setattr(program._Measuring, "watch", lambda self, seconds: watch(self, seconds / 5))
    monkeypatch.setattr(program._Load, "offer", lambda self, rate_per_s: self._rates.append(rate_per_s))
    for name, value in {
        "_STRETCH_S": 1,
        "_COLD_S": 0.3,
        "_WATCH_AFTER_S": 0.3,
        "_SETTLE_S": 0.2,
        "BOOST_S": -1.8,
        "_LEVELS": (0.5, 1.4),
    }.items():
        monkeypatch.setattr(program, name, value)
    return job


def _measure(*, quick: bool = False, seconds: float = 0.0) -> tuple[list[SparkMeasurement], list[str]]:
    saved: list[SparkMeasurement] = []
    said: list[str] = []
    program.measure(seconds=seconds, quick=quick, say=said.append, save=saved.append)
    return saved, said


def test_everything_is_measured_even_when_there_is_no_time_for_more_than_once(pretended: _Pretended) -> None:
    saved, said = _measure()
    assert not [text for text in said if "failed" in text]
    measured = saved[-1]
    # The last one on four executors is silence.
    levels = [len([one for one in measured.stretches if one.executors == count]) for count in (4, 3, 2, 1)]
    assert levels == [len(program._LEVELS) + 1, *[len(program._LEVELS)] * 3]
    assert [one.rate_per_s for one in measured.stretches if one.executors == 2] == [
        share * PER_CORE for share in program._LEVELS
    ]
    assert measured.stretches[len(program._LEVELS)].rate_per_s == 0.0
    ups = [one for one in measured.changes if one.executors_after > one.executors_before]
    downs = [one for one in measured.changes if one.executors_after < one.executors_before]
    assert (len(ups), len(downs)) == (4, 3)
    assert pretended.asked[-4:] == [
        Mechanism.QUERY_RESTART,
        Mechanism.REPARTITION,
        Mechanism.HANDOVER,
        Mechanism.REDEPLOY,
    ]
    assert [one.kind for one in measured.faults] == ["kill-executor", "kill-driver"]
    assert len(measured.circumstances.load_averages) == len(said) == len(saved)

    # Gaps are told by commits.
    for one in measured.changes:
        if one.mechanism is Mechanism.LIVE:
            assert one.no_commit_s == one.prepared_s == 0.0
        else:
            assert 0.2 < one.no_commit_s < 2.0
            assert 0.015 <= one.batch_s < 0.05
    executor, driver = measured.faults
    assert executor.noticed_s is None
    assert driver.noticed_s == pytest.approx(0.1, abs=0.02)
    for fault in measured.faults:
        assert 0.35 < fault.committed_s < 2.0
        assert fault.no_commit_s >= fault.committed_s
        assert fault.whole_s is not None
    assert measured.after_start[0].since_first_commit_s == 0.0


def test_a_trial_is_short_and_what_fails_does_not_end_it(
    pretended: _Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_RECOVER_WITHIN_S", 0.5)
    pretended.inject = lambda kind: (_ for _ in ()).throw(TemporaryError(f"no {kind} today"))  # type: ignore[method-assign] # the fault itself fails
    saved, said = _measure(quick=True)
    assert said[-2:] == ["an executor is killed failed: no kill-executor today", said[-1]]
    assert "repartition" in said[-1]
    assert {one.executors for one in saved[-1].stretches} == {1, 2}
    assert saved[-1].faults == ()


def test_a_change_waits_for_the_one_that_is_on(pretended: _Pretended) -> None:
    pretended.refuses = 1
    saved, said = _measure(quick=True)
    assert not [text for text in said if "failed" in text]
    assert saved[-1].changes


def test_a_rate_holds_from_a_whole_second_on_and_the_past_stays(tmp_path: Path) -> None:
    load = program._Load(tmp_path / "schedule.json", 100.0)
    before = read_schedule(tmp_path / "schedule.json")
    load.offer(300.0)
    after = read_schedule(tmp_path / "schedule.json")
    assert load.rate_per_s == 300.0
    assert after.began_unix_s == before.began_unix_s
    assert after.rates_per_s == (100.0, 100.0, 300.0)
    assert 2.0 <= time.time() - after.began_unix_s < 3.5


def test_the_program_writes_what_can_be_read(
    pretended: _Pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["measure", str(tmp_path / "m.json"), "--quick"])
    asked: list[int] = []
    monkeypatch.setattr("signal.signal", lambda number, _handler: asked.append(number))
    program.main()
    assert pretended.asked
    assert asked == [signal.SIGTERM]  # nothing is left behind by whoever ends it
    assert read_measurement(tmp_path / "m.json").circumstances.work == program._WORK
    assert "rates on 2 executors" in capsys.readouterr().err
