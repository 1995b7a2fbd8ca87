"""Reports become evidence only where the job was steady, and say no more than they show."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from tests.qos.worlds import observed
from tidewise.core import Configuration, JobStatus, LatencyMethod, Observation
from tidewise.qos.evidence import Evidence, Stretches, full_rate

ONE = Configuration(executors=2, memory_mib_per_executor=2048)


def report(number: int, **changed: object) -> Observation:
    """Ten seconds of a job that is half busy."""
    usual = Observation(
        time_s=10.0 * (number + 1),
        window_s=10.0,
        configuration=ONE,
        status=JobStatus.RUNNING,
        input_rate_per_s=100.0,
        processed_rate_per_s=100.0,
        backlog_records=50.0,
        latency_p50_s=1.0,
        latency_p95_s=2.0,
        latency_p99_s=3.0,
        latency_method=LatencyMethod.SIMULATED,
        busy_share=0.5,
        memory_share=0.4,
        state_mib=7.0,
    )
    return replace(usual, **changed)  # type: ignore[arg-type]  # as the fields are


def said(reports: list[Observation]) -> list[Evidence]:
    stretches = Stretches(settle_s=60.0, shortest_s=60.0)
    return [evidence for each in reports if (evidence := stretches.add(each)) is not None]


def test_a_steady_minute_tells_the_rate_at_full_speed_after_the_start() -> None:
    found = said([report(number) for number in range(12)])
    assert len(found) == 1
    assert found[0].full_rate_per_s == pytest.approx(200.0)
    assert found[0].keeps_up
    assert found[0].latencies == ((1.0, 2.0, 3.0),) * 6
    assert (found[0].memory_share, found[0].state_mib) == (0.4, 7.0)


def test_a_window_counts_by_its_length() -> None:
    reports = [report(number) for number in range(6)]
    # Forty busy seconds, then twenty idle ones, in windows of twenty and ten seconds.
    for ends_s, window_s, busy in ((80.0, 20.0, 0.8), (100.0, 20.0, 0.8), (110.0, 10.0, 0.2), (120.0, 10.0, 0.2)):
        reports.append(report(0, time_s=ends_s, window_s=window_s, busy_share=busy, state_mib=10.0 * busy))
    found = said(reports)
    assert [each.busy_share for each in found] == [pytest.approx(0.6)]
    assert found[0].state_mib == pytest.approx(6.0)
    assert found[0].full_rate_per_s == pytest.approx(100.0 / 0.6)


def test_what_a_saturated_job_processes_is_counted_by_the_length_of_its_windows() -> None:
    reports = [report(number, busy_share=1.0 if number < 5 else 0.5) for number in range(6)]
    for ends_s, window_s, rate in ((70.0, 10.0, 50.0), (110.0, 40.0, 50.0), (120.0, 10.0, 100.0)):
        reports.append(report(0, time_s=ends_s, window_s=window_s, busy_share=1.0, processed_rate_per_s=rate))
    assert [each.full_rate_per_s for each in said(reports)] == [pytest.approx((40.0 * 50.0 + 10.0 * 100.0) / 50.0)]


def test_a_job_with_too_much_to_do_from_its_start_tells_what_it_can_do_before_three_long_batches_have_ended() -> None:
    def busy(number: int) -> Observation:
        ends = {2: 300.0, 4: 200.0, 8: 400.0}
        return report(number, busy_share=0.97, processed_rate_per_s=ends.get(number, 0.0), backlog_records=1e6)

    found = said([busy(number) for number in range(12)])
    assert [each.full_rate_per_s for each in found] == [pytest.approx((200.0 + 400.0) / 6 / 0.97)]
    assert not found[0].keeps_up
    assert said([replace(busy(number), busy_share=0.8) for number in range(9)]) == []


@pytest.mark.parametrize(
    "broken",
    [
        report(11, status=JobStatus.DOWN),
        report(11, status=JobStatus.CHANGING),
        report(11, configuration=ONE.with_executors(3)),
        report(31),
        report(11, input_rate_per_s=0.0, processed_rate_per_s=0.0, backlog_records=0.0, busy_share=0.0),
    ],
    ids=["down", "changing", "another configuration", "reports are missing", "idle"],
)
def test_a_stretch_that_is_broken_says_nothing(broken: Observation) -> None:
    before = [report(number) for number in range(11)]
    after = [report(number) for number in range(12, 17)]
    assert said([*before, report(11)])
    assert not said([*before, broken, *after])


def test_long_intervals_need_long_stretches() -> None:
    slow = replace(ONE, commit_interval_s=50.0)
    found = said([report(number, configuration=slow) for number in range(50)])
    assert [len(each.latencies) for each in found] == [15, 15]


@pytest.mark.parametrize(
    ("arrived", "processed", "busy", "expected"),
    [
        (100.0, 101.0, 0.5, (200.0, False, True)),
        (100.0, 80.0, 1.0, (80.0, False, False)),
        (100.0, 300.0, 1.0, (300.0, False, False)),
        (100.0, 100.0, 0.001, (None, False, True)),
        (100.0, 70.0, None, (70.0, False, False)),
        (100.0, 150.0, None, (150.0, True, False)),
        (100.0, 100.0, None, (100.0, True, True)),
        (100.0, 0.0, None, (None, False, False)),
        (100.0, 0.0, 0.5, (None, False, False)),
    ],
)
def test_what_is_told_by_arrived_processed_and_busy(
    arrived: float, processed: float, busy: float | None, expected: tuple[float | None, bool, bool]
) -> None:
    assert full_rate(arrived, processed, busy) == expected


def test_an_overloaded_simulated_job_shows_its_capacity_and_no_usual_latency() -> None:
    found = said(observed(replace(ONE, commit_interval_s=10.0), 80_000.0, seed=3, seconds=1000))
    assert not any(each.keeps_up for each in found)
    told = [each.full_rate_per_s for each in found if each.full_rate_per_s is not None]
    assert len(told) >= 3
    assert statistics.median(told) == pytest.approx(2 * 32_500.0 / 1.005, rel=0.1)
