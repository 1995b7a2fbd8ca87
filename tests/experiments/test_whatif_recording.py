"""What a journal shows of a run: when it was down and why, and what arrived meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tidewise.control import SqliteJournal
from tidewise.core import (
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    FaultInjected,
    JobStatus,
    JournalEvent,
    LatencyMethod,
    Mechanism,
    Observation,
    Origin,
    Reason,
    Reported,
)
from tidewise.engines.simulator import load_profile
from tidewise.experiments.whatif_fit import fit_run
from tidewise.experiments.whatif_recording import UNTOLD, Recording, outputs, read_recording
from tidewise.experiments.whatif_replay import Figure, planned_after_s, replay, windows_of

BEGAN_S = 50.0
HAD = Configuration(executors=2, slots_per_executor=2, commit_interval_s=2.0)
MORE = HAD.with_executors(3)


def report(
    until_s: float,
    *,
    window_s: float = 5.0,
    status: JobStatus = JobStatus.RUNNING,
    rate_per_s: float = 1000.0,
    processed_per_s: float | None = None,
    backlog: float = 2000.0,
    latency_s: float | None = 2.0,
    configuration: Configuration = HAD,
) -> Reported:
    """Of the window that ends so long after the beginning."""
    if status is not JobStatus.RUNNING:
        latency_s = None
    usually_per_s = rate_per_s if status is JobStatus.RUNNING else 0.0
    observation = Observation(
        time_s=BEGAN_S + until_s,
        window_s=window_s,
        configuration=configuration,
        status=status,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=usually_per_s if processed_per_s is None else processed_per_s,
        backlog_records=backlog,
        latency_p50_s=latency_s,
        latency_p95_s=None if latency_s is None else latency_s + 0.9,
        latency_p99_s=None if latency_s is None else latency_s + 1.0,
        latency_method=None if latency_s is None else LatencyMethod.EVENT_TIME,
        busy_share=0.3 if status is JobStatus.RUNNING else 0.0,
    )
    return Reported(at_s=observation.time_s, observation=observation)


def reports(first_s: float, last_s: float, **told: object) -> list[Reported]:
    """One every five seconds, the last ending at `last_s`."""
    count = int((last_s - first_s) / 5.0)
    return [report(first_s + 5.0 * (number + 1), **told) for number in range(count)]  # type: ignore[arg-type]


def recording_of(folder: Path, events: Sequence[JournalEvent]) -> Recording:
    work = folder / "run.partial"
    work.mkdir()
    with SqliteJournal(work / "journal.sqlite") as journal:
        journal.append([ControllerStarted(at_s=BEGAN_S, version="1", policy="reactive", configuration=HAD), *events])
    return read_recording(folder / "run")


def test_times_are_those_since_control_began(tmp_path: Path) -> None:
    recording = recording_of(tmp_path, [report(-5.0), *reports(0.0, 300.0)])
    assert recording.duration_s == 300
    assert recording.observations[0].time_s == 5.0
    assert recording.report_every_s == 5
    assert recording.policy == "reactive"
    assert recording.start == HAD
    assert recording.promises is None
    assert not recording.complete


def test_an_outage_belongs_to_the_failure_before_it(tmp_path: Path) -> None:
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        FaultInjected(at_s=BEGAN_S + 150.0, fault="kill-driver"),
        report(150.5, window_s=0.5),
        *(report(150.5 + 5.0 * number, status=JobStatus.DOWN) for number in range(1, 5)),
        *reports(170.5, 300.5),
    ]
    recording = recording_of(tmp_path, events)
    (outage,) = recording.outages
    assert outage.fault.kind == "kill-driver"
    assert (outage.begins_s, outage.ends_s) == (150.5, 170.5)
    assert [fault.kind for fault in recording.faults] == ["kill-driver"]


def test_an_outage_that_nobody_caused_is_a_failure_too(tmp_path: Path) -> None:
    events = [*reports(0.0, 150.0), *reports(150.0, 170.0, status=JobStatus.DOWN), *reports(170.0, 300.0)]
    recording = recording_of(tmp_path, events)
    assert [(fault.kind, fault.at_s) for fault in recording.faults] == [(UNTOLD, 150.0)]
    fitted = fit_run(recording, load_profile("spark-local"), draws=0)
    assert fitted.profile.failures[UNTOLD].downtime_s == pytest.approx(20.0, rel=0.3)


def test_what_arrived_while_nobody_counted_is_known_afterwards(tmp_path: Path) -> None:
    # 1,000/s all the time. While the job is down, reports carry on a rate of 2,000/s that was seen just before.
    down = [
        report(150.0 + 5.0 * number, status=JobStatus.DOWN, rate_per_s=2000.0, backlog=2000.0 + 10_000.0 * number)
        for number in range(1, 5)
    ]
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        *down,
        # The first batch holds what had arrived by 168 s.
        report(175.0, rate_per_s=0.0, processed_per_s=4000.0, backlog=7000.0, latency_s=8.0),
        report(180.0, processed_per_s=2000.0),
        *reports(180.0, 300.0),
    ]
    recording = recording_of(tmp_path, events)
    assert recording.rates_per_s.sum() == pytest.approx(1000.0 * 300, rel=0.001)
    assert recording.rates_per_s[155:].max() < 1100.0
    (backlog,) = [one.backlog_records for one in recording.observations if one.time_s == 170.0]
    assert backlog == pytest.approx(22_000.0, rel=0.1)


def test_a_job_that_puts_nothing_out_after_a_failure_stands_still_whatever_it_says(tmp_path: Path) -> None:
    silent = [
        report(150.0 + 5.0 * number, processed_per_s=0.0, latency_s=None, backlog=2000.0 + 5000.0 * number)
        for number in range(1, 8)
    ]
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        FaultInjected(at_s=BEGAN_S + 151.0, fault="kill-executor"),
        *silent,
        report(190.0, processed_per_s=8000.0, latency_s=20.0),
        *reports(190.0, 300.0),
    ]
    recording = recording_of(tmp_path, events)
    (outage,) = recording.outages
    assert outage.fault.kind == "kill-executor"
    assert (outage.begins_s, outage.ends_s) == (151.0, 190.0)


def test_the_latency_of_what_came_out_of_a_job_that_is_down_stands_in_the_next_report() -> None:
    told = [
        report(5.0).observation,
        report(10.0, status=JobStatus.DOWN, processed_per_s=100.0).observation,
        report(15.0, processed_per_s=0.0, latency_s=30.0).observation,
        report(20.0, processed_per_s=0.0, latency_s=30.0).observation,
    ]
    first, second, third, fourth = outputs(told)
    assert first is not None
    assert first.last_arrived_s == pytest.approx(BEGAN_S + 5.0 - 1.0)
    assert second is not None
    assert (second.time_s, second.latency_p50_s) == (BEGAN_S + 10.0, 30.0)
    assert third is None
    assert fourth is None


def test_an_outage_that_is_not_known_is_as_long_as_the_profile_says(tmp_path: Path) -> None:
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        FaultInjected(at_s=BEGAN_S + 150.0, fault="driver-kill"),
        *reports(150.0, 230.0, status=JobStatus.DOWN),
        *reports(230.0, 400.0),
    ]
    recording = recording_of(tmp_path, events)
    profile = load_profile("spark-local")
    made = [replay(profile, recording, seed=1, known_until_s=known_s).observations for known_s in (math.inf, 200.0)]
    down = [sum(one.status is JobStatus.DOWN for one in told) for told in made]
    assert 2.0 * down[0] == pytest.approx(80.0, abs=6.0)
    assert 2.0 * down[1] == pytest.approx(profile.failures["driver-kill"].downtime_s, rel=0.5)


def test_what_the_first_batch_after_an_outage_leaves_over_tells_when_it_was_planned(tmp_path: Path) -> None:
    down = [
        report(150.0 + 5.0 * number, status=JobStatus.DOWN, backlog=2000.0 + 5000.0 * number) for number in range(1, 5)
    ]
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        *down,
        report(175.0, processed_per_s=2400.0, backlog=15_000.0, latency_s=17.0),
        report(180.0, processed_per_s=3600.0, latency_s=6.0),
        *reports(180.0, 300.0),
    ]
    recording = recording_of(tmp_path, events)
    (outage,) = recording.outages
    assert planned_after_s(recording, outage) == pytest.approx(10.0, abs=2.0)


def test_a_job_of_batches_is_busy_while_a_batch_is_on() -> None:
    # Records wait 0 to 2 s for their batch, which takes 1 s; then 0 to 10 s for one that takes all of its 10 s.
    calm = [report(5.0 * number).observation for number in range(1, 13)]
    full = [
        replace(one, latency_p50_s=15.0, latency_p95_s=19.5, latency_p99_s=20.0)
        for one in (report(60.0 + 5.0 * number).observation for number in range(1, 13))
    ]
    shifted = [replace(one, time_s=one.time_s - BEGAN_S) for one in (*calm, *full)]
    found = windows_of(shifted, width_s=60.0, seconds=120.0, in_batches=True)[Figure.BUSY_SHARE]
    assert found == pytest.approx([0.5, 1.0])
    assert windows_of(shifted, width_s=60.0, seconds=120.0)[Figure.BUSY_SHARE] == pytest.approx([0.3, 0.3])


def test_a_failure_that_the_job_lives_through_is_felt_in_its_latency(tmp_path: Path) -> None:
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        FaultInjected(at_s=BEGAN_S + 150.0, fault="kill-executor"),
        report(155.0, latency_s=8.0),
        *reports(155.0, 300.0),
    ]
    recording = recording_of(tmp_path, events)
    assert recording.outages == ()
    fitted = fit_run(recording, load_profile("spark-local"), draws=0)
    assert fitted.profile.failures["kill-executor"].downtime_s == pytest.approx(6.0, rel=0.4)
    assert fitted.profile.failures["kill-executor"].executors_lost == 1


def test_a_gap_is_replayed_as_long_as_it_was(tmp_path: Path) -> None:
    request = ChangeRequest(
        request_id="one",
        origin=Origin.POLICY,
        source=HAD,
        target=MORE,
        mechanism=Mechanism.REDEPLOY,
        requested_at_s=BEGAN_S + 150.0,
        deadline_s=BEGAN_S + 400.0,
        reason=Reason(code="more", sentence="More are needed."),
    )
    outcome = ChangeOutcome(
        request_id="one", status=ChangeStatus.APPLIED, finished_at_s=BEGAN_S + 190.0, configuration=MORE, gap_s=40.0
    )
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        ChangeRequested(at_s=BEGAN_S + 150.0, request=request),
        *reports(150.0, 190.0, status=JobStatus.CHANGING),
        ChangeFinished(at_s=BEGAN_S + 190.0, outcome=outcome),
        *reports(190.0, 300.0, configuration=MORE),
    ]
    recording = recording_of(tmp_path, events)
    assert recording.outages == ()
    made = replay(load_profile("spark-local"), recording, seed=1)
    assert made.left_out == 0
    assert made.observations[-1].configuration == MORE
    standing = [one.time_s for one in made.observations if one.status is not JobStatus.RUNNING]
    assert standing[0] == pytest.approx(150.0, abs=4.0)
    assert standing[-1] == pytest.approx(190.0, abs=4.0)


def test_latency_is_put_where_the_records_arrived() -> None:
    told = [report(5.0 * number).observation for number in range(1, 12)]
    late = report(100.0, latency_s=40.0).observation
    after = [report(100.0 + 5.0 * number).observation for number in range(1, 20)]
    found = windows_of([*told, late, *after], width_s=10.0, seconds=240.0)[Figure.LATENCY_P50]
    # What was output at 150 s, after 40 s, had arrived at 110 s; what came next was output in time.
    assert found[9] == pytest.approx(2.0)
    assert found[10] == pytest.approx(40.0, rel=0.5)
    assert found[13] == pytest.approx(2.0, abs=0.2)
