"""What was decided in a run and why, what was expected of it, and what came: read from the journal alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from tidewise.core import (
    BadInputError,
    Censored,
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    Decided,
    Evidence,
    FaultInjected,
    Forecast,
    Journal,
    JournalEvent,
    Keep,
    Observation,
    Prices,
    Profile,
    ProfileExpired,
    ProfileFinished,
    ProfileOutcome,
    ProfileRequest,
    ProfileRequested,
    Reconfigure,
    Reported,
    at_least_s,
)
from tidewise.experiments.series import BoolArray, FloatArray, IntArray
from tidewise.observe.recoveries import Recovered, RecoveryWatch

LOOK_AHEAD_S = 600.0
"""Over how long a decision is held against what came, where it does not say it."""
HIGH_LEVEL = 0.9
"""So many of what comes, or more, should be at or below the expected high level; fewer: expectations were too low."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a decision expected; the names are those of the evidence that policies give. None: it did not say."""

    rate_per_s: float | None = None
    expected_rate_per_s: float | None = None
    expected_rate_high_per_s: float | None = None
    look_ahead_s: float | None = None
    expected_latency_p95_s: float | None = None
    expected_latency_p95_high_s: float | None = None
    expected_recovery_s: float | None = None
    expected_recovery_high_s: float | None = None
    cost_per_hour: float | None = None
    cost_per_hour_before: float | None = None
    saving_per_hour: float | None = None
    change_cost: float | None = None
    keeps_probability: float | None = None
    calibration: float | None = None

    @property
    def over_s(self) -> float:
        return self.look_ahead_s or LOOK_AHEAD_S

    @classmethod
    def of(cls, evidence: Evidence, forecast: Forecast | None = None) -> Expected:
        """From the evidence of a reason; the rates, where that has none, from the forecast that it rested on."""
        known = {name: _number(evidence.get(name)) for name in EXPECTED_NAMES}
        found = cls(**known)
        if forecast is None or found.expected_rate_high_per_s is not None:
            return found
        return replace(
            found,
            expected_rate_per_s=forecast.peak_per_s(within_s=found.over_s),
            expected_rate_high_per_s=forecast.peak_per_s(within_s=found.over_s, level=HIGH_LEVEL),
        )


EXPECTED_NAMES = tuple(one.name for one in fields(Expected))
"""The evidence that says what is expected; everything else is what a decision rests on."""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(slots=True, kw_only=True)
class ChangeStory:
    """A change that was asked for, and how it went."""

    request: ChangeRequest
    outcome: ChangeOutcome | None = None
    """None: it had not ended when the journal did, or it missed its deadline."""
    expired_at_s: float | None = None
    settled_at_s: float | None = None
    undone_at_s: float | None = None
    """When a rollback was asked for."""

    @property
    def applied_at_s(self) -> float | None:
        done = self.outcome is not None and self.outcome.status is ChangeStatus.APPLIED
        return self.outcome.finished_at_s if done and self.outcome is not None else None


@dataclass(slots=True, kw_only=True)
class ProfileStory:
    """A profile that was asked for, and what it showed."""

    request: ProfileRequest
    outcome: ProfileOutcome | None = None
    expired_at_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Step:
    """One decision; times are on the clock of the run."""

    decided: Decided
    """Without its forecast: what was made of that is in `expected`."""
    runs: Configuration | None
    """What ran when it was made; None before anything was known."""
    expected: Expected
    change: ChangeStory | None = None
    profile: ProfileStory | None = None

    @property
    def at_s(self) -> float:
        return self.decided.at_s

    @property
    def is_keep(self) -> bool:
        return isinstance(self.decided.decision, Keep)

    @property
    def acted(self) -> bool:
        """Whether something was asked of the engine."""
        return self.change is not None or self.profile is not None

    @property
    def wanted(self) -> Configuration | None:
        """What was to run after it, as far as the guards let it."""
        if self.change is not None:
            return self.change.request.target
        decision = self.decided.decision
        if not isinstance(decision, Reconfigure):
            return self.runs
        altered = [verdict.target for verdict in self.decided.verdicts if verdict.target is not None]
        return altered[-1] if altered else decision.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How many of how many were at or below the expected high level."""

    held: int = 0
    of: int = 0

    @property
    def share(self) -> float | None:
        return self.held / self.of if self.of else None

    def __add__(self, other: Held) -> Held:
        return Held(held=self.held + other.held, of=self.of + other.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came after a decision, beside what it expected."""

    begin_s: float
    end_s: float
    """The look-ahead, or the end of the journal."""
    is_whole: bool
    """Whether the whole look-ahead has passed."""
    windows: int
    """How many reports lie in it."""
    peak_rate_per_s: float | None
    rate: Held
    ran_from_s: float
    ran_until_s: float
    """When what was decided for ran: after the change, until the next one was asked for. Not later where it never did.

    Latency and cost are those of this time only."""
    ran_windows: int
    """How many reports lie in that."""
    latency_windows: int
    """How many of those tell a latency, or owe it."""
    recovering_windows: int
    """How many of these show the job while it was recovering from a failure: that is judged by the recovery."""
    without_output: int
    """How many of those owed output and had none."""
    latency_p95_s: float | None
    """The median of their p95 latencies."""
    worst_latency_p95_s: float | None
    latency: Held
    """Without those of `recovering_windows`."""
    cost_per_hour: float | None
    """Of the executors, over `ran_windows`; None where there is none, or where the prices are not known."""
    recoveries: tuple[Recovered, ...]
    recovery: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How often the expectations held."""

    rate: Held = field(default_factory=Held)
    latency: Held = field(default_factory=Held)
    recovery: Held = field(default_factory=Held)
    rate_windows: int = 0
    """How many reports the rate was told by; each counts once for every decision that looked ahead to it."""
    latency_windows: int = 0


class Account:
    """A journal, read once; all that is asked of it later is answered from memory."""

    def __init__(self, events: Iterable[JournalEvent], *, prices: Prices | None) -> None:
        """BadInputError where no controller ever began."""
        self.prices = prices
        self.steps: list[Step] = []
        self.faults: list[FaultInjected] = []
        self.recoveries: list[Recovered] = []
        self.policy = ""
        self._reports: list[Observation] = []
        self._changes: dict[str, ChangeStory] = {}
        self._profiles: dict[str, ProfileStory] = {}
        self._runs: Configuration | None = None
        self._watch = RecoveryWatch()
        began_s: float | None = None
        self.end_s = 0.0
        """The latest time of the journal."""
        for event in events:
            if began_s is None and isinstance(event, ControllerStarted):
                began_s = event.at_s
                self.end_s = began_s
                self.policy = event.policy
            self.end_s = max(self.end_s, event.at_s)
            self._take(event)
        if began_s is None:
            raise BadInputError("the journal is empty: no controller has begun yet")
        self.began_s: float = began_s
        """When control began: what people count the times of the run from."""
        self._windows = _Windows(self._reports, prices, self.recoveries)
        self._times_s = [step.at_s for step in self.steps]
        self._moves_s = sorted(story.request.requested_at_s for story in self._changes.values())

    @classmethod
    def read(cls, journal: Journal, *, prices: Prices | None) -> Account:
        return cls(journal.read(), prices=prices)

    @property
    def lasted_s(self) -> float:
        return self.end_s - self.began_s

    def at(self, time_s: float) -> Step | None:
        """The latest decision up to this time of the run's clock; None before the first."""
        index = bisect_right(self._times_s, time_s)
        return self.steps[index - 1] if index else None

    def came(self, step: Step) -> Came:
        """What came within the look-ahead of a decision."""
        expected, begin_s = step.expected, step.at_s
        end_s = begin_s + expected.over_s
        seen = self._windows.between(begin_s, end_s)
        ran_from_s, ran_until_s = self._judged_s(step, end_s)
        judged = self._windows.between(ran_from_s, ran_until_s)
        limit_per_s, limit_s = expected.expected_rate_high_per_s, expected.expected_latency_p95_high_s
        recoveries = tuple(one for one in self.recoveries if begin_s <= one.at_s < end_s)
        return Came(
            begin_s=begin_s,
            end_s=min(end_s, self.end_s),
            is_whole=end_s <= self.end_s,
            windows=len(seen.rates_per_s),
            peak_rate_per_s=float(seen.rates_per_s.max()) if len(seen.rates_per_s) else None,
            rate=_held(seen.rates_per_s, limit_per_s),
            ran_from_s=ran_from_s,
            ran_until_s=max(ran_from_s, min(ran_until_s, self.end_s)),
            ran_windows=len(judged.rates_per_s),
            latency_windows=len(judged.latencies_s),
            recovering_windows=len(judged.latencies_s) - len(judged.calm_latencies_s),
            without_output=int(np.isinf(judged.latencies_s).sum()),
            latency_p95_s=_finite(judged.latencies_s, 0.5),
            worst_latency_p95_s=_finite(judged.latencies_s, 1.0),
            latency=_held(judged.calm_latencies_s, limit_s),
            cost_per_hour=judged.cost_per_hour,
            recoveries=recoveries,
            recovery=_recovered(recoveries, expected.expected_recovery_high_s),
        )

    def calibration(self, until_s: float | None = None) -> Calibration:
        """Over all decisions, or over what had come of them by a time.

        A window counts once for each decision whose look-ahead it lies in; a failure once, for the decision before it.
        """
        rate, latency, recovery = Held(), Held(), Held()
        rate_windows: set[int] = set()
        latency_windows: set[int] = set()
        last_s = self.end_s if until_s is None else until_s
        for index, step in enumerate(self.steps):
            if step.at_s >= last_s:
                break
            expected = step.expected
            end_s = min(step.at_s + expected.over_s, last_s)
            if expected.expected_rate_high_per_s is not None:
                seen = self._windows.between(step.at_s, end_s)
                rate += _held(seen.rates_per_s, expected.expected_rate_high_per_s)
                rate_windows.update(seen.windows)
            if expected.expected_latency_p95_high_s is not None:
                judged = self._windows.between(*self._judged_s(step, end_s))
                latency += _held(judged.calm_latencies_s, expected.expected_latency_p95_high_s)
                latency_windows.update(judged.calm_windows.tolist())
            next_s = self._times_s[index + 1] if index + 1 < len(self.steps) else self.end_s
            until_next_s = min(next_s, end_s)
            failures = [one for one in self.recoveries if step.at_s <= one.at_s < until_next_s]
            recovery += _recovered(failures, expected.expected_recovery_high_s)
        return Calibration(
            rate=rate,
            latency=latency,
            recovery=recovery,
            rate_windows=len(rate_windows),
            latency_windows=len(latency_windows),
        )

    def _judged_s(self, step: Step, end_s: float) -> tuple[float, float]:
        """When what was decided for ran: after the change, until the next one was asked for. Empty where it never did.

        A decision that the guards stopped is judged by nothing: what it expected was about something else.
        """
        begin_s = step.at_s
        if step.change is not None:
            if step.change.applied_at_s is None:
                return begin_s, begin_s
            begin_s = step.change.applied_at_s
        elif isinstance(step.decided.decision, Reconfigure):
            return begin_s, begin_s
        index = bisect_right(self._moves_s, step.at_s)
        if index < len(self._moves_s):
            end_s = min(end_s, self._moves_s[index])
        return begin_s, max(begin_s, end_s)

    # Reading the journal.

    def _take(self, event: JournalEvent) -> None:
        if isinstance(event, Reported):
            self._take_report(event.observation)
        elif isinstance(event, Decided):
            expected = Expected.of(event.decision.reason.evidence, event.forecast)
            self.steps.append(Step(decided=replace(event, forecast=None), runs=self._runs, expected=expected))
        elif isinstance(event, FaultInjected):
            self.faults.append(event)
            self.recoveries += self._watch.failed(event.fault, event.at_s)
        elif isinstance(event, ControllerStarted):
            self._runs = event.configuration
        elif isinstance(event, ChangeRequested | ChangeFinished | ChangeExpired | ChangeSettled):
            self._take_change(event)
        elif isinstance(event, ProfileRequested):
            story = ProfileStory(request=event.request)
            self._profiles[event.request.request_id] = story
            if self.steps and isinstance(self.steps[-1].decided.decision, Profile):
                self.steps[-1].profile = story
        elif isinstance(event, ProfileFinished) and event.outcome.request_id in self._profiles:
            self._profiles[event.outcome.request_id].outcome = event.outcome
        elif isinstance(event, ProfileExpired) and event.request_id in self._profiles:
            self._profiles[event.request_id].expired_at_s = event.at_s

    def _take_report(self, observation: Observation) -> None:
        if self._reports and observation.time_s <= self._reports[-1].time_s:
            return
        self._reports.append(replace(observation, operators=()))
        self._runs = observation.configuration
        self.recoveries += self._watch.learn(observation)

    def _take_change(self, event: ChangeRequested | ChangeFinished | ChangeExpired | ChangeSettled) -> None:
        if isinstance(event, ChangeRequested):
            story = ChangeStory(request=event.request)
            self._changes[event.request.request_id] = story
            undone = self._changes.get(event.request.undoes or "")
            if undone is not None:
                undone.undone_at_s = event.at_s
            # A request is written with its decision, right after it.
            if self.steps and isinstance(self.steps[-1].decided.decision, Reconfigure):
                self.steps[-1].change = story
            return
        request_id = event.outcome.request_id if isinstance(event, ChangeFinished) else event.request_id
        known = self._changes.get(request_id)
        if known is None:
            return
        if isinstance(event, ChangeFinished):
            known.outcome = event.outcome
        elif isinstance(event, ChangeExpired):
            known.expired_at_s = event.at_s
        else:
            known.settled_at_s = event.at_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    windows: range
    """Their numbers."""
    rates_per_s: FloatArray
    latencies_s: FloatArray
    """Infinite where output was due and none came; windows in which nothing was to do are left out."""
    calm_latencies_s: FloatArray
    """The same without those in which the job was recovering from a failure: these are judged by the recovery."""
    calm_windows: IntArray
    """The numbers of these."""
    cost_per_hour: float | None


class _Windows:
    """The reports as arrays, in order of time."""

    def __init__(self, reports: Sequence[Observation], prices: Prices | None, recoveries: Sequence[Recovered]) -> None:
        self._ends_s: FloatArray = np.array([one.time_s for one in reports], dtype=np.float64)
        self._lengths_s: FloatArray = np.array([one.window_s for one in reports], dtype=np.float64)
        self._begins_s: FloatArray = self._ends_s - self._lengths_s
        self._rates_per_s: FloatArray = np.array([one.load_per_s for one in reports], dtype=np.float64)
        self._latencies_s: FloatArray = np.array([_latency_s(one) for one in reports], dtype=np.float64)
        self._calm: BoolArray = np.ones(len(reports), dtype=np.bool_)
        for one in recoveries:
            took_s = at_least_s(one.took_s)
            self._calm &= (self._ends_s <= one.at_s) | (self._begins_s >= one.at_s + took_s)
        self._costs: FloatArray | None = None
        if prices is not None:
            self._costs = np.array([prices.per_hour(one.configuration) for one in reports], dtype=np.float64)

    def between(self, begin_s: float, end_s: float) -> _Stretch:
        """The windows that begin and end between these times."""
        # A thousandth: a window that begins with the decision is one that comes after it.
        first = int(np.searchsorted(self._begins_s, begin_s - 1e-3))
        end = max(first, int(np.searchsorted(self._ends_s, end_s + 1e-3)))
        latencies_s, lengths_s = self._latencies_s[first:end], self._lengths_s[first:end]
        cost = None
        if self._costs is not None and end > first:
            cost = float((self._costs[first:end] * lengths_s).sum() / lengths_s.sum())
        known: BoolArray = ~np.isnan(latencies_s)
        calm: BoolArray = known & self._calm[first:end]
        return _Stretch(
            windows=range(first, end),
            rates_per_s=self._rates_per_s[first:end],
            latencies_s=latencies_s[known],
            calm_latencies_s=latencies_s[calm],
            calm_windows=first + np.flatnonzero(calm),
            cost_per_hour=cost,
        )


def _latency_s(report: Observation) -> float:
    if report.latency_p95_s is not None:
        return report.latency_p95_s
    return np.nan if report.is_idle else np.inf


def _held(values: FloatArray, limit: float | None) -> Held:
    return Held() if limit is None else Held(held=int((values <= limit).sum()), of=len(values))


def _finite(values: FloatArray, level: float) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.quantile(known, level)) if len(known) else None


def _recovered(recoveries: Sequence[Recovered], limit_s: float | None) -> Held:
    """Those that were cut off below the limit say nothing."""
    if limit_s is None:
        return Held()
    told = [one.took_s for one in recoveries if not isinstance(one.took_s, Censored) or one.took_s.at_least > limit_s]
    return Held(held=sum(not isinstance(took_s, Censored) and took_s <= limit_s for took_s in told), of=len(told))
