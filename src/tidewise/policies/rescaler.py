"""The reactive opponent that looks at single operators: the rescaler of the price search machine's benchmarks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tidewise.core import (
    Configuration,
    ConfigurationSpace,
    Decision,
    Evidence,
    JobStatus,
    Mechanism,
    Observation,
    OperatorKind,
    OperatorReport,
    Situation,
    format_duration,
)
from tidewise.core.checks import require, require_finite
from tidewise.policies.replies import cooling_down, keep, move, not_now, percent

_MIB_PER_MB = 1e6 / 2**20
_LOOKS_KEPT = 720
"""A day of them at the default; more than a day ago counts for nothing."""
_ROUNDING = 1e-9
_MORE_THAN_ANY = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One look at the job's latency."""

    time_s: float
    violates: bool


@dataclass(kw_only=True)
class Rescaler:
    """Gives the slowest operators more slots, and the job a node when the cluster is loaded; never takes any away.

    Every `look_every_s`, a latency of at least `latency_limit_s` that is higher than at the look before adds a
    violation, as does output that was due from a running job and did not come; anything else takes one away. At
    `violations` of them it acts on the `slowest` operators by latency. A continuous one should have its input rate over
    its throughput per channel, a window or a join `stateful_step` channels more, up to `max_parallelism` in all. A node
    is added where the cluster's load (the mean of CPU and memory) is above `high_load` and the downtime, 2 x state /
    bandwidth, is below `max_downtime_s`, or where the load is at least `full_load`. After a change it rests for
    `rest_s`, and the violations are counted anew.

    Where this differs from the original: operators have no slots of their own here but take turns on those of the job,
    so the slots that the slowest ones lack are added to the job's, as the fewest `slots_per_executor` that give them;
    what comes to an operator is held back by those before it, so its input rate is raised by what arrives at the job
    over what it processes; a node is an executor; the violations are counted anew after every change, whereas the
    original's flag is never reset; latency is the median of the reports since the last look; what a job that does not
    run, or has nothing to do, leaves without a latency is no look; `max_parallelism` is the most of the whole job, not
    of each operator; the channels that an operator has are taken to be those that its input keeps busy, not all that it
    was given; where memory is not reported CPU alone is the cluster's load, and the other way round; nothing is ever
    asked for that would be less than what runs.

    It needs reports that tell operators apart; without them it keeps, and says so.
    """

    name: ClassVar[str] = "rescaler"

    look_every_s: float = 120.0
    """How often the latency is looked at."""
    latency_limit_s: float = 1.0
    """A latency from here on may be a violation."""
    violations: int = 3
    """So many violations are acted upon."""
    slowest: int = 3
    """How many operators are acted upon."""
    stateful_step: int = 2
    """By how many channels a window or a join grows."""
    max_parallelism: int = 128
    """The most slots of the whole job."""
    high_load: float = 0.5
    """Above this load of the cluster a node is added where the downtime is short."""
    full_load: float = 0.7
    """From this load of the cluster on a node is added whatever the downtime."""
    max_downtime_s: float = 180.0
    """A longer downtime is not worth a node before the cluster is full."""
    bandwidth_mb_per_s: float = 125.0
    """How fast state is written away and read back."""
    rest_s: float = 720.0
    """How long nothing is looked at after a change."""
    mechanism: Mechanism | None = None
    """How to change the job; none leaves it to the engine."""

    _looks: deque[_Look] = field(init=False, repr=False, compare=False)
    _since_s: float | None = field(default=None, init=False, repr=False, compare=False)
    """When the present look began."""
    _latencies_s: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    """Those of the reports since then."""
    _before_s: float | None = field(default=None, init=False, repr=False, compare=False)
    """The latency at the look before."""
    _was_due: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether any report of the present look shows a running job without the output that was due."""

    def __post_init__(self) -> None:
        require_finite("look_every", self.look_every_s, above=0.0)
        require_finite("latency_limit", self.latency_limit_s, least=0.0)
        for name in ("violations", "slowest", "max_parallelism"):
            count = getattr(self, name)
            require(count >= 1, f"{name} must be at least 1, not {count}")
        require(self.stateful_step >= 0, f"stateful_step must be at least 0, not {self.stateful_step}")
        for name in ("high_load", "full_load"):
            share = getattr(self, name)
            require(0.0 <= share <= 1.0, f"{name} must be between 0 and 1, not {share:g}")
        require_finite("max_downtime", self.max_downtime_s, least=0.0)
        require_finite("bandwidth_mb_per_s", self.bandwidth_mb_per_s, above=0.0)
        require_finite("rest", self.rest_s, least=0.0)
        self._looks = deque(maxlen=_LOOKS_KEPT)

    @property
    def history_s(self) -> float:
        return self.look_every_s

    def requires(self, space: ConfigurationSpace) -> str | None:
        """What the space lacks, as a sentence; None where it offers enough."""
        if len(space.executors) > 1 or len(space.slots_per_executor) > 1:
            return None
        return "the rescaler adds slots and executors: give the space several executors or slots_per_executor"

    def learn(self, observation: Observation) -> None:
        """Look at the latency whenever it is time."""
        if self._since_s is None or observation.time_s < self._since_s:
            self._since_s = observation.time_s - observation.window_s
        if observation.latency_p50_s is not None:
            self._latencies_s.append(observation.latency_p50_s)
        elif observation.status is JobStatus.RUNNING and not observation.is_idle:
            self._was_due = True
        if observation.time_s - self._since_s < self.look_every_s - _ROUNDING:
            return
        self._since_s = observation.time_s
        if self._latencies_s:
            latency_s = _median(self._latencies_s)
            rises = self._before_s is not None and latency_s > self._before_s
            self._looks.append(_Look(time_s=observation.time_s, violates=rises and latency_s >= self.latency_limit_s))
            self._before_s = latency_s
            self._latencies_s = []
        elif self._was_due:
            # A job that gives nothing is later than any that gives something late.
            self._looks.append(_Look(time_s=observation.time_s, violates=True))
        self._was_due = False

    def decide(self, situation: Situation) -> Decision:
        waiting = not_now(situation) or cooling_down(situation, self.rest_s)
        if waiting is not None:
            return waiting
        count = self._count(since_s=self._looks_from_s(situation), until_s=situation.now_s)
        if count < self.violations:
            return keep(
                "few-violations",
                f"{count} of {self.violations} violations of {format_duration(self.latency_limit_s)} are counted.",
                {"violations": count},
            )
        report = next((seen for seen in reversed(situation.history) if seen.operators), None)
        if report is None:
            return keep(
                "no-operators",
                f"{count} violations are counted, but the reports do not tell the job's operators apart.",
                {"violations": count},
            )
        return self._rescale(situation, report.operators, count)

    # When -----------------------------------------------------------------------------------------------------------

    def _looks_from_s(self, situation: Situation) -> float:
        changed_s = situation.last_change_finished_at_s
        return -math.inf if changed_s is None else changed_s + self.rest_s

    def _count(self, *, since_s: float, until_s: float) -> int:
        """The violations, one more or one less at every look; as many as are acted upon are enough."""
        count = 0
        for look in self._looks:
            if since_s < look.time_s <= until_s:
                count = min(self.violations, count + 1) if look.violates else max(0, count - 1)
        return count

    # How much -------------------------------------------------------------------------------------------------------

    def _rescale(self, situation: Situation, operators: Sequence[OperatorReport], count: int) -> Decision:
        running = situation.intended
        held_back = _held_back(situation.history)
        chosen = sorted(operators, key=lambda one: -1.0 if one.latency_s is None else one.latency_s, reverse=True)
        lacking = sum(self._lacking(one, held_back) for one in chosen[: self.slowest])
        # What is there already is never too much, whatever the limit.
        wanted = max(
            running.total_slots, min(self.max_parallelism, math.ceil(running.total_slots + lacking - _ROUNDING))
        )
        load, downtime_s = _load(situation.history), self._downtime_s(situation.latest)
        node = self._wants_node(load, downtime_s)
        target = _with_slots(situation.space, _with_node(situation.space, running) if node else running, wanted)
        evidence: Evidence = {
            "violations": count,
            "slots": running.total_slots,
            "slots_wanted": wanted,
            "cluster_load": load,
            "downtime_s": downtime_s,
            "node": node,
        }
        names = ", ".join(one.name for one in chosen[: self.slowest])
        sentence = f"{count} violations: the slowest operators ({names}) ask for {wanted} slots in all"
        sentence += f" where {running.total_slots} are"
        if load is not None:
            sentence += f", and the cluster's load of {percent(load)} asks for {'one' if node else 'no'} more node"
        if target == running:
            at_limit = node or wanted > running.total_slots
            ending = "but the space offers no more" if at_limit else "so nothing is added"
            return keep("at-limit" if at_limit else "enough", f"{sentence}, {ending}.", evidence)
        return move(
            situation, target, mechanism=self.mechanism, code="scale-up", sentence=f"{sentence}.", evidence=evidence
        )

    def _lacking(self, operator: OperatorReport, held_back: float) -> float:
        """The channels that this operator has too few."""
        if operator.kind is not OperatorKind.CONTINUOUS:
            return float(self.stateful_step)
        if operator.throughput_per_channel_per_s is None:
            return 0.0
        busy = operator.input_rate_per_s / operator.throughput_per_channel_per_s
        # More than any limit is enough: no sum of a few of them may overflow.
        return min(float(self.max_parallelism), busy * (held_back - 1.0))

    def _downtime_s(self, report: Observation) -> float | None:
        """What a change takes: the state is written away and read back; None where its size is unknown."""
        if report.state_mib is None:
            return None
        return 2.0 * report.state_mib / (self.bandwidth_mb_per_s * _MIB_PER_MB)

    def _wants_node(self, load: float | None, downtime_s: float | None) -> bool:
        if load is None:
            return False
        short = downtime_s is not None and downtime_s < self.max_downtime_s
        return load >= self.full_load or (load > self.high_load and short)


def _held_back(history: Iterable[Observation]) -> float:
    """What arrives at the job over what it processes; 1 where it keeps up or nothing is known."""
    arrived = processed = 0.0
    for report in history:
        arrived += report.window_s * report.input_rate_per_s
        processed += report.window_s * report.processed_rate_per_s
    return min(max(1.0, arrived / processed), _MORE_THAN_ANY) if processed > 0.0 else 1.0


def _load(history: Iterable[Observation]) -> float | None:
    """The mean of CPU and memory, of whichever is known."""
    shares: list[float] = []
    for name in ("cpu_share", "memory_share"):
        known = [share for share in (getattr(report, name) for report in history) if share is not None]
        if known:
            shares.append(sum(known) / len(known))
    return sum(shares) / len(shares) if shares else None


def _with_node(space: ConfigurationSpace, running: Configuration) -> Configuration:
    """One executor more, or what the space has next; as it is where that has no more."""
    target = space.with_at_least(running, running.executors + 1)
    return target if target.executors > running.executors else running


def _with_slots(space: ConfigurationSpace, running: Configuration, wanted: int) -> Configuration:
    """The fewest slots per executor, never fewer than now, that give this many in all; the most where none does."""
    offered = [slots for slots in space.slots_per_executor if slots >= running.slots_per_executor]
    enough = [slots for slots in offered if slots * running.executors >= wanted]
    slots = enough[0] if enough else max(offered, default=running.slots_per_executor)
    return replace(running, slots_per_executor=slots)


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
