"""What other policies would have made of a recorded run: what they would have cost, and what they would have kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tidewise.control import SqliteJournal
from tidewise.core import Meter, Observation, Prices, Promises, Purpose, Reported, Usage, total
from tidewise.engines.simulator import SimulatorProfile
from tidewise.experiments.measures import good_share
from tidewise.experiments.record import JOURNAL_FILE, Run
from tidewise.experiments.run import Progress, run_experiment
from tidewise.experiments.spreading import Spreader, in_this_process
from tidewise.experiments.whatif_fit import Explained, RunFit, explain, fit_run
from tidewise.experiments.whatif_plan import Question, ReplayedExperiment, write_plan
from tidewise.experiments.whatif_recording import Recording, series_of_reports
from tidewise.experiments.whatif_replay import Trust, replay

RUNS_FOLDER = "runs"
_LOW, _HIGH = 0.05, 0.95
FEWEST_FOR_SHARE = 7
"""Replays of which it can be said what 90 % of them lie between; of fewer, what all of them do."""
_COST_LEVELS, _GOOD_LEVELS = (0.05, 0.15), (0.05, 0.15)
"""How far off a replay of the run itself explains it well, and roughly: of its cost, and of all its reports."""
_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure over all profiles that explain the run: the middle, and what 90 % of them, or few, lie between."""

    low: float
    median: float
    high: float


def interval_of(values: Sequence[float]) -> Interval:
    """Of at least one value."""
    low, high = (_LOW, _HIGH) if len(values) >= FEWEST_FOR_SHARE else (0.0, 1.0)
    least, median, most = (float(np.quantile(values, share)) for share in (low, 0.5, high))
    return Interval(low=least, median=median, high=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What the run came to."""

    cost: float
    is_reckoned: bool
    """Whether the cost follows from the reports, because nothing was metered."""
    good_share: float | None
    """None: no latency was promised."""
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy would have come to."""

    policy: str
    cost: Interval
    saved: Interval
    """Less than the run cost; negative: more."""
    good_share: Interval | None
    changes: Interval
    failed_decisions: int
    """How often it raised an error instead of deciding, altogether."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WhatIf:
    """The answer."""

    recording: Recording
    question: Question
    fit: RunFit
    explained: Explained
    actual: Actual
    replayed: Outcome
    """The run itself in the simulator, change by change: what its fit makes of cost and quality that are known."""
    outcomes: tuple[Outcome, ...]
    """In the order in which the policies were named."""

    @property
    def cost_trust(self) -> Trust:
        """By how far off the cost is when the run itself is replayed."""
        off = abs(self.replayed.cost.median - self.actual.cost)
        return _trust(off / self.actual.cost if self.actual.cost > 0.0 else 0.0, _COST_LEVELS)

    @property
    def good_trust(self) -> Trust:
        """By how far off the share of good reports is when the run itself is replayed."""
        if self.actual.good_share is None or self.replayed.good_share is None:
            return Trust.WELL
        return _trust(abs(self.replayed.good_share.median - self.actual.good_share), _GOOD_LEVELS)

    @property
    def trust(self) -> Trust:
        """No more than the half that was foretold bears, nor than the replay of what is known bears."""
        return max((self.explained.second_half.trust, self.cost_trust, self.good_trust), key=list(Trust).index)


def _trust(off: float, levels: tuple[float, float]) -> Trust:
    well, roughly = levels
    return Trust.WELL if off <= well else Trust.ROUGHLY if off <= roughly else Trust.NOT


def what_if(
    recording: Recording,
    question: Question,
    *,
    usual: SimulatorProfile,
    draws: int,
    home: Path,
    spread: Spreader = in_this_process,
    say: Callable[[str], None],
    progress: Callable[[Progress], None] | None = None,
) -> WhatIf:
    """Fit, check the fit, and run every policy on every profile that explains the run, into the folder `home`."""
    say(f"fitting a profile to {recording.name}")
    fit = fit_run(recording, usual, draws=draws)
    say("foretelling the second half of the run from the first")
    explained = explain(recording, fit, usual)
    actual = _actual(recording, question)
    plan = write_plan(home, recording, fit.draws, question)
    experiment = ReplayedExperiment(plan, faults=recording.faults)
    created = datetime.now(UTC).date().isoformat()
    runs = run_experiment(experiment, home / RUNS_FOLDER, created=created, spread=spread, progress=progress)
    by_policy = {
        policy.label: [run for run in runs if run.record.policy == policy.label] for policy in question.policies
    }
    return WhatIf(
        recording=recording,
        question=question,
        fit=fit,
        explained=explained,
        actual=actual,
        replayed=_replayed(recording, fit.draws, question, actual),
        outcomes=tuple(
            _outcome(
                label,
                costs=[_cost(run.record.meter, question.prices) for run in made],
                shares=[_share(_reports(run), recording, question.promises) for run in made],
                changes=[len(run.record.changes) for run in made],
                failed=sum(run.record.failed_decisions for run in made),
                actual=actual,
            )
            for label, made in by_policy.items()
        ),
    )


def _actual(recording: Recording, question: Question) -> Actual:
    meter, is_reckoned = recording.meter, not recording.meter
    if is_reckoned:
        core_s = sum(one.configuration.total_cores * one.window_s for one in recording.observations)
        mib_s = sum(one.configuration.total_memory_mib * one.window_s for one in recording.observations)
        meter = {Purpose.EXECUTORS: Usage(core_s=core_s, memory_mib_s=mib_s)}
    lasts = 1.0 if is_reckoned else recording.duration_s / recording.metered_s
    return Actual(
        cost=_cost(meter, question.prices) * lasts,
        is_reckoned=is_reckoned,
        good_share=_share(recording.observations, recording, question.promises),
        changes=len(recording.changes),
    )


def _replayed(recording: Recording, draws: Sequence[SimulatorProfile], question: Question, actual: Actual) -> Outcome:
    made = [replay(profile, recording, seed=_SEED) for profile in draws]
    return _outcome(
        recording.policy,
        costs=[_cost(one.meter, question.prices) for one in made],
        shares=[_share(one.observations, recording, question.promises) for one in made],
        changes=[len(recording.changes)] * len(made),
        failed=0,
        actual=actual,
    )


def _outcome(
    policy: str,
    *,
    costs: Sequence[float],
    shares: Sequence[float | None],
    changes: Sequence[int],
    failed: int,
    actual: Actual,
) -> Outcome:
    known = [share for share in shares if share is not None]
    return Outcome(
        policy=policy,
        cost=interval_of(costs),
        saved=interval_of([actual.cost - cost for cost in costs]),
        good_share=interval_of(known) if known else None,
        changes=interval_of(changes),
        failed_decisions=failed,
    )


def _reports(run: Run) -> tuple[Observation, ...]:
    with SqliteJournal.open_readonly(run.folder / JOURNAL_FILE, is_over=True) as journal:
        return tuple(event.observation for event in journal.read() if isinstance(event, Reported))


def _share(observations: Sequence[Observation], recording: Recording, promises: Promises) -> float | None:
    """Good seconds as the reports tell them, of a simulated job as of a real one."""
    if promises.latency_p95_s is None:
        return None
    series = series_of_reports(observations, seconds=recording.duration_s)
    return good_share(series, series.latency_p95_s, promises.latency_p95_s)


def _cost(meter: Meter, prices: Prices) -> float:
    used = total(meter)
    return prices.cost(core_s=used.core_s, memory_mib_s=used.memory_mib_s)
