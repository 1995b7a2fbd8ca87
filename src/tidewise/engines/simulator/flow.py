"""Continuous processing: records flow one by one through a queue; a checkpoint is taken every commit interval."""

from __future__ import annotations

import math

import numpy as np

from tidewise.engines.simulator.conditions import Conditions
from tidewise.engines.simulator.latency import Floats, wait_in_flow
from tidewise.engines.simulator.profile import SimulatorProfile
from tidewise.engines.simulator.stretch import SeriesColumns, Stretch

_FULLEST = 0.98
"""Utilisation beyond which the short queues are not let grow: the long queue is simulated anyway."""


class ContinuousFlow:
    """The queue of a continuous job, second by second."""

    def __init__(self, *, profile: SimulatorProfile, rates: Floats, conditions: Conditions, seed: int) -> None:
        random = np.random.default_rng([seed, 1])
        count = len(rates)
        self._profile = profile
        self._conditions = conditions
        self._rates: list[float] = rates.tolist()
        noise = 1.0 + profile.capacity.noise_share * random.standard_normal(count)
        self._noise: list[float] = np.clip(noise, 0.1, 2.0).tolist()
        self._latency_noise = np.exp(profile.latency.noise_share * random.standard_normal(count))
        self._backlog = 0.0
        self._arrived_total = 0.0
        self._done_total = 0.0
        self._restored_at_s = 0.0
        self._arrived: list[float] = []  # queue positions at the end of each second, replays included
        self._done: list[float] = []  # the same for what left the queue
        self._busy: list[float] = []
        self._waited: list[float] = []  # age of what was output at the end of each second; -1: no output
        self._oldest = 0  # second in which the record at the head of the queue arrived

    @property
    def backlog_records(self) -> float:
        return self._backlog

    def interrupt(self, at_s: float, *, replays: bool, commit_interval_s: float) -> float:
        """The job stops at once; with `replays`, what was done since the last checkpoint is first in line again."""
        # A job that breaks again before it is back has done nothing that could be lost.
        if replays and at_s > self._restored_at_s:
            since_s = (at_s - self._restored_at_s) % commit_interval_s if commit_interval_s > 0 else 0.0
            last_kept = max(len(self._done) - 1 - math.ceil(since_s), int(self._restored_at_s) - 1)
            again = self._done_total - (self._done[last_kept] if last_kept >= 0 else 0.0)
            if again > 0.0:
                self._put_first(again)
        return at_s

    def _put_first(self, records: float) -> None:
        """Everybody who waits now has these before them."""
        self._backlog += records
        self._arrived_total += records
        waiting = len(self._arrived)
        while waiting > 0 and self._arrived[waiting - 1] > self._done_total:
            waiting -= 1
            self._arrived[waiting] += records

    def slow_down(self, from_s: float, until_s: float, share: float) -> None:
        """Nothing is in the works for longer than a second: the conditions say it all."""

    def plan(self, at_s: float) -> None:
        """Nothing to settle: records are taken one by one."""

    def restored(self, at_s: float) -> None:
        """The job comes up again at this time; its checkpoints are counted from there."""
        self._restored_at_s = at_s

    def run(self, first: int, stop: int, commit_interval_s: float) -> None:
        """Work through the seconds from `first` up to, not including, `stop`."""
        conditions, rates, noise = self._conditions, self._rates, self._noise
        arrived, done, busy, waited = self._arrived, self._done, self._busy, self._waited
        backlog, arrived_total, done_total = self._backlog, self._arrived_total, self._done_total
        pause = self._profile.checkpoint_cost_s / commit_interval_s if commit_interval_s > 0 else 0.0
        full = conditions.capacity_per_s * max(0.0, 1.0 - pause)
        down_until = conditions.down_until_s
        special_until = max(down_until, conditions.warm_until_s, conditions.impaired_until_s)
        for second in range(first, stop):
            capacity = full * noise[second]
            up = 1.0
            if second < special_until:
                up = min(1.0, max(0.0, second + 1 - down_until))
                capacity *= up * conditions.speed_at(second + 0.5)
            arrivals = rates[second]
            waiting = backlog + arrivals
            arrived_total += arrivals
            arrived.append(arrived_total)
            if waiting <= capacity:
                backlog = 0.0
                done_total = arrived_total
                busy.append(waiting / capacity if capacity > 0.0 else 0.0)
                waited.append(0.0 if up > 0.0 else -1.0)
                self._oldest = second + 1
            else:
                backlog = waiting - capacity
                done_total += capacity
                busy.append(1.0 if up > 0.0 else 0.0)
                waited.append(self._age(done_total, second + 1.0) if capacity > 0.0 else -1.0)
            done.append(done_total)
        self._backlog, self._arrived_total, self._done_total = backlog, arrived_total, done_total

    def _age(self, position: float, now_s: float) -> float:
        """How old the record at this queue position is."""
        arrived, oldest = self._arrived, self._oldest
        while oldest < len(arrived) - 1 and arrived[oldest] < position:
            oldest += 1
        self._oldest = oldest
        before = arrived[oldest - 1] if oldest else 0.0
        width = arrived[oldest] - before
        into = min(1.0, max(0.0, (position - before) / width)) if width > 0 else 1.0
        return max(0.0, now_s - (oldest + into))

    def stretch(self, first: int, stop: int) -> Stretch:
        """What a report over these seconds can say."""
        before = self._done[first - 1] if first else 0.0
        processed = self._done[stop - 1] - before
        busy = sum(self._busy[first:stop]) / (stop - first)
        cpu_s = max(0.0, processed) * self._profile.capacity.cpu_s_per_record
        waits = sorted(wait for wait in self._waited[first:stop] if wait >= 0.0)
        if not waits:
            return Stretch(processed=processed, busy_share=busy, cpu_s=cpu_s)
        latency = self._profile.latency
        load = min(_FULLEST, busy)
        at_rest = latency.at_rest_s * float(self._latency_noise[stop - 1]) + latency.queueing_s * load / (1.0 - load)
        last = len(waits) - 1
        return Stretch(
            processed=processed,
            busy_share=busy,
            cpu_s=cpu_s,
            latency_p50_s=at_rest + waits[last // 2],
            latency_p95_s=at_rest * latency.p95_over_p50 + waits[math.ceil(0.95 * last)],
            latency_p99_s=at_rest * max(latency.p95_over_p50, latency.p99_over_p50) + waits[last],
            worked_s=at_rest,
            queued_s=waits[last // 2],
        )

    def series(self) -> SeriesColumns:
        """Every second that was worked through."""
        count = len(self._done)
        done, arrived, busy = np.array(self._done), np.array(self._arrived), np.array(self._busy)
        wait = wait_in_flow(np.array(self._rates[:count]), arrived, done)
        latency = self._profile.latency
        load = np.minimum(_FULLEST, busy)
        at_rest = latency.at_rest_s * self._latency_noise[:count] + latency.queueing_s * load / (1.0 - load)
        processed = np.diff(done, prepend=0.0)
        return SeriesColumns(
            processed_rate_per_s=processed,
            backlog_records=np.maximum(0.0, arrived - done),
            busy_share=busy,
            cpu_s=processed * self._profile.capacity.cpu_s_per_record,
            latency_p50_s=wait + at_rest,
            latency_p95_s=wait + at_rest * latency.p95_over_p50,
            latency_p99_s=wait + at_rest * max(latency.p95_over_p50, latency.p99_over_p50),
        )
