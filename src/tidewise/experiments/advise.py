"""What a policy would do with a job that it may not touch, and what that would cost and save."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tidewise import __version__
from tidewise.control import ADVISED, Loop
from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeRequested,
    ChangeSettled,
    Configuration,
    ControllerStarted,
    Decided,
    ImpossibleChangeError,
    JournalEvent,
    Keep,
    Mechanism,
    Observation,
    Origin,
    Profile,
    ProfileExpired,
    ProfileFinished,
    ProfileRequested,
    Reconfigure,
    Reported,
    Ticked,
)
from tidewise.experiments.advise_terms import Terms
from tidewise.experiments.experiment import forecaster_of
from tidewise.experiments.explain import Expected

HOURS_PER_MONTH = 730.0
_LASTING_S = 600.0
"""A policy that wants to keep what runs, or less than it wanted before, has to want it for so long before it counts: it
may only be waiting, and it is asked about the job as it runs, where the first step saves most and the next little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something new to tell: what would be done now, and what is expected of it."""

    at_s: float
    """Since the watching began."""
    decided: Decided
    source: Configuration
    """What runs."""
    target: Configuration | None
    """What would run instead; None where the job would be left as it is, or only measured."""
    mechanism: Mechanism | None
    """How the job would be brought there."""
    gap_s: float
    """For how long that would stop its output."""
    expected: Expected
    saving_per_hour: float
    """Negative: it would cost so much more."""
    change_cost: float
    """Of bringing it there, once."""
    currency: str

    @property
    def is_withdrawn(self) -> bool:
        """Whether an earlier advice does not hold any more: the job is best left as it is."""
        return isinstance(self.decided.decision, Keep)

    @property
    def candidates(self) -> tuple[Configuration, ...]:
        """What would be measured in copies beside the job."""
        decision = self.decided.decision
        return decision.candidates if isinstance(decision, Profile) else ()


@dataclass(slots=True, kw_only=True)
class Bill:
    """What a job costs as it runs, and what it would cost as advised; executors only."""

    seconds: float = 0.0
    """How long it was watched, in reports."""
    cost: float = 0.0
    advised_cost: float = 0.0
    """Without what the changes themselves would cost."""
    changes: int = 0
    """How many would have been made."""
    change_cost: float = 0.0
    """Of all of them together."""
    windows: int = 0
    good_windows: int = 0
    """In how many of them the latency promise was kept."""

    def per_hour(self, amount: float) -> float | None:
        return 3600.0 * amount / self.seconds if self.seconds > 0.0 else None

    @property
    def saving_per_hour(self) -> float | None:
        """Changes not counted. None before the first report; negative: the advice would cost more."""
        return self.per_hour(self.cost - self.advised_cost)

    @property
    def saving_per_month(self) -> float | None:
        return None if self.saving_per_hour is None else HOURS_PER_MONTH * self.saving_per_hour


@dataclass(slots=True, kw_only=True)
class _Doubt:
    """Something that is wanted instead of what was advised, and has not been wanted for long."""

    since_s: float
    target: Configuration | None
    """The dearest of what was wanted since then; None: to keep what runs."""
    decided: Decided
    """The decision that wanted it: its reason is that of the advice."""
    more: float = 0.0
    """What running as it runs has cost since then beyond what was advised."""


@dataclass(slots=True)
class AdviceBook:
    """Keeps what was advised: tells each new advice once, and adds up what it would have cost.

    The policy is asked again and again about the job as it runs. What it wants is taken to run from then on: nobody
    sees what the job would have done there. More than was wanted before is taken at once; less, or nothing, when it has
    been wanted for `_LASTING_S`.
    """

    terms: Terms
    began_s: float | None = None
    """When the first controller began, on the clock of the reports; None before it has."""
    told: list[Advice] = field(default_factory=list)
    """All that was new, oldest first."""
    bill: Bill = field(default_factory=Bill)
    decisions: int = 0
    latest: Decided | None = None
    """The last decision of the policy."""
    _runs: Configuration | None = None
    _wanted: Configuration | None = None
    """What would run; None: what runs."""
    _measured: tuple[Configuration, ...] = ()
    _doubt: _Doubt | None = None

    def note(self, event: JournalEvent) -> Advice | None:
        """Take in what a loop has written down; the advice, where it is new."""
        if isinstance(event, Reported):
            self._pay(event.observation)
        elif isinstance(event, ControllerStarted):
            self._runs = event.configuration
            self.began_s = event.at_s if self.began_s is None else self.began_s
        elif isinstance(event, Decided) and event.origin is Origin.POLICY:
            return self._decided(event)
        return None

    def _pay(self, observation: Observation) -> None:
        terms, bill = self.terms, self.bill
        hours = observation.window_s / 3600.0
        self._runs = observation.configuration
        bill.seconds += observation.window_s
        bill.cost += hours * terms.prices.per_hour(observation.configuration)
        advised = hours * terms.prices.per_hour(self._wanted or observation.configuration)
        bill.advised_cost += advised
        if self._doubt is not None:
            self._doubt.more += hours * terms.prices.per_hour(observation.configuration) - advised
        bill.windows += 1
        bill.good_windows += not terms.promises.broken_by(observation)

    def _decided(self, event: Decided) -> Advice | None:
        self.decisions += 1
        self.latest = replace(event, forecast=None)
        runs = self._runs
        if runs is None:
            return None
        if isinstance(event.decision, Profile):
            is_new = _is_advised(event) and event.decision.candidates != self._measured
            self._measured = event.decision.candidates
            return self._tell(event, runs, None, at_s=event.at_s) if is_new else None
        target, decided = self._lasting(event)
        if target == self._wanted:
            return None
        before, self._wanted = self._wanted or runs, target
        advice = self._tell(decided, runs, target, at_s=event.at_s)
        self.bill.change_cost += self._change_cost(before, target or runs, advice)
        self.bill.changes += before != (target or runs)
        return advice

    def _lasting(self, event: Decided) -> tuple[Configuration | None, Decided]:
        """What is taken to be wanted from now on, and the decision that wanted it."""
        wanted, prices, doubt, target = self._wanted, self.terms.prices, self._doubt, advised_target(event)
        if wanted is None or (target is not None and prices.per_hour(target) >= prices.per_hour(wanted)):
            self._doubt = None
            return target, event
        if doubt is None or (doubt.target is None) != (target is None):
            self._doubt = _Doubt(since_s=event.at_s, target=target, decided=event)
            return wanted, event
        # Of what costs the same the newest is told, and of several ways to keep what runs as well.
        if target is None or doubt.target is None or prices.per_hour(target) >= prices.per_hour(doubt.target):
            doubt.target, doubt.decided = target, event
        if event.at_s - doubt.since_s < _LASTING_S:
            return wanted, event
        if doubt.target is None:
            self.bill.advised_cost += doubt.more
        self._doubt = None
        return doubt.target, doubt.decided

    def _tell(self, event: Decided, runs: Configuration, target: Configuration | None, *, at_s: float) -> Advice:
        expected = Expected.of(event.decision.reason.evidence, event.forecast)
        saving = 0.0
        if target is not None:
            prices = self.terms.prices
            saving = prices.per_hour(runs) - prices.per_hour(target)
            if expected.saving_per_hour is not None and target == advised_target(event):
                saving = expected.saving_per_hour
        wanted = event.decision.mechanism if isinstance(event.decision, Reconfigure) else None
        mechanism, gap_s = None, 0.0
        if target is not None:
            try:
                cost = self.terms.space.change(runs, target, wanted)
                mechanism, gap_s = cost.mechanism, cost.gap_s
            except ImpossibleChangeError:
                # What runs is not what was meant to run when it was decided; the guards have looked at that.
                mechanism = wanted
        advice = Advice(
            at_s=at_s - (self.began_s or 0.0),
            decided=replace(event, forecast=None),
            source=runs,
            target=target,
            mechanism=mechanism,
            gap_s=gap_s,
            expected=expected,
            saving_per_hour=saving,
            change_cost=0.0 if target is None else self._known_cost(runs, target, expected),
            currency=self.terms.prices.currency,
        )
        self.told.append(advice)
        return advice

    def _change_cost(self, before: Configuration, after: Configuration, advice: Advice) -> float:
        return 0.0 if before == after else self._known_cost(before, after, advice.expected)

    def _known_cost(self, before: Configuration, after: Configuration, expected: Expected) -> float:
        """As the policy reckons it; else that of running twice for as long as the mechanism prepares itself."""
        if expected.change_cost is not None:
            return expected.change_cost
        try:
            cost = self.terms.space.change(before, after)
        except ImpossibleChangeError:
            return 0.0
        return self.terms.prices.per_hour(after) * cost.preparation_s / 3600.0 if cost.runs_double else 0.0


def advised_target(event: Decided) -> Configuration | None:
    """What would run, were it not that only advice was asked for; None where nothing would be changed."""
    if not isinstance(event.decision, Reconfigure) or not _is_advised(event):
        return None
    altered = [verdict.target for verdict in event.verdicts if verdict.target is not None]
    return altered[-1] if altered else event.decision.target


def _is_advised(event: Decided) -> bool:
    """Whether all other guards let it pass."""
    return bool(event.verdicts) and event.verdicts[-1].reason.code == ADVISED


class Adviser:
    """Asks a fresh policy about a job of which only reports are known."""

    def __init__(self, terms: Terms, *, name: str) -> None:
        self.book = AdviceBook(terms)
        policy = terms.policy()
        self._loop = Loop(
            run=name,
            policy=policy,
            space=terms.space,
            promises=terms.promises,
            prices=terms.prices,
            forecaster=forecaster_of(policy),
            settings=terms.settings,
            guard_settings=replace(terms.guard_settings, advice_only=True),
        )

    def begin(self, runs: Configuration, at_s: float) -> None:
        """What runs when the watching begins."""
        name = self._loop.policy.name
        self._replay(ControllerStarted(at_s=at_s, version=__version__, policy=name, configuration=runs))

    def report(self, observation: Observation, at_s: float) -> list[Advice]:
        """Take a report in that came at this time, and decide if it is time to; what is new."""
        self._replay(Reported(at_s=at_s, observation=observation))
        handled = self._loop.handle(Ticked(at_s=at_s))
        found = [self.book.note(event) for event in handled.events]
        return [advice for advice in found if advice is not None]

    def follow(self, events: Iterable[JournalEvent]) -> list[Advice]:
        """Take in what another controller has written down; its own decisions count for nothing."""
        told: list[Advice] = []
        for event in events:
            if isinstance(event, Reported):
                told += self.report(event.observation, event.at_s)
            elif isinstance(event, _FACTS):
                self._replay(event)
        return told

    def _replay(self, event: JournalEvent) -> None:
        self._loop.replay((event,))
        self.book.note(event)


_FACTS = (
    ControllerStarted,
    ChangeRequested,
    ChangeFinished,
    ChangeExpired,
    ChangeSettled,
    ProfileRequested,
    ProfileFinished,
    ProfileExpired,
)
"""What happens to the job, whoever wanted it."""
