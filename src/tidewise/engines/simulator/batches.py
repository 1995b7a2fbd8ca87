"""Micro-batches: a batch takes what has arrived when it starts, and its output comes with its commit."""

from __future__ import annotations

import math

import numpy as np

from tidewise.engines.simulator.conditions import Conditions
from tidewise.engines.simulator.latency import Floats, latency_in_batches
from tidewise.engines.simulator.profile import BatchProfile, SimulatorProfile
from tidewise.engines.simulator.stretch import SeriesColumns, Stretch

_POLL_S = 0.1
"""How soon a job without a trigger interval looks again when nothing has arrived."""
_SLOWEST = 1e-6
"""A job that stands still until a failure is noticed still has a batch, which just does not end."""


class MicroBatches:
    """The batches of a job, one after the other."""

    def __init__(
        self, *, profile: SimulatorProfile, batch: BatchProfile, rates: Floats, conditions: Conditions, seed: int
    ) -> None:
        random = np.random.default_rng([seed, 1])
        self._profile = profile
        self._batch = batch
        self._conditions = conditions
        self._is_always_alike = batch.fixed_core_s == 0.0 and not batch.fixed_warms_up
        self._rates: list[float] = rates.tolist()
        self._rates_array = rates
        self._cpu_s_per_record = profile.capacity.cpu_s_per_record
        self._arrived_before: list[float] = np.concatenate(([0.0], np.cumsum(rates))).tolist()
        noise_share = math.hypot(batch.noise_share, profile.capacity.noise_share)
        self._noise: list[float] = np.exp(noise_share * random.standard_normal(len(rates))).tolist()
        self._latency_noise = np.exp(profile.latency.noise_share * random.standard_normal(len(rates)))
        self._seconds = 0
        self._committed = 0.0  # position up to which output is there
        self._interval_s = 0.0
        self._next_start_s = 0.0
        self._begun_s: float | None = None  # of the batch that is running
        self._ends_s = 0.0
        self._takes_to = 0.0
        self._taken_s = 0.0  # when it was settled what it takes
        self._planned_s: float | None = None  # the same for the first batch after a failure, where that was sooner
        self._last_begun_s = 0.0  # when the previous batch took its records
        self._priced_at = 0.0  # the capacity by which its end was reckoned
        self._work_share = 0.0  # of its time, the part that goes into records
        self._cpu_per_s = 0.0
        self._busy: list[float] = []
        self._cpu: list[float] = []
        self._done: list[float] = []
        self._commits: list[tuple[float, float, float, float, float]] = []
        # Each with its time, position, first and last arrival, and the time that went into its records.
        self._reported = 0  # commits that reports have covered

    @property
    def backlog_records(self) -> float:
        return max(0.0, self._arrived_before[self._seconds] - self._committed)

    def interrupt(self, at_s: float, *, replays: bool, commit_interval_s: float) -> float:  # noqa: ARG002 - every batch commits
        """Stop: at once, throwing the running batch away, or (without `replays`) when it has committed."""
        if self._begun_s is not None and not replays:
            return max(at_s, self._ends_s)
        self._begun_s = None
        self._planned_s = None
        return at_s

    def slow_down(self, from_s: float, until_s: float, share: float) -> None:
        """The running batch takes longer by what it does not get done; standing still, it ends no sooner than that."""
        if self._begun_s is not None and self._ends_s > from_s and share < 1.0:
            left_s = self._ends_s - from_s
            slow_s = until_s - from_s
            if share <= 0.0:
                self._stretch_batch(from_s, left_s + slow_s)
            elif left_s / share <= slow_s:
                self._stretch_batch(from_s, left_s / share)
            else:
                self._stretch_batch(from_s, left_s + slow_s * (1.0 - share))

    def _stretch_batch(self, now_s: float, left_s: float) -> None:
        """The running batch needs this long from now on; its CPU is spread over that."""
        before_s = self._ends_s - now_s
        self._cpu_per_s *= before_s / left_s
        self._work_share *= before_s / left_s
        self._ends_s = now_s + left_s

    def plan(self, at_s: float) -> None:
        """While the job is down, settle at this time what its first batch will hold."""
        self._planned_s = at_s

    def restored(self, at_s: float) -> None:
        """The job comes up again at this time."""
        self._next_start_s = max(self._next_start_s, at_s)

    def run(self, first: int, stop: int, commit_interval_s: float) -> None:
        """Work through the seconds from `first` up to, not including, `stop`."""
        self._interval_s = commit_interval_s
        capacity = self._conditions.capacity_per_s
        # Executors that joined or left while a batch is on take part in what is left of it.
        if self._begun_s is not None and self._ends_s > first and 0.0 < capacity != self._priced_at:
            self._stretch_batch(float(first), (self._ends_s - first) * self._priced_at / capacity)
            self._priced_at = capacity
        for second in range(first, stop):
            self._work(second)
        self._seconds = stop

    def _work(self, second: int) -> None:
        """One second, with as many batches as begin, run or end in it.

        Most of a simulation's time is spent here: no calls for what can be said in a line.
        """
        begin, end = float(second), second + 1.0
        down_until = self._conditions.down_until_s
        done = busy = cpu = 0.0
        while True:
            begun = self._begun_s
            if begun is not None:
                ends = self._ends_s
                ran_s = (ends if ends < end else end) - (begun if begun > begin else begin)
                busy += ran_s * self._work_share
                cpu += ran_s * self._cpu_per_s
                if ends > end:
                    break
                done += self._takes_to - self._committed
                self._commit(begun, ends)
                continue
            start = self._next_start_s
            if start < down_until:
                start = down_until
            if start < begin:
                start = begin
            if start >= end:
                break
            self._start(second, start)
        self._done.append(done)
        self._busy.append(busy)
        self._cpu.append(cpu)

    def _start(self, second: int, start: float) -> None:
        """Begin a batch with what has arrived by now, or look again later where that is nothing."""
        arrived = self._arrived_before[second] + self._rates[second] * (start - second)
        self._taken_s = start
        if self._planned_s is not None:
            planned = self._arrived_before[int(self._planned_s)]
            if self._committed < planned < arrived:
                arrived, self._taken_s = planned, self._planned_s
            self._planned_s = None
        waiting = arrived - self._committed
        capacity = self._conditions.capacity_per_s
        if waiting <= 0.0 or capacity <= 0.0:
            self._next_start_s = start + (self._interval_s or _POLL_S)
            self._last_begun_s = start  # whoever comes later has not waited for the batches that found nothing
            return
        fixed_s = self._batch.fixed_s if self._is_always_alike else self._fixed_s(start)
        work_s = self._work_s(start, waiting)
        takes_s = (fixed_s + work_s) * self._noise[second]
        self._begun_s = start
        self._ends_s = start + takes_s
        self._takes_to = arrived
        self._priced_at = capacity
        self._work_share = work_s / (fixed_s + work_s)
        self._cpu_per_s = (self._batch.fixed_cpu_s + waiting * self._cpu_s_per_record) / takes_s

    def _commit(self, begun: float, ends: float) -> None:
        self._committed = self._takes_to
        taken = self._taken_s
        self._commits.append((ends, self._committed, self._last_begun_s, taken, (ends - begun) * self._work_share))
        self._last_begun_s = taken
        self._begun_s = None
        # The next batch starts at the next full interval, or at once when this one has outlasted it.
        interval_s = self._interval_s
        due = (begun // interval_s + 1.0) * interval_s if interval_s > 0 else ends
        self._next_start_s = ends if ends > due else due

    def _fixed_s(self, start_s: float) -> float:
        """What a batch that begins now takes before its first record."""
        batch, conditions = self._batch, self._conditions
        fixed_s = batch.fixed_s
        if batch.fixed_core_s > 0.0:
            fixed_s += batch.fixed_core_s / conditions.cores
        if batch.fixed_warms_up and start_s < conditions.warm_until_s:
            fixed_s /= max(_SLOWEST, conditions.speed_at(start_s, impaired=False))
        return fixed_s

    def _work_s(self, start_s: float, records: float) -> float:
        """How long these records take from here on, while the job may still be warming up."""
        conditions = self._conditions
        full = conditions.capacity_per_s
        if start_s >= conditions.warm_until_s and start_s >= conditions.impaired_until_s:
            return records / full
        now_s = start_s
        while now_s < max(conditions.warm_until_s, conditions.impaired_until_s):
            speed = max(_SLOWEST, conditions.speed_at(now_s + 0.5))
            if records <= full * speed:
                return now_s - start_s + records / (full * speed)
            records -= full * speed
            now_s += 1.0
        return now_s - start_s + records / full

    def stretch(self, first: int, stop: int) -> Stretch:
        """What a report over these seconds can say."""
        commits = self._commits[self._reported :]
        self._reported = len(self._commits)
        if not commits and self._commits and self._on_time(stop):
            commits = self._commits[-1:]
        processed = sum(self._done[first:stop])
        share = min(1.0, sum(self._busy[first:stop]) / (stop - first))
        cpu_s = sum(self._cpu[first:stop])
        if not commits:
            return Stretch(processed=processed, busy_share=share, cpu_s=cpu_s)
        latency = self._profile.latency
        extra = latency.at_rest_s * float(self._latency_noise[stop - 1])
        by_age = sorted(
            (time - (from_s + to_s) / 2, to_s - from_s, work_s) for time, _, from_s, to_s, work_s in commits
        )
        middle, gathered_s, worked_s = by_age[len(by_age) // 2]
        oldest = [(time - from_s, to_s - from_s) for time, _, from_s, to_s, _ in commits]
        p95 = max(age - 0.05 * width for age, width in oldest)
        p99 = max(age - 0.01 * width for age, width in oldest)
        return Stretch(
            processed=processed,
            busy_share=share,
            cpu_s=cpu_s,
            latency_p50_s=middle + extra,
            latency_p95_s=max(middle, p95) + extra * latency.p95_over_p50,
            latency_p99_s=max(middle, p99) + extra * max(latency.p95_over_p50, latency.p99_over_p50),
            worked_s=worked_s,
            # Half of what the batch before took beyond the interval: a batch in time makes nobody wait.
            queued_s=max(0.0, gathered_s - self._interval_s) / 2,
        )

    def _on_time(self, now_s: float) -> bool:
        """Whether it is no wonder that nothing was committed lately: no batch is due, or one is within its interval."""
        if now_s < self._conditions.down_until_s:
            return False
        if self._begun_s is None:
            return self._next_start_s >= now_s
        return now_s - self._begun_s <= self._interval_s

    def series(self) -> SeriesColumns:
        """Every second that was worked through."""
        count = self._seconds
        done = np.array(self._done[:count])
        commits = np.array(self._commits).reshape(-1, 5)
        p50, p95, p99 = latency_in_batches(self._rates_array[:count], commits[:, 1], commits[:, 0])
        latency = self._profile.latency
        extra = latency.at_rest_s * self._latency_noise[:count]
        return SeriesColumns(
            processed_rate_per_s=done,
            backlog_records=np.maximum(0.0, np.array(self._arrived_before[1 : count + 1]) - np.cumsum(done)),
            busy_share=np.minimum(1.0, np.array(self._busy[:count])),
            cpu_s=np.array(self._cpu[:count]),
            latency_p50_s=p50 + extra,
            latency_p95_s=p95 + extra * latency.p95_over_p50,
            latency_p99_s=p99 + extra * max(latency.p95_over_p50, latency.p99_over_p50),
        )
