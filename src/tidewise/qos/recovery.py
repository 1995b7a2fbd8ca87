"""Recovery: the downtime of a kind of failure, what is replayed, and catching up over the load to come."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from tidewise.core import Censored, Configuration, Forecast, Measured, at_least_s
from tidewise.core.checks import require, require_finite, require_text
from tidewise.host.threads import on_one_thread
from tidewise.qos.belief import Belief
from tidewise.qos.candidates import Candidates, Floats
from tidewise.qos.catch_up import COLD_S, NEVER_S, Arrivals, Outage, recovery_s, steady
from tidewise.qos.outages import (
    LEAST_S,
    MODEL_SD,
    PARAMETERS,
    RESOLUTION_S,
    OutageFit,
    Recovered,
    fit_outage,
    overhead_s,
)
from tidewise.qos.physics import Physics
from tidewise.qos.saved import FORMAT, check_format, damage_told

MOST_KINDS = 32
MOST_RECOVERIES = 64
"""So many of each kind are kept, the latest."""

_POINTS = 16
_UPPER = 0.95
"""Between the median and this level every quantile of a prediction is monotone, not only the two."""


def _normal_points(count: int, dimensions: int, seed: int) -> Floats:
    """Equally weighted points that look standard normal along every dimension, and do not go together in any two."""
    scores = ndtri((np.arange(count) + 0.5) / count)
    chance = np.random.default_rng(seed)
    points = np.column_stack([chance.permutation(scores) for _ in range(dimensions)])
    spread = np.linalg.cholesky(points.T @ points / count)
    return np.asarray(np.linalg.solve(spread, points.T).T, dtype=np.float64)


_TOLD_FROM = 4
"""What is foretold before so many of a kind were seen is the prior's, and says little about later ones."""
_WORTH, _FADING, _FARTHEST = 5.0, 0.97, 2.5
"""How many recoveries the spread as it comes is worth; what an older one counts; how far off one may count."""

_Outages = list[Outage]
"""What a kind of failure does, at each of the points."""

_NEVER_LOG = float(np.log(NEVER_S))
_ANY_KIND = "any"
"""Stands for the failures to come where none was seen and none is known beforehand."""
_SUREST = 1.0 - 1e-9
"""A few points do not make it impossible that a job recovers: the hopeless can still be told apart."""

_SHIFTS = _normal_points(_POINTS, PARAMETERS + 5, seed=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """How far off what was foretold of a kind has been, in its own spreads; the latest counts most."""

    count: float = 0.0
    squares: float = 0.0

    def __post_init__(self) -> None:
        require_finite("count", self.count, least=0.0)
        require_finite("squares", self.squares, least=0.0)

    def with_one(self, took_s: float, told: Belief) -> _Record:
        off = (np.log(max(LEAST_S, took_s)) - told.log_mean[0]) / told.log_sd[0]
        # One that went quite differently is an accident, and no reason to trust the others less.
        square = float(min(off**2, _FARTHEST**2))
        return _Record(count=_FADING * self.count + 1.0, squares=_FADING * self.squares + square)

    @property
    def narrowing(self) -> float:
        """By how much the spread was too wide; never wider, for a wider one need not be monotone at high levels."""
        return float(np.clip(np.sqrt((_WORTH + self.squares) / (_WORTH + self.count)), 0.5, 1.0))


class Case(NamedTuple):
    """What a recovery depends on besides the utilisation, where the rate stays what it is."""

    commit_interval_s: float
    capacity_log_sd: float


class RecoveryModel:
    """How long each configuration would take to get over a failure, by kind of failure.

    Every point of a fixed set stands for one way things may be: the kind's numbers, this failure's downtime, the
    capacity, the load and the moment. Each of them gives a recovery that a higher rate or a longer commit interval
    never shortens and more capacity never lengthens; so do the points in order, and what is read off them.
    """

    def __init__(self, physics: Physics) -> None:
        self._physics = physics
        self._seen: dict[str, deque[Recovered]] = {}
        self._fits: dict[str, OutageFit] = {}
        self._usual = {_plain(name): usual for name, usual in physics.downtimes.items()}
        self._names = {_plain(name): name for name in physics.downtimes}
        """What each kind was called when it was first heard of."""
        self._records: dict[str, _Record] = {}
        self._by_load: dict[tuple[Case, tuple[float, ...]], Belief] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of failure that were seen or are known beforehand."""
        return tuple(self._names[kind] for kind in dict.fromkeys([*self._usual, *self._seen]))

    @on_one_thread
    def learn(
        self,
        kind: str,
        measured: Measured,
        *,
        configuration: Configuration,
        rate_per_s: float,
        capacity: Belief,
        just_before_commit: bool = False,
        resolution_s: float = RESOLUTION_S,
    ) -> None:
        """Take in how long the job took to get over a failure.

        `rate_per_s`: what arrived meanwhile, on average. `capacity`: one row, what is believed of this configuration's.
        `just_before_commit`: the failure came when all of the commit interval had passed, as in profiles.
        `resolution_s`: to about how many seconds it was measured.
        """
        require_text("kind", kind)
        require(len(capacity) == 1, "the capacity of a recovery needs one row")
        censored = isinstance(measured, Censored)
        took_s = at_least_s(measured)
        require_finite("measured", took_s, least=0.0)
        if censored and took_s <= 0.0:
            return  # at least nothing: that is known of every recovery
        one = Recovered(
            took_s=took_s,
            is_bound=censored,
            rate_per_s=rate_per_s,
            capacity_per_s=float(capacity.median[0]),
            capacity_log_sd=float(capacity.log_sd[0]),
            commit_interval_s=configuration.commit_interval_s,
            just_before_commit=just_before_commit,
            resolution_s=resolution_s,
        )
        name = _plain(kind)
        if not censored and len(self._seen.get(name, ())) >= _TOLD_FROM:
            told, _ = self._worst(
                (name,),
                Candidates.listing([configuration]),
                capacity,
                steady(rate_per_s),
                worst_moment=just_before_commit,
            )
            self._records[name] = self._records.get(name, _Record()).with_one(took_s, told)
        self._names.setdefault(name, kind)
        # Taken out and put back, so that the kind that was not seen for longest comes first.
        kept = self._seen.pop(name, deque(maxlen=MOST_RECOVERIES))
        kept.append(one)
        self._seen[name] = kept
        if len(self._seen) > MOST_KINDS:
            self._forget(next(iter(self._seen)))
        self._fits.pop(name, None)
        self._by_load.clear()

    def widen(self) -> None:
        """Believe what was seen only half as firmly: the program has changed, the cluster has not."""
        for name, kept in self._seen.items():
            self._seen[name] = deque((replace(one, weight=0.5 * one.weight) for one in kept), maxlen=MOST_RECOVERIES)
        self._records.clear()
        self._fits.clear()
        self._by_load.clear()

    def warmth(self, kind: str, works_s: float) -> float:
        """The share of its capacity that a job has so long after it has come up from this kind of failure."""
        cold_share = max(self._physics.cold_share, self._fit(_plain(kind)).cold_share)
        return 1.0 - cold_share * math.exp(-works_s / COLD_S)

    @on_one_thread
    def by_load(self, cases: Sequence[Case], log_loads: tuple[float, ...]) -> Belief:
        """Recovery from the worst kind of failure, at any moment of a commit interval: failures do not choose theirs.

        For every case at every utilisation (in logarithms): one after the other, case by case.
        Asked for at every load of a plan and changed by nothing but another recovery, so the answers are kept.
        """
        missing = [case for case in dict.fromkeys(cases) if (case, log_loads) not in self._by_load]
        if missing:
            each = [Configuration(executors=1, commit_interval_s=case.commit_interval_s) for case in missing]
            rows = Candidates.listing(each).only(np.repeat(np.arange(len(missing)), len(log_loads)))
            spreads = np.repeat([case.capacity_log_sd for case in missing], len(log_loads))
            capacity = Belief(-np.tile(log_loads, len(missing)), spreads)
            told, _ = self._worst(self._to_come(), rows, capacity, steady(1.0), worst_moment=False)
            for place, case in enumerate(missing):
                first = place * len(log_loads)
                self._by_load[case, log_loads] = told.at(slice(first, first + len(log_loads)))
        return _one_after_the_other([self._by_load[case, log_loads] for case in cases])

    @on_one_thread
    def predict(self, candidates: Candidates, capacity: Belief, forecast: Forecast) -> Belief:
        """Recovery from the worst kind of failure that was seen or is known, just before a commit."""
        return self.predict_with_noise(candidates, capacity, forecast)[0]

    @on_one_thread
    def predict_with_noise(self, candidates: Candidates, capacity: Belief, forecast: Forecast) -> tuple[Belief, Floats]:
        """The same, and how much of its spread stays however many failures were seen: that of a single one."""
        return self._worst(self._to_come(), candidates, capacity, forecast, worst_moment=True)

    @on_one_thread
    def predict_kind(
        self,
        kind: str,
        candidates: Candidates,
        capacity: Belief,
        forecast: Forecast,
        *,
        just_before_commit: bool = True,
    ) -> Belief:
        """Recovery from one kind of failure: just before a commit, which is the worst moment, or at any moment."""
        return self._worst((_plain(kind),), candidates, capacity, forecast, worst_moment=just_before_commit)[0]

    def save(self) -> dict[str, object]:
        """All that was learnt, as plain data."""
        return {
            "format": FORMAT,
            "seen": {self._names[kind]: [asdict(one) for one in kept] for kind, kept in self._seen.items()},
            "records": {self._names[kind]: asdict(record) for kind, record in self._records.items()},
        }

    @classmethod
    def load(cls, physics: Physics, saved: Mapping[str, object]) -> RecoveryModel:
        """The model as it was saved; BadInputError for what another version has saved, or what is damaged."""
        check_format(saved)
        model = cls(physics)
        with damage_told():
            seen = saved["seen"]
            for name, kept in seen.items():  # type: ignore[attr-defined]  # what is no mapping is damage
                require_text("kind", name)
                model._names.setdefault(_plain(name), name)
                model._seen[_plain(name)] = deque((Recovered(**one) for one in kept), maxlen=MOST_RECOVERIES)
            records = saved["records"]
            for name, record in records.items():  # type: ignore[attr-defined]  # the same
                model._records[_plain(name)] = _Record(**record)
            if not model._records.keys() <= model._seen.keys():
                raise ValueError("a record of a kind of which no recovery is kept")
        while len(model._seen) > MOST_KINDS:
            model._forget(next(iter(model._seen)))
        return model

    def _to_come(self) -> Iterable[str]:
        """The kinds of failure that are reckoned with."""
        return dict.fromkeys([*self._usual, *self._seen]) or (_ANY_KIND,)

    def _worst(
        self,
        kinds: Iterable[str],
        candidates: Candidates,
        capacity: Belief,
        forecast: Forecast,
        *,
        worst_moment: bool,
    ) -> tuple[Belief, Floats]:
        require(len(capacity) == len(candidates), "a recovery needs one capacity per candidate")
        middle = np.full(len(candidates), -np.inf)
        upper, noise, never = middle.copy(), np.zeros(len(candidates)), np.zeros(len(candidates))
        for kind, outages in _worst_ones({kind: self._outages(kind) for kind in kinds}):
            took_log = self._points(outages, candidates, capacity, forecast, at_worst=worst_moment)
            narrowing = self._records.get(kind, _Record()).narrowing
            noise_of_kind = narrowing * _noise(took_log)
            never = np.maximum(never, (took_log >= _NEVER_LOG).mean(axis=0))
            took_log.sort(axis=0)
            usual, high = _quantile(took_log, 0.5), _quantile(took_log, _UPPER)
            noise = np.where(usual >= middle, noise_of_kind, noise)
            middle = np.maximum(middle, usual)
            upper = np.maximum(upper, usual + narrowing * (high - usual))
        spread = np.maximum((upper - middle) / float(ndtri(_UPPER)), MODEL_SD)
        return Belief(middle, spread, np.minimum(never, _SUREST)), np.minimum(noise, spread)

    def _points(
        self, outages: _Outages, candidates: Candidates, capacity: Belief, forecast: Forecast, *, at_worst: bool
    ) -> Floats:
        """Logarithms of the recoveries: one line per point."""
        batch_cost_s = overhead_s(self._physics)
        points = np.empty((_POINTS, len(candidates)))
        for line, outage in enumerate(outages):
            speed, load, moment, rest = _SHIFTS[line, PARAMETERS + 1 :]
            took_s = recovery_s(
                outage,
                Arrivals.of(forecast, float(load)),
                capacity_per_s=np.exp(capacity.log_mean - speed * capacity.log_sd),
                interval_s=candidates.commit_interval_s,
                phase=1.0 if at_worst else float(ndtr(moment)),
                overhead_s=batch_cost_s,
            )
            about_s = np.clip(took_s * float(np.exp(MODEL_SD * rest)) + RESOLUTION_S * rest, LEAST_S, NEVER_S)
            points[line] = np.where(np.maximum(took_s, about_s) >= NEVER_S, _NEVER_LOG, np.log(about_s))
        return points

    def _outages(self, kind: str) -> _Outages:
        fit = self._fit(kind)
        return [fit.outage(shifts[:PARAMETERS], float(shifts[PARAMETERS])) for shifts in _SHIFTS]

    def _fit(self, kind: str) -> OutageFit:
        fit = self._fits.get(kind)
        if fit is None:
            usual = self._usual.get(kind, self._physics.other_downtime)
            # Never from the last fit: what is said must not depend on when one asked before.
            fit = self._fits[kind] = fit_outage(usual, self._physics, self._seen.get(kind, ()))
        return fit

    def _forget(self, kind: str) -> None:
        self._seen.pop(kind)
        self._records.pop(kind, None)
        self._fits.pop(kind, None)
        if kind not in self._usual:
            self._names.pop(kind)


def _one_after_the_other(beliefs: Sequence[Belief]) -> Belief:
    return Belief(
        np.concatenate([one.log_mean for one in beliefs]),
        np.concatenate([one.log_sd for one in beliefs]),
        np.concatenate([np.zeros(len(one)) if one.never is None else one.never for one in beliefs]),
    )


def _worst_ones(kinds: Mapping[str, _Outages]) -> list[tuple[str, _Outages]]:
    """Without those that are no worse at any point than another: they cannot be the worst, and cost as much."""
    worst: list[tuple[str, _Outages]] = []
    for kind, outages in sorted(kinds.items(), key=lambda item: -sum(outage.down_s for outage in item[1])):
        if not any(all(map(Outage.is_no_worse_than, outages, other)) for _, other in worst):
            worst.append((kind, outages))
    return worst


def _noise(took_log: Floats) -> Floats:
    """What the luck of one failure and what no sum tells make of the logarithms."""
    # The points are uncorrelated along their dimensions: a mean of products is the slope along one of them.
    by_luck, by_rest = (_SHIFTS[:, column] @ took_log / _POINTS for column in (PARAMETERS, -1))
    return np.asarray(np.hypot(by_luck, by_rest), dtype=np.float64)


def _plain(kind: str) -> str:
    """One name for what one engine calls kill-driver and another driver-kill."""
    return "-".join(sorted(kind.split("-")))


def _quantile(ascending: Floats, level: float) -> Floats:
    """Between the two points around it; the same two in every column, so that it is as monotone as they are."""
    place = level * len(ascending) - 0.5
    below = int(place)
    share = place - below
    return np.asarray((1.0 - share) * ascending[below] + share * ascending[below + 1], dtype=np.float64)
