"""The ports: what the rooms of the house expect of each other, with the guarantees each side gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidewise.core.change import ChangeOutcome, ChangeRequest, ProfileOutcome, ProfileRequest
from tidewise.core.checks import require, require_finite
from tidewise.core.configuration import ChangeCost, Configuration, ConfigurationSpace, Mechanism, Prices
from tidewise.core.decision import Decision
from tidewise.core.estimate import Estimate
from tidewise.core.events import JournalEvent
from tidewise.core.forecast import Forecast
from tidewise.core.observation import Observation
from tidewise.core.promise import Promises
from tidewise.core.usage import Meter


class Clock(Protocol):
    """Time, injected. Nothing in the house reads another clock."""

    def now_s(self) -> float:
        """Seconds on the clock of the run; never goes back."""

    def wait_until(self, time_s: float) -> None:
        """Return when `now_s()` has reached this time; at once if it has already."""


class RunningJob(Protocol):
    """A job under control.

    Guarantees: every method returns within seconds and may be called again after an error. `change` and `profile`
    are idempotent by request id, also across controllers: the second call with an id starts nothing. They only begin
    the work; how it ended is asked for by id. One change at a time: a second one while another is on is refused with
    TemporaryError. `TemporaryError` means that the same call may succeed later, `PermanentError` that it cannot.
    """

    def observed(self) -> Configuration:
        """What really runs now."""

    def reports(self) -> Sequence[Observation]:
        """The reports since the last call, oldest first, each once."""

    def change(self, request: ChangeRequest) -> None:
        """Begin to move the job; the job stays as it is where this raises."""

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        """How a change ended; None while it is on, and for an id that was never seen."""

    def profile(self, request: ProfileRequest) -> None:
        """Begin to measure copies beside the job, which must not notice."""

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        """What the copies showed; None while they run, and for an id that was never seen."""

    def inject(self, fault: str) -> None:
        """Break something on purpose; PermanentError for a kind of fault the engine does not know."""

    def meter(self) -> Meter:
        """Everything spent so far."""

    def stop(self) -> None:
        """End the job in order; a second call does nothing."""


class Engine(Protocol):
    """Something that runs streaming jobs."""

    @property
    def name(self) -> str:
        """How the engine is called in plans and reports."""

    @property
    def changes(self) -> tuple[ChangeCost, ...]:
        """The mechanisms it offers with what each costs, the one to prefer first."""

    @property
    def faults(self) -> tuple[str, ...]:
        """The kinds of fault it can inject."""

    @property
    def clock(self) -> Clock:
        """The clock its jobs live by."""

    def launch(self, configuration: Configuration) -> RunningJob:
        """Start the job."""


class Forecaster(Protocol):
    """Learns from every observation once, in order of time; the same observations give the same forecast."""

    @property
    def name(self) -> str:
        """How the model is called in plans and reports."""

    def learn(self, observation: Observation) -> None:
        """Take one observation in; bounded in time and memory."""

    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        """The load to come, from the end of the last observation; NotReadyError with too little data."""


class QosModel(Protocol):
    """Knows what a configuration would do at a rate."""

    def learn(self, observation: Observation) -> None:
        """Take one observation in."""

    def latency_p95_s(self, configuration: Configuration, rate_per_s: float) -> Estimate:
        """Latency in steady operation; NotReadyError with too little data."""

    def recovery_s(self, configuration: Configuration, forecast: Forecast) -> Estimate:
        """Recovery from the worst single failure; NotReadyError with too little data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a policy may know when it decides."""

    now_s: float
    history: Sequence[Observation]
    """The observations of the policy's `history_s`, oldest first; never empty."""
    observed: Configuration
    """What runs; may lack executors that the engine is replacing by itself."""
    intended: Configuration
    """What is meant to run: where the last change led, or what the first controller found. The number to count from
    when scaling, as Kubernetes counts replicas: to ask for executors that are only being replaced is to ask twice.
    What runs takes its place where it differs in more than missing executors, or where they stay missing."""
    requested: Configuration | None
    """Where a change that is on leads; None while none is on."""
    last_change_finished_at_s: float | None
    """When the last change ended; None before the first."""
    forecast: Forecast | None
    """None while too little is known."""
    profiles: Sequence[ProfileOutcome]
    """The results of the latest profiles, oldest first."""
    space: ConfigurationSpace
    promises: Promises
    prices: Prices
    last_change_mechanism: Mechanism | None = None
    """How the last change was made; None before the first."""
    profile_on: ProfileRequest | None = None
    """The profile that is on; another would be refused."""
    joins_after_s: float | None = None
    """How long executors lately took to join the running job; None before any did."""
    failed_targets: tuple[Configuration, ...] = ()
    """Targets that the policy asked for and the engine did not reach lately; asking again would be refused."""

    def __post_init__(self) -> None:
        require_finite("now_s", self.now_s)
        if self.joins_after_s is not None:
            require_finite("joins_after_s", self.joins_after_s, least=0.0)
        require(len(self.history) > 0, "a situation needs at least one observation")

    @property
    def latest(self) -> Observation:
        return self.history[-1]


class Policy(Protocol):
    """Decides. Never sleeps, deploys, reads a clock or touches an engine.

    `learn` is called with every observation once, in order of time, before the decision that may rest on it; after a
    crash it is called again from the journal on a fresh policy. With the same calls, a policy gives the same decisions.
    """

    @property
    def name(self) -> str:
        """How the policy is called in plans and reports."""

    @property
    def history_s(self) -> float:
        """How far back `Situation.history` has to reach."""

    def learn(self, observation: Observation) -> None:
        """Take one observation in."""

    def decide(self, situation: Situation) -> Decision:
        """What to do now; called once per decision interval while reports are fresh."""


class Journal(Protocol):
    """The memory of a run.

    `append` is atomic and durable: when it returns, all of the events are there after a crash, and when it raises,
    none of them is.
    """

    def append(self, events: Iterable[JournalEvent]) -> None:
        """Write the events at the end, all or none."""

    def read(self) -> Iterable[JournalEvent]:
        """All events, oldest first."""

    def close(self) -> None:
        """Release the file; a second call does nothing."""
