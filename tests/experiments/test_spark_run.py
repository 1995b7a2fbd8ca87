"""One run on real Spark without Spark: how the program is started, warmed up, controlled and ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pytest

from tests.control.fakes import config
from tests.experiments.test_live import FakeJob, setting
from tidewise.control import SqliteJournal
from tidewise.control.clock import SystemClock
from tidewise.core import Configuration, Observation, PermanentError, Purpose, Reported, Usage
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.program import SparkProgram
from tidewise.experiments import spark_run
from tidewise.experiments.feed import EmbeddedFeed
from tidewise.experiments.live import LiveView, Observer
from tidewise.experiments.record import load_run
from tidewise.experiments.spark_run import JobProgram, SparkRun
from tidewise.jobs.schedule import read_schedule
from tidewise.workload import Rates

PROGRAM = JobProgram(
    job="tsw", options={"--work": 7, "--state-partitions": 2}, driver_cores=0.5, driver_memory_mib=1024, handover=True
)


@dataclass
class Job(FakeJob):
    forgot: int = 0
    warm_s: float = 0.0
    """When the warm-up was over."""

    def forget_spent(self) -> None:
        self.forgot += 1
        self.warm_s = self.clock.now_s()


@dataclass(kw_only=True)
class Engine:
    """Takes what the real one takes, and launches a job that does as it is told."""

    made: ClassVar[list[Engine]] = []
    program: SparkProgram
    cluster: LocalCluster
    home: Path
    clock: SystemClock
    window_s: float
    repartitions: bool
    seed: int
    job: Job = field(init=False)

    def launch(self, configuration: Configuration) -> Job:
        self.job = Job(self.clock, runs=configuration, told_s=self.clock.now_s())
        Engine.made.append(self)
        return self.job


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    Engine.made.clear()
    monkeypatch.setattr(spark_run, "SparkEngine", Engine)
    monkeypatch.setattr(spark_run, "_START_S", 0.1)
    return Engine.made


def _run(folder: Path, **other: object) -> SparkRun:
    return SparkRun(
        folder=folder / "job",
        cluster=cast("LocalCluster", None),
        broker=None,
        program=PROGRAM,
        setting=setting(folder, duration_s=2.0, must_last=True, **other),
        rates_per_s=np.array([100.0, 200.0]),
        warm_up_s=0.2,
        report_every_s=5.0,
    )


@contextmanager
def _nobody() -> Iterator[Observer]:
    def look(_view: LiveView) -> None:
        pass

    yield look


def test_the_job_is_started_with_its_options_warmed_up_and_controlled(tmp_path: Path, engines: list[Engine]) -> None:
    told: list[str] = []
    measured = _run(tmp_path).run(told.append, _nobody)
    (engine,) = engines
    assert engine.program.command == (
        *(sys.executable, "-m", "tidewise.jobs.tsw"),
        *("--schedule", str(tmp_path / "job" / "schedule.json"), "--partitions", "4"),
        *(
            "--checkpoint",
            str(tmp_path / "job" / "checkpoint"),
            "--trigger",
            f"{config(1).commit_interval_s:g} seconds",
        ),
        *("--work", "7", "--state-partitions", "2"),
    )
    assert engine.program.handover
    assert engine.home == tmp_path / "job" / "engine"
    assert (engine.job.forgot, engine.job.stops, engine.job.kills) == (1, 1, 0)
    assert measured.run.record.complete
    assert not measured.stopped
    assert measured.told == ()
    assert [sentence.split()[0] for sentence in told] == ["Starting", "Warming"]
    rates = read_schedule(tmp_path / "job" / "schedule.json").rates_per_s
    assert rates[0] == 100.0
    assert rates[-2:] == (100.0, 200.0)


def test_the_day_begins_when_the_job_has_caught_up(
    tmp_path: Path, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_run, "_LOOK_S", 0.1)
    asked: list[float] = []

    def late_at_first(job: FakeJob) -> Sequence[Observation]:
        asked.append(job.clock.now_s())
        reports = FakeJob.reports(job)
        return [replace(one, latency_p95_s=99.0, latency_p99_s=99.0) for one in reports] if len(asked) < 8 else reports

    monkeypatch.setattr(Job, "reports", late_at_first)
    told: list[str] = []
    assert _run(tmp_path).run(told.append, _nobody).run.record.complete
    assert engines[0].job.warm_s >= asked[7]
    assert [sentence.split()[0] for sentence in told] == ["Starting", "Warming"]


def test_a_job_that_never_catches_up_is_run_all_the_same(
    tmp_path: Path, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_run, "_CATCH_UP_S", 0.3)
    monkeypatch.setattr(spark_run, "_LOOK_S", 0.1)
    late = replace(setting(tmp_path).promises, latency_p95_s=1e-9)
    told: list[str] = []
    _run(tmp_path, promises=late).run(told.append, _nobody)
    assert engines
    assert [sentence.split()[0] for sentence in told] == ["Starting", "It", "Warming"]


def test_no_policy_learns_from_the_warm_up(tmp_path: Path, engines: list[Engine]) -> None:
    run = _run(tmp_path).run(lambda _: None, _nobody).run
    with SqliteJournal.open_readonly(run.folder / "journal.sqlite") as journal:
        times_s = [event.observation.time_s for event in journal.read() if isinstance(event, Reported)]
    assert len(times_s) > 5
    assert min(times_s) > engines[0].job.warm_s


def test_a_run_that_is_stopped_says_so(tmp_path: Path, engines: list[Engine]) -> None:
    @contextmanager
    def impatient() -> Iterator[Observer]:
        def stop(view: LiveView) -> None:
            if view.now_s > 0.5:
                raise KeyboardInterrupt

        yield stop

    measured = _run(tmp_path).run(lambda _: None, impatient)
    assert measured.stopped
    assert not measured.run.record.complete
    assert (engines[0].job.stops, engines[0].job.kills) == (1, 0)


@dataclass(slots=True)
class LossyFeed(EmbeddedFeed):
    """Loses records: told while the run is on, or only when it is over."""

    from_s: float = 0.0
    _began_s: float | None = None
    _over: bool = False

    def begin_day(self, rates: Rates, *, in_s: float, eve: Sequence[float] = ()) -> float:
        left_s = EmbeddedFeed.begin_day(self, rates, in_s=in_s, eve=eve)
        self._began_s = time.monotonic() + left_s
        return left_s

    def end(self) -> None:
        self._over = True

    def problem(self) -> str | None:
        told = self._over or (self._began_s is not None and time.monotonic() - self._began_s >= self.from_s)
        return "LOST: 4 records" if told else None


@pytest.mark.parametrize(("from_s", "most_s"), [(0.5, 1.9), (100.0, 10.0)], ids=["at once", "in the end"])
def test_a_run_whose_records_are_lost_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_s: float, most_s: float
) -> None:
    monkeypatch.setattr(SparkRun, "_feed", lambda run: LossyFeed(run.folder.absolute(), from_s=from_s))
    measured = _run(tmp_path).run(lambda _: None, _nobody)
    assert measured.problem == "LOST: 4 records"
    assert not measured.stopped
    assert not measured.run.record.complete
    assert not load_run(measured.run.folder).record.complete
    with SqliteJournal.open_readonly(measured.run.folder / "journal.sqlite") as journal:
        times_s = [event.observation.time_s for event in journal.read() if isinstance(event, Reported)]
    assert max(times_s) - min(times_s) < most_s
    assert not list(measured.run.folder.glob("*.new"))


def test_whatever_goes_wrong_the_job_is_killed(tmp_path: Path, engines: list[Engine]) -> None:
    @contextmanager
    def blind() -> Iterator[Observer]:
        raise PermanentError("the terminal is gone")
        yield

    with pytest.raises(PermanentError, match="the terminal is gone"):
        _run(tmp_path).run(lambda _: None, blind)
    assert engines[0].job.kills == 1


def test_what_a_job_costs_while_nobody_changes_it() -> None:
    one = Configuration(executors=4, cores_per_executor=0.35, memory_mib_per_executor=768)
    assert PROGRAM.usage(one, 10.0) == Usage(core_s=19.0, memory_mib_s=40_960.0)
    assert PROGRAM.paid_s({Purpose.DRIVER: Usage(core_s=30.0)}) == 60.0
    assert PROGRAM.paid_s({}) == 0.0
