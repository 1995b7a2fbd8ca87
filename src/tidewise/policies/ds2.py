"""The strongest rule-based opponent: DS2 in the form in which the Flink operator runs it in production."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tidewise.core import (
    ConfigurationSpace,
    Decision,
    Evidence,
    Keep,
    Mechanism,
    Observation,
    Situation,
    format_duration,
)
from tidewise.core.checks import require, require_finite
from tidewise.policies.executors_only import needs_executors
from tidewise.policies.record import Record
from tidewise.policies.replies import executors as say
from tidewise.policies.replies import keep, move, not_now, percent

_ROUNDING = 1e-9
_MORE_THAN_ANY = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ds2:
    """Computes the executors from the true processing rate, as DS2 does in the Flink operator.

    Over the metric window, the true rate is what was processed over the share of time in which the job was busy. The
    capacity needed is

        lag / catch-up + rate x restart / catch-up + rate / target utilisation

    and the executors needed are those that ran x capacity / true rate, to be compared with those that are meant to run:
    an executor that is being replaced is not asked for again. It acts only where the true rate lies outside the band:
    below the capacity needed at target + boundary (without the share for a restart), or above the one needed at
    target - boundary. After a change, a failure or the start it waits for the stabilisation, then for a full metric
    window. Scaling down waits for `scale_down_interval_s` and takes the largest number asked for in it; one step down
    takes away at most `max_scale_down_share`. A scale-up that brought less than a tenth of the expected gain is not
    repeated until it has been forgotten. All of it is computed from the history at every decision.

    Where this differs from the original: the job is one operator with one source (per-operator decisions come with
    stage metrics); the rate that arrives is reported here, whereas the operator has to rebuild it as records read plus
    growth of the lag (adding the growth to what arrives would count it twice); the expected gain is taken as
    proportional to the executors; ineffective scale-ups block the next one, which the operator does only if told to.

    The defaults are the operator's. `Ds2.as_in_demeter()` gives the settings of Demeter's baseline.
    """

    name: ClassVar[str] = "ds2"

    target_utilisation: float = 0.7
    """Share of the true rate to be used by what arrives."""
    utilisation_boundary: float = 0.3
    """How far the utilisation may be from its target before anything is done."""
    metric_window_s: float = 900.0
    """Over how long rates are averaged."""
    stabilisation_s: float = 300.0
    """How long reports are not believed after a change, a failure or the start."""
    catch_up_s: float = 1800.0
    """In what time a backlog has to be worked off; 0 leaves backlogs and restarts out of the sum."""
    restart_s: float = 300.0
    """How long a change is expected to interrupt the job."""
    scale_down_interval_s: float = 3600.0
    """How long fewer executors have to be enough before any is taken away."""
    max_scale_down_share: float = 0.6
    """The largest share of the executors to take away in one step."""
    effective_gain_share: float = 0.1
    """A scale-up that gained less than this share of what was expected is ineffective."""
    ineffective_memory_s: float = 3600.0
    """How long an ineffective scale-up is held against the next one."""
    evaluation_period_s: float = 60.0
    """How far the earlier recommendations that count for scaling down are apart."""
    mechanism: Mechanism | None = None
    """How to change the executors; none leaves it to the engine."""

    def __post_init__(self) -> None:
        require(
            0.0 < self.target_utilisation <= 1.0,
            f"target_utilisation must be above 0 and at most 1, not {self.target_utilisation:g}",
        )
        require_finite("utilisation_boundary", self.utilisation_boundary, least=0.0)
        require_finite("metric_window", self.metric_window_s, above=0.0)
        require_finite("stabilisation", self.stabilisation_s, least=0.0)
        require_finite("catch_up", self.catch_up_s, least=0.0)
        require_finite("restart", self.restart_s, least=0.0)
        require_finite("scale_down_interval", self.scale_down_interval_s, least=0.0)
        require(
            0.0 < self.max_scale_down_share <= 1.0,
            f"max_scale_down_share must be above 0 and at most 1, not {self.max_scale_down_share:g}",
        )
        require_finite("effective_gain_share", self.effective_gain_share, least=0.0)
        require_finite("ineffective_memory", self.ineffective_memory_s, least=0.0)
        require_finite("evaluation_period", self.evaluation_period_s, above=0.0)

    @classmethod
    def as_in_demeter(cls, *, mechanism: Mechanism | None = None) -> Ds2:
        """The settings of Demeter's baseline (its limit of 24 workers belongs to the space)."""
        return cls(
            target_utilisation=0.35,
            utilisation_boundary=0.15,
            metric_window_s=60.0,
            stabilisation_s=120.0,
            catch_up_s=300.0,
            restart_s=60.0,
            mechanism=mechanism,
        )

    @property
    def history_s(self) -> float:
        # The window before a change has to be there for as long as the change is remembered.
        memory_s = max(self.scale_down_interval_s, self.ineffective_memory_s)
        return memory_s + self.stabilisation_s + 2 * self.metric_window_s

    def requires(self, space: ConfigurationSpace) -> str | None:
        """What the space lacks for this policy, in a sentence; None where nothing is missing."""
        return needs_executors(self.name, space)

    def learn(self, observation: Observation) -> None:
        """Nothing to learn: everything is in the history."""

    def decide(self, situation: Situation) -> Decision:
        waiting = not_now(situation)
        if waiting is not None:
            return waiting
        record = Record(situation.history, changed_at_s=situation.last_change_finished_at_s)
        now_s, running = situation.now_s, situation.observed.executors
        settled_s = record.settled_for_s(now_s) - self.stabilisation_s
        if settled_s < self.metric_window_s:
            return self._unsettled(settled_s)
        needs = self._needs(record, now_s, running)
        if needs is None:
            window = format_duration(self.metric_window_s)
            return keep("no-metrics", f"The reports of the last {window} do not tell how busy the job was.")
        if needs.up_at_per_s <= needs.true_rate_per_s <= needs.down_at_per_s:
            return keep(
                "within-band",
                f"{needs.facts} is within the band: {say(situation.intended.executors)} stay.",
                needs.evidence,
            )
        return self._outside_band(situation, record, needs)

    def _outside_band(self, situation: Situation, record: Record, needs: _Needs) -> Decision:
        current = situation.intended.executors
        if needs.executors > current:
            return self._scale_up(situation, record, needs)
        if needs.executors < current:
            return self._scale_down(situation, record, needs)
        return keep("already-there", f"{needs.facts} asks for the {say(current)} that are there.", needs.evidence)

    def _unsettled(self, settled_s: float) -> Keep:
        if settled_s < 0.0:
            left = format_duration(-settled_s)
            return keep("stabilising", f"The job has changed, failed or started a short time ago: {left} to settle.")
        left = format_duration(self.metric_window_s - settled_s)
        return keep("collecting", f"The metric window is not full since the job settled: {left} to go.")

    def _needs(self, record: Record, at_s: float, running: int) -> _Needs | None:
        """What the window before this time asks for; None where it does not tell, or not about this many executors."""
        if record.settled_for_s(at_s) < self.stabilisation_s + self.metric_window_s:
            return None
        means = record.means(at_s - self.metric_window_s, at_s)
        if means is None or means.executors != running:
            return None
        lag = means.backlog_records
        rate = means.input_rate_per_s
        lag_per_s = lag / self.catch_up_s if self.catch_up_s > 0.0 else 0.0
        restart_per_s = rate * self.restart_s / self.catch_up_s if self.catch_up_s > 0.0 else 0.0
        capacity = lag_per_s + restart_per_s + rate / self.target_utilisation
        if capacity == 0.0:
            true_rate, share = math.inf, 0.0  # nothing to do, and nothing to do it with is enough
        elif means.true_rate_per_s is None:
            return None
        else:
            true_rate = means.true_rate_per_s
            # A job that hardly moves asks for more than there is of anything.
            share = min(capacity / true_rate, _MORE_THAN_ANY)
        upper = min(1.0, self.target_utilisation + self.utilisation_boundary)
        lower = max(0.0, self.target_utilisation - self.utilisation_boundary)
        share = max(share, 1.0 - self.max_scale_down_share)
        return _Needs(
            rate_per_s=rate,
            lag_records=lag,
            true_rate_per_s=true_rate,
            capacity_per_s=capacity,
            up_at_per_s=lag_per_s + rate / upper,
            # Rounding may leave a trifle where the band reaches down to 0.
            down_at_per_s=lag_per_s + restart_per_s + rate / lower if lower > _ROUNDING else math.inf,
            # Less a trifle: 2.0000000000000004 must not ask for one more.
            executors=max(1, math.ceil(running * share - _ROUNDING)),
        )

    def _scale_up(self, situation: Situation, record: Record, needs: _Needs) -> Decision:
        current, running = situation.intended.executors, situation.observed.executors
        sentence = f"{needs.facts} asks for {say(needs.executors)} instead of {current}"
        target = situation.space.with_at_least(situation.intended, needs.executors)
        if target == situation.intended:
            return keep("at-limit", f"{sentence}, but the space offers no more.", needs.evidence)
        before = record.before_current(self.metric_window_s)
        if before is not None and before.true_rate_per_s is not None and before.executors < running:
            expected = before.true_rate_per_s * (running / before.executors - 1.0)
            gained = needs.true_rate_per_s - before.true_rate_per_s
            if gained < self.effective_gain_share * expected:
                evidence = {**needs.evidence, "expected_gain_per_s": expected, "gain_per_s": gained}
                return keep(
                    "scale-up-ineffective",
                    f"{sentence}, but the last step from {before.executors} to {running} changed the true rate by "
                    f"{gained:+.4g}/s where {expected:+.4g}/s was expected: more would not help.",
                    evidence,
                )
        if target.executors != needs.executors:
            sentence += f"; the space offers {target.executors}"
        return move(
            situation,
            target,
            mechanism=self.mechanism,
            code="scale-up" if target.executors > current else "scale-down",
            sentence=f"{sentence}.",
            evidence=needs.evidence,
        )

    def _scale_down(self, situation: Situation, record: Record, needs: _Needs) -> Decision:
        current, now_s = situation.intended.executors, situation.now_s
        sentence = f"{needs.facts} asks for {say(needs.executors)} instead of {current}"
        interval = format_duration(self.scale_down_interval_s)
        largest, waited_s = needs.executors, 0.0
        for step in range(1, math.ceil(self.scale_down_interval_s / self.evaluation_period_s) + 1):
            age_s = min(step * self.evaluation_period_s, self.scale_down_interval_s)
            earlier = self._needs(record, now_s - age_s, situation.observed.executors)
            if earlier is None:
                continue
            if earlier.executors >= current:
                break
            largest, waited_s = max(largest, earlier.executors), age_s
        # The oldest moment may lack a metric; the one after it will do.
        if waited_s < self.scale_down_interval_s - self.evaluation_period_s:
            waited = f"that has been so for {format_duration(waited_s)} of the {interval} it has to last"
            evidence = {**needs.evidence, "waited_s": waited_s}
            return keep("scale-down-waits", f"{sentence}; {waited}.", evidence)
        target = situation.space.with_at_least(situation.intended, largest)
        if largest != needs.executors:
            sentence += f", and for up to {largest} over the last {interval}"
        if target == situation.intended:
            return keep("at-limit", f"{sentence}, but the space offers nothing nearer.", needs.evidence)
        if target.executors != largest:
            sentence += f"; the space offers {target.executors}"
        return move(
            situation,
            target,
            mechanism=self.mechanism,
            code="scale-down",
            sentence=f"{sentence}.",
            evidence={**needs.evidence, "largest_in_interval": largest},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """What one metric window asks for."""

    rate_per_s: float
    lag_records: float
    true_rate_per_s: float
    """Infinite where nothing arrives and nothing waits."""
    capacity_per_s: float
    up_at_per_s: float
    """A true rate below this is too little."""
    down_at_per_s: float
    """A true rate above this is too much."""
    executors: int

    @property
    def facts(self) -> str:
        if not math.isfinite(self.true_rate_per_s):
            return "An idle job without backlog"
        utilisation = percent(min(self.rate_per_s / self.true_rate_per_s, _MORE_THAN_ANY))
        return (
            f"A true rate of {self.true_rate_per_s:.4g}/s, used to {utilisation}, "
            f"against a needed {self.capacity_per_s:.4g}/s"
        )

    @property
    def evidence(self) -> Evidence:
        return {
            "rate_per_s": self.rate_per_s,
            "lag_records": self.lag_records,
            "true_rate_per_s": self.true_rate_per_s if math.isfinite(self.true_rate_per_s) else None,
            "needed_per_s": self.capacity_per_s,
            "scale_up_below_per_s": self.up_at_per_s,
            "scale_down_above_per_s": self.down_at_per_s if math.isfinite(self.down_at_per_s) else None,
            "asked_for": self.executors,
        }
