"""The mid-envelope is in order along every resource, leaves what is in order alone, and keeps two curves apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.qos.worlds import SPACE, TABLE, never_falls_with_resources
from tidewise.qos import Candidates, Floats
from tidewise.qos.monotone import _by_pairs, decreasing, highest_of_less, increasing, lowest_of_more

values = arrays(np.float64, len(TABLE), elements=st.floats(-10.0, 10.0))


@given(values)
def test_never_falls_with_more_of_a_resource(drawn: Floats) -> None:
    assert never_falls_with_resources(increasing(TABLE, drawn))
    assert never_falls_with_resources(-decreasing(TABLE, drawn))


@given(values)
def test_what_is_in_order_stays(drawn: Floats) -> None:
    ordered = increasing(TABLE, drawn)
    assert np.allclose(increasing(TABLE, ordered), ordered)


@given(values, arrays(np.float64, len(TABLE), elements=st.floats(0.0, 5.0)))
def test_a_curve_below_another_stays_below(drawn: Floats, more: Floats) -> None:
    assert (increasing(TABLE, drawn) <= increasing(TABLE, drawn + more) + 1e-9).all()


@given(values)
def test_bounds_pass_on_to_more_and_to_less(drawn: Floats) -> None:
    at_least, at_most = highest_of_less(TABLE, drawn), lowest_of_more(TABLE, drawn)
    assert never_falls_with_resources(at_least)
    assert never_falls_with_resources(at_most)
    assert (at_most <= drawn).all()
    assert (drawn <= at_least).all()


@given(values)
def test_pairs_and_grid_agree_also_with_holes_and_repeats(drawn: Floats) -> None:
    rows = [row for row in range(len(TABLE)) if row % 5] + [1, 2, 3]
    listed = Candidates.listing([TABLE[row] for row in rows])
    for table, values_ in ((TABLE, drawn), (listed, drawn[rows])):
        assert np.array_equal(_by_pairs(table, values_, of_more=False), highest_of_less(table, values_))
        assert np.array_equal(-_by_pairs(table, -values_, of_more=True), lowest_of_more(table, values_))


def test_rows_that_share_no_interval_are_not_compared() -> None:
    values_ = np.where(TABLE.commit_interval_s == 0.0, 5.0, -5.0)
    assert np.array_equal(increasing(TABLE, values_), values_)
    assert len(SPACE) == len(values_)
