"""All that is known of one job: capacity, latency, recovery, memory and gaps, learnt online, asked all at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from tidewise.core import (
    ChangeCost,
    ChangeOutcome,
    Configuration,
    Estimate,
    Forecast,
    Measured,
    Mechanism,
    NotReadyError,
    Observation,
    Prices,
    ProfileMeasurement,
)
from tidewise.core.checks import require, require_finite, require_text
from tidewise.host.threads import on_one_thread
from tidewise.qos.belief import Belief
from tidewise.qos.candidates import Candidates, Floats
from tidewise.qos.capacity import Capacity
from tidewise.qos.catch_up import steady
from tidewise.qos.cost import Standing, cost_per_hour
from tidewise.qos.evidence import Evidence, Stretches, of_profile
from tidewise.qos.gaps import GapModel
from tidewise.qos.latency import Latencies, Latency
from tidewise.qos.memory import Memory
from tidewise.qos.monotone import decreasing
from tidewise.qos.outages import RESOLUTION_S
from tidewise.qos.physics import Physics
from tidewise.qos.recovery import RecoveryModel
from tidewise.qos.saved import FORMAT, check_format, damage_told

_HIGH = 0.9
"""The level of a forecast from which the spread of the load is read."""
_HIGH_SDS = 1.2816
_LEAST_RATE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What every candidate would do, one row each."""

    latency_p50: Belief
    latency_p95: Belief
    latency_p99: Belief
    """Seconds, of one window of a report in steady operation."""
    latency_noise: Floats
    """How much of the spread of `latency_p95` stays however often it is measured: a standard deviation of the
    logarithm, of one window around what is usual."""
    recovery: Belief
    """Seconds, from the worst single failure at the worst moment."""
    recovery_noise: Floats
    """The same of `recovery`: of one failure around what is usual for its kind."""
    capacity: Belief
    """Records per second."""
    overload_probability: Floats
    """That the load is more than the capacity."""
    out_of_memory_probability: Floats
    cost_per_hour: Floats
    """In the currency of the prices, driver and controller included."""


class JobModel:
    """What is known of one job.

    The same calls give the same answers. Everything kept is bounded; `learn` takes microseconds, and fitting waits
    until something is asked.
    """

    def __init__(
        self,
        *,
        physics: Physics | None = None,
        changes: tuple[ChangeCost, ...],
        standing: Standing | None = None,
        program_version: str = "",
    ) -> None:
        """`changes`: the engine's mechanisms with what it says of them; `standing`: its driver and the controller."""
        self._physics = physics or Physics()
        self._standing = standing or Standing()
        self._version = program_version
        self.capacity = Capacity(self._physics)
        self.latency = Latency(self._physics)
        self.memory = Memory(self._physics)
        self.recovery = RecoveryModel(self._physics)
        self.gaps = GapModel(changes)
        self._stretches = Stretches(settle_s=self._physics.settle_s, shortest_s=self._physics.stretch_s)

    @property
    def program_version(self) -> str:
        """The version of the user's program that the models are about."""
        return self._version

    def use_version(self, program_version: str) -> None:
        """Go on with another version: what depends on the program is forgotten, the cluster's part held less firmly."""
        if program_version == self._version:
            return
        self._version = program_version
        self.capacity.forget()
        self.latency.forget()
        self.memory.forget()
        self.recovery.widen()
        self.gaps.widen()
        self._stretches = Stretches(settle_s=self._physics.settle_s, shortest_s=self._physics.stretch_s)

    def learn(self, observation: Observation, *, is_steady: bool = True, speed: float = 1.0) -> None:
        """Take one report in; those around starts, changes and failures are passed over.

        is_steady: whether nothing is known that the job still has to get over. What is late until then is no latency of
        steady work, though what it gets done still tells its capacity.
        speed: what is left of every capacity, where the job itself has become slower: what is known of them stays as it
        is without that.
        """
        evidence = self._stretches.add(observation)
        if evidence is not None:
            self._take(evidence if is_steady else replace(evidence, latencies=()), speed=speed)

    def learn_profile(self, measured: ProfileMeasurement, *, failure: str = "injected", speed: float = 1.0) -> None:
        """Take in what a copy showed; `failure`: the kind that was injected into it, where one was."""
        evidence = of_profile(measured)
        if evidence is not None:
            self._take(evidence, speed=speed)
        if measured.recovery_s is not None:
            self._recovered(
                failure,
                measured.recovery_s,
                configuration=measured.configuration,
                rate_per_s=measured.input_rate_per_s,
                just_before_commit=True,
                speed=speed,
            )

    def learn_recovery(
        self,
        kind: str,
        measured: Measured,
        *,
        configuration: Configuration,
        rate_per_s: float,
        resolution_s: float = RESOLUTION_S,
        speed: float = 1.0,
    ) -> None:
        """Take in how long the job took to get over a failure; `resolution_s`: to about how many seconds."""
        self._recovered(
            kind,
            measured,
            configuration=configuration,
            rate_per_s=rate_per_s,
            just_before_commit=False,
            resolution_s=resolution_s,
            speed=speed,
        )

    def learn_change(self, outcome: ChangeOutcome, mechanism: Mechanism) -> None:
        """Take in how a change ended."""
        self.gaps.learn(mechanism, outcome)

    def _recovered(
        self,
        kind: str,
        measured: Measured,
        *,
        configuration: Configuration,
        rate_per_s: float,
        just_before_commit: bool,
        resolution_s: float = RESOLUTION_S,
        speed: float,
    ) -> None:
        require_text("kind", kind)
        capacity = self.capacity_at(Candidates.listing([configuration]), rate_per_s)
        self.recovery.learn(
            kind,
            measured,
            configuration=configuration,
            rate_per_s=rate_per_s,
            capacity=Belief(capacity.log_mean + math.log(speed), capacity.log_sd),
            just_before_commit=just_before_commit,
            resolution_s=resolution_s,
        )

    def _take(self, evidence: Evidence, *, speed: float = 1.0) -> None:
        configuration, rate = evidence.configuration, evidence.rate_per_s
        share = evidence.memory_share
        if share is not None:
            self.memory.learn(configuration, rate, memory_share=share, state_mib=evidence.state_mib)
        if evidence.full_rate_per_s is not None:
            self._take_capacity(evidence, evidence.full_rate_per_s, speed)
        if evidence.keeps_up:
            for p50_s, p95_s, p99_s in evidence.latencies:
                self.latency.learn(
                    configuration, rate, p50_s=p50_s, p95_s=p95_s, p99_s=p99_s, busy_share=evidence.busy_share
                )

    def _take_capacity(self, evidence: Evidence, full_rate_per_s: float, speed: float) -> None:
        configuration = evidence.configuration
        if evidence.at_least:
            # What a slower job keeps up with, it keeps up with at its own speed.
            self.capacity.learn(configuration, full_rate_per_s, at_least=True)
        elif speed == 1.0 or self.capacity.shown(configuration) is None:
            # What memory pressure took away would be there with more memory.
            left = speed * math.exp(self._log_pressed(evidence.memory_share))
            self.capacity.learn(configuration, full_rate_per_s / left)

    def shown_by(self, observation: Observation, *, least: bool = False) -> tuple[float, float] | None:
        """Logarithm of the records per second that the configuration of a report has done itself, and its spread.

        With what memory pressure leaves of it now; None where it has hardly run.
        least: or the most that fewer of its executors have done.
        """
        shown = self.capacity.shown(observation.configuration, least=least)
        if shown is None:
            return None
        return shown[0] + self._log_pressed(observation.memory_share), shown[1]

    def _log_pressed(self, memory_share: float | None) -> float:
        """Logarithm of the share of its speed that memory pressure leaves to a job that reports this."""
        if memory_share is None or memory_share <= self._physics.knee_share:
            return 0.0
        return math.log(float(self._physics.speed(np.array([memory_share]))[0]))

    @on_one_thread
    def outlook(
        self,
        candidates: Candidates,
        *,
        prices: Prices,
        rate_per_s: float | None = None,
        forecast: Forecast | None = None,
    ) -> Outlook:
        """What every candidate would do at a rate, or under a forecast (at its peak, with the spread it tells)."""
        require((rate_per_s is None) != (forecast is None), "ask for a rate or for a forecast, one of them")
        load = forecast if forecast is not None else steady(rate_per_s or 0.0)
        rate, rate_log_sd = _peak(load)
        speed = self._speed_at(candidates, rate)
        capacity = self.capacity.predict(candidates, speed=speed)
        latencies = self._latencies(candidates, capacity, rate, rate_log_sd)
        # The spread is that without memory pressure: it must not depend on the rate, or more load could look safer.
        unpressed = self.capacity.predict(candidates)
        off = math.log(rate) - unpressed.log_mean - np.log(speed)
        sure = np.maximum(1e-9, np.hypot(unpressed.log_sd, rate_log_sd))
        recovery, recovery_noise = self.recovery.predict_with_noise(candidates, capacity, load)
        return Outlook(
            latency_p50=latencies.p50,
            latency_p95=latencies.p95,
            latency_p99=latencies.p99,
            latency_noise=latencies.noise,
            recovery=recovery,
            recovery_noise=recovery_noise,
            capacity=capacity,
            overload_probability=decreasing(candidates, ndtr(off / sure)),
            out_of_memory_probability=self.memory.out_of_memory_probability(candidates, rate),
            cost_per_hour=cost_per_hour(candidates, prices, self._standing),
        )

    def latency_p95_s(self, configuration: Configuration, rate_per_s: float) -> Estimate:
        """Latency in steady operation; NotReadyError before anything was learnt of this version of the program."""
        self._require_ready()
        require_finite("rate_per_s", rate_per_s, least=0.0)
        one = Candidates.listing([configuration])
        rate = max(_LEAST_RATE, rate_per_s)
        return self._latencies(one, self.capacity_at(one, rate), rate, 0.0).p95.estimate(0)

    def recovery_s(self, configuration: Configuration, forecast: Forecast) -> Estimate:
        """Recovery from the worst single failure; NotReadyError before anything was learnt of this version."""
        self._require_ready()
        one = Candidates.listing([configuration])
        capacity = self.capacity_at(one, _peak(forecast)[0])
        return self.recovery.predict(one, capacity, forecast).estimate(0)

    def _require_ready(self) -> None:
        if self.capacity.windows == 0:
            raise NotReadyError("nothing is known yet of what this job can process")

    @on_one_thread
    def capacity_at(self, candidates: Candidates, rate_per_s: float) -> Belief:
        """Records per second of each at full speed, with what memory leaves of it at this rate."""
        return self.capacity.predict(candidates, speed=self._speed_at(candidates, rate_per_s))

    def _speed_at(self, candidates: Candidates, rate_per_s: float) -> Floats:
        """The share of its speed that memory pressure leaves to each."""
        share = self.memory.predict(candidates, rate_per_s).median / candidates.memory_mib_per_executor
        return self._physics.speed(share)

    @on_one_thread
    def latency_by_load(self, candidates: Candidates, log_loads: Floats, log_load_sd: Floats) -> tuple[Floats, Floats]:
        """Rows x loads: mean and spread of the logarithm of the 95th percentile at utilisations, in logarithms too."""
        self.latency.refit(self.capacity)
        return self.latency.p95_by_load(candidates, log_loads, log_load_sd)

    def _latencies(self, candidates: Candidates, capacity: Belief, rate: float, rate_log_sd: float) -> Latencies:
        self.latency.refit(self.capacity)
        return self.latency.predict(
            candidates, math.log(rate) - capacity.log_mean, np.hypot(capacity.log_sd, rate_log_sd)
        )

    def save(self) -> dict[str, object]:
        """All that was learnt, as plain data; the windows of an unfinished stretch are left out."""
        return {
            "format": FORMAT,
            "program_version": self._version,
            "capacity": self.capacity.save(),
            "latency": self.latency.save(),
            "memory": self.memory.save(),
            "recovery": self.recovery.save(),
            "gaps": self.gaps.save(),
        }

    @classmethod
    def load(
        cls,
        saved: Mapping[str, object],
        *,
        physics: Physics | None = None,
        changes: tuple[ChangeCost, ...],
        standing: Standing | None = None,
    ) -> JobModel:
        """The model as it was saved; BadInputError for what another version has saved, or what is damaged."""
        check_format(saved)
        with damage_told():
            model = cls(
                physics=physics, changes=changes, standing=standing, program_version=str(saved["program_version"])
            )
            parts = {name: _mapping(saved[name]) for name in ("capacity", "latency", "memory", "recovery", "gaps")}
            model.capacity = Capacity.load(model._physics, parts["capacity"])
            model.latency = Latency.load(model._physics, parts["latency"])
            model.memory = Memory.load(model._physics, parts["memory"])
            model.recovery = RecoveryModel.load(model._physics, parts["recovery"])
            model.gaps = GapModel.load(changes, parts["gaps"])
        return model


def _mapping(part: object) -> Mapping[str, object]:
    if not isinstance(part, Mapping):
        raise TypeError(f"expected a mapping, not {part!r}")
    return part


def _peak(forecast: Forecast) -> tuple[float, float]:
    """The highest rate to come, and the spread of its logarithm."""
    middle = max(_LEAST_RATE, forecast.peak_per_s(within_s=math.inf))
    high = max(middle, forecast.peak_per_s(within_s=math.inf, level=_HIGH))
    return middle, math.log(high / middle) / _HIGH_SDS
