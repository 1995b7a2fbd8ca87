"""Loads nobody has seen: drawn at random, to judge policies by what they were not tuned on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tidewise.core.checks import require
from tidewise.workload.bursts import Bursts
from tidewise.workload.combined import Noisy, Sum
from tidewise.workload.load import Load, generator, require_period, require_rate
from tidewise.workload.seasons import Daily, Weekly
from tidewise.workload.shapes import Growth, RegimeChange, Sine, Square, Steps

_Draw = Callable[[np.random.Generator, float, float], Load]


def _daily(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    return Daily(
        mean_per_s=mean_per_s,
        day_s=day_s * random.uniform(0.5, 1.5),
        night_share=random.uniform(0.1, 0.5),
        start_hour=random.uniform(0.0, 24.0),
        day_spread=random.uniform(0.0, 0.15),
        noise_share=0.0,
    )


def _weekly(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    return Weekly(
        mean_per_s=mean_per_s,
        day_s=max(1.0, day_s / random.uniform(2.0, 7.0)),
        night_share=random.uniform(0.1, 0.5),
        weekend_share=random.uniform(0.3, 0.9),
        start_day=int(random.integers(7)),
        start_hour=random.uniform(0.0, 24.0),
        noise_share=0.0,
    )


def _sine(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    return Sine(
        mean_per_s=mean_per_s,
        amplitude_share=random.uniform(0.2, 0.8),
        period_s=max(1.0, day_s * random.uniform(0.2, 1.5)),
        phase_share=random.uniform(0.0, 1.0),
    )


def _square(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    low = mean_per_s * random.uniform(0.3, 0.8)
    return Square(
        low_per_s=low,
        high_per_s=2.0 * mean_per_s - low,
        period_s=max(1.0, day_s * random.uniform(0.2, 1.0)),
        high_share=random.uniform(0.3, 0.7),
    )


def _steps(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    count = int(random.integers(3, 9))
    later = np.sort(random.uniform(0.0, 1.0, count - 1)) * day_s
    beginnings = [0.0, *sorted({float(begins_s) for begins_s in later} - {0.0})]
    return Steps(levels=tuple((begins_s, mean_per_s * random.uniform(0.3, 1.7)) for begins_s in beginnings))


def _growth(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    factor = random.uniform(1.5, 4.0)
    low, high = 2 * mean_per_s / (1 + factor), 2 * mean_per_s * factor / (1 + factor)
    up = random.random() < 0.7
    return Growth(
        start_per_s=low if up else high,
        end_per_s=high if up else low,
        over_s=max(1.0, day_s * random.uniform(0.5, 2.0)),
        kind="linear" if random.random() < 0.5 else "exponential",
    )


def _regime_change(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    return RegimeChange(
        at_s=day_s * random.uniform(0.3, 0.8),
        over_s=random.choice([0.0, day_s * 0.05]),
        mean_before_per_s=mean_per_s * random.uniform(0.5, 1.2),
        mean_after_per_s=mean_per_s * random.uniform(0.8, 1.8),
        amplitude_share_before=random.uniform(0.1, 0.6),
        amplitude_share_after=random.uniform(0.1, 0.6),
        period_before_s=max(1.0, day_s * random.uniform(0.2, 1.0)),
        period_after_s=max(1.0, day_s * random.uniform(0.1, 0.6)),
    )


def _bursts(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    return Bursts(
        base_per_s=0.8 * mean_per_s,
        mean_gap_s=max(1.0, day_s * random.uniform(0.1, 0.5)),
        ramp_s=day_s * random.uniform(0.0, 0.02),
        hold_s=day_s * random.uniform(0.01, 0.05),
        decay_s=day_s * random.uniform(0.005, 0.05),
    )


def _daily_with_bursts(random: np.random.Generator, mean_per_s: float, day_s: float) -> Load:
    return Sum(loads=(_daily(random, 0.7 * mean_per_s, day_s), _bursts(random, 0.3 * mean_per_s, day_s)))


_DRAWS: tuple[_Draw, ...] = (
    _daily,
    _weekly,
    _sine,
    _square,
    _steps,
    _growth,
    _regime_change,
    _bursts,
    _daily_with_bursts,
)


def random_load(seed: int, *, mean_per_s: float = 20_000.0, day_s: float = 3600.0) -> Load:
    """A shape drawn at random with random parameters and noise; the same seed gives the same load.

    `mean_per_s` is the rate it stays around, `day_s` the time in which it shows what it is: about the length of the
    run it is drawn for.
    """
    require(seed >= 0, f"seed must not be negative, not {seed}")
    require_rate("mean_per_s", 10.0 * mean_per_s)
    require(mean_per_s >= 1.0, f"mean_per_s must be at least 1, not {mean_per_s:g}")
    require_period("day_s", day_s / 2.0)
    random = generator(seed, "random load")
    shape = _DRAWS[int(random.integers(len(_DRAWS)))](random, mean_per_s, day_s)
    return Noisy(load=shape, share=random.uniform(0.02, 0.15), smooth_s=random.choice([0.0, 5.0, 30.0]))
