"""What runs where: the executors that are there and paid for, changes that are on, and what breaks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidewise.core import (
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    ImpossibleChangeError,
    JobStatus,
    Mechanism,
    PermanentError,
    TemporaryError,
)
from tidewise.engines.simulator.chance import Chance
from tidewise.engines.simulator.conditions import Conditions
from tidewise.engines.simulator.profile import FailureProfile, MechanismProfile, SimulatorProfile, WarmUp
from tidewise.engines.simulator.stretch import Processing
from tidewise.engines.simulator.timeline import Timeline

_SAME_PROCESSES = {Mechanism.LIVE, Mechanism.QUERY_RESTART}
"""The mechanisms that leave the job's processes as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    request: ChangeRequest
    cost: MechanismProfile
    chance: Chance
    gap_s: float = 0.0
    runs_double: bool = False


class Deployment:
    """The job's executors through changes and failures, on one timeline."""

    def __init__(
        self,
        *,
        profile: SimulatorProfile,
        configuration: Configuration,
        seed: int,
        deployed_for: Mechanism | None,
        conditions: Conditions,
        processing: Processing,
        timeline: Timeline,
    ) -> None:
        self._profile = profile
        self._seed = seed
        self._conditions = conditions
        self._processing = processing
        self._timeline = timeline
        adaptive = profile.mechanisms.get(deployed_for) if deployed_for is not None else None
        self._adaptive = adaptive if adaptive is not None and adaptive.survives_with_fewer else None
        self.configuration = configuration
        """What the executors were started with; their number is how many there should be."""
        self.running = configuration.executors
        """How many are there."""
        self.paid = configuration
        """What is paid for, executors that are still starting included."""
        self.state_mib = 0.0
        self.down: list[tuple[float, float]] = []
        """From when to when the job was down, in order."""
        self._change: _Change | None = None
        self._changes: dict[str, ChangeOutcome | None] = {}
        self._faults = 0

    @property
    def running_double(self) -> Configuration | None:
        """What is paid for beside the job while a handover prepares."""
        return self._change.request.target if self._change is not None and self._change.runs_double else None

    def observed(self) -> Configuration:
        """The executors that are there, in the configuration they were started with."""
        if self.running == self.configuration.executors:
            return self.configuration
        return self.configuration.with_executors(max(1, self.running))

    # Changes --------------------------------------------------------------------------------------------------------

    def outcome(self, request_id: str) -> ChangeOutcome | None:
        return self._changes.get(request_id)

    def knows(self, request_id: str) -> bool:
        return request_id in self._changes

    def begin(self, request: ChangeRequest, now_s: float) -> None:
        """Begin a change that is not known yet; refused ones leave no trace."""
        cost = self._cost(request)
        self._refuse_if_too_large(request.target, double=cost.runs_double)
        chance = Chance.of_change(self._seed, len(self._changes))
        self._changes[request.request_id] = None
        gap_s = cost.gap_s * chance.spread(cost.gap_spread_share)
        gap_s += cost.gap_s_per_state_gib * self.state_mib / 1024
        self._change = _Change(request=request, cost=cost, chance=chance, gap_s=gap_s, runs_double=cost.runs_double)
        if request.target == self.observed() == self.configuration:
            self._finish(now_s, gap_s=0.0)
        elif request.mechanism is Mechanism.LIVE:
            self._begin_live(now_s)
        else:
            self._timeline.at(now_s + cost.preparation_s, self._begin_gap)

    def _cost(self, request: ChangeRequest) -> MechanismProfile:
        if self._change is not None:
            raise TemporaryError(f"the change {self._change.request.request_id} is still on")
        cost = self._profile.mechanisms.get(request.mechanism)
        if cost is None:
            raise ImpossibleChangeError(f"the profile {self._profile.name} does not offer {request.mechanism}")
        offer = next(offer for offer in self._profile.changes if offer.mechanism is request.mechanism)
        if not offer.can_carry(self.configuration, request.target):
            differing = ", ".join(sorted(self.configuration.differs_from(request.target)))
            raise ImpossibleChangeError(f"{request.mechanism} cannot change {differing}")
        return cost

    def _refuse_if_too_large(self, target: Configuration, *, double: bool) -> None:
        cluster = self._profile.cluster_cores
        wanted = target.total_cores + (self.paid.total_cores if double else 0.0)
        if cluster is not None and wanted > cluster:
            raise PermanentError(f"the cluster has {cluster:g} cores, and the change needs {wanted:g}")

    def _begin_live(self, now_s: float) -> None:
        change = self._on()
        takes_s = self._profile.live.leave_s
        if change.request.target.executors > self.configuration.executors:
            self.paid = change.request.target
            takes_s = self._start_up_s(change.chance)
        self._timeline.at(now_s + takes_s, lambda _: self._end_live(now_s + takes_s))

    def _end_live(self, at_s: float) -> None:
        change = self._on()
        if change.chance.happens(change.cost.failure_share):
            self.paid = self.configuration
            self._fail(at_s, "the executors did not come")
            return
        target = change.request.target
        # Executors that were lost in the meantime are still missed: the engine replaces them on its own.
        joined = max(0, target.executors - self.configuration.executors)
        self.running = min(target.executors, self.running + joined)
        self.configuration = self.paid = target
        if joined:
            self._take_in(at_s)
        self._finish(at_s, gap_s=0.0)

    def _begin_gap(self, at_s: float) -> None:
        change = self._on()
        if change.chance.happens(change.cost.failure_share):
            self._fail(at_s, "the new application did not come up")
            return
        at_s = max(at_s, self._conditions.down_until_s)  # a failure in the meantime has to be over first
        mechanism, target = change.request.mechanism, change.request.target
        same = mechanism in _SAME_PROCESSES
        begins_s = self._go_down(
            at_s,
            change.gap_s,
            JobStatus.CHANGING,
            change.cost.warm_up,
            replays=change.cost.replays,
            same_processes=same,
        )
        # From here on nothing of the old runs any more; what comes up is the target.
        self.configuration = self.paid = target
        self.running = target.executors
        self._change = replace(change, runs_double=False)
        ends_s = begins_s + change.gap_s
        self._timeline.at(ends_s, lambda _: self._finish(ends_s, gap_s=change.gap_s))

    def _finish(self, at_s: float, *, gap_s: float) -> None:
        self._end(ChangeStatus.APPLIED, at_s, gap_s=gap_s)

    def _fail(self, at_s: float, detail: str) -> None:
        self._end(ChangeStatus.FAILED, at_s, gap_s=0.0, detail=detail)

    def _end(self, status: ChangeStatus, at_s: float, *, gap_s: float, detail: str = "") -> None:
        request_id = self._on().request.request_id
        self._changes[request_id] = ChangeOutcome(
            request_id=request_id,
            status=status,
            finished_at_s=at_s,
            configuration=self.configuration,
            gap_s=gap_s,
            detail=detail,
        )
        self._change = None

    def _on(self) -> _Change:
        if self._change is None:
            raise AssertionError("a change that nobody began has reached its next step")
        return self._change

    # Failures -------------------------------------------------------------------------------------------------------

    def inject(self, kind: FailureProfile, now_s: float) -> None:
        """Something breaks now; it is noticed, and felt, after its detection."""
        noticed_s = now_s + kind.detection_s
        self._conditions.impair(now_s, noticed_s, kind.serving_share)
        self._processing.slow_down(now_s, noticed_s, kind.serving_share)
        chance = Chance.of_fault(self._seed, self._faults)
        self._faults += 1
        self._timeline.at(noticed_s, lambda at_s: self._break_down(at_s, kind, chance))

    def break_now(self, kind: FailureProfile, now_s: float) -> None:
        """Something breaks by itself, and is noticed at once."""
        chance = Chance.of_fault(self._seed, self._faults)
        self._faults += 1
        self._break_down(now_s, kind, chance)

    def _break_down(self, at_s: float, kind: FailureProfile, chance: Chance) -> None:
        if kind.executor_away_s is not None and self._adaptive is not None and self.running > 1:
            self._restart_with_fewer(at_s, at_s - kind.detection_s + kind.executor_away_s, self._adaptive, chance)
            return
        downtime_s = kind.downtime_s * chance.spread(kind.downtime_spread_share)
        lost = min(kind.executors_lost, self.running)
        if lost:
            back_s = self._start_up_s(chance)
            self.running -= lost
            self._timeline.at(at_s + back_s, lambda now_s: self._join(lost, now_s))
            if self.running == 0:
                downtime_s = max(downtime_s, back_s)  # nobody is left to go on
        if downtime_s > 0 or kind.replays:
            same = kind.warm_up.duration_s == 0.0
            self._go_down(at_s, downtime_s, JobStatus.DOWN, kind.warm_up, replays=kind.replays, same_processes=same)
            if kind.plans_after_s is not None and kind.plans_after_s < downtime_s:
                self._timeline.at(at_s + kind.plans_after_s, self._processing.plan)

    def _restart_with_fewer(self, at_s: float, back_s: float, adaptive: MechanismProfile, chance: Chance) -> None:
        """The job goes on without the executor that is away, until that is back."""
        self.running -= 1
        up_s = self._restart(at_s, adaptive, chance)
        self._timeline.at(max(back_s, up_s), lambda now_s: self._take_back(now_s, adaptive, chance))

    def _take_back(self, at_s: float, adaptive: MechanismProfile, chance: Chance) -> None:
        # A change or another failure in the meantime may have brought it back already.
        if self.running < self.configuration.executors and self._change is None:
            self.running += 1
            self._restart(at_s, adaptive, chance)

    def _restart(self, at_s: float, adaptive: MechanismProfile, chance: Chance) -> float:
        gap_s = adaptive.gap_s * chance.spread(adaptive.gap_spread_share)
        self._go_down(at_s, gap_s, JobStatus.DOWN, adaptive.warm_up, replays=adaptive.replays, same_processes=True)
        return self._conditions.down_until_s

    def _join(self, executors: int, at_s: float) -> None:
        before = self.running
        self.running = min(self.configuration.executors, self.running + executors)
        if self.running > before:
            self._take_in(at_s)

    # Both -----------------------------------------------------------------------------------------------------------

    def _go_down(
        self,
        at_s: float,
        duration_s: float,
        status: JobStatus,
        warm_up: WarmUp,
        *,
        replays: bool,
        same_processes: bool,
    ) -> float:
        """Stop the job; answers when it really stopped, which is later where a batch is let finish."""
        interval_s = self.configuration.commit_interval_s
        begins_s = self._processing.interrupt(at_s, replays=replays, commit_interval_s=interval_s)
        self._conditions.go_down(begins_s, duration_s, status, warm_up, same_processes=same_processes)
        self._processing.restored(self._conditions.down_until_s)
        self.down.append((begins_s, self._conditions.down_until_s))
        return begins_s

    def _take_in(self, at_s: float) -> None:
        """The job stands still while executors that are new to it become ready for its batches."""
        join_s = self._profile.live.join_s
        if join_s > 0.0:
            self._conditions.impair(at_s, at_s + join_s, 0.0)
            self._processing.slow_down(at_s, at_s + join_s, 0.0)

    def _start_up_s(self, chance: Chance) -> float:
        return self._profile.live.start_s * chance.spread(self._profile.live.start_spread_share)
