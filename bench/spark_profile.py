"""Copies measured beside a job under load: does the job's latency notice them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.page import table
from bench.spark_job import BenchJob, local_cluster, running_job
from tidewise.core import Configuration, JobStatus, ProfileMeasurement, ProfileRequest, Purpose, Reason, Usage
from tidewise.jobs.counts import committed_end, count_losses

_ROUNDS = 3
_SETTLE_S, _MEASURE_S = 10.0, 20.0
_WITHIN_S = 150.0
_GOAL = 0.05
_RATE_PER_S = 500.0
_REASON = Reason(code="benchmark", sentence="A benchmark measures what a profile costs the job.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """The job over some time, alone or with a copy beside it."""

    p95_s: float
    """The median of the reports' p95."""
    batches_per_s: float


def measure(_traces: Path | None) -> str:
    """In turn: the job alone for as long as the profile before took, and with a copy beside it."""
    start = Configuration(
        executors=1, cores_per_executor=0.5, memory_mib_per_executor=1024, commit_interval_s=2.0, state_partitions=2
    )
    alone: list[_Stretch] = []
    beside: list[_Stretch] = []
    up: list[_Stretch] = []
    found: list[ProfileMeasurement] = []
    sink = ("--sink", "files", "--out", "out")
    with (
        local_cluster() as cluster,
        running_job(cluster, start, rate_per_s=_RATE_PER_S, program="copy", arguments=sink) as bench,
    ):
        bench.settle()
        bench.watch(20.0)
        began_s = bench.clock.now_s()
        bench.watch(40.0)
        alone.append(_stretch(bench, began_s))
        for _ in range(_ROUNDS):
            began_s = bench.clock.now_s()
            measured, up_s = _profile(bench, start.with_executors(1))
            found.append(measured)
            beside.append(_stretch(bench, began_s))
            up.append(_stretch(bench, up_s))
            bench.watch(5.0)
            began_s = bench.clock.now_s()
            bench.watch(40.0)
            alone.append(_stretch(bench, began_s))
        stops = sum(report.status is not JobStatus.RUNNING for report in bench.reports)
        spent = bench.job.meter().get(Purpose.PROFILING, Usage())
        violations = sum(len(audited.result.violations) for audited in bench.job.verify("profiles"))
        bench.job.stop()
        losses = count_losses(bench.folder / "out", committed_end=committed_end(bench.folder / "checkpoint"))
    # Each stretch beside a copy lies between two without: their mean is what it would have been.
    worse = [_worse(one, before, after) for one, before, after in zip(beside, alone, alone[1:], strict=False)]
    worse_up = [_worse(one, before, after) for one, before, after in zip(up, alone, alone[1:], strict=False)]
    rows = [
        ["latency p95 alone (median of medians)", f"{np.median([one.p95_s for one in alone]):.2f} s", "", ""],
        ["beside a copy, its start included", _relative(worse), f"<= {_GOAL:.0%}", _reached(worse)],
        ["beside a copy that is up", _relative(worse_up), f"<= {_GOAL:.0%}", _reached(worse_up)],
        ["batches/s alone; beside", f"{_pace(alone):.2f}; {_pace(beside):.2f}", "", ""],
        ["copies that were measured", f"{sum(not one.detail for one in found)} of {_ROUNDS}", "all", ""],
        ["latency p95 that they showed", ", ".join(_seconds(one) for one in found), "", ""],
        [
            "reports of a stop; violations; lost; doubled",
            f"{stops}; {violations}; {losses.lost}; {losses.doubled}",
            "0",
            "",
        ],
        ["core-seconds paid for profiling", f"{spent.core_s:.0f}", "", ""],
    ]
    return (
        f"A job that writes what it reads into files, {_RATE_PER_S:,.0f} records/s, one executor of 0.5 cores, a "
        f"commit every 2 s. A copy of it in the same configuration settles {_SETTLE_S:g} s and is measured for "
        f"{_MEASURE_S:g} s, {_ROUNDS} times, in turn with 40 s without. The change of the latency is against the mean "
        "of the stretches before and after. Where CPU is short, the executors of a copy weigh a tenth of the job's and "
        "its driver steps back, so that it has what is left.\n\n" + table(["", "measured", "goal", "reached"], rows)
    )


def _profile(bench: BenchJob, candidate: Configuration) -> tuple[ProfileMeasurement, float]:
    """What the copy showed, and since when it was up."""
    now_s = bench.clock.now_s()
    request = ProfileRequest(
        request_id=uuid.uuid4().hex,
        candidates=(candidate,),
        settle_s=_SETTLE_S,
        measure_s=_MEASURE_S,
        inject_failure=False,
        recovery_limit_s=1.0,
        requested_at_s=now_s,
        deadline_s=now_s + _WITHIN_S,
        reason=_REASON,
    )
    bench.job.profile(request)
    up_s: float | None = None
    while (outcome := bench.job.profile_outcome(request.request_id)) is None:
        bench.watch(0.5)
        records = [one.record for one in bench.job.fleet.applications.values() if one.record is not None]
        if up_s is None and any(record.is_up for record in records):
            up_s = bench.clock.now_s()
    return outcome.measurements[0], now_s if up_s is None else up_s


def _stretch(bench: BenchJob, since_s: float) -> _Stretch:
    reports = [report for report in bench.reports if report.time_s - report.window_s >= since_s]
    known_s = [report.latency_p95_s for report in reports if report.latency_p95_s is not None]
    # A batch commits in a window of which the processed rate is not 0; windows are shorter than the interval.
    batches = sum(report.processed_rate_per_s > 0.0 for report in reports)
    seconds = sum(report.window_s for report in reports)
    return _Stretch(p95_s=float(np.median(known_s)), batches_per_s=batches / seconds)


def _worse(one: _Stretch, before: _Stretch, after: _Stretch) -> float:
    return one.p95_s / ((before.p95_s + after.p95_s) / 2) - 1.0


def _relative(worse: list[float]) -> str:
    return f"{np.mean(worse):+.1%} ({', '.join(f'{one:+.1%}' for one in worse)})"


def _reached(worse: list[float]) -> str:
    return "yes" if np.mean(worse) <= _GOAL else "NO"


def _pace(stretches: list[_Stretch]) -> float:
    return float(np.median([one.batches_per_s for one in stretches]))


def _seconds(one: ProfileMeasurement) -> str:
    return one.detail or ("none" if one.latency_p95_s is None else f"{one.latency_p95_s:.2f} s")
