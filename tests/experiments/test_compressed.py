"""A day in minutes: as many records for each moment that is shown, and the same costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import Prices
from tidewise.experiments.compressed import compressed_prices, compressed_rates


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=200), st.integers(1, 50))
def test_the_mean_rate_stays_and_no_second_leaves_the_bounds(rates: list[float], seconds: int) -> None:
    load = np.array(rates)
    found = compressed_rates(load, min(seconds, len(load)))
    assert len(found) == min(seconds, len(load))
    assert found.mean() == pytest.approx(load.mean(), abs=1e-6)
    assert found.min() >= load.min() - 1e-6
    assert found.max() <= load.max() + 1e-6


def test_each_second_has_the_mean_of_what_it_shows() -> None:
    assert compressed_rates(np.array([1.0, 3.0, 10.0, 20.0]), 2).tolist() == [2.0, 15.0]
    assert compressed_rates(np.array([4.0, 10.0, 16.0]), 2).tolist() == pytest.approx([6.0, 14.0])


def test_a_time_that_is_not_compressed_stays_as_it_is() -> None:
    assert compressed_rates(np.array([1.0, 3.0]), 2).tolist() == [1.0, 3.0]
    assert compressed_prices(Prices(), 1.0) == Prices()


def test_a_compressed_hour_costs_what_it_shows() -> None:
    usual, faster = Prices(), compressed_prices(Prices(), 60.0)
    told = faster.cost(core_s=60.0, memory_mib_s=1024.0 * 60.0)
    assert told == pytest.approx(usual.cost(core_s=3600.0, memory_mib_s=1024.0 * 3600.0))
