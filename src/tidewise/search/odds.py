"""What each of a short list of configurations would do at any load: the chances of breaking each promise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from tidewise.core import Prices, Promises
from tidewise.qos import Belief, Candidates, Floats
from tidewise.qos.cost import Standing, cost_per_hour
from tidewise.qos.model import JobModel
from tidewise.qos.recovery import Case

_LOADS = np.linspace(np.log(0.02), np.log(2.0), 21)
"""Logarithms of the utilisations (rate over capacity) at which chances are reckoned. Between them, not the chances
themselves lie on lines, which rise within a few points from none to certain, but what they are normal scores of."""
_LOADS_OF_RECOVERIES = tuple(_LOADS.tolist())
_SPREADS = (0.03, 0.1, 0.25, 0.6)
"""Spreads of a capacity for which recoveries are reckoned; each configuration has the nearest of them."""
_UNPROVEN = 0.15
"""What is taken off (of its logarithm) from what a model says of kinds of configurations that never ran."""
_CPU_FULL = 0.9
"""Of its cores, the most that a configuration can have in use."""
_NEVER = -8.0
"""The normal score of what does not happen."""
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuInUse:
    """What the job takes of the CPU at the load that it has."""

    cores: float
    given: float
    """How many it has."""
    commit_interval_s: float
    """With this interval: where batches come less often, they may take less."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Odds:
    """One row per configuration; tables by the logarithm of the utilisation, in as many columns as `_LOADS`."""

    candidates: Candidates
    cost_per_s: Floats
    """Driver and controller not counted: they are paid for in any case."""
    log_capacity: Floats
    """What can be relied on: of what was never run less than the median, so that it has to be that much better."""
    boosted_log_capacity: Floats
    """With as many executors as can join without a gap: what a backlog can be worked off with."""
    late_scores: Floats
    """Normal scores of the chance that a second breaks the promised latency in steady operation."""
    log_latency: Floats
    """Of the median of the 95th percentile."""
    latency_log_sd: Floats
    """How sure that is."""
    unrecovered_scores: Floats
    """Normal scores of the chance that a failure breaks the promised recovery time, at the boosted utilisation."""
    log_recovery: Floats
    """How long a recovery takes, by the same."""
    out_of_memory: Floats
    """One column."""
    unproven: npt.NDArray[np.bool_]
    """Rows of a kind that never ran."""

    def late(self, log_rates: Floats) -> Floats:
        """Chance that a second is late: rows x the shape of the rates."""
        return np.asarray(ndtr(self._at(self.late_scores, self.log_capacity, log_rates)), dtype=np.float64)

    def latency_s(self, log_rates: Floats) -> Floats:
        """The usual 95th percentile: rows x the shape of the rates."""
        return np.asarray(np.exp(self._at(self.log_latency, self.log_capacity, log_rates)), dtype=np.float64)

    def latency_spread(self, log_rates: Floats) -> Floats:
        """How far the logarithm of the 95th percentile may be off: rows x the shape of the rates."""
        return self._at(self.latency_log_sd, self.log_capacity, log_rates)

    def unrecovered(self, log_rates: Floats) -> Floats:
        """Chance that a failure breaks the promise about recoveries: rows x the shape of the rates."""
        return np.asarray(
            ndtr(self._at(self.unrecovered_scores, self.boosted_log_capacity, log_rates)), dtype=np.float64
        )

    def recovery_s(self, log_rates: Floats) -> Floats:
        """How long a recovery takes: rows x the shape of the rates."""
        return np.asarray(np.exp(self._at(self.log_recovery, self.boosted_log_capacity, log_rates)), dtype=np.float64)

    def _at(self, table: Floats, log_capacity: Floats, log_rates: Floats) -> Floats:
        shape = (-1,) + (1,) * log_rates.ndim
        place = (log_rates[np.newaxis, ...] - log_capacity.reshape(shape) - _LOADS[0]) / (_LOADS[1] - _LOADS[0])
        place = np.clip(place, 0.0, len(_LOADS) - 1 - 1e-9)
        below = place.astype(np.int64)
        share = place - below
        rows = np.arange(len(table)).reshape(shape)
        return np.asarray((1.0 - share) * table[rows, below] + share * table[rows, below + 1], dtype=np.float64)


def odds(
    model: JobModel,
    candidates: Candidates,
    *,
    promises: Promises,
    prices: Prices,
    rate_per_s: float,
    rate_log_sd: float,
    slower: float = 1.0,
    widening: float = 1.0,
    unproven: npt.NDArray[np.bool_],
    joins_live: bool,
    lag_s: float,
    unseen_s: float,
    in_use: CpuInUse | None = None,
) -> Odds:
    """Reckon what the rows would do.

    rate_per_s: the load by which memory is reckoned.
    rate_log_sd: by how much (of its logarithm) a rate may differ from what is planned for before anything can be done.
    slower: what is left of every capacity that the model knows, where the job has just become slower (or faster).
    widening: by how much less sure latencies are than the model says.
    unproven: rows whose executors are of a kind that never ran.
    joins_live, lag_s: whether executors can join without a gap, and how long after a failure they would.
    unseen_s: how long a failure goes on before it shows.
    in_use: what the job takes of the CPU at this rate; None: nobody knows.
    """
    known = model.capacity_at(candidates, rate_per_s)
    spread = np.hypot(known.log_sd, rate_log_sd)
    doubt = (known.log_sd - known.log_sd.min()) + np.where(unproven, _UNPROVEN, 0.0)
    log_capacity = known.log_mean + np.log(slower) - doubt
    if in_use is not None:
        log_capacity = np.minimum(log_capacity, _log_most(candidates, in_use, rate_per_s))
    capacity = Belief(log_capacity, spread)
    boosted = _boosted(candidates, capacity) if joins_live else capacity
    log_latency, latency_log_sd = model.latency_by_load(candidates, _LOADS, capacity.log_sd)
    latency_log_sd = widening * latency_log_sd
    late_scores = _late(log_latency, latency_log_sd, capacity, promises)
    unrecovered_scores, log_recovery = _unrecovered(
        model, candidates, boosted, promises, lag_s=unseen_s + (lag_s if joins_live else 0.0)
    )
    return Odds(
        candidates=candidates,
        cost_per_s=cost_per_hour(candidates, prices, Standing()) / _HOUR_S,
        log_capacity=capacity.log_mean,
        boosted_log_capacity=boosted.log_mean,
        # Near saturation beliefs get wider, which would make more load look safer.
        late_scores=np.maximum.accumulate(late_scores, axis=1),
        log_latency=log_latency,
        latency_log_sd=latency_log_sd,
        unrecovered_scores=np.maximum.accumulate(unrecovered_scores, axis=1),
        log_recovery=log_recovery,
        out_of_memory=model.memory.out_of_memory_probability(candidates, rate_per_s),
        unproven=unproven,
    )


def _log_most(candidates: Candidates, in_use: CpuInUse, rate_per_s: float) -> Floats:
    """The most that rows can process whose cores are too few for what is in use now; endless for all others.

    However little each record takes: what a batch costs before its first one has to be worked off as well.
    """
    share = in_use.cores / candidates.total_cores
    # Whether those that it has are enough, it shows itself: it may use all of them only to catch up.
    fewer = candidates.total_cores < in_use.given
    too_few = fewer & (share > _CPU_FULL) & (candidates.commit_interval_s <= in_use.commit_interval_s)
    return np.asarray(np.where(too_few, np.log(rate_per_s) - np.log(share), np.inf), dtype=np.float64)


def _boosted(candidates: Candidates, capacity: Belief) -> Belief:
    """The capacity of the most executors of each row's kind."""
    kinds = candidates.kind_numbers
    order = np.lexsort((candidates.executors, kinds))
    last = np.zeros(kinds.max() + 1, dtype=np.int64)
    last[kinds[order]] = order
    return capacity.at(last[kinds])


def _late(log_latency: Floats, log_sd: Floats, capacity: Belief, promises: Promises) -> Floats:
    if promises.latency_p95_s is None:
        # Nothing is promised but that the job gets its work done.
        return np.asarray(_LOADS[np.newaxis, :] / np.maximum(capacity.log_sd, 1e-9)[:, np.newaxis], dtype=np.float64)
    return np.asarray((log_latency - np.log(promises.latency_p95_s)) / log_sd, dtype=np.float64)


def _unrecovered(
    model: JobModel,
    candidates: Candidates,
    capacity: Belief,
    promises: Promises,
    *,
    lag_s: float,
) -> tuple[Floats, Floats]:
    """By interval and spread, which is all that a recovery depends on besides the utilisation."""
    intervals, interval_of = np.unique(candidates.commit_interval_s, return_inverse=True)
    spread_of = np.abs(np.log(capacity.log_sd)[:, np.newaxis] - np.log(_SPREADS)).argmin(axis=1)
    combinations, row_of = np.unique(np.column_stack((interval_of.reshape(-1), spread_of)), axis=0, return_inverse=True)
    cases = [Case(float(intervals[interval]), _SPREADS[spread]) for interval, spread in combinations]
    belief = model.recovery.by_load(cases, _LOADS_OF_RECOVERIES)
    shape = (len(combinations), len(_LOADS))
    took_log = np.log(belief.mean.reshape(shape) + lag_s)
    scores = np.full(shape, _NEVER)
    if promises.recovery_s is not None:
        kept = belief.probability_at_most(max(1.0, promises.recovery_s - lag_s)).reshape(shape)
        scores = np.clip(-ndtri(kept), _NEVER, -_NEVER)
    place = row_of.reshape(-1)
    return scores[place], took_log[place]
