"""Demeter: copies of the job are profiled for the load to come, and the cheapest configuration that is trusted runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tidewise.core import (
    Configuration,
    ConfigurationSpace,
    Decision,
    Evidence,
    Keep,
    Mechanism,
    Observation,
    Profile,
    ProfileOutcome,
    Reason,
    Reconfigure,
    Situation,
    format_duration,
)
from tidewise.core.checks import require, require_finite
from tidewise.forecast.ladder import LADDER
from tidewise.forecast.model import STEPS
from tidewise.forecast.series import RateSeries, filled
from tidewise.host.threads import on_one_thread
from tidewise.policies.demeter_models import (
    SCORE_LIMIT,
    Choices,
    Expected,
    Fits,
    Knowledge,
    best_latency_s,
    latency_score,
    never_came_up,
    scored,
)
from tidewise.policies.replies import cooling_down, keep, move, not_now
from tidewise.qos import Candidates

_SAMPLES_KEPT = 1100
"""The ladder looks at the last 1,000 samples."""
_BLIND_AFTER = 2
"""So many profiles in a row of which no copy came up mean that the engine cannot profile."""
_BLIND_S = 3600.0
"""So long no other is asked for then."""
_SAME_COST = 1e-9
_ROUNDING = 1e-9


@dataclass(slots=True, kw_only=True)
class Demeter:
    """Learns from profiled copies what each configuration would do at the load to come, and runs the cheapest trusted.

    Two loops over segments of load (`segment_per_s` wide). The segment is that of the target rate: the largest of the
    mean rates that are forecast, ten of a minute each by default, plus `headroom_share`.

    PROFILE: while fewer than `enough_profiles` were measured inside the segment of the rate that is forecast (the
    headroom left out: copies run at the rate there is), `copies` configurations are proposed (`first_copies` before
    anything is known), run beside the job on its input, measured and broken on purpose. They are those that are
    expected to move the front of CPU and memory the most, below the default's and as far as the limits are likely to be
    kept. What counts for the segment already is not run again. Finding them takes `think_s`, from the end of the last
    profile on.

    OPTIMISE, at most once per `cooldown_s`: if the latency of the last `sample_s` is bad, to the default configuration;
    if nothing is known of the segment, stay; else to the configuration with the lowest cost (CPU and memory relative to
    the default's, the mean of both) among those whose (mean + spread) x `margin` keeps both limits: a latency score of
    0.5, which is `tolerated_latency` times the best latency of any profile, and a recovery of `recovery_limit_s`. If
    there is none, to the default. Where no recovery was measured that tells of the segment, the latency alone is held
    against its limit, and the decision says so. The forecast and the latency rest on whole samples, so that a decision
    changes about every `sample_s`, however often it is asked for.

    A profile counts for a segment if it was measured inside, or was stable above, or bad below it. A Gaussian process
    (Matern-5/2, a length per dimension) per segment and output; CPU and memory are known exactly. Models of up to two
    neighbouring segments on either side with `least_profiles` profiles join in, weighed by how well they rank what
    counts for this segment.

    Where this differs from the original: a base model is shifted to the level of the segment, and one that ranks worse
    is dropped by a rule and not at random; the models of the neighbours rest on what was measured inside them; a
    profile stands at the rate that was offered, where the original stored what a bad copy processed; a search that
    comes to nothing costs no further `think_s`; the default is the largest that was meant to run or seen to run, which
    is what the job was started with unless somebody enlarges it, and nothing larger is looked at; of the 20 ARIMA
    models of the forecast each is an ARIMA(p, 1, 0), and they are merged by the errors that each has made; what to
    profile is found by this project's own search, the expected improvement of the front times the probability that the
    limits are kept, and not by noisy expected hypervolume improvement; how long a copy takes to come up, 120 s there,
    is the engine's. Not published, and so this project's own: the formula of the latency score; `copies`,
    `first_copies` and `enough_profiles`, set so that about as many profiles run as were released; how many profiles
    make a segment known; what the processes expect before they see anything (lengths, noise), on which it depends how
    soon a configuration is trusted.
    """

    name: ClassVar[str] = "demeter"

    segment_per_s: float = 10_000.0
    """How wide a segment of load is, in events per second; for small jobs about a tenth of the largest load."""
    headroom_share: float = 0.1
    """By how much the target rate lies above the largest rate that is forecast."""
    sample_s: float = 60.0
    """The forecast is made of means over this time, and so is the latency that is looked at; less on a compressed day,
    but no less than a report."""
    forecast_s: float = 600.0
    """How far the forecast looks ahead, at most 30 samples."""
    cooldown_s: float = 600.0
    """The least time from the end of a change to the next one."""
    tolerated_latency: float = 2.1
    """A latency of more than so many times the best is bad."""
    recovery_limit_s: float | None = None
    """How long a recovery may take; none: as was promised, and 180 s where nothing was."""
    margin: float = 1.25
    """By how much what is expected, with its spread, is multiplied before it is held against a limit."""
    think_s: float = 590.0
    """How long the original's search takes for one proposal; this one takes milliseconds, so 0 is possible."""
    copies: int = 2
    """How many copies run in one profile."""
    first_copies: int = 5
    """How many copies run in the first profile, when nothing is known."""
    enough_profiles: int = 8
    """So many profiles inside a segment are enough."""
    least_profiles: int = 3
    """With fewer profiles nothing is known of a segment, and a neighbouring one has no say."""
    settle_s: float = 60.0
    """How long a copy settles after it came up."""
    measure_s: float = 60.0
    """How long a copy is measured."""
    give_up_s: float = 360.0
    """When a copy that has not recovered is given up."""
    parallelism: tuple[int, ...] | None = None
    """The numbers of slots to choose from, as the original does: executors = slots in all / slots per executor, rounded
    up; none: every configuration of the space."""
    default: Configuration | None = None
    """Where to go in trouble; none: the largest in cores and memory that was meant to run, or seen to run, so far."""
    mechanism: Mechanism | None = None
    """How to change the job; none leaves it to the engine."""
    seed: int = 0
    """Of the samples by which models are weighed and profiles proposed."""

    _rates: RateSeries = field(init=False, repr=False, compare=False)
    _fits: Fits = field(init=False, repr=False, compare=False)
    _since_s: float | None = field(init=False, repr=False, compare=False, default=None)
    """When the first report came."""
    _largest: Configuration | None = field(init=False, repr=False, compare=False, default=None)
    """The largest that reports have shown."""
    _target: tuple[tuple[int, int], float | None] | None = field(init=False, repr=False, compare=False, default=None)
    """The last target rate, with the number of the sample that it was forecast from."""
    _choices: tuple[tuple[ConfigurationSpace, Configuration], Choices] | None = field(
        init=False, repr=False, compare=False, default=None
    )
    _known: tuple[tuple[ProfileOutcome, ...], _Known] | None = field(
        init=False, repr=False, compare=False, default=None
    )

    def __post_init__(self) -> None:
        require_finite("segment_per_s", self.segment_per_s, above=0.0)
        require_finite("headroom_share", self.headroom_share, least=0.0)
        require_finite("sample", self.sample_s, above=0.0)
        require_finite("forecast", self.forecast_s, above=0.0)
        most_s = STEPS * self.sample_s
        require(
            self.forecast_s <= most_s,
            f"forecast must be at most {STEPS} times sample, which is {format_duration(most_s)}, "
            f"not {format_duration(self.forecast_s)}",
        )
        require_finite("cooldown", self.cooldown_s, least=0.0)
        require_finite("tolerated_latency", self.tolerated_latency, above=1.0)
        if self.recovery_limit_s is not None:
            require_finite("recovery_limit", self.recovery_limit_s, above=0.0)
        require_finite("margin", self.margin, least=1.0)
        require_finite("think", self.think_s, least=0.0)
        for name in ("copies", "first_copies", "enough_profiles", "least_profiles"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require_finite("settle", self.settle_s, least=0.0)
        require_finite("measure", self.measure_s, above=0.0)
        require_finite("give_up", self.give_up_s, above=0.0)
        if self.parallelism is not None:
            least = min(self.parallelism, default=0)
            require(least >= 1, f"parallelism needs numbers of at least 1, not {list(self.parallelism)}")
        require(self.seed >= 0, f"seed must not be negative, not {self.seed}")
        self._rates = RateSeries(sample_s=self.sample_s, keep=_SAMPLES_KEPT)
        self._fits = Fits(seed=self.seed)

    @property
    def history_s(self) -> float:
        return self.sample_s

    def requires(self, space: ConfigurationSpace) -> str | None:
        """What a space lacks for this policy; None where nothing is missing."""
        if len(space) < 2:
            return "demeter chooses between configurations, and the space has only one: give it more executors or cores"
        if self.parallelism is not None and not _rows_with(Candidates.of(space), self.parallelism).any():
            return f"no configuration of the space has a parallelism of {list(self.parallelism)}: widen one of them"
        return None

    def learn(self, observation: Observation) -> None:
        """The rate goes into the forecast; of the configurations the largest is remembered."""
        if self._since_s is None:
            self._since_s = observation.time_s
        self._largest = _larger(self._largest, observation.configuration)
        self._rates.add(observation)

    def decide(self, situation: Situation) -> Decision:
        waiting = not_now(situation)
        if waiting is not None:
            return waiting
        known = self._knowledge(situation)
        optimised = self._optimise(situation, known)
        # A change comes first: a profile that the guards refuse would otherwise be asked for instead for ever.
        if isinstance(optimised, Reconfigure):
            return optimised
        return self._profile(situation, known) or optimised

    # Optimise.

    def _optimise(self, situation: Situation, known: _Known) -> Decision:
        resting = cooling_down(situation, self.cooldown_s)
        if resting is not None:
            return resting
        knowledge = known.knowledge
        bad = self._bad_latency(situation, known.best_latency_s)
        if bad is not None:
            return self._move(situation, knowledge.choices.default, code="bad-latency", sentence=bad)
        rate = self._target_rate_per_s()
        if rate is None:
            return keep("no-forecast", "The load of no whole sample is known, so nothing can be forecast.")
        expected = knowledge.expected(knowledge.segment(rate))
        if expected is None:
            sentence = f"No profile tells what a configuration does at about {rate:.0f} records/s."
            return keep("nothing-known", sentence, {"target_rate_per_s": rate})
        return self._cheapest(situation, knowledge.choices, expected, rate)

    def _cheapest(self, situation: Situation, choices: Choices, expected: Expected, rate: float) -> Decision:
        limit_s = self._recovery_limit_s(situation)
        rows = np.flatnonzero(expected.trusted(margin=self.margin, recovery_limit_s=limit_s))
        evidence: dict[str, float | int | str | bool | None] = {"target_rate_per_s": rate, "trusted": len(rows)}
        limits = "the limits"
        if expected.log_recovery is None:
            limits = "the limit of latency (no recovery was measured, and that limit is left out)"
        if len(rows) == 0:
            sentence = f"For {rate:.0f} records/s no configuration is trusted to keep {limits}: back to the default."
            return self._move(situation, choices.default, code="none-trusted", sentence=sentence, evidence=evidence)
        cost = choices.cost[rows]
        runs = choices.table.row_of(situation.intended)
        if runs is not None and runs in rows and choices.cost[runs] <= cost.min() + _SAME_COST:
            row = runs  # Slots and commits cost nothing: they alone are no reason to restart.
        else:
            row = int(rows[np.lexsort((expected.score[rows], cost))[0]])
        evidence |= {"cost": float(choices.cost[row]), "latency_score": float(expected.score[row])}
        evidence["recovery_s"] = None if expected.log_recovery is None else float(np.exp(expected.log_recovery[row]))
        target = choices.table[row]
        sentence = f"For {rate:.0f} records/s {target} is the cheapest of {len(rows)} that are trusted with {limits}."
        return self._move(situation, target, code="cheapest-trusted", sentence=sentence, evidence=evidence)

    def _move(
        self, situation: Situation, target: Configuration, *, code: str, sentence: str, evidence: Evidence | None = None
    ) -> Decision:
        return move(situation, target, mechanism=self.mechanism, code=code, sentence=sentence, evidence=evidence)

    def _bad_latency(self, situation: Situation, best_s: float | None) -> str | None:
        """What is wrong with the latency of the last sample; None if nothing is, or nobody knows what is usual."""
        if best_s is None:
            return None
        recent = [seen for seen in situation.history if seen.time_s > situation.now_s - self.sample_s]
        latencies = [seen.latency_p95_s for seen in recent if seen.latency_p95_s is not None]
        if not latencies:
            due = any(not seen.is_idle and seen.latency_p50_s is None for seen in recent)
            silent = f"There was no output for {format_duration(self.sample_s)}: back to the default."
            return silent if due else None
        mean_s = sum(latencies) / len(latencies)
        if latency_score(mean_s, best_s, tolerated=self.tolerated_latency) <= SCORE_LIMIT:
            return None
        times = f"{self.tolerated_latency:g} times the best, {format_duration(best_s)}"
        last = f"the last {format_duration(self.sample_s)}"
        return f"The latency of {last}, {format_duration(mean_s)}, is above {times}: back to the default."

    # Profile.

    def _profile(self, situation: Situation, known: _Known) -> Profile | Keep | None:
        """The profile to run now, or why none can be; None where there is nothing to profile, or it is not the time."""
        if situation.profile_on is not None or self._since_s is None:
            return None
        finished = [outcome.finished_at_s for outcome in situation.profiles[-1:]]
        if situation.now_s - max([self._since_s, *finished]) < self.think_s:
            return None
        rate = self._target_rate_per_s()
        return _blind(situation) or (None if rate is None else self._wanted_profile(situation, known, rate))

    def _wanted_profile(self, situation: Situation, known: _Known, rate: float) -> Profile | None:
        knowledge = known.knowledge
        # Copies run at the rate there is; the headroom is for the job.
        segment = knowledge.segment(rate / (1.0 + self.headroom_share))
        inside = len(knowledge.measured_in(segment))
        if inside >= self.enough_profiles:
            return None
        counting = {each.configuration for each in knowledge.counting_for(segment)}
        proposed = knowledge.suggest(
            segment,
            count=self.copies if known.has_profiles else self.first_copies,
            recovery_limit_s=self._recovery_limit_s(situation),
        )
        candidates = tuple(each for each in proposed if each not in counting)
        if not candidates:
            return None
        width = f"{segment * self.segment_per_s:.0f} to {(segment + 1) * self.segment_per_s:.0f} records/s"
        return Profile(
            candidates=candidates,
            reason=Reason(
                code="too-little-known",
                sentence=f"{inside} profiles were measured at {width}, where the load will be; more are to be known.",
                evidence={"target_rate_per_s": rate, "inside": inside, "counting": len(counting)},
            ),
            settle_s=self.settle_s,
            measure_s=self.measure_s,
            inject_failure=True,
            recovery_limit_s=self.give_up_s,
        )

    # What both loops rest on.

    def _target_rate_per_s(self) -> float | None:
        """The largest mean rate of a sample to come, with headroom; None while no sample is complete."""
        sample = (self._rates.epoch, self._rates.count)
        if self._target is None or self._target[0] != sample:
            self._target = (sample, self._forecast_per_s())
        return self._target[1]

    @on_one_thread
    def _forecast_per_s(self) -> float | None:
        rates = filled(self._rates.history(until=self._rates.count, at_most=_SAMPLES_KEPT))
        if not len(rates):
            return None
        path = LADDER.path(rates, None)
        steps = max(1, math.ceil(self.forecast_s / self.sample_s - _ROUNDING))
        largest = rates[-1] if path is None else path[:steps].max()
        return float(largest) * (1.0 + self.headroom_share)

    def _knowledge(self, situation: Situation) -> _Known:
        choices, outcomes = self._choices_in(situation), tuple(situation.profiles)
        if self._known is None or self._known[1].knowledge.choices is not choices or self._known[0] != outcomes:
            measurements = [each for outcome in outcomes for each in outcome.measurements if not never_came_up(each)]
            best_s = best_latency_s(measurements)
            # Where no copy gave any output, each is as bad as the other, whatever the best would be.
            profiles = [
                scored(each, best_s=best_s or 1.0, tolerated=self.tolerated_latency, recovery_limit_s=self.give_up_s)
                for each in measurements
            ]
            knowledge = Knowledge(
                profiles,
                choices,
                segment_per_s=self.segment_per_s,
                least_profiles=self.least_profiles,
                fits=self._fits,
                seed=self.seed,
            )
            found = _Known(knowledge=knowledge, best_latency_s=best_s, has_profiles=bool(profiles))
            self._known = (outcomes, found)
        return self._known[1]

    def _choices_in(self, situation: Situation) -> Choices:
        # What is meant to run counts as well: the first reports may lack executors that are still to come.
        space, wanted = situation.space, self.default or _larger(self._largest, situation.intended)
        if self._choices is None or self._choices[0] != (space, wanted):
            self._choices = ((space, wanted), self._choose_from(space, wanted))
        return self._choices[1]

    def _choose_from(self, space: ConfigurationSpace, wanted: Configuration) -> Choices:
        default = wanted if wanted in space else space.nearest(wanted)
        table = Candidates.of(space)
        # State is not cut anew: Demeter has no such parameter.
        partitions = np.nan if default.state_partitions is None else float(default.state_partitions)
        kept = np.isclose(table.state_partitions, partitions, equal_nan=True)
        # The default is the largest: the front that is looked for lies below it, in CPU and in memory.
        kept &= (table.total_cores <= default.total_cores) & (table.total_memory_mib <= default.total_memory_mib)
        if self.parallelism is not None:
            kept &= _rows_with(table, self.parallelism)
        chosen = [table[int(row)] for row in np.flatnonzero(kept)]
        return Choices(Candidates.listing(chosen or [default]), default)

    def _recovery_limit_s(self, situation: Situation) -> float:
        return self.recovery_limit_s or situation.promises.recovery_s or 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the profiles of a situation amount to."""

    knowledge: Knowledge
    best_latency_s: float | None
    has_profiles: bool


def _larger(one: Configuration | None, other: Configuration) -> Configuration:
    """The other where it has no less of cores and memory, and more of one of them; else the one."""
    if one is None:
        return other
    cores, memory_mib = other.total_cores - one.total_cores, other.total_memory_mib - one.total_memory_mib
    return other if min(cores, memory_mib) >= 0 and max(cores, memory_mib) > 0 else one


def _rows_with(table: Candidates, parallelism: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The configurations with the fewest executors that have one of these numbers of slots."""
    fewest = np.ceil(np.array(parallelism, dtype=np.float64)[:, None] / table.slots_per_executor)
    return np.asarray((fewest == table.executors).any(axis=0))


def _blind(situation: Situation) -> Keep | None:
    """Why no further profile is asked for where the engine cannot run any; None where it can, as far as is known."""
    last = situation.profiles[-_BLIND_AFTER:]
    if len(last) < _BLIND_AFTER or not all(never_came_up(each) for outcome in last for each in outcome.measurements):
        return None
    left_s = last[-1].finished_at_s + _BLIND_S - situation.now_s
    if left_s <= 0.0:
        return None
    told = next((each.detail for outcome in reversed(last) for each in outcome.measurements), "nothing was told")
    sentence = f"No copy of the last {_BLIND_AFTER} profiles came up ({told}): the next is tried in "
    return keep("cannot-profile", f"{sentence}{format_duration(left_s)}.")
