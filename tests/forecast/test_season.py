"""The season finder: finds what is there, and says none where chance could have made it."""

from __future__ import annotations

import numpy as np
import pytest

from tidewise.forecast import find_season
from tidewise.workload import Daily


def _wave(season: int, count: int, *, noise: float, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    random = np.random.default_rng(seed)
    wave = 1000.0 * (1.0 + 0.5 * np.sin(2 * np.pi * np.arange(count) / season))
    return np.maximum(wave * (1.0 + noise * random.standard_normal(count)), 0.0)


@pytest.mark.parametrize("season", [12, 48, 144, 288])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_a_wave_is_found(season: int, noise: float) -> None:
    assert find_season(_wave(season, 8 * season + 20, noise=noise)) == pytest.approx(season, rel=0.06, abs=1)


@pytest.mark.parametrize("seed", range(3))
def test_a_day_as_people_make_it_is_found(seed: int) -> None:
    day = Daily(mean_per_s=1000.0, day_s=7200.0).rates_per_s(4 * 7200, seed)
    assert find_season(day.reshape(-1, 60).mean(axis=1)) == pytest.approx(120, abs=3)


def test_the_season_and_not_its_double_is_found() -> None:
    assert find_season(_wave(40, 1000, noise=0.05)) == pytest.approx(40, abs=1)


@pytest.mark.parametrize("kind", ["constant", "zeros", "noise", "growth", "short"])
def test_none_where_there_is_none(kind: str) -> None:
    count = np.arange(600.0)
    rates = {
        "constant": np.full(600, 5.0),
        "zeros": np.zeros(600),
        "noise": np.random.default_rng(1).uniform(50.0, 150.0, 600),
        "growth": 100.0 + count,
        "short": np.array([1.0, 5.0, 1.0, 5.0]),
    }[kind]
    assert find_season(rates) is None


def test_wandering_is_no_season() -> None:
    found = 0
    for seed in range(60):
        steps = np.random.default_rng(seed).standard_normal(1000)
        found += find_season(1000.0 * np.exp(0.02 * np.cumsum(steps))) is not None
    assert found <= 3


def test_a_season_seen_once_is_not_believed() -> None:
    assert find_season(_wave(400, 500, noise=0.05)) is None
