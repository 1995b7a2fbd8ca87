"""What a journal shows of a run: when it was down and why, and what arrived meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
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
from tidewise.experiments.whatif_recording import UNTOLD, Recording, read_recording
from tidewise.experiments.whatif_replay import Figure, replay, windows_of

BEGAN_S = 50.0
HAD = Configuration(executors=2, slots_per_executor=2, commit_interval_s=2.0)
MORE = HAD.with_executors(3)


def report(
    until_s: float,
    *,
    window_s: float = 5.0,
    status: JobStatus = JobStatus.RUNNING,
    rate_per_s: float = 1000.0,
    latency_s: float = 2.0,
    configuration: Configuration = HAD,
) -> Reported:
    """Of the window that ends so long after the beginning."""
    up = status is JobStatus.RUNNING
    observation = Observation(
        time_s=BEGAN_S + until_s,
        window_s=window_s,
        configuration=configuration,
        status=status,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=rate_per_s if up else 0.0,
        backlog_records=2000.0,
        latency_p50_s=latency_s if up else None,
        latency_p95_s=latency_s + 0.9 if up else None,
        latency_p99_s=latency_s + 1.0 if up else None,
        latency_method=LatencyMethod.EVENT_TIME if up else None,
        busy_share=0.3 if up else 0.0,
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


def test_what_is_counted_late_is_no_gush(tmp_path: Path) -> None:
    events: list[JournalEvent] = [
        *reports(0.0, 150.0),
        *reports(150.0, 170.0, status=JobStatus.DOWN),
        *reports(170.0, 180.0, rate_per_s=0.0),
        *reports(180.0, 185.0, rate_per_s=4000.0),
        *reports(185.0, 300.0),
    ]
    recording = recording_of(tmp_path, events)
    assert recording.rates_per_s.max() < 2000.0
    assert recording.rates_per_s.sum() == pytest.approx(1000.0 * 300 + 3000.0 * 5 - 1000.0 * 10)


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
    assert found[13] == pytest.approx(2.0)
