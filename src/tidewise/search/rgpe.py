"""Models of other loads, each believed as far as it ranks this load's profiles right: a ranking-weighted ensemble."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.qos import Floats
from tidewise.qos.gp import GaussianProcess
from tidewise.search.surrogate import Flags, Profiled, View, evidence_of, imputed, is_same_load

_SEGMENTS_PER_DOUBLING = 8
_LEAST_PROFILES = 3
"""With fewer, a segment has no model of its own, and this load none that could be judged."""
_SAMPLES = 64
_NEAR_DOUBLINGS = 0.5
"""Between bases that rank equally well the nearer load counts more; so far away it counts a third."""
_LEAST_WEIGHT = 0.01
_TOLERATED = 0.95
"""A base is dropped where it misranks more, in half of the samples, than this load's own model does in so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    process: GaussianProcess
    weight: float
    shift: float
    """What this load lies above the one the member learnt from, by the profiles of this load."""


class _EnsembleView:
    """Weighted means, and covariances weighted by the squares."""

    def __init__(self, members: Sequence[_Member]) -> None:
        self._members = members

    def glance(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats]:
        mean, variance = np.zeros(len(places)), np.zeros(len(places))
        for member in self._members:
            its_mean, its_sd = member.process.glance(places, anchors)
            mean += member.weight * (its_mean + member.shift)
            variance += (member.weight * its_sd) ** 2
        return mean, np.sqrt(variance)

    def joint(self, places: Floats) -> tuple[Floats, Floats]:
        mean, covariance = np.zeros(len(places)), np.zeros((len(places), len(places)))
        for member in self._members:
            its_mean, its_covariance = member.process.joint(places)
            mean += member.weight * (its_mean + member.shift)
            covariance += member.weight**2 * its_covariance
        return mean, covariance

    def beside(self, places: Floats, anchors: Floats) -> tuple[Floats, Floats, Floats]:
        mean, variance = np.zeros(len(places)), np.zeros(len(places))
        shared = np.zeros((len(places), len(anchors)))
        for member in self._members:
            its_mean, its_variance, its_shared = member.process.beside(places, anchors)
            mean += member.weight * (its_mean + member.shift)
            variance += member.weight**2 * its_variance
            shared += member.weight**2 * its_shared
        return mean, variance, shared


class EnsembleModel:
    """One small Gaussian process per segment of load, joined for the load that is asked about."""

    def __init__(self, quantity: str, *, log_limit: float, seed: int = 0) -> None:
        """`log_limit`: what was promised; beyond it logarithms are bent."""
        self._quantity = quantity
        self._log_limit = log_limit
        self._seed = seed
        self._profiles: Sequence[Profiled] = ()
        self._bases: dict[int, tuple[Sequence[Profiled], GaussianProcess]] = {}
        self._targets: dict[int, GaussianProcess] = {}

    def fit(self, profiles: Sequence[Profiled], *, anew: bool = False) -> None:
        """Learn from all profiles; only the segments that have new ones are fitted again, unless `anew`."""
        self._profiles = profiles
        if anew:
            self._bases, self._targets = {}, {}

    def at(self, rate_per_s: float) -> View | None:
        """What is known at this load; None while nothing is."""
        here = [each for each in self._profiles if is_same_load(each.rate_per_s, rate_per_s)]
        elsewhere = [each for each in self._profiles if not is_same_load(each.rate_per_s, rate_per_s)]
        bases = self._fitted_bases(elsewhere)
        nearness = _nearness(list(bases), rate_per_s)
        found = evidence_of(here, self._quantity, self._log_limit)
        if found is None:
            return joined(None, list(bases.values()), nearness=nearness, seed=self._seed) if bases else None
        places, _, logs, cut = found
        target = _fitted(places, logs, cut, seed=self._seed, warm=self._targets.get(_segment(rate_per_s)))
        self._targets[_segment(rate_per_s)] = target
        return joined(target, list(bases.values()), nearness=nearness, seed=self._seed)

    def _fitted_bases(self, profiles: Sequence[Profiled]) -> dict[int, GaussianProcess]:
        segments: dict[int, list[Profiled]] = {}
        for each in profiles:
            segments.setdefault(_segment(each.rate_per_s), []).append(each)
        bases: dict[int, GaussianProcess] = {}
        for segment, members in segments.items():
            found = evidence_of(members, self._quantity, self._log_limit)
            if found is None or len(found[2]) < _LEAST_PROFILES:
                continue
            places, _, logs, cut = found
            told = [each for each in members if each.measured(self._quantity) is not None]
            learnt, process = self._bases.get(segment, ((), None))
            if process is None or learnt != told:
                process = _fitted(places, logs, cut, seed=self._seed, warm=process)
                self._bases[segment] = (told, process)
            bases[segment] = process
        return bases


def joined(
    target: GaussianProcess | None, bases: Sequence[GaussianProcess], *, nearness: Floats, seed: int = 0
) -> View:
    """The ensemble of a load's own model and of those of other loads, each weighed by how well it ranks what was
    measured at this load.

    `target`: None where nothing was measured at this load; then there has to be a base. `nearness`: one number for
    each base; between those that rank equally well, and where there is nothing to rank, they count in proportion to it.
    """
    if target is None:
        shares = (nearness / nearness.sum()).tolist()
        members = [_Member(process=base, weight=share, shift=0.0) for base, share in zip(bases, shares, strict=True)]
        return _EnsembleView(_without_trifles(members))
    weights = _weights(target, bases, nearness=nearness, seed=seed)
    members = [_Member(process=target, weight=float(weights[-1]), shift=0.0)]
    for base, weight in zip(bases, weights[:-1].tolist(), strict=True):
        off = target.y - base.predict(target.x)[0]
        members.append(_Member(process=base, weight=weight, shift=float(off.sum() / (len(off) + 1))))
    return _EnsembleView(_without_trifles(members))


def _weights(target: GaussianProcess, bases: Sequence[GaussianProcess], *, nearness: Floats, seed: int) -> Floats:
    """How often each base, and last the target itself, misranks this load's profiles the least."""
    if not bases:
        return np.ones(1)
    measured = target.y
    if len(measured) < _LEAST_PROFILES:
        # Nothing to judge by: the nearer loads, and the few points in proportion.
        own = len(measured) / (2.0 * _LEAST_PROFILES)
        return np.append((1.0 - own) * nearness / nearness.sum(), own)
    rng = np.random.default_rng(seed)
    mean, sd = target.leave_one_out()
    losses = [_misranked(base.sample(target.x, _SAMPLES, rng), measured) for base in bases]
    own_losses = _misranked_alone(mean, sd, measured, rng)
    tolerated = np.quantile(own_losses, _TOLERATED)
    kept = np.array([float(np.median(each)) <= tolerated for each in losses])
    table = np.vstack([*losses, own_losses]).astype(np.float64)
    table[:-1][~kept] = math.inf
    wins = (table == table.min(axis=0)) * np.append(nearness, nearness.max())[:, None]
    shares: Floats = (wins / wins.sum(axis=0)).mean(axis=1)
    return shares


def _misranked(samples: Floats, measured: Floats) -> Floats:
    """In each sample, the number of pairs whose order is not as measured."""
    wrong = (samples[:, :, None] < samples[:, None, :]) != (measured[:, None] < measured[None, :])
    counts: Floats = wrong.sum(axis=(1, 2)).astype(np.float64)
    return counts


def _misranked_alone(mean: Floats, sd: Floats, measured: Floats, rng: np.random.Generator) -> Floats:
    """The same for the target, each profile as the others foretell it, against what was measured of those."""
    samples = mean + sd * rng.standard_normal((_SAMPLES, len(mean)))
    wrong = (samples[:, :, None] < measured[None, None, :]) != (measured[:, None] < measured[None, :])
    counts: Floats = wrong.sum(axis=(1, 2)).astype(np.float64)
    return counts


def _fitted(places: Floats, logs: Floats, cut: Flags, *, seed: int, warm: GaussianProcess | None) -> GaussianProcess:
    process = GaussianProcess.fit(places, logs, seed=seed, warm=warm)
    if cut.any():
        values, noise_sd = imputed(process, logs, cut, noise_sd=np.zeros(len(logs)))
        process = GaussianProcess.fit(places, values, noise_sd=noise_sd, seed=seed, warm=process)
    return process


def _segment(rate_per_s: float) -> int:
    return round(math.log2(rate_per_s) * _SEGMENTS_PER_DOUBLING)


def _nearness(segments: Sequence[int], rate_per_s: float) -> Floats:
    """How much each counts, the nearest 1: however far all of them are, one is the nearest."""
    doublings = np.abs(np.array(segments, dtype=np.float64) / _SEGMENTS_PER_DOUBLING - math.log2(rate_per_s))
    return np.asarray(np.exp((doublings.min(initial=math.inf) - doublings) / _NEAR_DOUBLINGS))


def _without_trifles(members: Sequence[_Member]) -> list[_Member]:
    """Members that hardly count are left out, and the others take their weight."""
    heaviest = max(member.weight for member in members)
    kept = [member for member in members if member.weight >= _LEAST_WEIGHT * heaviest]
    total = sum(member.weight for member in kept)
    return [_Member(process=each.process, weight=each.weight / total, shift=each.shift) for each in kept]
