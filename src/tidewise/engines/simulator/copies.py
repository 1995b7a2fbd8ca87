"""Copies of the job beside it: run to their end at once, on the same input, and measured."""

from __future__ import annotations

import numpy as np

from tidewise.core import (
    Configuration,
    Measured,
    Mechanism,
    PermanentError,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    recovery_s,
)
from tidewise.engines.simulator.job import Copies, SimulatedJob
from tidewise.engines.simulator.latency import Floats
from tidewise.engines.simulator.profile import SimulatorProfile

_DRAINED_S = 60
"""How long a copy is let run on, so that what arrived while it was measured is output; more where it commits seldom."""


class Copier:
    """Measures configurations on the load that the job will see from now on."""

    def __init__(
        self, *, profile: SimulatorProfile, rates_per_s: Floats, seed: int, deployed_for: Mechanism | None
    ) -> None:
        self._profile = profile
        self._rates = rates_per_s
        self._seed = seed
        self._deployed_for = deployed_for

    def measure(self, request: ProfileRequest, now_s: int) -> tuple[ProfileOutcome, Copies]:
        """What the copies will have shown when their time has come, and until when each is paid for."""
        measurements = []
        copies = []
        for number, candidate in enumerate(request.candidates):
            measurement, seconds = self._copy(candidate, request, now_s, number)
            measurements.append(measurement)
            copies.append((candidate, float(now_s + seconds)))
        end_s = max(until_s for _, until_s in copies)
        outcome = ProfileOutcome(request_id=request.request_id, finished_at_s=end_s, measurements=tuple(measurements))
        return outcome, copies

    def _copy(
        self, candidate: Configuration, request: ProfileRequest, now_s: int, number: int
    ) -> tuple[ProfileMeasurement, int]:
        """The measurement, and how many seconds from now on the copy ran."""
        up_s = int(self._profile.profiling.deploy_s)
        rates = self._rates[now_s + up_s :]
        first = int(request.settle_s)
        last = first + int(request.measure_s)
        if len(rates) < last:
            return _nothing(candidate, "the load ended before the copy could be measured"), up_s
        breaks = self._worst_moment(candidate, last) if request.inject_failure else last
        limit_s = int(request.recovery_limit_s)
        drained = last + _DRAINED_S + 2 * int(candidate.commit_interval_s)
        end = min(len(rates), max(drained, breaks + limit_s if request.inject_failure else 0))
        copy = SimulatedJob(
            profile=self._profile,
            rates_per_s=rates[:end],
            configuration=candidate,
            seed=self._seed * 1000 + now_s + number,
            report_every_s=60,
            controlled=False,
            deployed_for=self._deployed_for,
            profiler=_refuse_copies_of_copies,
        )
        copy.advance(min(breaks, end))
        broken = request.inject_failure and breaks < end
        if broken:
            copy.inject(next(iter(self._profile.failures)))
        copy.advance(end)
        series = copy.series()
        recovery: Measured | None = None
        seconds = last
        if broken:
            waited = np.where(np.isnan(series["latency_p50_s"]), np.inf, series["latency_p50_s"])
            end = min(end, breaks + limit_s)
            recovery = recovery_s(
                waited_s=waited.tolist(), up=(series["up"] > 0.5).tolist(), fault_s=float(breaks), end=end
            )
            seconds = breaks + int(recovery) + 1 if isinstance(recovery, float) else end
        return _measured(candidate, series, slice(first, last), recovery), up_s + seconds

    def _worst_moment(self, candidate: Configuration, earliest: int) -> int:
        """When to break a copy so that the failure is noticed just before its next commit."""
        interval_s = max(1, round(candidate.commit_interval_s))
        notice_s = round(next(iter(self._profile.failures.values())).detection_s)
        commits = -(-(earliest + notice_s + 1) // interval_s)
        return commits * interval_s - 1 - notice_s


def _measured(
    candidate: Configuration, series: dict[str, Floats], span: slice, recovery: Measured | None
) -> ProfileMeasurement:
    p50, p95 = series["latency_p50_s"][span], series["latency_p95_s"][span]
    # Silent seconds have no latency; output that did not come in time is a latency nobody knows.
    busy = series["input_rate_per_s"][span] > 0.0
    known = bool(busy.any() and np.isfinite(p50[busy]).all())
    return ProfileMeasurement(
        configuration=candidate,
        input_rate_per_s=float(series["input_rate_per_s"][span].mean()),
        processed_rate_per_s=float(series["processed_rate_per_s"][span].mean()),
        latency_p50_s=float(np.median(p50[busy])) if known else None,
        latency_p95_s=float(np.quantile(p95[busy], 0.95)) if known else None,
        busy_share=float(series["busy_share"][span].mean()),
        recovery_s=recovery,
    )


def _nothing(candidate: Configuration, detail: str) -> ProfileMeasurement:
    return ProfileMeasurement(
        configuration=candidate,
        input_rate_per_s=0.0,
        processed_rate_per_s=0.0,
        latency_p50_s=None,
        latency_p95_s=None,
        busy_share=None,
        detail=detail,
    )


def _refuse_copies_of_copies(request: ProfileRequest) -> tuple[ProfileOutcome, Copies]:
    raise PermanentError(f"a copy cannot be profiled itself ({request.request_id})")
