"""The first of the earlier systems that looks ahead: Phoebe, which sizes a job so that it recovers in time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import ClassVar

import numpy as np

from tidewise.core import (
    ConfigurationSpace,
    Decision,
    Evidence,
    Keep,
    Mechanism,
    Observation,
    Profile,
    ProfileMeasurement,
    Reason,
    Reconfigure,
    Situation,
    format_duration,
)
from tidewise.core.checks import require, require_finite
from tidewise.policies.boosting import Floats
from tidewise.policies.downtime import BrokenCopy, SeenDown, downtime_s
from tidewise.policies.executors_only import needs_executors
from tidewise.policies.healthy_latency import (
    HealthyLatency,
    LatencyModels,
    LatencySamples,
)
from tidewise.policies.load_ahead import LoadAhead
from tidewise.policies.replies import cooling_down, keep, move, not_now
from tidewise.policies.replies import executors as say
from tidewise.policies.throughput import Throughputs, profiled
from tidewise.qos.catch_up import Arrivals, Outage, recovery_s

_STEPS_IN_CAPACITY = 10.0
"""A step of load to profile, where none is given, is this part of what the largest number of executors can do."""
_REFITTED_AFTER = 30
"""After so many samples new reports change the model of the latency; a profile does so at once."""
_UNKNOWN_DOWNTIME_S = 100.0
"""What the original assumed, before any failure was measured."""
_USUAL_RECOVERY_S = 180.0
"""The original's limit, where nothing was promised."""
_NO_CAPACITY = 1e-6
"""A line may fall below nothing; this share of its highest point is as good as nothing."""


@dataclass(slots=True, kw_only=True)
class Phoebe:
    """Takes the fewest executors that would recover in time and keep a healthy latency, as Phoebe does.

    It profiles: at the beginning, and each time the load enters a step that has not been profiled, copies of the job
    with different numbers of executors run beside it on the same input, to settle for 300 s and be measured for 120 s.
    From these and from normal operation come three models. Capacity: a ridge regression on the executors. Latency:
    gradient boosting on executors and rate, and two clusters of the logarithms, of which the lower one is healthy.
    Recovery: the downtime and the catching up, where the backlog at restart is all that arrived since the last commit,
    T0 = backlog / capacity, T(i+1) = what arrives during T(i) / capacity, and what arrives comes from an ARIMA
    forecast. It then takes the fewest executors whose recovery is below the limit and whose latency is healthy at the
    largest rate of the next ten minutes; where there are none, the larger of the number that recovers soonest and the
    number with the best latency. One or two executors fewer are not worth a change, and after a change it rests. While
    a profile is on, or the models know too little, it keeps what runs. A change that the models ask for comes before a
    profile that is due, which is made while it rests: where profiles are refused, it goes on with what it knows.

    Where this differs from the original: its copies also read the input from the beginning to show their most, which
    engines do not offer here, so capacity is what was processed over the share of time in which a copy was busy. Its
    load rose in steps while it was profiled; here steps are profiled when the load first enters them. Its downtime was
    set by hand; here, unless it is given, the copies of a profile are broken once, and the downtime is what their
    recovery took less the catching up, copies that did not recover being lower bounds; stretches without processing in
    the reports are lower bounds too, as the time until a failure is noticed is not in them. Copies do not stop when
    their latency is bad. Its sum ends at a term below a second; here it goes on to its limit. Two clusters less than a
    factor of two apart count as one, which is healthy: the original was always shown a bad one. The original profiles a
    new load before it changes anything for it. The gradient boosting is this project's own (50 trees of depth 3, a rate
    of 0.2, splits at up to 31 places of a feature); the clusters are one cut of the logarithms of the latency, where
    the squared distances are least; of normal operation one mean is kept for every configuration and every tenth more
    of rate, not every report.

    Decide every 60 s to act as the original does.
    """

    name: ClassVar[str] = "phoebe"

    recovery_limit_s: float | None = None
    """The recovery time to stay below; none: as was promised, and 180 s where nothing was."""
    horizon_s: float = 600.0
    """The largest rate within this time counts."""
    cooldown_s: float = 600.0
    """How long it rests after a change, and after a profile before the next one."""
    least_step_down: int = 3
    """Fewer executors by less than this are no change."""
    profile_copies: int = 8
    """How many numbers of executors one profile measures: 2, 5, ... 23 of 1 to 24."""
    profile_settle_s: float = 300.0
    """How long a copy settles, and how long after a disturbance the job's own latency is not believed."""
    profile_measure_s: float = 120.0
    """How long a copy is measured."""
    profile_step_per_s: float | None = None
    """How far apart the loads are that are profiled, 20,000/s in the original. None: a tenth of the most that the
    largest number of executors can do by the first profile."""
    give_up_after_s: float = 360.0
    """When a copy that was broken and has not recovered is given up."""
    downtime_s: float | None = None
    """From a failure until the job works again, 80 to 120 s in the original. None: it is measured."""
    sample_s: float = 60.0
    """The load is forecast from means over this time, and told from what was profiled by the last of them;
    less on a compressed day, but no less than a report."""
    ridge: float = 1.0
    """What the regression of capacity adds to the squared distances of the executors from their mean."""
    mechanism: Mechanism | None = None
    """How to change the executors; none leaves it to the engine."""

    _load: LoadAhead = field(init=False, repr=False, compare=False)
    _throughputs: Throughputs = field(init=False, repr=False, compare=False, default_factory=Throughputs)
    _samples: LatencySamples = field(init=False, repr=False, compare=False, default_factory=LatencySamples)
    _models: LatencyModels = field(init=False, repr=False, compare=False, default_factory=LatencyModels)
    _down: SeenDown = field(init=False, repr=False, compare=False, default_factory=SeenDown)

    def __post_init__(self) -> None:
        if self.recovery_limit_s is not None:
            require_finite("recovery_limit", self.recovery_limit_s, above=0.0)
        require_finite("horizon", self.horizon_s, above=0.0)
        require_finite("cooldown", self.cooldown_s, least=0.0)
        require(self.least_step_down >= 1, f"least_step_down must be at least 1, not {self.least_step_down}")
        require(self.profile_copies >= 2, f"profile_copies must be at least 2, not {self.profile_copies}")
        require_finite("profile_settle", self.profile_settle_s, least=0.0)
        require_finite("profile_measure", self.profile_measure_s, above=0.0)
        if self.profile_step_per_s is not None:
            require_finite("profile_step_per_s", self.profile_step_per_s, above=0.0)
        require_finite("give_up_after", self.give_up_after_s, above=0.0)
        if self.downtime_s is not None:
            require_finite("downtime", self.downtime_s, least=0.0)
        require_finite("sample", self.sample_s, above=0.0)
        require_finite("ridge", self.ridge, above=0.0)
        self._load = LoadAhead(sample_s=self.sample_s)

    @property
    def history_s(self) -> float:
        return self.sample_s

    def requires(self, space: ConfigurationSpace) -> str | None:
        """What the space lacks for this policy, in a sentence; None where nothing is missing."""
        return needs_executors(self.name, space)

    def learn(self, observation: Observation) -> None:
        self._load.learn(observation)
        self._throughputs.learn(observation)
        self._samples.learn(observation, settle_s=self.profile_settle_s, copy_every_s=_REFITTED_AFTER * self.sample_s)
        self._down.learn(observation)

    def decide(self, situation: Situation) -> Decision:
        waiting = not_now(situation) or _profile_is_on(situation) or _outside(situation)
        if waiting is not None:
            return waiting
        copies = profiled(situation.intended, situation.profiles)
        wanted = cooling_down(situation, self.cooldown_s) or self._resize(situation, copies)
        # A change comes first: a profile that the guards refuse would otherwise be asked for instead for ever.
        if isinstance(wanted, Reconfigure):
            return wanted
        return self._profile(situation, copies) or wanted

    def _resize(self, situation: Situation, copies: Sequence[ProfileMeasurement]) -> Decision:
        capacities = self._throughputs.by_executors(situation.intended, copies, measured_s=self.profile_measure_s)
        latency = self._models.of(
            situation.intended,
            copies,
            self._samples.taken,
            # A copy whose output did not come in time has a latency of that time at least.
            late_s=self.profile_settle_s + self.profile_measure_s,
        )
        if len(capacities) < 2 or latency is None:
            return keep("learning", "Too little is known yet of what other numbers of executors would do.")
        path = self._load.path_per_s(self.horizon_s)
        if path is None:
            return keep("no-forecast", "Too little is known of the load to say how it goes on.")
        down_s = self._downtime_s(copies, capacities)
        return self._choose(situation, self._options(situation, path, down_s, capacities, latency))

    # Profiling.

    def _profile(self, situation: Situation, copies: Sequence[ProfileMeasurement]) -> Profile | None:
        """The profile of a step of load that has none."""
        rate, known = self._recent_rate_per_s(situation), situation.profiles
        # Without any load a profile shows nothing; and where one has just shown nothing, the next will not either.
        if rate <= 0.0 or (known and situation.now_s - known[-1].finished_at_s < self.cooldown_s):
            return None
        told = [copy.input_rate_per_s for copy in copies if copy.input_rate_per_s > 0.0]
        step = self._step_per_s(situation) if told else None
        if step is None:
            why = "No profile tells yet what other numbers of executors would do"
        elif any(_same_step(told_per_s, rate, step) for told_per_s in told):
            return None
        else:
            why = f"No profile was made near this load, in steps of {step:.4g}/s"
        counts = _spread(situation.space.executors, self.profile_copies)
        sentence = f"{why}: {len(counts)} copies are to be measured at about {rate:.4g}/s."
        return Profile(
            candidates=tuple(situation.intended.with_executors(count) for count in counts),
            reason=Reason(code="profile", sentence=sentence, evidence={"rate_per_s": rate, "step_per_s": step}),
            settle_s=self.profile_settle_s,
            measure_s=self.profile_measure_s,
            # One profile with failures is enough to tell the downtime.
            inject_failure=self.downtime_s is None and all(copy.recovery_s is None for copy in copies),
            recovery_limit_s=self.give_up_after_s,
        )

    def _recent_rate_per_s(self, situation: Situation) -> float:
        since_s = situation.latest.time_s - self.sample_s
        return mean(seen.load_per_s for seen in situation.history if seen.time_s > since_s)

    def _step_per_s(self, situation: Situation) -> float | None:
        """How far apart the loads to profile are; None where the first profile does not tell."""
        if self.profile_step_per_s is not None:
            return self.profile_step_per_s
        # By one profile alone, so that the steps stay where they are while the controller remembers it.
        for outcome in situation.profiles:
            copies = profiled(situation.intended, [outcome])
            known = Throughputs().by_executors(situation.intended, copies, measured_s=self.profile_measure_s)
            if len(known) >= 2:
                return float(self._capacity_line(known, situation.space.executors)[-1]) / _STEPS_IN_CAPACITY
        return None

    # The models.

    def _capacity_line(self, known: Mapping[int, float], executors: Sequence[int]) -> Floats:
        """Ridge regression of capacity on the executors."""
        counts, rates = np.array(list(known), dtype=np.float64), np.array(list(known.values()))
        apart = counts - counts.mean()
        slope = float(apart @ rates) / (float(apart @ apart) + self.ridge)
        line = rates.mean() + slope * (np.array(executors, dtype=np.float64) - counts.mean())
        return np.asarray(np.maximum(line, _NO_CAPACITY * float(rates.max())))

    def _downtime_s(self, copies: Sequence[ProfileMeasurement], known: Mapping[int, float]) -> float:
        if self.downtime_s is not None:
            return self.downtime_s
        line = self._capacity_line(known, [copy.configuration.executors for copy in copies])
        told = [
            BrokenCopy(
                took_s=copy.recovery_s,
                rate_per_s=copy.input_rate_per_s,
                capacity_per_s=capacity,
                commit_interval_s=copy.configuration.commit_interval_s,
            )
            for copy, capacity in zip(copies, line.tolist(), strict=True)
            if copy.recovery_s is not None
        ]
        measured_s = downtime_s(told, self._down.usual_s)
        return _UNKNOWN_DOWNTIME_S if measured_s is None else measured_s

    # The choice.

    def _options(
        self,
        situation: Situation,
        path: Sequence[float],
        down_s: float,
        known: Mapping[int, float],
        healthy: HealthyLatency,
    ) -> _Options:
        executors = situation.space.executors
        capacity = self._capacity_line(known, executors)
        recovery = recovery_s(
            Outage(down_s=down_s, piling_share=1.0, cold_share=0.0, slack_s=0.0),
            Arrivals(np.array(path), self._load.step_s),
            capacity_per_s=capacity,
            interval_s=np.full(len(executors), situation.intended.commit_interval_s),
            phase=1.0,
            overhead_s=0.0,
        )
        peak = max(path)
        return _Options(
            executors=executors,
            capacity_per_s=capacity,
            recovery_s=recovery,
            latency_s=healthy.latency_s(executors, peak),
            latency_limit_s=healthy.limit_s,
            recovery_limit_s=self.recovery_limit_s or situation.promises.recovery_s or _USUAL_RECOVERY_S,
            peak_per_s=peak,
            downtime_s=down_s,
        )

    def _choose(self, situation: Situation, options: _Options) -> Decision:
        current = situation.intended.executors
        row, kept = options.best()
        wanted = options.executors[row]
        within = format_duration(self.horizon_s)
        limit = format_duration(options.recovery_limit_s)
        sentence = f"At up to {options.peak_per_s:.4g}/s within {within}, {say(wanted)}"
        recovers = f"recovery in {options.recovery_s[row]:.0f} s, latency {options.latency_s[row]:.3g} s"
        if kept:
            sentence += f" are the fewest that recover within {limit} at a healthy latency ({recovers})"
        else:
            sentence += f" come nearest to recovering within {limit} at a healthy latency ({recovers})"
        evidence = options.evidence(row)
        if 0 < current - wanted < self.least_step_down:
            return keep("near-enough", f"{sentence}; {current} are not worth a change.", evidence)
        target = situation.intended.with_executors(wanted)
        code = "scale-up" if wanted > current else "scale-down"
        return move(situation, target, mechanism=self.mechanism, code=code, sentence=f"{sentence}.", evidence=evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Every number of executors of the space, and what the models say of it."""

    executors: tuple[int, ...]
    capacity_per_s: Floats
    recovery_s: Floats
    latency_s: Floats
    latency_limit_s: float
    recovery_limit_s: float
    peak_per_s: float
    downtime_s: float

    def best(self) -> tuple[int, bool]:
        """The row to take, and whether it is one that is good in both respects."""
        good = (self.recovery_s < self.recovery_limit_s) & (self.latency_s <= self.latency_limit_s)
        if good.any():
            return int(np.argmax(good)), True
        # Where none ever recovers, the one with the highest capacity is nearest to it.
        recovers = int(np.lexsort((-self.capacity_per_s, self.recovery_s))[0])
        return max(recovers, int(np.argmin(self.latency_s))), False

    def evidence(self, row: int) -> Evidence:
        return {
            "peak_per_s": self.peak_per_s,
            "asked_for": self.executors[row],
            "capacity_per_s": float(self.capacity_per_s[row]),
            "recovery_s": float(self.recovery_s[row]),
            "recovery_limit_s": self.recovery_limit_s,
            "latency_p95_s": float(self.latency_s[row]),
            "latency_limit_s": self.latency_limit_s if math.isfinite(self.latency_limit_s) else None,
            "downtime_s": self.downtime_s,
        }


def _profile_is_on(situation: Situation) -> Keep | None:
    on = situation.profile_on
    return None if on is None else keep("profile-is-on", f"The profile {on.request_id} is on: what runs stays.")


def _outside(situation: Situation) -> Keep | None:
    if situation.intended.with_executors(situation.space.executors[0]) in situation.space:
        return None
    return keep("outside-space", f"{situation.intended} is not of the job's space, and only executors change.")


def _same_step(measured_per_s: float, rate_per_s: float, step_per_s: float) -> bool:
    """Whether a profile at one rate speaks for the other: in one step, or near.

    Without the second, a load that lies between two steps might have both profiled over and over.
    """
    in_one = math.floor(measured_per_s / step_per_s) == math.floor(rate_per_s / step_per_s)
    return in_one or abs(measured_per_s - rate_per_s) < step_per_s / 2.0


def _spread(counts: Sequence[int], copies: int) -> tuple[int, ...]:
    """So many numbers of executors, evenly over all but the smallest and the largest: 2, 5, ... 23 of 1 to 24."""
    if len(counts) <= copies:
        return tuple(counts)
    return tuple(counts[round(place)] for place in np.linspace(1, len(counts) - 2, copies).tolist())
