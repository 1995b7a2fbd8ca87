"""A curve goes through its points and never beyond them, over and over; what is scaled keeps its shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import InvalidValueError
from tidewise.workload import Constant, Curve, Noisy, Scaled

rates = st.floats(0.0, 1e6)


@given(
    apart_s=st.lists(st.integers(1, 500), min_size=1, max_size=8),
    values=st.lists(rates, min_size=9, max_size=9),
    seconds=st.integers(1, 3000),
)
def test_a_curve_passes_its_points_and_stays_between_them(
    apart_s: list[int], values: list[float], seconds: int
) -> None:
    times = np.concatenate(([0], np.cumsum(apart_s))).tolist()
    points = tuple(zip(map(float, times), values, strict=False))
    found = Curve(points=points).rates_per_s(seconds, 0)
    least, most = min(value for _, value in points), max(value for _, value in points)
    assert ((found >= least) & (found <= most)).all()
    for at_s, value in points[:-1]:
        if at_s < seconds:
            assert found[int(at_s)] == pytest.approx(value, abs=1e-6 * max(1.0, most))
    if seconds > times[-1]:
        np.testing.assert_array_equal(found[times[-1] :], found[: seconds - times[-1]])


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (((0.0, 1.0),), "at least two pairs"),
        (((1.0, 1.0), (2.0, 1.0)), "must be at 0"),
        (((0.0, 1.0), (5.0, 1.0), (5.0, 2.0)), "in order of time"),
        (((0.0, 1.0), (5.0, -1.0)), "the rate of a point"),
    ],
)
def test_points_that_make_no_curve_are_refused(points: tuple[tuple[float, float], ...], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        Curve(points=points)


def test_what_is_scaled_keeps_its_shape() -> None:
    noisy = Noisy(load=Constant(rate_per_s=100.0), share=0.1)
    np.testing.assert_allclose(
        Scaled(load=noisy, factor=3.0).rates_per_s(50, 4), 3.0 * noisy.rates_per_s(50, 4), rtol=1e-12
    )
    with pytest.raises(InvalidValueError, match="factor"):
        Scaled(load=noisy, factor=0.0)
    with pytest.raises(InvalidValueError, match="above 1e"):
        Scaled(load=noisy, factor=1e11).rates_per_s(5, 0)
