"""What a Kubernetes user reaches for first, as an opponent: the horizontal autoscaler on CPU."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tidewise.core import ConfigurationSpace, Decision, Evidence, Mechanism, Observation, Situation, format_duration
from tidewise.core.checks import require, require_finite
from tidewise.policies.executors_only import needs_executors
from tidewise.policies.replies import executors as say
from tidewise.policies.replies import keep, move, not_now, percent

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reactive:
    """Scales executors in proportion to CPU over its target, as Kubernetes' horizontal autoscaler does.

    Asks for ceil(executors x CPU / target), unless CPU is within the tolerance of its target. To scale down it takes
    the largest number asked for within the stabilisation window; the first report counts as a number asked for, so
    that a new controller does not scale down before it has seen a whole window. Then come the limits on the pace.
    Executors that are meant to run but are not in the reports, because they are new or being replaced, count as idle
    when scaling up and as fully used when scaling down, so that neither is overdone. Earlier recommendations are
    computed anew from the history at every decision: nothing is lost in a crash.

    The defaults are Kubernetes' own, but for the target: 35 % is what Demeter's authors gave this baseline, low enough
    for a job to catch up after a failure. Where the space has gaps, the next larger number of executors is taken, even
    where that passes a limit on the pace. Decide every 15 s to act as the original does.
    """

    name: ClassVar[str] = "reactive"

    target_cpu: float = 0.35
    """Share of the CPU given to the executors that should be in use."""
    tolerance: float = 0.1
    """How far CPU over target may be from 1 before anything is done."""
    metric_window_s: float = 15.0
    """The metrics server's interval: CPU is averaged over it, and known when it is complete."""
    sync_period_s: float = 15.0
    """How far the earlier recommendations that count are apart."""
    scale_up_stabilisation_s: float = 0.0
    """Scale up to no more than the smallest number asked for within this time."""
    scale_down_stabilisation_s: float = 300.0
    """Scale down to no less than the largest number asked for within this time."""
    scale_up_max_percent: float | None = 100.0
    """Grow by at most this share within a period; the larger of the two limits counts, none means no such limit."""
    scale_up_max_executors: int | None = 4
    """Grow by at most this many executors within a period; none means no such limit."""
    scale_up_period_s: float = 15.0
    """The period of the limits on growing."""
    scale_down_max_percent: float | None = 100.0
    """Shrink by at most this share within a period; the larger of the two limits counts, none means no such limit."""
    scale_down_max_executors: int | None = None
    """Shrink by at most this many executors within a period; none means no such limit."""
    scale_down_period_s: float = 15.0
    """The period of the limits on shrinking."""
    mechanism: Mechanism | None = None
    """How to change the executors; none leaves it to the engine."""

    def __post_init__(self) -> None:
        require(0.0 < self.target_cpu <= 1.0, f"target_cpu must be above 0 and at most 1, not {self.target_cpu:g}")
        require_finite("tolerance", self.tolerance, least=0.0)
        require_finite("metric_window", self.metric_window_s, above=0.0)
        require_finite("sync_period", self.sync_period_s, above=0.0)
        require_finite("scale_up_stabilisation", self.scale_up_stabilisation_s, least=0.0)
        require_finite("scale_down_stabilisation", self.scale_down_stabilisation_s, least=0.0)
        require_finite("scale_up_period", self.scale_up_period_s, above=0.0)
        require_finite("scale_down_period", self.scale_down_period_s, above=0.0)
        for direction in ("up", "down"):
            for name in (f"scale_{direction}_max_percent", f"scale_{direction}_max_executors"):
                limit = getattr(self, name)
                if limit is not None:
                    require_finite(name, limit, above=0.0)

    @property
    def history_s(self) -> float:
        stabilisation_s = max(self.scale_up_stabilisation_s, self.scale_down_stabilisation_s)
        return max(stabilisation_s + 2 * self.metric_window_s, self.scale_up_period_s, self.scale_down_period_s)

    def requires(self, space: ConfigurationSpace) -> str | None:
        """What the space lacks for this policy, in a sentence; None where nothing is missing."""
        return needs_executors(self.name, space)

    def learn(self, observation: Observation) -> None:
        """Nothing to learn: everything is in the history."""

    def decide(self, situation: Situation) -> Decision:
        waiting = not_now(situation)
        if waiting is not None:
            return waiting
        current = situation.intended.executors
        reports = _Reports(situation.history)
        cpu = reports.cpu(situation.now_s, self.metric_window_s)
        if cpu is None:
            return keep(
                "no-metrics",
                f"No report of the last {format_duration(self.metric_window_s)} tells the CPU in use.",
            )
        asked = self._asked_for(cpu.share, reporting=cpu.executors, present=current)
        stable = self._stabilised(situation, reports, asked)
        allowed = self._paced(situation, reports, stable)
        evidence: Evidence = {
            "cpu_share": cpu.share,
            "target_cpu": self.target_cpu,
            "executors": current,
            "asked_for": asked,
            "stabilised": stable,
            "allowed": allowed,
        }
        target = situation.space.with_at_least(situation.intended, allowed)
        where = "" if cpu.executors == current else f" on the {say(cpu.executors)} that report"
        facts = f"CPU at {percent(cpu.share)}{where} against a target of {percent(self.target_cpu)}"
        if target == situation.intended:
            return self._stay(facts, asked, stable, current, evidence)
        sentence = f"{facts} asks for {say(asked)} instead of {current}"
        if stable != asked:
            window_s = self.scale_up_stabilisation_s if asked > current else self.scale_down_stabilisation_s
            sentence += f", and for {stable} over the last {format_duration(window_s)}"
        if allowed != stable:
            sentence += f"; the pace allows {allowed}"
        if target.executors != allowed:
            sentence += f"; the space offers {target.executors}"
        code = "scale-up" if target.executors > current else "scale-down"
        return move(situation, target, mechanism=self.mechanism, code=code, sentence=f"{sentence}.", evidence=evidence)

    def _stay(self, facts: str, asked: int, stable: int, current: int, evidence: Evidence) -> Decision:
        if asked == current:
            return keep("within-tolerance", f"{facts} is near enough: {say(current)} stay.", evidence)
        wish = f"{facts} asks for {say(asked)} instead of {current}"
        if stable == current:
            window_s = self.scale_up_stabilisation_s if asked > current else self.scale_down_stabilisation_s
            waits = f"but not throughout the last {format_duration(window_s)}"
            return keep("stabilising", f"{wish}, {waits}: it stays.", evidence)
        return keep("at-limit", f"{wish}, but the space offers nothing nearer.", evidence)

    def _asked_for(self, cpu_share: float, *, reporting: int, present: int) -> int:
        """The number of executors that would bring CPU to its target."""
        silent = max(0, present - reporting)
        below = cpu_share < self.target_cpu
        # The silent ones count as fully used when scaling down and as idle when scaling up.
        used = cpu_share * reporting + (silent if below else 0)
        ratio = used / (present * self.target_cpu)
        if abs(ratio - 1.0) <= self.tolerance + _ROUNDING:
            return present
        if silent > 0 and below != (ratio < 1.0):
            return present
        # Less a trifle: 0.7 / 0.35 must not come out as 2.0000000000000004 and ask for one more.
        return max(1, math.ceil(used / self.target_cpu - _ROUNDING))

    def _stabilised(self, situation: Situation, reports: _Reports, asked: int) -> int:
        up, down = [asked], [asked]
        now_s, current = situation.now_s, situation.intended.executors
        reach_s = max(self.scale_up_stabilisation_s, self.scale_down_stabilisation_s)
        for step in range(1, int(reach_s / self.sync_period_s) + 1):
            age_s = step * self.sync_period_s
            cpu = reports.cpu(now_s - age_s, self.metric_window_s)
            if cpu is not None:
                earlier = self._asked_for(cpu.share, reporting=cpu.executors, present=cpu.executors)
                if age_s <= self.scale_up_stabilisation_s:
                    up.append(earlier)
                if age_s <= self.scale_down_stabilisation_s:
                    down.append(earlier)
        first = situation.history[0]
        for window_s, asked_in_it in ((self.scale_up_stabilisation_s, up), (self.scale_down_stabilisation_s, down)):
            if first.time_s - first.window_s > now_s - window_s:
                asked_in_it.append(first.configuration.executors)
        return min(max(current, min(up)), max(down))

    def _paced(self, situation: Situation, reports: _Reports, wanted: int) -> int:
        current = situation.intended.executors
        if wanted > current:
            start = reports.executors(situation.now_s - self.scale_up_period_s, otherwise=current)
            steps = _steps(start, self.scale_up_max_percent, self.scale_up_max_executors)
            return min(wanted, max(current, start + max(steps))) if steps else wanted
        start = reports.executors(situation.now_s - self.scale_down_period_s, otherwise=current)
        steps = _steps(start, self.scale_down_max_percent, self.scale_down_max_executors)
        return max(wanted, min(current, start - max(steps))) if steps else wanted


def _steps(start: int, max_percent: float | None, max_executors: int | None) -> list[int]:
    steps = [] if max_percent is None else [math.ceil(start * max_percent / 100.0)]
    return steps if max_executors is None else [*steps, max_executors]


@dataclass(frozen=True, slots=True)
class _Cpu:
    """CPU in use, and how many executors it was measured on."""

    share: float
    executors: int


class _Reports:
    """The history, looked up by time."""

    def __init__(self, history: Sequence[Observation]) -> None:
        self._history = history
        self._times_s = [report.time_s for report in history]

    def cpu(self, at_s: float, window_s: float) -> _Cpu | None:
        """CPU in use over the last complete interval before this time; None if not known.

        A metrics server measures interval by interval and knows nothing of the job: the idle seconds of a restart
        count, and so does the catching up after it.
        """
        ends_s = window_s * math.floor(at_s / window_s + _ROUNDING)
        end = bisect_right(self._times_s, ends_s + _ROUNDING)
        start = bisect_right(self._times_s, ends_s - window_s + _ROUNDING)
        if start == end and end > 0 and at_s - self._times_s[end - 1] < self._history[end - 1].window_s:
            start = end - 1  # reports come less often than metrics: one speaks until the next is due
        weight_s = used_s = 0.0
        for report in self._history[start:end]:
            if report.cpu_share is not None:
                weight_s += report.window_s
                used_s += report.window_s * report.cpu_share * report.configuration.executors
        if weight_s <= 0.0:
            return None
        executors = self._history[end - 1].configuration.executors
        return _Cpu(min(1.0, used_s / weight_s / executors), executors)

    def executors(self, at_s: float, *, otherwise: int) -> int:
        """How many executors ran at this time."""
        end = bisect_right(self._times_s, at_s)
        return self._history[end - 1].configuration.executors if end else otherwise
