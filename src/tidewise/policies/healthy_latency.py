"""Which numbers of executors have a healthy latency at a rate: Phoebe's model, and the samples it is fitted to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.core import Configuration, JobStatus, Observation, ProfileMeasurement
from tidewise.policies.boosting import Boosted, Floats, fit_boosted
from tidewise.policies.throughput import differs_in_executors_only

_CELLS_KEPT = 512
"""As many pairs of configuration and rate are remembered; those not seen for longest are forgotten first."""
_CELL_WIDTH = math.log(1.1)
"""Rates within a tenth of each other share a cell."""
_LEAST_RATE_PER_S = 1e-3
_LEAST_LATENCY_S = 1e-3
_NEW_SHARE = 0.05
"""What a new report weighs in the mean of its cell at least: jobs change."""
_APART = math.log(2.0)
"""Clusters whose centres are nearer than this are one: a job that was always well has nothing to be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was seen of one configuration around one rate."""

    configuration: Configuration
    rate_per_s: float
    log_latency: float


class LatencySamples:
    """The latency of undisturbed operation as a bounded table; a copy of it is taken now and then to fit a model to."""

    def __init__(self) -> None:
        self._cells: dict[tuple[Configuration, int], tuple[float, Sample]] = {}
        self._running: Configuration | None = None
        self._well_since_s = 0.0
        self._taken_at_s = -math.inf
        self.taken: tuple[Sample, ...] = ()
        """The table as it was when the last copy was taken."""

    def learn(self, observation: Observation, *, settle_s: float, copy_every_s: float) -> None:
        """Take one report in, unless the job has changed, failed or started within `settle_s`."""
        begins_s = observation.time_s - observation.window_s
        if observation.status is not JobStatus.RUNNING:
            self._running = None
        elif observation.configuration != self._running:
            self._running, self._well_since_s = observation.configuration, begins_s
        if self._running is not None and begins_s - self._well_since_s >= settle_s:
            self._add(observation)
        if observation.time_s - self._taken_at_s >= copy_every_s and self._cells:
            self._taken_at_s = observation.time_s
            self.taken = tuple(sample for _, sample in self._cells.values())

    def _add(self, observation: Observation) -> None:
        rate, latency_s = observation.load_per_s, observation.latency_p95_s
        if latency_s is None or rate < _LEAST_RATE_PER_S:
            return
        key = observation.configuration, math.floor(math.log(rate) / _CELL_WIDTH)
        now = sample_of(observation.configuration, rate, latency_s)
        weight, mean = self._cells.pop(key, (0.0, now))
        share = max(_NEW_SHARE, 1.0 / (weight + 1.0))
        self._cells[key] = (
            weight + 1.0,
            Sample(
                configuration=observation.configuration,
                rate_per_s=mean.rate_per_s + share * (rate - mean.rate_per_s),
                log_latency=mean.log_latency + share * (now.log_latency - mean.log_latency),
            ),
        )
        if len(self._cells) > _CELLS_KEPT:
            del self._cells[next(iter(self._cells))]


def sample_of(configuration: Configuration, rate_per_s: float, latency_s: float) -> Sample:
    """One measurement."""
    return Sample(
        configuration=configuration,
        rate_per_s=rate_per_s,
        log_latency=math.log(max(latency_s, _LEAST_LATENCY_S)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthyLatency:
    """The latency of any number of executors at any rate, and up to which one it belongs to the lower cluster."""

    model: Boosted
    limit_s: float
    """Infinite where all that was seen is one cluster."""

    def latency_s(self, executors: Sequence[int], rate_per_s: float) -> Floats:
        """What each number of executors would have at this rate."""
        rows = np.column_stack([np.array(executors, dtype=np.float64), np.full(len(executors), rate_per_s)])
        return np.exp(self.model.predict(rows))


def fit_healthy_latency(samples: Sequence[Sample]) -> HealthyLatency:
    """Gradient boosting on (executors, rate), and two clusters of the logarithms; there is at least one sample."""
    rows = np.array([(sample.configuration.executors, sample.rate_per_s) for sample in samples], dtype=np.float64)
    logs = np.array([sample.log_latency for sample in samples])
    return HealthyLatency(model=fit_boosted(rows, logs), limit_s=math.exp(_limit(logs)))


class LatencyModels:
    """The model of what was asked for last: to fit it anew for every decision would be dear."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._model: HealthyLatency | None = None

    def of(
        self, like: Configuration, copies: Sequence[ProfileMeasurement], own: tuple[Sample, ...], *, late_s: float
    ) -> HealthyLatency | None:
        """The model of the job as it is but for its executors, from copies and own samples; None without any.

        `copies`: what was profiled like this; `late_s`: what one counts with whose output did not come in time.
        """
        asked = (like, tuple(copies), own, late_s)
        if self._of != asked:
            self._of = asked
            samples = [sample for sample in own if differs_in_executors_only(sample.configuration, like)]
            samples.extend(_of_copies(copies, late_s))
            self._model = fit_healthy_latency(samples) if samples else None
        return self._model


def _of_copies(copies: Sequence[ProfileMeasurement], late_s: float) -> Iterator[Sample]:
    for seen in copies:
        # Without any latency, and without a word of how busy it was, a copy has died or was never there.
        is_known = seen.latency_p95_s is not None or seen.busy_share is not None
        if is_known and seen.input_rate_per_s > 0.0:
            latency_s = late_s if seen.latency_p95_s is None else seen.latency_p95_s
            yield sample_of(seen.configuration, seen.input_rate_per_s, latency_s)


def _limit(logs: Floats) -> float:
    """Half-way between the centres of the two clusters that leave the least squared distances."""
    ordered = np.sort(logs)
    below = np.cumsum(ordered)[:-1]
    counts = np.arange(1, len(ordered))
    if not len(counts):
        return math.inf
    low, high = below / counts, (ordered.sum() - below) / (len(ordered) - counts)
    # The squared distances are all alike but for this sum, which is largest where they are least.
    best = int(np.argmax(counts * low**2 + (len(ordered) - counts) * high**2))
    if high[best] - low[best] < _APART:
        return math.inf
    return float(low[best] + high[best]) / 2.0
