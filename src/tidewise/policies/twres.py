"""The baseline of Phoebe that looks ahead but not at recovery: TWRES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import nnls

from tidewise.core import (
    ConfigurationSpace,
    Decision,
    Evidence,
    Mechanism,
    Observation,
    Situation,
    format_duration,
)
from tidewise.core.checks import require_finite
from tidewise.policies.boosting import Floats
from tidewise.policies.executors_only import needs_executors
from tidewise.policies.load_ahead import LoadAhead
from tidewise.policies.replies import cooling_down, keep, move, not_now
from tidewise.policies.replies import executors as say
from tidewise.policies.throughput import Throughputs, profiled

_PROFILE_WEIGHS_S = 60.0
"""What a profile that somebody made weighs beside normal operation."""


@dataclass(slots=True, kw_only=True)
class Twres:
    """Takes the fewest executors whose capacity covers the load forecast for the next ten minutes, as TWRES does.

    Capacity by the number of executors x is a non-negative least squares fit on [1, x, 1/x, 1/x^2] to what was
    processed over the share of time in which the job was busy. The fewest executors are taken whose capacity over the
    horizon is no less than the sum of an ARIMA forecast over it, and one more than that while the latency is above its
    limit. After a change it rests.

    Where this differs from the original: it learnt from the same profiles as Phoebe, and here from normal operation,
    and from profiles if there are any. So it begins with one number of executors, from which capacity is taken as
    proportional; and below the fewest executors that it has seen run it believes in no more than proportional
    capacity, where a fit to two neighbouring numbers may say anything.

    Decide every 60 s to act as the original does.
    """

    name: ClassVar[str] = "twres"

    horizon_s: float = 600.0
    """Over how long capacity has to cover the load."""
    cooldown_s: float = 600.0
    """How long it rests after a change."""
    latency_limit_s: float = 2.0
    """Above this latency (95 %, over the last minute) one executor more is taken."""
    latency_window_s: float = 60.0
    """Over how long the latency is averaged."""
    sample_s: float = 60.0
    """The load is forecast from means over this time; less on a compressed day, but no less than a report."""
    mechanism: Mechanism | None = None
    """How to change the executors; none leaves it to the engine."""

    _load: LoadAhead = field(init=False, repr=False, compare=False)
    _throughputs: Throughputs = field(init=False, repr=False, compare=False, default_factory=Throughputs)

    def __post_init__(self) -> None:
        require_finite("horizon", self.horizon_s, above=0.0)
        require_finite("cooldown", self.cooldown_s, least=0.0)
        require_finite("latency_limit", self.latency_limit_s, above=0.0)
        require_finite("latency_window", self.latency_window_s, above=0.0)
        require_finite("sample", self.sample_s, above=0.0)
        self._load = LoadAhead(sample_s=self.sample_s)

    @property
    def history_s(self) -> float:
        return self.latency_window_s

    def requires(self, space: ConfigurationSpace) -> str | None:
        """What the space lacks for this policy, in a sentence; None where nothing is missing."""
        return needs_executors(self.name, space)

    def learn(self, observation: Observation) -> None:
        self._load.learn(observation)
        self._throughputs.learn(observation)

    def decide(self, situation: Situation) -> Decision:
        waiting = not_now(situation) or cooling_down(situation, self.cooldown_s)
        if waiting is not None:
            return waiting
        copies = profiled(situation.intended, situation.profiles)
        known = self._throughputs.by_executors(situation.intended, copies, measured_s=_PROFILE_WEIGHS_S)
        if not known:
            return keep("no-metrics", "The reports do not tell yet how much the job can process.")
        path = self._load.path_per_s(self.horizon_s)
        if path is None:
            return keep("no-forecast", "Too little is known of the load to say how it goes on.")
        return self._choose(situation, known, sum(path) / len(path))

    def _choose(self, situation: Situation, known: Mapping[int, float], load_per_s: float) -> Decision:
        offered, current = situation.space.executors, situation.intended.executors
        capacity = capacities(known, offered)
        covers = capacity >= load_per_s
        row = int(np.argmax(covers)) if covers.any() else len(offered) - 1
        latency_s = self._latency_s(situation)
        is_late = latency_s is not None and latency_s > self.latency_limit_s
        within = format_duration(self.horizon_s)
        sentence = f"A load of {load_per_s:.4g}/s over the next {within}"
        if covers.any():
            sentence += f" is covered by {say(offered[row])} ({capacity[row]:.4g}/s)"
        else:
            sentence += f" is more than {say(offered[row])}, the most there are, can do ({capacity[row]:.4g}/s)"
        if is_late:
            row = min(row + 1, len(offered) - 1)
            sentence += f", and at a latency of {latency_s:.3g} s one more is taken"
        evidence: Evidence = {
            "load_per_s": load_per_s,
            "capacity_per_s": float(capacity[row]),
            "latency_p95_s": latency_s,
            "asked_for": offered[row],
            "known_counts": len(known),
        }
        target = situation.intended.with_executors(offered[row])
        code = "scale-up" if target.executors > current else "scale-down"
        return move(situation, target, mechanism=self.mechanism, code=code, sentence=f"{sentence}.", evidence=evidence)

    def _latency_s(self, situation: Situation) -> float | None:
        since_s = situation.now_s - self.latency_window_s
        told = [
            seen.latency_p95_s for seen in situation.history if seen.time_s > since_s and seen.latency_p95_s is not None
        ]
        return sum(told) / len(told) if told else None


def capacities(known: Mapping[int, float], executors: Sequence[int]) -> Floats:
    """What each of these numbers of executors can do by the numbers that are known, of which there is at least one."""
    wanted = np.array(executors, dtype=np.float64)
    fewest = min(known)
    proportional = known[fewest] / fewest * wanted
    if len(known) == 1:
        return proportional
    rates = np.array(list(known.values()))
    scale = float(rates.max())
    weights, _ = nnls(_terms(np.array(list(known), dtype=np.float64)), rates / scale)
    fit = scale * (_terms(wanted) @ weights)
    return np.where(wanted < fewest, np.minimum(fit, proportional), fit)


def _terms(executors: Floats) -> Floats:
    return np.column_stack([np.ones(len(executors)), executors, 1.0 / executors, 1.0 / executors**2])
