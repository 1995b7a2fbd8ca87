"""Tidewise's own policy: at every step the plan that keeps the promises for the least money."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidewise.core import (
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    Decision,
    Forecast,
    JobStatus,
    Keep,
    Mechanism,
    Observation,
    Prices,
    Profile,
    Situation,
    format_duration,
)
from tidewise.core.checks import require, require_finite, require_text
from tidewise.core.recovery import CALM_S
from tidewise.observe import RecoveryWatch
from tidewise.policies.calibration import Calibration
from tidewise.policies.change_pain import ChangePain
from tidewise.policies.curiosity import Curiosity, kind_of
from tidewise.policies.expectations import LOOK_AHEAD_S, Expectations
from tidewise.policies.late_budget import LateBudget
from tidewise.policies.load_habits import LoadHabits
from tidewise.policies.losses import Losses
from tidewise.policies.patience import Patience
from tidewise.policies.replies import change_is_on, keep, move
from tidewise.policies.surprise import Surprise
from tidewise.policies.trouble import Trouble
from tidewise.qos import CONTINUOUS, Candidates, JobModel, Physics, Usual
from tidewise.search.horizon import Horizon
from tidewise.search.odds import CpuInUse, Odds, odds
from tidewise.search.plan import Behind, Move, Planner, Terms, Ways
from tidewise.search.shortlist import shortlist

_FAILURE = "failure"
"""All failures that reports show are of one kind: which it was, they do not tell."""
_USUAL_DOWNTIME = Usual(median=25.0, log_sd=0.5)
_NO_FORECAST_SDS = ((0.05, -1.645), (0.25, -0.674), (0.5, 0.0), (0.75, 0.674), (0.95, 1.645))
_NO_FORECAST_SPREAD = 0.15
"""Before there is a forecast the rate is taken to stay, give or take this much of its logarithm."""
_SURPRISE_SD = 0.03
"""By how much a rate may differ (in its logarithm) from what was known of it when a change could still be made."""
_REST = 10.0
"""After a change that stopped the job, it is left alone for so many times as long ..."""
_NEAR_STEPS, _OF_NO_USE = 5, 0.5
"""... unless in one of the next steps the change is more likely than this to have been of no use."""
_RATE_STEP, _SLOWER_STEP, _WIDER_STEP, _LEARNT_STEP, _LISTED_STEP, _CPU_STEP = 0.1, 0.05, 0.1, 0.05, 0.2, 0.25
_RESOLUTION = 0.4
"""A recovery is known to about this share of a report's window."""
_UNRECOVERED = 7.5
"""A recovery that takes too long costs as much as so many of the promised length in late seconds."""
_USUALLY_FULL = 0.8
_WAIT, _MOST_WAIT = 0.75, 1.25
"""As many records wait as arrive in so many times the 95th percentile of the latency: on average, and by chance."""
_SPEED_S, _AT_WORK, _SLOWEST = 15.0, 0.25, 0.2
"""How fast a job is shows within so long, where it was at work for this share of it; it is never taken for slower.

In less, a batch that takes somewhat longer than usual and has not ended yet looks as if nothing were done.
"""
_AS_MUCH = 0.02
"""By how much (of its logarithm) a capacity may be less and still be as much."""
_LEAST_RATE = 1e-6
_ENOUGH = 0.02
"""A configuration that is late so seldom is enough."""


@dataclass(slots=True, kw_only=True)
class Tidewise:
    """Plans over the forecast: the cheapest sequence of configurations, everything that may go wrong at its price.

    Every decision reckons, for the configurations of the space that nothing cheaper can replace, what each would cost
    from now on: its resources, the seconds that would break the promised latency (by the levels that the forecast gives
    the load, and the spread of what is believed of capacities and latencies), and the failures to come, with the time
    that it takes to get over them. A recovery that would take longer than was promised is reckoned with as if something
    failed every hour at least, and what might run out of memory as if every second were late. A change costs its gap,
    what arrives late until the job has caught up with it, and its double running. The cheapest sequence is found by
    dynamic programming, and its first step is done if it is not what runs.

    It learns from normal operation alone: how busy the job is tells its capacity, and formulas of physics what other
    configurations would do. No profile is needed. A backlog, after a failure or a burst, is worked off by the number of
    executors that costs least together with the late seconds, and they are given back after that.
    """

    name: ClassVar[str] = "tidewise"

    continuous: bool = False
    """Whether records flow one by one (real-time mode, Flink) instead of in micro-batches."""
    late_price: float | None = None
    """What a late second costs, in seconds of what the job was started with (or of what is enough for it, where that
    was too little). None: by how many of the late seconds that were promised away have been used up lately."""
    friction_s: float = 1.0
    """Every change counts as so many late seconds more than it is said to cost; more where it is seen to."""
    payback: float = 1.25
    """How many times what it costs a change has to earn; more where it stops the job."""
    tail_s: float = 5400.0
    """How long the end of the forecast is taken to go on: what a change earns there counts too."""
    memory_s: float = 6 * 3600.0
    """How long a late second is remembered when others are priced."""
    settle_s: float = 60.0
    """For how long after a start, a change or a failure reports tell nothing of what is usual, and how much of steady
    work makes one piece of evidence; less on a compressed day."""
    failures_per_day: float = 2.0
    """How often something fails, before the job's own failures tell: all of it, and as often one of its executors."""
    unseen_s: float = 20.0
    """How long a failure goes on before reports show anything of it; a recovery begins with the failure."""
    forecaster: str = "ensemble"
    """The forecast that it plans with."""
    sample_s: float = 60.0
    """The forecast is made of means over this time; less on a compressed day, but no less than a report."""
    mechanism: Mechanism | None = None
    """The only way to change the job; none: any that the engine offers."""
    profiles: bool = False
    """Whether copies of the job may be measured beside it, where that is expected to save more than it costs."""
    prior: Physics | None = None
    """What is believed of the job before it has shown anything, such as what jobs like it have shown; None: what is
    usual."""

    _model: JobModel = field(init=False, repr=False, compare=False)
    _trouble: Trouble = field(init=False, repr=False, compare=False)
    _losses: Losses = field(init=False, repr=False, compare=False)
    _surprise: Surprise = field(init=False, repr=False, compare=False)
    _load: LoadHabits = field(init=False, repr=False, compare=False)
    _patience: Patience = field(init=False, repr=False, compare=False)
    _curiosity: Curiosity = field(init=False, repr=False, compare=False)
    _pain: ChangePain = field(init=False, repr=False, compare=False, default_factory=ChangePain)
    _calibration: Calibration = field(init=False, repr=False, compare=False, default_factory=Calibration)
    _late: LateBudget = field(init=False, repr=False, compare=False)
    _watch: RecoveryWatch = field(init=False, repr=False, compare=False, default_factory=RecoveryWatch)
    _proven: set[tuple[float, float]] = field(init=False, repr=False, compare=False, default_factory=set)
    _largest: Configuration | None = field(init=False, repr=False, compare=False, default=None)
    _recoveries: int = field(init=False, repr=False, compare=False, default=0)
    _first: Configuration | None = field(init=False, repr=False, compare=False, default=None)
    _candidates: tuple[ConfigurationSpace, Candidates] | None = field(
        init=False, repr=False, compare=False, default=None
    )
    _listed: tuple[tuple[ConfigurationSpace, Prices, Configuration, int, int, float], Candidates] | None = field(
        init=False, repr=False, compare=False, default=None
    )
    _capacities: tuple[tuple[int, int, int], dict[Configuration, tuple[float, float]]] = field(
        init=False, repr=False, compare=False, default_factory=lambda: ((-1, -1, -1), {})
    )
    _recovers_until_s: float = field(init=False, repr=False, compare=False, default=-math.inf)
    _well_s: float = field(init=False, repr=False, compare=False, default=-math.inf)
    _caught_up_s: float | None = field(init=False, repr=False, compare=False, default=None)
    _was_changing: bool = field(init=False, repr=False, compare=False, default=False)
    _was_rescued: bool = field(init=False, repr=False, compare=False, default=False)
    _known: _Known | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.late_price is not None:
            require_finite("late_price", self.late_price, above=0.0)
        require_finite("friction", self.friction_s, least=0.0)
        require_finite("payback", self.payback, least=1.0)
        require_finite("tail", self.tail_s, above=0.0)
        require_finite("memory", self.memory_s, above=0.0)
        require_finite("settle", self.settle_s, above=0.0)
        require_finite("failures_per_day", self.failures_per_day, above=0.0)
        require_finite("unseen", self.unseen_s, least=0.0)
        require_finite("sample", self.sample_s, above=0.0)
        require_text("forecaster", self.forecaster)
        physics = self.prior or (CONTINUOUS if self.continuous else Physics())
        require(physics.micro_batch is not self.continuous, "a prior has to be continuous where the job is, or neither")
        physics = replace(
            physics, settle_s=self.settle_s, stretch_s=self.settle_s, downtimes={_FAILURE: _USUAL_DOWNTIME}
        )
        self._model = JobModel(physics=physics, changes=())
        self._late = LateBudget(memory_s=self.memory_s)
        self._trouble = Trouble(usual_down_s=_USUAL_DOWNTIME.median, failures_per_day=self.failures_per_day)
        self._losses = Losses(losses_per_day=self.failures_per_day)
        self._surprise = Surprise(settle_s=self.settle_s)
        self._load = LoadHabits(tail_s=self.tail_s)
        self._patience = Patience(settle_s=self.settle_s)
        self._curiosity = Curiosity(settle_s=self.settle_s, horizon_s=self.tail_s)

    @property
    def history_s(self) -> float:
        return 120.0

    def learn(self, observation: Observation) -> None:
        self._trouble.learn(observation)
        self._surprise.learn(observation)
        self._load.learn(observation)
        self._pain.learn(observation)
        self._late.learn(observation)
        if self._first is None:
            self._first = observation.configuration
        if observation.status is JobStatus.RUNNING:
            self._proven.add(kind_of(observation.configuration))
            if self._largest is None or self._largest.total_cores < observation.configuration.total_cores:
                self._largest = observation.configuration
        was_on = self._watch.is_on
        recovered = self._watch.learn(observation)
        if self._watch.missed_at_s is not None and not was_on:
            self._trouble.felt(self._watch.missed_at_s)
            self._patience.felt(self._watch.missed_at_s)
            self._surprise.felt(self._watch.missed_at_s)
            self._pain.felt()
        self._patience.learn(observation)
        is_changing = observation.status is JobStatus.CHANGING
        if is_changing and not self._was_changing:
            self._was_rescued = was_on
        self._was_changing = is_changing
        for ended in recovered:
            self._recoveries += 1
            most = self._trouble.most_executors_since(ended.at_s, ended.configuration)
            self._model.learn_recovery(
                _FAILURE,
                ended.took_s,
                configuration=ended.configuration.with_executors(most),
                rate_per_s=ended.rate_per_s,
                resolution_s=max(1.0, _RESOLUTION * observation.window_s),
                speed=self._surprise.held,
            )
        self._look_for_drift(observation)
        self._model.learn(observation, is_steady=not self._watch.is_on, speed=self._surprise.held)

    def _look_for_drift(self, observation: Observation) -> None:
        """Whether the job itself has become another; one that gets over a failure does not show it."""
        if not self._watch.is_on:
            more = self._surprise.hold(self._model.shown_by, known=self._capacity_of)
            if more > 1.0:
                self._model.capacity.correct(more, by=observation.configuration)
        left = self._surprise.settled(observation.time_s)
        if left < 1.0:
            self._model.capacity.correct(left)

    def decide(self, situation: Situation) -> Decision:
        self._losses.look(situation)
        waiting = change_is_on(situation)
        if waiting is not None:
            return waiting
        if situation.latest.status is JobStatus.CHANGING:
            return keep("job-not-running", "The job is changing; nothing more is changed until it runs.")
        if self._model.capacity.windows == 0:
            return keep("learning", "What the job can process is not known yet; that takes two minutes of steady work.")
        self._listen(situation)
        horizon, rate = self._horizon(situation)
        known = self._knowledge(situation, rate)
        expected = self._expectations(situation, known, horizon, rate)
        behind = self._behind(situation, known, rate)
        resting = None if behind.failed_s is not None else self._resting(situation, known, horizon, expected)
        if resting is not None:
            return resting
        gaps_s = [change.gap_s for change in known.ways.changes]
        planner = Planner(known.odds, horizon, known.ways, gaps_s, self._terms(situation, known))
        best = planner.best(behind)
        wait = self._better_wait(situation, known, best, behind, expected)
        instead = wait or self._profile(situation, known, best)
        return instead or self._reply(situation, known, best, expected)

    def _resting(self, situation: Situation, known: _Known, horizon: Horizon, expected: Expectations) -> Keep | None:
        """The reply shortly after a change that stopped the job: what has just been decided is not decided again.

        Unless it turns out to be of no use at all, or was made while the job was getting over a failure.
        """
        changed_s = situation.last_change_finished_at_s
        if self._was_rescued:
            return None
        gap_s = _gap_s(situation, situation.last_change_mechanism)
        left_s = 0.0 if changed_s is None else changed_s + _REST * gap_s - situation.now_s
        if left_s <= 0.0:
            return None
        near = horizon.log_rates[:_NEAR_STEPS, horizon.middle]
        odds = known.odds
        late = float(odds.late(near)[known.row].max())
        unrecovered = float(odds.unrecovered(near)[known.row].max())
        if max(late, unrecovered) > _OF_NO_USE:
            return None
        return keep(
            "settling",
            f"The last change stopped the job for about {format_duration(gap_s)}: what came of it is watched for "
            f"another {format_duration(left_s)} before anything is changed again.",
            expected.of(known.row, known.row),
        )

    def _better_wait(
        self, situation: Situation, known: _Known, best: Move, behind: Behind, expected: Expectations
    ) -> Keep | None:
        """The reply to a move that is not made yet; None where it is."""
        evidence = expected.of(known.row, known.row)
        is_late = behind.is_behind or situation.promises.broken_by(situation.latest)
        if known.takes_away(best.row) and is_late and not known.does_as_much(best.row):
            return keep(
                "behind",
                f"{situation.intended} stays: nothing is taken away from a job that has not caught up, or breaks a "
                "promise.",
                evidence,
            )
        if known.takes_away(best.row) and self._pain.is_watching:
            return keep(
                "watching",
                f"{situation.intended} stays: what came of the last change is seen before more is taken away.",
                evidence,
            )
        if _gap_s(situation, best.mechanism) > 0.0 and self._surprise.is_jumping(situation.history):
            return keep(
                "jumping",
                "The load has just jumped: how far is seen by the next report, before the job is stopped for a change.",
                evidence,
            )
        left_s = self._patience.left_s(situation.now_s, known.odds.candidates[best.row].total_cores)
        if left_s > 0.0 and known.takes_away(best.row):
            return keep(
                "patient",
                f"{situation.intended} stays for another {format_duration(left_s)}: some of it was added only a short "
                "time ago, and may be needed again.",
                evidence,
            )
        return None

    def _listen(self, situation: Situation) -> None:
        """Learn what copies have told."""
        for measured in self._curiosity.news(situation):
            self._model.learn_profile(measured, speed=self._surprise.held)
            self._proven.add(kind_of(measured.configuration))

    def _profile(self, situation: Situation, known: _Known, best: Move) -> Profile | None:
        """A profile that pays, for a job with nothing better to do."""
        calm = best.mechanism is None and best.drained_s == 0.0 and situation.latest.status is JobStatus.RUNNING
        if not (self.profiles and calm):
            return None
        return self._curiosity.wants(
            situation, self._model, known.odds.candidates, rate_per_s=known.rate_per_s, proven=self._proven
        )

    # What is known.

    def _knowledge(self, situation: Situation, rate: float) -> _Known:
        """The short list and its odds, made anew where something was learnt or the load has moved."""
        # In steps, so that what is reckoned does not depend on when it was reckoned before.
        rate = _in_steps(rate, _RATE_STEP)
        slower = _in_steps(self._surprise.slower(self._capacity_of), _SLOWER_STEP)
        known = self._known
        self._check(situation, known)
        widening = _in_steps(self._calibration.widening, _WIDER_STEP)
        changes = self._changes(situation)
        in_use = self._in_use(situation)
        depends = (
            *(situation.intended, situation.space, situation.promises, situation.prices, situation.failed_targets),
            *(changes, self._learnt(), rate, slower, widening, in_use),
        )
        if known is not None and known.depends == depends:
            return known
        few = self._shortlist(situation, rate)
        few = few.only(np.flatnonzero(self._to_be_had(few, situation)))
        live = next((change for change in changes if change.mechanism is Mechanism.LIVE), None)
        made = odds(
            self._model,
            few,
            promises=situation.promises,
            prices=situation.prices,
            rate_per_s=rate,
            rate_log_sd=_SURPRISE_SD,
            slower=slower,
            widening=widening,
            unproven=self._unproven(few),
            joins_live=live is not None,
            unseen_s=self.unseen_s,
            lag_s=0.0 if live is None else live.preparation_s + 2.0 * situation.latest.window_s,
            in_use=in_use,
        )
        self._known = _Known(
            odds=made,
            ways=Ways(few, changes),
            joins_s=None if live is None else live.preparation_s,
            depends=depends,
            row=few.row_of(situation.intended) or 0,
            rate_per_s=rate,
            slower=slower,
            widening=widening,
        )
        return self._known

    def _shortlist(self, situation: Situation, rate: float) -> Candidates:
        """What plans are made of; among thousands of configurations it is looked for anew only where much has changed.

        In steps, again, so that it does not depend on when it was made.
        """
        learnt, _, corrections = self._learnt()
        step = int(learnt * _LEARNT_STEP / _LISTED_STEP)
        runs, space = situation.intended, situation.space
        # A kind is listed with every number of executors that the space has: it is the same list for all of them.
        kind = runs.with_executors(space.executors[0]) if runs in space else runs
        key = (space, situation.prices, kind, step, corrections, _in_steps(rate, _LISTED_STEP))
        if self._listed is None or self._listed[0] != key:
            if self._candidates is None or self._candidates[0] != space:
                self._candidates = space, Candidates.of(space)
            few = shortlist(
                self._model,
                self._candidates[1],
                prices=situation.prices,
                rate_per_s=key[-1],
                running=kind,
            )
            self._listed = key, few
        return self._listed[1]

    def _check(self, situation: Situation, known: _Known | None) -> None:
        """Hold the latest report, if it is one of calm work, against what was known before it came.

        What is late after a failure or a change is theirs, and reckoned as such: it says nothing of steady work.
        """
        latest = situation.latest
        if known is None or latest.latency_p95_s is None or latest.processed_rate_per_s <= 0.0:
            return
        if self._watch.is_on or self._pain.is_watching or not self._surprise.is_calm(latest):
            return
        if latest.configuration != known.odds.candidates[known.row] or latest.load_per_s <= 0.0:
            return
        if self._catches_up(situation, known):
            return
        at = np.log([latest.load_per_s])
        self._calibration.check(
            actual_s=latest.latency_p95_s,
            expected_s=float(known.odds.latency_s(at)[known.row, 0]),
            log_sd=float(known.odds.latency_spread(at)[known.row, 0]) / known.widening,
        )

    def _catches_up(self, situation: Situation, known: _Known) -> bool:
        """Whether the job has not worked off yet what came while it was stopped for the last change.

        It is given as long for that as it is left alone after one: what waits for longer is not the change's.
        """
        changed_s = situation.last_change_finished_at_s
        gap_s = _gap_s(situation, situation.last_change_mechanism)
        if changed_s is None or situation.now_s > changed_s + _REST * gap_s:
            return False
        if changed_s != self._caught_up_s and self._excess(situation.latest, known, situation.latest.load_per_s) == 0.0:
            self._caught_up_s = changed_s
        return changed_s != self._caught_up_s

    def _capacity_of(self, configuration: Configuration, rate_per_s: float) -> tuple[float, float]:
        """Mean and spread of the logarithm; asked at every decision, and made anew when enough was learnt."""
        learnt = self._learnt()
        if self._capacities[0] != learnt:
            self._capacities = learnt, {}
        known = self._capacities[1]
        if configuration not in known:
            belief = self._model.capacity_at(Candidates.listing([configuration]), rate_per_s)
            known[configuration] = float(belief.log_mean[0]), float(belief.log_sd[0])
        return known[configuration]

    def _learnt(self) -> tuple[int, int, int]:
        """What has been learnt, in steps: one window more of hundreds changes nothing, a recovery does."""
        learnt, corrections = self._model.capacity.version
        windows = learnt + self._model.latency.windows
        return int(math.log(max(1, windows)) / _LEARNT_STEP), self._recoveries, corrections

    def _in_use(self, situation: Situation) -> CpuInUse | None:
        cores, runs = self._surprise.cores_in_use, situation.latest.configuration
        if cores is None or cores <= 0.0:
            return None
        return CpuInUse(
            cores=_in_steps(cores, _CPU_STEP), given=runs.total_cores, commit_interval_s=runs.commit_interval_s
        )

    def _unproven(self, candidates: Candidates) -> npt.NDArray[np.bool_]:
        """Which rows have executors of a kind that never ran."""
        kinds = zip(candidates.slots_per_executor.tolist(), candidates.cores_per_executor.tolist(), strict=True)
        return np.array([kind not in self._proven for kind in kinds], dtype=np.bool_)

    def _to_be_had(self, candidates: Candidates, situation: Situation) -> npt.NDArray[np.bool_]:
        """Which rows may be asked for: after a refusal not the same again, and nothing larger than what ever ran."""
        cores, memory_mib = candidates.total_cores, candidates.total_memory_mib
        had = np.ones(len(candidates), dtype=np.bool_)
        for failed in situation.failed_targets:
            row = candidates.row_of(failed)
            if row is not None:
                had[row] = False
            largest = self._largest
            if largest is not None and largest.takes_less_than(failed):
                had &= (cores <= largest.total_cores) & (memory_mib <= largest.total_memory_mib)
        own = candidates.row_of(situation.intended)
        if own is not None:
            had[own] = True
        return had

    def _changes(self, situation: Situation) -> tuple[ChangeCost, ...]:
        """The ways that may be used; executors take as long to join as they took lately."""
        offered = situation.space.changes
        if self.mechanism is not None:
            offered = tuple(change for change in offered if change.mechanism is self.mechanism) or offered
        took_s = situation.joins_after_s or 0.0
        return tuple(
            replace(change, preparation_s=max(change.preparation_s, took_s))
            if change.mechanism is Mechanism.LIVE
            else change
            for change in offered
        )

    def _enough_per_hour(self, known: _Known) -> float:
        """The cheapest configuration that is enough for the most that has arrived in a day."""
        odds = known.odds
        enough = odds.late(np.log([max(_LEAST_RATE, self._load.highest_per_s)]))[:, 0] <= _ENOUGH
        return 3600.0 * float(odds.cost_per_s[enough].min()) if enough.any() else 0.0

    def _terms(self, situation: Situation, known: _Known) -> Terms:
        price = self.late_price or self._late.price(situation.promises)
        started = 0.0 if self._first is None else situation.prices.per_hour(self._first)
        worth = max(started, self._enough_per_hour(known))
        return Terms(
            late_cost_per_s=price * worth / 3600.0,
            failures_per_s=self._trouble.failures_per_s,
            losses_per_s=0.0 if known.joins_s is None else self._losses.per_s,
            replaced_s=0.0 if known.joins_s is None else self._losses.replaced_s(known.joins_s),
            unrecovered_s=_UNRECOVERED * (situation.promises.recovery_s or 0.0),
            friction_s=max(self.friction_s, self._pain.late_s(situation.promises)),
            payback=self.payback,
            latency_limit_s=situation.promises.latency_p95_s,
            recovery_limit_s=situation.promises.recovery_s,
            unseen_s=self.unseen_s,
            in_batches=not self.continuous,
            shows_s=situation.latest.window_s,
            rest=_REST,
            rescued_s=self.settle_s + 2.0 * situation.latest.window_s,
        )

    # The load.

    def _horizon(self, situation: Situation) -> tuple[Horizon, float]:
        """The load to come, and the rate now."""
        rate = max(_LEAST_RATE, self._surprise.rate_per_s(situation.history))
        forecast = situation.forecast or _as_it_is(rate, situation.now_s)
        forecast = self._surprise.bent(forecast, rate, situation.now_s)
        habits = self._load.habits
        return Horizon.of(forecast, tail_s=self.tail_s, ceiling_per_s=self._load.ceiling_per_s, habits=habits), rate

    # Where the job stands.

    def _behind(self, situation: Situation, known: _Known, rate: float) -> Behind:
        latest = situation.latest
        excess = self._excess(latest, known, rate)
        down_s = self._trouble.down_left_s(latest) if latest.status is JobStatus.DOWN else 0.0
        # What is left of a failure may be less than a backlog: it is over when latencies have been usual for a while,
        # also where the job was moved to get over it, which ends what the watch follows.
        if self._watch.is_on or excess > 0.0 or down_s > 0.0:
            self._recovers_until_s = latest.time_s + CALM_S
        failed_s = self._trouble.failed_s(situation.now_s)
        if latest.time_s - latest.window_s > self._recovers_until_s:
            self._well_s, failed_s = situation.now_s, None
        elif failed_s is not None and situation.now_s - failed_s < self._well_s - 2.0 * latest.window_s:
            # It has been well since then, as far as reports could tell: what waits now is something else's.
            failed_s = None
        return Behind(
            row=known.row,
            backlog_records=excess,
            down_s=down_s,
            warmth=min(
                self._model.recovery.warmth(_FAILURE, self._trouble.works_s(situation.now_s)),
                _speed_seen(
                    situation.history, float(known.odds.log_capacity[known.row]), is_continuous=self.continuous
                ),
            ),
            failed_s=None if failed_s is None else self.unseen_s + failed_s,
        )

    def _excess(self, latest: Observation, known: _Known, rate: float) -> float:
        """How many records wait beyond those that always do."""
        # Of a job that is not overloaded: whoever is has a backlog that is not usual.
        usual_rate = min(math.log(rate), float(known.odds.log_capacity[known.row]) + math.log(_USUALLY_FULL))
        usual_s = float(known.odds.latency_s(np.array([usual_rate]))[known.row, 0])
        usual_s = max(usual_s, 2.0 * latest.configuration.commit_interval_s if not self.continuous else 0.0)
        usually = rate * usual_s
        return latest.backlog_records - _WAIT * usually if latest.backlog_records > _MOST_WAIT * usually else 0.0

    # The reply.

    def _reply(self, situation: Situation, known: _Known, plan: Move, expected: Expectations) -> Decision:
        target = known.odds.candidates[plan.row]
        evidence = {
            **expected.of(plan.row, known.row),
            "change_cost": plan.change_cost,
            "planned_cost": plan.cost,
            "cost_of_keeping": plan.keep_cost,
        }
        high, ahead = f"{expected.rate_high_per_s:.4g} records/s", format_duration(LOOK_AHEAD_S)
        if target == situation.intended:
            sentence = (
                f"{target} stays: nothing cheaper is as good for up to {high} within {ahead}, everything that may go "
                "wrong counted."
            )
            return keep("cheapest-plan", sentence + expected.doubt, evidence)
        saving = 3600.0 * float(known.odds.cost_per_s[known.row] - known.odds.cost_per_s[plan.row])
        if plan.drained_s > 0.0 and saving < 0.0:
            code, why = "drains", f"works off what is behind within {format_duration(plan.drained_s)}"
        elif saving > 0.0:
            code, why = (
                "saves",
                f"saves {saving:.3g} {situation.prices.currency} an hour, enough for up to {high} within {ahead}",
            )
        else:
            code, why = "needed", f"is needed for up to {high} within {ahead}"
        sentence = f"{target} instead of {situation.intended}: it {why}.{expected.doubt}"
        return move(situation, target, mechanism=plan.mechanism, code=code, sentence=sentence, evidence=evidence)

    def _expectations(self, situation: Situation, known: _Known, horizon: Horizon, rate: float) -> Expectations:
        return Expectations.over(
            known.odds,
            horizon,
            slower=known.slower,
            late_used=self._late.used(situation.promises),
            widening=known.widening,
            rate_per_s=rate,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Known:
    """What was reckoned for one state of the models."""

    odds: Odds
    ways: Ways
    joins_s: float | None
    """How long an executor takes to join the running job; None where none can: losing one stops all of it."""
    depends: tuple[object, ...]
    """All that it was reckoned from: where any of that has changed, it is reckoned anew."""
    row: int
    rate_per_s: float
    slower: float
    widening: float

    def does_as_much(self, row: int) -> bool:
        """Whether what runs has shown to be of no more use than this row."""
        return bool(self.odds.log_capacity[row] >= self.odds.log_capacity[self.row] - _AS_MUCH)

    def takes_away(self, row: int) -> bool:
        """Whether this row has fewer cores than what runs."""
        cores = self.odds.candidates.total_cores
        return bool(cores[row] < cores[self.row])


def _speed_seen(history: Sequence[Observation], log_capacity: float, *, is_continuous: bool) -> float:
    """The share of what it is believed to be able to do that a job has just done while it was at work.

    Less of it is what a job shows that has stood still and come up cold, before anything says that it has failed.
    """
    latest, done, busy_s, seen_s = history[-1], 0.0, 0.0, 0.0
    enough_s = _SPEED_S if is_continuous else max(_SPEED_S, 2.0 * latest.configuration.commit_interval_s)
    for report in reversed(history):
        if report.status is not JobStatus.RUNNING or report.configuration != latest.configuration:
            break
        done += report.processed_rate_per_s * report.window_s
        busy_s += (report.busy_share or 0.0) * report.window_s
        seen_s += report.window_s
        if seen_s >= enough_s:
            break
    if seen_s < enough_s or busy_s < _AT_WORK * seen_s:
        return 1.0
    return min(1.0, max(_SLOWEST, done / busy_s / math.exp(log_capacity)))


def _in_steps(value: float, step: float) -> float:
    """The nearest of values that are evenly apart in their logarithms."""
    return math.exp(step * round(math.log(value) / step))


def _gap_s(situation: Situation, mechanism: Mechanism | None) -> float:
    """How long the job is stopped by a mechanism."""
    return next((change.gap_s for change in situation.space.changes if change.mechanism is mechanism), 0.0)


def _as_it_is(rate_per_s: float, now_s: float) -> Forecast:
    paths = tuple((rate_per_s * math.exp(_NO_FORECAST_SPREAD * sds),) * 60 for _, sds in _NO_FORECAST_SDS)
    return Forecast(
        made_at_s=now_s,
        step_s=60.0,
        levels=tuple(level for level, _ in _NO_FORECAST_SDS),
        paths_per_s=paths,
        model="as it is",
    )
