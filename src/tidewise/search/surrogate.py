"""What profiles teach of the configurations nobody has profiled: a model per quantity, with the load as an input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from tidewise.core import BadInputError, Censored, Configuration, Measured
from tidewise.core.checks import require_finite
from tidewise.qos import Candidates, Floats
from tidewise.qos.gp import GaussianProcess
from tidewise.qos.saved import configuration_from, configuration_plain

Flags = npt.NDArray[np.bool_]

LATENCY = "latency"
RECOVERY = "recovery"

_LEAST_S = 1e-3
"""What took no time at all still has a logarithm."""
_DOUBLINGS = 4.0
"""So many doublings of load or cores count as one unit of distance before anything is learnt."""
_SAME_LOAD = 0.02
"""Loads that differ by less than this share are one."""
_BEND = 0.3
_LOAD = -2
"""Where the load stands among the inputs."""
_GLANCED_AT = 128
"""A glance rests on so many profiles, those of the nearest loads."""
_IMPUTATIONS = 2
_LEAST_VARIANCE = 1e-12
"""What rounding leaves of a difference of variances is no less."""
_SLACK_PER_POINT = 0.05
"""The hyperparameters stay while the evidence per point does not fall by more than this."""
_REFIT_GROWTH = 1.25
"""And while the points are not more than so many times as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What one configuration did at one load; None: not measured."""

    configuration: Configuration
    rate_per_s: float
    latency_s: Measured | None
    recovery_s: Measured | None

    def __post_init__(self) -> None:
        require_finite("rate_per_s", self.rate_per_s, above=0.0)
        for name, measured in (("latency_s", self.latency_s), ("recovery_s", self.recovery_s)):
            if measured is not None and not isinstance(measured, Censored):
                require_finite(name, measured, least=0.0)

    def to_plain(self) -> dict[str, object]:
        """As a JSON file can hold it; what was cut off becomes {"at_least": seconds}."""
        return {
            "configuration": configuration_plain(self.configuration),
            "rate_per_s": self.rate_per_s,
            "latency_s": _measured_plain(self.latency_s),
            "recovery_s": _measured_plain(self.recovery_s),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, object]) -> Profiled:
        """What `to_plain` gave; BadInputError where it is damaged."""
        try:
            return cls(
                configuration=configuration_from(plain["configuration"]),  # type: ignore[arg-type]  # as it fails, it is told
                rate_per_s=float(plain["rate_per_s"]),  # type: ignore[arg-type]  # the same
                latency_s=_measured_from(plain["latency_s"]),
                recovery_s=_measured_from(plain["recovery_s"]),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as wrong:
            raise BadInputError(f"a saved profile is damaged ({wrong!r}): profile anew") from wrong

    def measured(self, quantity: str) -> Measured | None:
        return self.latency_s if quantity == LATENCY else self.recovery_s


def _measured_plain(measured: Measured | None) -> object:
    if measured is None:
        return None
    return {"at_least": measured.at_least} if isinstance(measured, Censored) else float(measured)


def _measured_from(plain: object) -> Measured | None:
    if plain is None:
        return None
    if isinstance(plain, Mapping):
        return Censored(at_least=float(plain["at_least"]))
    if isinstance(plain, float | int):
        return float(plain)
    raise TypeError(f"{plain!r} is no measured value")


class View(Protocol):
    """The (bent) logarithm of one quantity at one load; configurations are rows of `places_of`."""

    def glance(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every row, quickly, as if the anchors were known."""

    def joint(self, places: Floats) -> tuple[Floats, Floats]:
        """Mean vector and covariance of all rows together."""

    def beside(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats, Floats]:
        """Mean and variance of every row, and its covariance with each of the anchors."""


class _ContextualView:
    """A contextual model looked at from one load."""

    def __init__(self, process: GaussianProcess, rate_per_s: float) -> None:
        self._process = process
        self._rate_per_s = rate_per_s
        far = np.abs(process.x[:, _LOAD] - math.log2(rate_per_s) / _DOUBLINGS)
        # The last profiles first where loads are equal.
        self._nearest = process.part(np.lexsort((-np.arange(len(far)), far))[:_GLANCED_AT])

    def glance(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats]:
        return self._nearest.glance(self._inputs(places), self._inputs(anchors))

    def joint(self, places: Floats) -> tuple[Floats, Floats]:
        return self._process.joint(self._inputs(places))

    def beside(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats, Floats]:
        return self._process.beside(self._inputs(places), self._inputs(anchors))

    def _inputs(self, places: Floats) -> Floats:
        return _inputs(places, np.full(len(places), self._rate_per_s))


class ContextualModel:
    """One Gaussian process over configurations and loads: whatever was learnt at any load tells of every other."""

    def __init__(self, quantity: str, *, log_limit: float, seed: int = 0) -> None:
        """`log_limit`: what was promised; beyond it logarithms are bent."""
        self._quantity = quantity
        self._log_limit = log_limit
        self._seed = seed
        self._process: GaussianProcess | None = None
        self._fitted_points = 0
        self._fitted_evidence = -math.inf

    def fit(self, profiles: Sequence[Profiled], *, anew: bool = False) -> None:
        """Learn from all profiles; hyperparameters are sought again where the data have outgrown them, or `anew`."""
        found = evidence_of(profiles, self._quantity, self._log_limit)
        if found is None:
            self._process = None
            return
        places, rates, logs, cut = found
        x = _inputs(places, rates)
        known = None if anew else self._process
        noise_sd = np.zeros(len(logs))
        process = self._learnt(x, logs, noise_sd, known)
        for _ in range(_IMPUTATIONS if cut.any() else 0):
            values, noise_sd = imputed(process, logs, cut, noise_sd=noise_sd)
            process = self._learnt(x, values, noise_sd, process)
        self._process = process

    def at(self, rate_per_s: float) -> View | None:
        """What is known at this load; None while nothing is."""
        return None if self._process is None else _ContextualView(self._process, rate_per_s)

    def _learnt(self, x: Floats, y: Floats, noise_sd: Floats, known: GaussianProcess | None) -> GaussianProcess:
        if known is not None and len(y) <= _REFIT_GROWTH * self._fitted_points:
            same = known.with_data(x, y, noise_sd=noise_sd)
            if same.evidence / len(y) >= self._fitted_evidence - _SLACK_PER_POINT:
                return same
        process = GaussianProcess.fit(x, y, noise_sd=noise_sd, warm=known, seed=self._seed)
        self._fitted_points, self._fitted_evidence = len(y), process.evidence / len(y)
        return process


def is_same_load(rate_per_s: float, other_per_s: float) -> bool:
    """Whether profiles at the one load count as profiles at the other."""
    return abs(math.log(rate_per_s) - math.log(other_per_s)) <= _SAME_LOAD


def places_of(table: Candidates) -> Floats:
    """Configurations as numbers of about 0..1, in logarithms: the axes, and the cores of all executors together."""
    return np.column_stack([table.scaled, np.log2(table.total_cores) / _DOUBLINGS])


def _inputs(places: Floats, rates_per_s: Floats) -> Floats:
    """What the process sees: the configuration, the load, and the load per core, along which most things turn."""
    load = np.log2(rates_per_s) / _DOUBLINGS
    return np.column_stack([places[:, :-1], load, load - places[:, -1]])


def bent(logs: Floats, log_limit: float) -> Floats:
    """Logarithms that grow slower and slower beyond the limit.

    By how much a configuration is overloaded matters to nobody, and a cliff of ten times the limit would make a smooth
    model blind to what lies beside it. Below the limit nothing changes, and the order never does.
    """
    return np.minimum(logs, log_limit) + _BEND * np.log1p(np.maximum(logs - log_limit, 0.0) / _BEND)


def evidence_of(
    profiles: Sequence[Profiled], quantity: str, log_limit: float
) -> tuple[Floats, Floats, Floats, Flags] | None:
    """Places, loads, bent logarithms of what was measured, and which of them were cut off; None where none was."""
    told = [(each, each.measured(quantity)) for each in profiles if each.measured(quantity) is not None]
    if not told:
        return None
    values = [measured.at_least if isinstance(measured, Censored) else measured for _, measured in told]
    return (
        places_of(Candidates.listing([each.configuration for each, _ in told])),
        np.array([each.rate_per_s for each, _ in told]),
        bent(np.log(np.maximum(np.array(values, dtype=np.float64), _LEAST_S)), log_limit),
        np.array([isinstance(measured, Censored) for _, measured in told]),
    )


def imputed(process: GaussianProcess, lower: Floats, cut: Flags, *, noise_sd: Floats) -> tuple[Floats, Floats]:
    """What was cut off, at what the other points make of it above the cut; with the spread that is left.

    `noise_sd`: what the process was told of each point's own noise, which is no doubt of the others about it.
    """
    mean, sd = process.leave_one_out()
    sd = np.sqrt(np.maximum(sd**2 - noise_sd**2, _LEAST_VARIANCE))
    z = (lower - mean) / sd
    hazard = np.exp(-0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) - log_ndtr(-z))
    # Further than two spreads up the tail says more of the model than of the job.
    above = np.minimum(mean + sd * hazard, lower + 2.0 * sd)
    left = sd * np.sqrt(np.clip(1.0 + z * hazard - hazard**2, 0.01, 1.0))
    return np.where(cut, np.maximum(above, lower), lower), np.where(cut, left, 0.0)
