"""A real run on a job that does as the test says: what is told, what is written, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.control.fakes import PRICES, SPACE, ScriptedPolicy, config, follow
from tidewise.control import LoopSettings, SqliteJournal
from tidewise.control.clock import SystemClock
from tidewise.core import (
    Audited,
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    ControllerStopped,
    FaultInjected,
    JobStatus,
    LatencyMethod,
    Meter,
    Observation,
    PermanentError,
    ProfileOutcome,
    ProfileRequest,
    Promises,
    Purpose,
    Usage,
)
from tidewise.engines.spark.audit import Audit
from tidewise.engines.spark.job import Audited as Found
from tidewise.engines.spark.supervision import Recovery
from tidewise.experiments import find_runs
from tidewise.experiments.live import LiveRun, LiveSetting, LiveView
from tidewise.experiments.measured import measured_series
from tidewise.experiments.record import FaultRecord
from tidewise.report import write_report


@dataclass
class FakeJob:
    """Reports every 0.2 s, carries out every change at once, and counts what is done to it."""

    clock: SystemClock
    runs: Configuration = field(default_factory=lambda: config(1))
    rate_per_s: float = 100.0
    ended: str | None = None
    faults: list[str] = field(default_factory=list)
    outcomes: dict[str, ChangeOutcome] = field(default_factory=dict)
    waiting: list[Found] = field(default_factory=list)
    stops: int = 0
    kills: int = 0
    interrupt_stop: bool = False
    recoveries: Sequence[Recovery] = ()
    told_s: float | None = None

    def observed(self) -> Configuration:
        return self.runs

    def reports(self) -> Sequence[Observation]:
        now_s = self.clock.now_s()
        if self.told_s is None:
            self.told_s = now_s - 0.2
        found = []
        while self.told_s + 0.2 <= now_s:
            self.told_s += 0.2
            found.append(seen(self.told_s, self.runs, rate_per_s=self.rate_per_s, window_s=0.2))
        return found

    def change(self, request: ChangeRequest) -> None:
        self.runs = request.target
        self.outcomes[request.request_id] = ChangeOutcome(
            request_id=request.request_id,
            status=ChangeStatus.APPLIED,
            finished_at_s=self.clock.now_s(),
            configuration=request.target,
        )
        self.waiting.append(found(self.clock.now_s(), f"the live {request.request_id}"))

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        return self.outcomes.get(request_id)

    def profile(self, request: ProfileRequest) -> None:
        raise NotImplementedError

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        raise NotImplementedError

    def inject(self, fault: str) -> None:
        if fault == "unknown":
            raise PermanentError("there is no fault 'unknown' here")
        self.faults.append(fault)

    def meter(self) -> Meter:
        return {Purpose.EXECUTORS: Usage(core_s=self.clock.now_s(), memory_mib_s=1.0)}

    def problems(self) -> Sequence[str]:
        return ("a batch was cut",)

    def audits(self) -> list[Found]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def stop(self) -> None:
        self.stops += 1
        if self.interrupt_stop:
            raise KeyboardInterrupt
        self.waiting.append(found(self.clock.now_s(), "the end"))

    def kill(self) -> None:
        self.kills += 1


def found(at_s: float, after: str) -> Found:
    result = Audit(
        checkpoint=Path("cp"),
        first_batch=0,
        last_batch=3,
        batches=4,
        ledger_entries=4,
        sources=(),
        in_flight=None,
        owners=(),
        violations=(),
        warnings=(),
        files_checked=None,
        orphan_files=None,
    )
    return Found(at_s=at_s, after=after, checkpoint="file:/cp", result=result)


def seen(
    time_s: float,
    configuration: Configuration,
    *,
    rate_per_s: float = 100.0,
    latency_s: float | None = 0.1,
    window_s: float = 1.0,
    status: JobStatus = JobStatus.RUNNING,
) -> Observation:
    return Observation(
        time_s=time_s,
        window_s=window_s,
        configuration=configuration,
        status=status,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=rate_per_s,
        backlog_records=0.0,
        latency_p50_s=latency_s,
        latency_p95_s=latency_s,
        latency_p99_s=latency_s,
        latency_method=None if latency_s is None else LatencyMethod.EVENT_TIME,
    )


def setting(folder: Path, **other: object) -> LiveSetting:
    given: dict[str, object] = {
        "folder": folder / "steady-scripted-1",
        "load": "steady",
        "label": "scripted",
        "policy": ScriptedPolicy(script=follow),
        "space": SPACE,
        "start": config(1),
        "promises": Promises(latency_p95_s=2.0),
        "prices": PRICES,
        "created": "2026-01-01",
        "settings": LoopSettings(decide_every_s=0.5),
        **other,
    }
    return LiveSetting(**given)  # type: ignore[arg-type]  # a test names fields as it likes


def test_a_run_is_told_written_and_can_be_reported(tmp_path: Path) -> None:
    clock = SystemClock(start_s=30.0)
    job, views = FakeJob(clock, rate_per_s=300.0), list[LiveView]()
    faults = (FaultRecord(at_s=1.0, kind="kill-driver"),)
    run = LiveRun(job, setting(tmp_path, duration_s=3.0, faults=faults), clock=clock, observer=views.append).run()
    assert job.stops == 1
    assert job.faults == ["kill-driver"]
    record, series = run.record, run.read_series()
    assert (record.engine, record.profile, record.complete, record.duration_s) == ("spark", None, True, 3.0)
    assert record.faults == faults
    assert [change.target for change in record.changes] == [config(3)]
    assert 0.0 <= record.changes[0].requested_at_s < 3.0
    assert [audit.after for audit in record.audits] == ["the live steady-scripted-1-1", "the end"]
    assert len(series) == 3
    assert series.executors[-1] == 3
    assert {path.name for path in run.folder.iterdir()} == {"run.json", "series.parquet", "journal.sqlite"}
    with SqliteJournal.open_readonly(run.folder / "journal.sqlite") as journal:
        kinds = [type(event) for event in journal.read()]
    assert kinds.count(Audited) == 2
    assert kinds.count(FaultInjected) == 1
    assert kinds[-1] is ControllerStopped
    assert views[-1].ended == "the time is over"
    assert views[-1].observed == config(3)
    assert views[-1].changes == 1
    assert views[-1].cost > 0.0
    assert views[-1].problems == ("a batch was cut",)
    assert views[-1].decided is not None
    page = tmp_path / "report.html"
    write_report(find_runs([tmp_path]), page)
    text = page.read_text(encoding="utf-8")
    assert "measured on a real engine (spark)" in text
    assert "simulated with" not in text
    assert "committed once and in order" in text


def test_a_run_ends_with_its_program(tmp_path: Path) -> None:
    clock = SystemClock()
    job = FakeJob(clock)
    threading.Timer(1.2, lambda: setattr(job, "ended", "the program has ended")).start()
    run = LiveRun(job, setting(tmp_path), clock=clock).run()
    assert run.record.complete
    assert run.record.duration_s < 10.0


def test_other_threads_stop_break_pause_and_look(tmp_path: Path) -> None:
    clock = SystemClock()
    job = FakeJob(clock)
    live = LiveRun(job, setting(tmp_path, duration_s=60.0), clock=clock)
    seen_by: list[object] = []

    def meddle() -> None:
        live.pause(by="somebody")
        live.inject("kill-executor").result(timeout=20)
        with pytest.raises(PermanentError, match="no fault 'unknown'"):
            live.inject("unknown").result(timeout=20)
        view = live.look()
        seen_by.append(view.paused_by if view is not None else None)
        live.stop("it was stopped")

    thread = threading.Thread(target=meddle)
    thread.start()
    run = live.run()
    thread.join()
    assert job.faults == ["kill-executor"]
    assert seen_by == ["somebody"]
    # Who stops a run says thereby how long it was to last.
    assert run.record.complete
    assert run.record.duration_s < 60.0


@pytest.mark.parametrize("stopped_by", ["Ctrl-C", "the program"])
def test_a_run_that_must_last_is_incomplete_when_it_ends_early(tmp_path: Path, stopped_by: str) -> None:
    clock = SystemClock()
    job = FakeJob(clock)

    def look(view: LiveView) -> None:
        if view.now_s < 1.0:
            return
        if stopped_by == "Ctrl-C":
            raise KeyboardInterrupt
        job.ended = "the program has ended"

    live = LiveRun(job, setting(tmp_path, duration_s=60.0, must_last=True), clock=clock, observer=look)
    run = live.run()
    assert live.was_stopped == (stopped_by == "Ctrl-C")
    assert not run.record.complete
    assert run.record.duration_s == 60.0
    assert job.stops == 1


@pytest.mark.parametrize("stopped_by", ["Ctrl-C", "the program"])
def test_the_time_it_takes_to_stop_a_job_is_no_part_of_the_run(tmp_path: Path, stopped_by: str) -> None:
    clock = SystemClock()

    class SlowToStop(FakeJob):
        def stop(self) -> None:
            clock.wait_until(clock.now_s() + 1.5)
            super().stop()

    job = SlowToStop(clock)

    def look(view: LiveView) -> None:
        if view.now_s < 1.0:
            return
        if stopped_by == "Ctrl-C":
            raise KeyboardInterrupt
        job.ended = "the program has ended"

    run = LiveRun(job, setting(tmp_path, duration_s=2.5, must_last=True), clock=clock, observer=look).run()
    assert not run.record.complete
    assert len(run.read_series()) <= 2


def test_ctrl_c_while_it_stops_kills_the_job_and_keeps_the_run(tmp_path: Path) -> None:
    clock = SystemClock()
    job = FakeJob(clock, interrupt_stop=True)
    with pytest.raises(KeyboardInterrupt):
        LiveRun(job, setting(tmp_path, duration_s=1.0), clock=clock).run()
    assert job.kills == 1
    assert len(find_runs([tmp_path])) == 1


def test_a_second_controller_goes_on_where_the_first_one_died(tmp_path: Path) -> None:
    class DiedError(Exception):
        """The controller's end."""

    clock = SystemClock()
    job = FakeJob(clock)

    def die(view: LiveView) -> None:
        if view.now_s > 1.0:
            raise DiedError

    with pytest.raises(DiedError):
        LiveRun(job, setting(tmp_path, duration_s=3.0), clock=clock, observer=die).run()
    assert job.stops == 0
    assert find_partial(tmp_path)
    run = LiveRun(job, setting(tmp_path, duration_s=3.0), clock=clock, resume=True).run()
    assert len(run.read_series()) == 3
    with SqliteJournal.open_readonly(run.folder / "journal.sqlite") as journal:
        assert sum(isinstance(event, ControllerStarted) for event in journal.read()) == 2


def find_partial(folder: Path) -> bool:
    return (folder / "steady-scripted-1.partial" / "journal.sqlite").is_file()


def test_seconds_show_the_report_they_lie_in_and_latency_lies_where_records_arrived() -> None:
    one, two = config(1), config(2)
    reports = [
        seen(12.0, one, latency_s=1.0, window_s=2.0),
        seen(14.0, one, latency_s=None, window_s=2.0, status=JobStatus.DOWN),
        seen(16.0, two, latency_s=4.0, window_s=2.0, rate_per_s=500.0),
        seen(18.0, two, latency_s=1.5, window_s=2.0),
    ]
    series = measured_series(reports, seconds=8, since_s=10.0, forecast_per_s=np.full(8, np.nan))
    assert series.up.tolist() == [True, True, False, False, True, True, True, True]
    assert series.executors.tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert series.input_rate_per_s.tolist() == [100.0] * 4 + [500.0] * 2 + [100.0] * 2
    # Out at 16 after 4 s: arrived at 12. Out at 18 after 1.5 s: arrived at 16.5, and whatever came later is not out.
    expected = [1.0, 4.0, 1.5, 1.5, 1.5, 1.5, 1.5, np.nan]
    assert np.array_equal(series.latency_p50_s, expected, equal_nan=True)


def test_a_report_over_hardly_any_time_does_not_stand_for_the_time_before_it() -> None:
    reports = [seen(2.0, config(1), window_s=2.0), seen(9.0, config(1), window_s=0.05, rate_per_s=7e5)]
    reports.append(seen(11.0, config(1), window_s=1.95))
    series = measured_series(reports, seconds=11, since_s=0.0, forecast_per_s=np.full(11, np.nan))
    assert series.input_rate_per_s.max() == 100.0
