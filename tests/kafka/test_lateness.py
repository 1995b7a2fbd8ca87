"""What the histogram promises: quantiles that are never too good, and at most a little too bad."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidewise.kafka.lateness import Lateness

delays = st.lists(st.floats(-10.0, 1e5), min_size=1, max_size=50)


@given(delays, st.floats(0.01, 1.0))
def test_a_quantile_is_never_too_good_and_hardly_too_bad(values: list[float], share: float) -> None:
    lateness = Lateness()
    lateness.add(np.array(values))
    true_s = max(0.0, float(np.quantile(values, share, method="inverted_cdf")))
    told_s = lateness.quantile_s(share)
    assert told_s is not None
    assert true_s * (1 - 1e-9) <= told_s <= max(0.001, true_s * 1.0501)
    assert lateness.worst_s == max(0.0, *values)


@given(delays, delays)
def test_two_that_are_merged_tell_the_same_as_one_of_both(some: list[float], others: list[float]) -> None:
    first, second, both = Lateness(), Lateness(), Lateness()
    first.add(np.array(some))
    second.add(np.array(others))
    both.add(np.array(some + others))
    first.merge(second)
    assert first.quantile_s(0.5) == both.quantile_s(0.5)
    assert first.worst_s == both.worst_s
    assert first.total == both.total == len(some) + len(others)


def test_no_records_have_no_lateness() -> None:
    assert Lateness().quantile_s(0.99) is None
    lateness = Lateness()
    lateness.add(np.array([]))
    assert lateness.total == 0
