"""What Demeter knows: profiles by segments of load, a model per output and segment, and the ensemble of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.core import Censored, Configuration, ProfileMeasurement
from tidewise.host.threads import on_one_thread
from tidewise.qos import Candidates, Floats
from tidewise.qos.gp import GaussianProcess
from tidewise.search.closer_look import Search
from tidewise.search.rgpe import joined
from tidewise.search.suggest import spread_out
from tidewise.search.surrogate import LATENCY, RECOVERY, Flags, View

SCORE_LIMIT = 0.5
"""A latency with a higher score is bad."""
_LEAST_LATENCY_S = 1e-3
"""Nobody measures a shorter one."""

_USUAL_SD = {LATENCY: 0.4, RECOVERY: 0.7}
"""How much a score, and the logarithm of a recovery time, vary before anything is seen."""
_NOISE_SD = {LATENCY: 0.05, RECOVERY: 0.23}
"""How much one measurement of them differs from the next, at one configuration and segment: measured on copies in the
simulated cluster. (The few repeats among the released profiles differ less in their recovery, by 0.05.)"""
_PARAMETERS = (
    "total_slots",
    "slots_per_executor",
    "cores_per_executor",
    "memory_mib_per_executor",
    "commit_interval_s",
)
"""Demeter's: the parallelism is that of the whole job, and the workers follow from it."""
_USUAL_LENGTH = 0.45
"""Over such a part of a parameter's range the outputs are expected to become others: the median of the prior that the
original's library has, where the processes here expect a length of 1."""
_MEMORY = "memory"
_NO_DOUBT = 1e-9
_LEAST_RECOVERY_S = 1.0
_FITS_KEPT = 256
_BASES_ON_EACH_SIDE = 2
"""Segments farther away than that are no neighbours."""


def latency_score(latency_s: float | None, best_s: float, *, tolerated: float) -> float:
    """0 for the best latency, 0.5 for `tolerated` times the best, towards 1 without bound; 1 where none is known."""
    if latency_s is None:
        return 1.0
    excess = max(0.0, latency_s / best_s - 1.0)
    return excess / (excess + tolerated - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A profile as the models see it."""

    configuration: Configuration
    rate_per_s: float
    score: float
    log_recovery: float | None
    """None where it was not measured."""

    @property
    def is_stable(self) -> bool:
        return self.score <= SCORE_LIMIT

    def value(self, output: str) -> float | None:
        return self.score if output == LATENCY else self.log_recovery


def never_came_up(measurement: ProfileMeasurement) -> bool:
    """Whether the copy died before any record reached it: that tells of the engine, not of a configuration."""
    return bool(measurement.detail) and measurement.input_rate_per_s <= 0.0


def best_latency_s(measurements: Iterable[ProfileMeasurement]) -> float | None:
    """The lowest latency that any copy showed; None while none did."""
    told = [each.latency_p95_s for each in measurements if each.latency_p95_s is not None and each.latency_p95_s > 0.0]
    known = [max(latency_s, _LEAST_LATENCY_S) for latency_s in told]
    return min(known, default=None)


def scored(measurement: ProfileMeasurement, *, best_s: float, tolerated: float, recovery_limit_s: float) -> Scored:
    """A copy that died, or gave no output in time, is a bad one; a recovery that was cut off counts as the limit."""
    recovery = measurement.recovery_s
    seconds = recovery.at_least if isinstance(recovery, Censored) else recovery
    if measurement.detail and measurement.latency_p95_s is None:
        seconds = recovery_limit_s
    return Scored(
        configuration=measurement.configuration,
        rate_per_s=measurement.input_rate_per_s,
        score=latency_score(measurement.latency_p95_s, best_s, tolerated=tolerated),
        log_recovery=None if seconds is None else math.log(max(_LEAST_RECOVERY_S, min(seconds, recovery_limit_s))),
    )


class Fits:
    """Fitted processes by what they were fitted to: the same points are never fitted twice."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._kept: dict[tuple[str, bytes, bytes], GaussianProcess] = {}

    def of(self, output: str, places: Floats, values: Floats) -> GaussianProcess:
        """Matern-5/2 with a length per dimension; without a warm start, so that earlier fits leave no trace."""
        key = (output, places.tobytes(), values.tobytes())
        process = self._kept.pop(key, None)
        if process is None:
            noise_sd = np.full(len(values), _NOISE_SD[output])
            process = GaussianProcess.fit(
                places, values, noise_sd=noise_sd, usual_sd=_USUAL_SD[output], seed=self._seed
            )
        self._kept[key] = process  # the last one used stands last
        if len(self._kept) > _FITS_KEPT:
            del self._kept[next(iter(self._kept))]
        return process


class Choices:
    """The configurations to choose from, with what is known of them exactly."""

    def __init__(self, table: Candidates, default: Configuration) -> None:
        self.table = table
        self.default = default
        raw = np.column_stack([getattr(table, name) for name in _PARAMETERS])
        self._low: Floats = raw.min(axis=0)
        span = np.ptp(raw, axis=0)
        self._unit: Floats = _USUAL_LENGTH * np.where(span > 0.0, span, 1.0)
        self.places = self.places_of(table)
        self.cost: Floats = (
            table.total_cores / default.total_cores + table.total_memory_mib / default.total_memory_mib
        ) / 2.0
        """CPU and memory relative to the default's, the mean of both."""

    def places_of(self, table: Candidates) -> Floats:
        """Where configurations lie for the models: Demeter's five parameters."""
        raw = np.column_stack([getattr(table, name) for name in _PARAMETERS])
        return np.asarray((raw - self._low) / self._unit)

    def log_memory_at(self, places: Floats) -> Floats:
        """The memory of all executors together, relative to the default's."""
        slots, slots_per_executor, _, memory_mib, _ = (places * self._unit + self._low).T
        return np.asarray(np.log(slots / slots_per_executor * memory_mib / self.default.total_memory_mib))

    def log_cores_of(self, table: Candidates) -> Floats:
        """The cores of all executors together, relative to the default's."""
        return np.asarray(np.log(table.total_cores / self.default.total_cores))


class _ExactMemory:
    """The memory as one more output, of which everything is known."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def glance(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002 - as every view has it
        return self._choices.log_memory_at(places), np.full(len(places), _NO_DOUBT)

    def joint(self, places: Floats) -> tuple[Floats, Floats]:
        return self._choices.log_memory_at(places), np.zeros((len(places), len(places)))

    def beside(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats, Floats]:
        return self._choices.log_memory_at(places), np.zeros(len(places)), np.zeros((len(places), len(anchors)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the ensemble expects of every choice in a segment: one row each."""

    score: Floats
    score_sd: Floats
    log_recovery: Floats | None
    """None while no recovery was measured that tells of the segment."""
    log_recovery_sd: Floats | None

    def trusted(self, *, margin: float, recovery_limit_s: float) -> Flags:
        """The choices whose (mean + spread) x margin keeps both limits, as flags.

        Where no recovery is known its limit is left out: else a job whose copies cannot be broken would never leave the
        default.
        """
        kept = (self.score + self.score_sd) * margin <= SCORE_LIMIT
        if self.log_recovery is not None and self.log_recovery_sd is not None:
            kept &= np.exp(self.log_recovery + self.log_recovery_sd) * margin <= recovery_limit_s
        return np.asarray(kept)


class Knowledge:
    """All profiles, seen from the segments of load that they tell of."""

    def __init__(
        self,
        profiles: Sequence[Scored],
        choices: Choices,
        *,
        segment_per_s: float,
        least_profiles: int,
        fits: Fits,
        seed: int = 0,
    ) -> None:
        self._profiles = profiles
        self.choices = choices
        self._width = segment_per_s
        self._least_profiles = least_profiles
        self._fits = fits
        self._seed = seed
        self._views: dict[int, dict[str, View]] = {}
        self._expected: dict[int, Expected | None] = {}

    def segment(self, rate_per_s: float) -> int:
        """The number of the segment in which a rate lies."""
        return math.floor(rate_per_s / self._width)

    def measured_in(self, segment: int) -> list[Scored]:
        """The profiles that were measured inside a segment."""
        return [each for each in self._profiles if self.segment(each.rate_per_s) == segment]

    def counting_for(self, segment: int) -> list[Scored]:
        """Those that tell of a segment: measured inside it, or stable above it, or bad below it."""
        low, high = segment * self._width, (segment + 1) * self._width
        return [
            each
            for each in self._profiles
            if low <= each.rate_per_s < high
            or (each.rate_per_s >= high and each.is_stable)
            or (each.rate_per_s < low and not each.is_stable)
        ]

    def expected(self, segment: int) -> Expected | None:
        """What is expected of the choices; None where nothing is known."""
        if segment not in self._expected:
            self._expected[segment] = self._expect(segment)
        return self._expected[segment]

    @on_one_thread
    def suggest(self, segment: int, *, count: int, recovery_limit_s: float) -> list[Configuration]:
        """The choices whose profiles are expected to move the front of CPU and memory the most, best first.

        Both are known exactly. What is not known is whether the limits of latency and recovery are kept, by the choice
        and by those that were profiled.
        """
        choices, views = self.choices, self._views_of(segment)
        count = min(count, len(choices.cost))
        if LATENCY not in views:
            return [choices.table[int(row)] for row in spread_out(choices.places, count)]
        here = list(dict.fromkeys(each.configuration for each in self.counting_for(segment)))
        anchors = Candidates.listing(here) if here else None
        search = Search(
            {_MEMORY: _ExactMemory(choices), **views},
            {_MEMORY: 0.0, LATENCY: SCORE_LIMIT, RECOVERY: math.log(recovery_limit_s)},
            objective=_MEMORY,
            places=choices.places,
            log_cost=choices.log_cores_of(choices.table),
            anchor_places=choices.places[:0] if anchors is None else choices.places_of(anchors),
            anchor_log_cost=np.empty(0) if anchors is None else choices.log_cores_of(anchors),
            seed=self._seed,
        )
        return [choices.table[int(row)] for row in search.best(count)]

    @on_one_thread
    def _expect(self, segment: int) -> Expected | None:
        views = self._views_of(segment)
        if LATENCY not in views:
            return None
        places, nowhere = self.choices.places, self.choices.places[:0]
        score, score_sd = views[LATENCY].glance(places, nowhere)
        if RECOVERY not in views:
            return Expected(score=score, score_sd=score_sd, log_recovery=None, log_recovery_sd=None)
        log_recovery, log_recovery_sd = views[RECOVERY].glance(places, nowhere)
        return Expected(score=score, score_sd=score_sd, log_recovery=log_recovery, log_recovery_sd=log_recovery_sd)

    def _views_of(self, segment: int) -> dict[str, View]:
        if segment not in self._views:
            views = {output: self._view(output, segment) for output in (LATENCY, RECOVERY)}
            self._views[segment] = {output: view for output, view in views.items() if view is not None}
        return self._views[segment]

    def _view(self, output: str, segment: int) -> View | None:
        """The segment's own model and those of its neighbours, weighed by how well they rank its profiles."""
        target = self._process(output, self.counting_for(segment), least=1)
        bases = []
        for step in range(1, _BASES_ON_EACH_SIDE + 1):
            for neighbour in (segment - step, segment + step):
                # Only what was measured there: what also counts for this segment would judge itself.
                base = self._process(output, self.measured_in(neighbour), least=self._least_profiles)
                if base is not None:
                    bases.append(base)
        if not bases and (target is None or len(target) < self._least_profiles):
            return None  # From one good profile alone, everything would look good.
        return joined(target, bases, nearness=np.ones(len(bases)), seed=self._seed)

    def _process(self, output: str, profiles: Sequence[Scored], *, least: int) -> GaussianProcess | None:
        told = [(each.configuration, value) for each in profiles if (value := each.value(output)) is not None]
        if len(told) < least:
            return None
        places = self.choices.places_of(Candidates.listing([configuration for configuration, _ in told]))
        return self._fits.of(output, places, np.array([value for _, value in told]))
