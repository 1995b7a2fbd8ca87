"""Loads made of other loads: with noise on them, and added up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidewise.core.checks import require, require_finite, require_share
from tidewise.workload.load import MOST_PER_S, Load, Rates, generator, seconds_of


def noise_factors(duration_s: int, seed: int, *, purpose: str, share: float, smooth_s: float = 0.0) -> Rates:
    """Factors around 1, lognormal with mean 1 and standard deviation `share`, cut off at four deviations.

    `smooth_s` is how long a deviation lasts (the e-folding time of an AR(1) process); 0 makes the seconds independent.
    """
    normal = generator(seed, purpose).standard_normal(duration_s)
    if smooth_s > 0.0:
        # It takes longer to load than most commands take altogether.
        from scipy.signal import lfilter  # noqa: PLC0415

        kept = float(np.exp(-1.0 / smooth_s))
        # The first value is drawn from the process at rest, so that the noise is as wide there as anywhere.
        normal[1:] *= np.sqrt(1.0 - kept**2)
        normal = np.asarray(lfilter([1.0], [1.0, -kept], normal), dtype=np.float64)
    sigma = float(np.sqrt(np.log1p(share**2)))
    return np.asarray(np.exp(sigma * np.clip(normal, -4.0, 4.0) - sigma**2 / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """A load whose rates are multiplied by noise; the mean stays."""

    load: Load
    """What the noise lies on."""
    share: float = 0.1
    """Standard deviation of the noise, as a share of the rate."""
    smooth_s: float = 0.0
    """How long a deviation lasts; 0 s: each second on its own."""

    def __post_init__(self) -> None:
        require_share("share", self.share)
        require_finite("smooth", self.smooth_s, least=0.0)

    @property
    def name(self) -> str:
        return f"noisy {self.load.name}"

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        rates = self.load.rates_per_s(duration_s, seed)
        # The name holds how deep the noise is nested: noise on noise is not the same noise twice.
        return rates * noise_factors(
            duration_s, seed, purpose=f"noise on {self.load.name}", share=self.share, smooth_s=self.smooth_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A load whose rates are all multiplied by the same factor."""

    load: Load
    """What is multiplied."""
    factor: float
    """By what."""

    def __post_init__(self) -> None:
        require_finite("factor", self.factor, above=0.0)

    @property
    def name(self) -> str:
        return self.load.name

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        rates = self.factor * self.load.rates_per_s(duration_s, seed)
        require(float(rates.max()) <= MOST_PER_S, f"a factor of {self.factor:g} makes rates above {MOST_PER_S:g}")
        return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Several sources at once, each with chances of its own."""

    loads: tuple[Load, ...]
    """The sources."""

    def __post_init__(self) -> None:
        require(len(self.loads) > 0, "a sum needs at least one load")

    @property
    def name(self) -> str:
        return " + ".join(load.name for load in self.loads)

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        rates = np.zeros_like(seconds_of(duration_s, seed))
        for index, load in enumerate(self.loads):
            own_seed = int(generator(seed, f"part {index} of a sum").integers(2**63))
            rates = rates + load.rates_per_s(duration_s, own_seed)
        return rates
