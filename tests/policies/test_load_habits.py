"""What a load is like over hours, from its reports alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tidewise.core import JobStatus
from tidewise.policies.load_habits import LoadHabits
from tidewise.testing.situations import report

BLOCK_S = 600.0
TAIL_S = 9.0 * BLOCK_S


def followed(rates: Sequence[float], *, window_s: float = BLOCK_S, down: Sequence[int] = ()) -> LoadHabits:
    habits = LoadHabits(tail_s=TAIL_S)
    for place, rate in enumerate(rates):
        seen = report(time_s=window_s * (place + 0.5), window_s=window_s, rate_per_s=rate)
        habits.learn(replace(seen, status=JobStatus.DOWN) if place in down else seen)
    return habits


def walk(kept: float, *, blocks: int, sd: float = 0.4) -> list[float]:
    """A load of 1000 that keeps such a share of what it is above or below that from block to block."""
    random, level, levels = np.random.default_rng(7), 0.0, []
    for _ in range(blocks):
        level = kept * level + math.sqrt(1.0 - kept**2) * sd * random.normal()
        levels.append(1000.0 * math.exp(level))
    return levels


def test_nothing_is_a_habit_at_first() -> None:
    assert followed([1000.0, 2000.0] * 7).habits is None
    assert followed([1000.0] * 40).habits is None, "what never changes tells nothing of how soon it would"


def test_the_usual_level_and_how_soon_it_comes_back_are_found() -> None:
    found = followed(walk(0.8, blocks=140)).habits
    assert found is not None
    assert found.log_mean == pytest.approx(math.log(1000.0), abs=0.3)
    assert found.log_sd == pytest.approx(0.4, rel=0.5)
    assert found.lasts_s == pytest.approx(-BLOCK_S / math.log(0.8), rel=0.5)


def test_what_has_nothing_to_do_with_the_block_before_is_gone_soon() -> None:
    quick, slow = followed(walk(0.0, blocks=140)).habits, followed(walk(0.97, blocks=140)).habits
    assert quick is not None
    assert slow is not None
    assert quick.lasts_s < 1.5 * BLOCK_S < 5.0 * BLOCK_S < slow.lasts_s


def test_the_highest_half_minute_of_a_block_counts() -> None:
    rates = [1000.0] * 9 + [9000.0, 3000.0]
    assert followed(rates, window_s=10.0).highest_per_s == pytest.approx((1000.0 + 9000.0 + 3000.0) / 3.0)


def test_what_is_guessed_while_the_job_is_down_is_no_habit() -> None:
    assert followed([1000.0, 9000.0, 1000.0], down=[1]).highest_per_s == 1000.0


def test_what_is_a_day_old_is_forgotten() -> None:
    assert followed([9000.0] + [1000.0] * 143).highest_per_s == 9000.0
    assert followed([9000.0] + [1000.0] * 150).highest_per_s == 1000.0


def test_the_ceiling_is_a_little_more_than_the_most_of_a_day() -> None:
    assert followed([]).ceiling_per_s == math.inf
    assert followed([100.0, 300.0, 200.0], window_s=10.0).ceiling_per_s == pytest.approx(200.0 * 2.1, rel=0.01)
    assert followed([500.0] * 10 + [300.0] * 270, window_s=300.0).ceiling_per_s == pytest.approx(1.1 * 500.0)
    assert followed([500.0] * 10 + [300.0] * 400, window_s=300.0).ceiling_per_s == pytest.approx(1.1 * 300.0)
