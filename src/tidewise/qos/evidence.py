"""From reports to evidence: what steady windows say, free of warm-up, catching up and the edges of batches."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.core import Configuration, JobStatus, Observation, ProfileMeasurement

LONGEST_S = 300.0
_INTERVALS = 3.0
"""Length of a stretch: a batch more or less at its ends must not matter much."""
_SATURATED = 0.95
"""Busy share from which a job counts as saturated."""
_OVERWHELMED = 0.85
"""Busy share of every window of a job that has too much to do from its start on."""
_FEWEST_ENDS = 3
"""Windows with the end of a batch in them that an overloaded job has to show."""
_TOO_IDLE = 0.02
"""Busy share below which nothing can be told of a capacity."""
_OFF = 0.2
"""Share by which processed and arrived records may differ while a job keeps up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one stretch or one profile says of a configuration."""

    configuration: Configuration
    rate_per_s: float
    """What arrived."""
    full_rate_per_s: float | None
    """What would be processed if it were always busy; None where that cannot be told."""
    at_least: bool
    """Only a lower bound of that is known."""
    keeps_up: bool
    """Whether the latencies are those of steady operation."""
    busy_share: float | None
    latencies: tuple[tuple[float | None, float | None, float | None], ...]
    """p50, p95 and p99 of each window that showed any."""
    memory_share: float | None = None
    state_mib: float | None = None


class Stretches:
    """Gathers windows until there is something to say."""

    def __init__(self, *, settle_s: float, shortest_s: float) -> None:
        self._settle_s = settle_s
        self._shortest_s = shortest_s
        self._last: Observation | None = None
        self._steady_from_s = 0.0
        self._windows: list[Observation] = []
        self._gathered_s = 0.0
        self._overwhelmed: list[Observation] | None = []
        """The windows of a job that has had too much to do ever since its start; None: it has not."""

    def add(self, observation: Observation) -> Evidence | None:
        """Take one window in; what the stretch says that ends with it, if one does."""
        said = self._said_at_last(observation)
        if said is None:
            said = self._said_from_the_start(observation)
        if said is not None:
            self._overwhelmed = None
        return said

    def _said_from_the_start(self, observation: Observation) -> Evidence | None:
        """What a job says whose batches grow ever longer, so that it would take minutes to see a few of them end."""
        windows = self._overwhelmed
        if windows is None:
            return None
        if (
            observation.status is not JobStatus.RUNNING
            or (observation.busy_share or 0.0) < _OVERWHELMED
            or (windows and observation.configuration != windows[-1].configuration)
        ):
            self._overwhelmed = []
            return None
        windows.append(observation)
        lasted_s = sum(window.window_s for window in windows)
        if lasted_s > LONGEST_S:
            self._overwhelmed = None
        busy = _mean(windows, [window.busy_share or 0.0 for window in windows])
        enough = lasted_s >= self._settle_s + 0.5 * self._shortest_s and busy >= _SATURATED and _shows_enough(windows)
        return _said_by(windows) if enough else None

    def _said_at_last(self, observation: Observation) -> Evidence | None:
        last, self._last = self._last, observation
        begins_s = observation.time_s - observation.window_s
        follows = (
            last is not None
            and last.status is JobStatus.RUNNING
            and last.configuration == observation.configuration
            and abs(begins_s - last.time_s) <= observation.window_s
        )
        if not follows or observation.status is not JobStatus.RUNNING:
            self._drop()
            self._steady_from_s = begins_s + self._settle_s
        if observation.status is not JobStatus.RUNNING or begins_s < self._steady_from_s:
            return None
        if observation.is_idle:
            self._drop()
            return None
        self._windows.append(observation)
        self._gathered_s += observation.window_s
        wanted_s = min(LONGEST_S, max(self._shortest_s, _INTERVALS * observation.configuration.commit_interval_s))
        if self._gathered_s < wanted_s or (self._gathered_s < LONGEST_S and not _shows_enough(self._windows)):
            return None
        windows = self._windows
        self._drop()
        return _said_by(windows)

    def _drop(self) -> None:
        self._windows = []
        self._gathered_s = 0.0


def _shows_enough(windows: list[Observation]) -> bool:
    """Whether an overloaded job, whose batches grow ever longer, has ended a few of them."""
    busy = _mean(windows, [window.busy_share or 0.0 for window in windows])
    return busy < _SATURATED or sum(window.processed_rate_per_s > 0.0 for window in windows) >= _FEWEST_ENDS


def _between_ends(windows: list[Observation]) -> list[Observation]:
    """From the end of one batch to that of the last: what was processed in between took just that long."""
    ends = [place for place, window in enumerate(windows) if window.processed_rate_per_s > 0.0]
    return windows[ends[0] + 1 : ends[-1] + 1] if len(ends) > 1 else []


def _mean(windows: list[Observation], values: list[float]) -> float:
    """A window counts by its length; 0 where there is none."""
    if len(windows) == 1:
        return values[0]
    length_s = sum(window.window_s for window in windows)
    total = sum(value * window.window_s for value, window in zip(values, windows, strict=True))
    return total / length_s if length_s > 0.0 else 0.0


def _said_by(windows: list[Observation]) -> Evidence | None:
    arrived = _mean(windows, [window.input_rate_per_s for window in windows])
    processed = _mean(windows, [window.processed_rate_per_s for window in windows])
    busy_shares = [window.busy_share for window in windows if window.busy_share is not None]
    busy = _mean(windows, busy_shares) if len(busy_shares) == len(windows) else None
    memory = [window.memory_share for window in windows if window.memory_share is not None]
    states = [(window, window.state_mib) for window in windows if window.state_mib is not None]
    if busy is not None and busy >= _SATURATED:
        whole = _between_ends(windows)
        processed = _mean(whole, [window.processed_rate_per_s for window in whole])
    full, at_least, keeps_up = full_rate(arrived, processed, busy)
    return Evidence(
        configuration=windows[-1].configuration,
        rate_per_s=_mean(windows, [window.load_per_s for window in windows]),
        full_rate_per_s=full,
        at_least=at_least,
        keeps_up=keeps_up,
        busy_share=busy,
        latencies=tuple(
            (window.latency_p50_s, window.latency_p95_s, window.latency_p99_s)
            for window in windows
            if window.latency_p95_s is not None or window.latency_p50_s is not None
        ),
        memory_share=max(memory) if memory else None,
        state_mib=_mean([window for window, _ in states], [mib for _, mib in states]) if states else None,
    )


def of_profile(measured: ProfileMeasurement) -> Evidence | None:
    """What a copy says; None where it died, or had nothing to do."""
    if measured.detail or measured.input_rate_per_s <= 0.0:
        return None
    full, at_least, keeps_up = full_rate(measured.input_rate_per_s, measured.processed_rate_per_s, measured.busy_share)
    return Evidence(
        configuration=measured.configuration,
        rate_per_s=measured.input_rate_per_s,
        full_rate_per_s=full,
        at_least=at_least,
        keeps_up=keeps_up,
        busy_share=measured.busy_share,
        latencies=((measured.latency_p50_s, measured.latency_p95_s, None),),
    )


def full_rate(arrived: float, processed: float, busy: float | None) -> tuple[float | None, bool, bool]:
    """The rate at full speed, whether it is only a lower bound, and whether the job keeps up.

    What arrived is used where the job keeps up: what was processed jumps with every batch that ends.
    """
    even = abs(processed - arrived) <= _OFF * arrived
    if busy is None:
        if processed <= 0.0:
            return None, False, False
        # Falling behind, it does what it can; catching up or keeping up, it could perhaps do more.
        return (processed, processed > arrived, False) if not even else (arrived, True, True)
    if busy < _TOO_IDLE:
        return None, False, even
    saturated = busy >= _SATURATED
    rate = arrived if even and not saturated else processed
    return (rate / busy if rate > 0.0 else None), False, even and not saturated
