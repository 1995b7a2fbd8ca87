"""What every generated load promises, and what each shape is."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import InvalidValueError
from tidewise.workload import (
    Bursts,
    Constant,
    Daily,
    Growth,
    Load,
    Noisy,
    RegimeChange,
    Sine,
    Square,
    Steps,
    Sum,
    Weekly,
    random_load,
)

rates = st.floats(0.0, 1e12)
shares = st.floats(0.0, 1.0)
periods = st.floats(1.0, 1e9)
spans = st.floats(0.0, 1e9)


@st.composite
def steps(draw: st.DrawFn) -> Steps:
    later = draw(st.lists(st.floats(1e-3, 1e9), max_size=5, unique=True))
    return Steps(levels=tuple((begins_s, draw(rates)) for begins_s in [0.0, *sorted(later)]))


plain_loads: st.SearchStrategy[Load] = st.one_of(
    st.builds(Constant, rate_per_s=rates),
    steps(),
    st.builds(Sine, mean_per_s=rates, amplitude_share=shares, period_s=periods, phase_share=shares),
    st.builds(
        lambda low, more, period_s, high_share: Square(
            low_per_s=low, high_per_s=min(low + more, 1e12), period_s=period_s, high_share=high_share
        ),
        rates,
        rates,
        periods,
        shares,
    ),
    st.builds(
        Growth,
        start_per_s=st.floats(1e-6, 1e12),
        end_per_s=st.floats(1e-6, 1e12),
        over_s=periods,
        kind=st.sampled_from(["linear", "exponential"]),
    ),
    st.builds(
        RegimeChange,
        at_s=spans,
        over_s=spans,
        mean_before_per_s=rates,
        mean_after_per_s=rates,
        amplitude_share_before=shares,
        amplitude_share_after=shares,
        period_before_s=periods,
        period_after_s=periods,
    ),
    st.builds(
        Daily,
        mean_per_s=rates,
        day_s=periods,
        night_share=shares,
        start_hour=st.floats(0.0, 24.0),
        day_spread=shares,
        noise_share=shares,
    ),
    st.builds(
        Weekly,
        mean_per_s=rates,
        day_s=periods,
        night_share=shares,
        weekend_share=shares,
        start_day=st.integers(0, 6),
        start_hour=st.floats(0.0, 24.0),
        day_spread=shares,
        noise_share=shares,
    ),
    st.builds(
        Bursts,
        base_per_s=rates,
        mean_gap_s=periods,
        lowest_factor=st.floats(1.0, 2.0),
        highest_factor=st.floats(2.0, 1000.0),
        ramp_s=spans,
        hold_s=spans,
        decay_s=spans,
    ),
    st.builds(random_load, st.integers(0, 10_000)),
)
loads: st.SearchStrategy[Load] = st.recursive(
    plain_loads,
    lambda inner: st.one_of(
        st.builds(Noisy, load=inner, share=shares, smooth_s=spans),
        st.builds(lambda several: Sum(loads=tuple(several)), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=3,
)


@settings(max_examples=300)
@given(load=loads, duration_s=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_every_load_gives_one_finite_rate_per_second_that_is_not_negative(
    load: Load, duration_s: int, seed: int
) -> None:
    found = load.rates_per_s(duration_s, seed)
    assert found.shape == (duration_s,)
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()


@given(load=loads, duration_s=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_rates(load: Load, duration_s: int, seed: int) -> None:
    np.testing.assert_array_equal(load.rates_per_s(duration_s, seed), load.rates_per_s(duration_s, seed))


@given(load=loads, duration_s=st.integers(1, 200), more_s=st.integers(1, 200), seed=st.integers(0, 2**32))
def test_a_longer_run_begins_like_the_shorter_one(load: Load, duration_s: int, more_s: int, seed: int) -> None:
    longer = load.rates_per_s(duration_s + more_s, seed)
    # Vectorised sine and exponential may differ in the last bit by where in the array a value stands.
    np.testing.assert_allclose(load.rates_per_s(duration_s, seed), longer[:duration_s], rtol=1e-12)


EXAMPLES: list[Load] = [
    Constant(rate_per_s=1.0),
    Sine(mean_per_s=1.0),
    Square(low_per_s=1.0, high_per_s=2.0),
    Growth(start_per_s=1.0, end_per_s=2.0),
    RegimeChange(at_s=1.0, mean_before_per_s=1.0, mean_after_per_s=2.0),
    Daily(mean_per_s=1.0),
    Weekly(mean_per_s=1.0),
    Bursts(base_per_s=1.0),
    Noisy(load=Constant(rate_per_s=1.0)),
]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 1e300])
@pytest.mark.parametrize("load", EXAMPLES, ids=lambda load: load.name)
def test_no_number_of_a_shape_may_be_nan_infinite_or_negative(load: Load, bad: float) -> None:
    assert is_dataclass(load)
    numbers = [field.name for field in fields(load) if isinstance(getattr(load, field.name), int | float)]
    for name in numbers:
        if bad == 1e300 and name.endswith("_s") and not name.endswith("_per_s"):
            continue  # a span of time may be as long as one likes
        with pytest.raises(InvalidValueError):
            replace(load, **{name: bad})


@pytest.mark.parametrize(
    "levels",
    [(), ((5.0, 1.0),), ((0.0, 1.0), (9.0, 1.0), (9.0, 2.0)), ((0.0, 1.0), (9.0, 1.0), (3.0, 2.0)), ((0.0, -1.0),)],
)
def test_levels_that_are_no_levels_are_refused(levels: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(InvalidValueError):
        Steps(levels=levels)


def test_other_impossible_shapes_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="low_per_s"):
        Square(low_per_s=2.0, high_per_s=1.0)
    with pytest.raises(InvalidValueError, match="exponential"):
        Growth(start_per_s=0.0, end_per_s=1.0, kind="exponential")
    with pytest.raises(InvalidValueError, match="highest_factor"):
        Bursts(base_per_s=1.0, lowest_factor=3.0, highest_factor=2.0)
    with pytest.raises(InvalidValueError, match="start_day"):
        Weekly(mean_per_s=1.0, start_day=7)
    with pytest.raises(InvalidValueError, match="at least one load"):
        Sum(loads=())


@pytest.mark.parametrize(("duration_s", "seed"), [(0, 0), (-1, 0), (1, -1)])
@pytest.mark.parametrize("load", EXAMPLES, ids=lambda load: load.name)
def test_a_run_without_seconds_or_with_a_negative_seed_is_refused(load: Load, duration_s: int, seed: int) -> None:
    with pytest.raises(InvalidValueError):
        load.rates_per_s(duration_s, seed)


def test_steps_hold_until_the_next() -> None:
    found = Steps(levels=((0.0, 5.0), (2.0, 7.0), (2.5, 1.0))).rates_per_s(4, 0)
    assert found.tolist() == [5.0, 5.0, 7.0, 1.0]


def test_a_square_is_low_then_high() -> None:
    assert Square(low_per_s=1.0, high_per_s=3.0, period_s=4.0).rates_per_s(8, 0).tolist() == [1, 1, 3, 3, 1, 1, 3, 3]


def test_a_sine_keeps_its_mean_and_swing() -> None:
    found = Sine(mean_per_s=100.0, amplitude_share=0.3, period_s=400.0).rates_per_s(4000, 0)
    assert found.mean() == pytest.approx(100.0)
    assert (found.min(), found.max()) == (pytest.approx(70.0), pytest.approx(130.0))


@pytest.mark.parametrize("kind", ["linear", "exponential"])
def test_growth_goes_from_start_to_end_and_stays(kind: Literal["linear", "exponential"]) -> None:
    found = Growth(start_per_s=10.0, end_per_s=40.0, over_s=100.0, kind=kind).rates_per_s(200, 0)
    assert found[0] == pytest.approx(10.0)
    assert found[50] == pytest.approx(25.0 if kind == "linear" else 20.0)
    assert (np.diff(found[:100]) > 0.0).all()
    np.testing.assert_allclose(found[100:], 40.0)


def test_a_regime_change_moves_mean_and_season() -> None:
    load = RegimeChange(
        at_s=1000.0, mean_before_per_s=100.0, mean_after_per_s=300.0, period_before_s=500.0, period_after_s=100.0
    )
    found = load.rates_per_s(2000, 0)
    assert found[:1000].mean() == pytest.approx(100.0, rel=0.01)
    assert found[1000:].mean() == pytest.approx(300.0, rel=0.01)
    spectrum = np.abs(np.fft.rfft(found[1000:] - found[1000:].mean()))
    assert int(spectrum.argmax()) == 10


def test_a_day_has_two_peaks_a_quiet_night_and_its_mean() -> None:
    day = Daily(mean_per_s=1000.0, day_s=2400.0, night_share=0.2, day_spread=0.0, noise_share=0.0).rates_per_s(2400, 0)
    assert day.mean() == pytest.approx(1000.0, rel=0.01)
    assert day.min() / day.max() == pytest.approx(0.2, rel=0.01)
    rising = np.sign(np.diff(day))
    peaks = np.flatnonzero((rising[:-1] > 0) & (rising[1:] < 0)) / 100.0
    assert len(peaks) == 2
    assert 9.0 < peaks[0] < 12.0
    assert 19.0 < peaks[1] < 21.0
    assert day[300] < 0.5 * day.mean()


def test_the_start_hour_only_moves_the_day() -> None:
    plain = {"mean_per_s": 10.0, "day_s": 240.0, "day_spread": 0.0, "noise_share": 0.0}
    midnight = Daily(**plain).rates_per_s(480, 0)
    np.testing.assert_allclose(Daily(**plain, start_hour=6.0).rates_per_s(240, 0), midnight[60:300])


def test_weekends_are_quieter_and_no_second_jumps() -> None:
    day_s = 2400
    week = Weekly(mean_per_s=1000.0, day_s=float(day_s), day_spread=0.0, noise_share=0.0).rates_per_s(14 * day_s, 0)
    means = week.reshape(14, day_s).mean(axis=1)
    assert means[:5] == pytest.approx(1000.0, rel=0.03)
    assert (means[5:7] < 0.75 * means[0]).all()
    assert means[7:12] == pytest.approx(means[:5], rel=0.01)
    assert np.abs(np.diff(week)).max() < 0.02 * week.max()


def test_bursts_stay_within_their_factors_and_leave_the_base_alone() -> None:
    found = Bursts(base_per_s=100.0, mean_gap_s=1000.0, decay_s=20.0).rates_per_s(50_000, 3)
    assert found.min() == 100.0
    assert 140.0 < found.max() <= 400.0
    assert np.median(found) == pytest.approx(100.0, rel=0.01)
    begun = np.flatnonzero((found[:-1] <= 100.01) & (found[1:] > 100.01))
    assert 25 <= len(begun) <= 70


def test_other_seeds_give_other_bursts() -> None:
    load = Bursts(base_per_s=100.0, mean_gap_s=100.0)
    assert not np.array_equal(load.rates_per_s(1000, 1), load.rates_per_s(1000, 2))


@pytest.mark.parametrize("smooth_s", [0.0, 20.0])
def test_noise_keeps_the_mean_and_has_its_share(smooth_s: float) -> None:
    found = Noisy(load=Constant(rate_per_s=1000.0), share=0.1, smooth_s=smooth_s).rates_per_s(100_000, 7)
    assert found.mean() == pytest.approx(1000.0, rel=0.01)
    assert found.std() == pytest.approx(100.0, rel=0.05)
    neighbours = float(np.corrcoef(found[:-1], found[1:])[0, 1])
    assert neighbours == pytest.approx(0.0 if smooth_s == 0.0 else math.exp(-1 / smooth_s), abs=0.02)


def test_noise_on_noise_is_not_the_same_noise() -> None:
    once = Noisy(load=Constant(rate_per_s=1.0))
    twice = Noisy(load=once)
    outer = twice.rates_per_s(1000, 0) / once.rates_per_s(1000, 0)
    assert abs(float(np.corrcoef(outer, once.rates_per_s(1000, 0))[0, 1])) < 0.2


def test_a_sum_adds_up_and_its_parts_have_chances_of_their_own() -> None:
    assert Sum(loads=(Constant(rate_per_s=1.0), Constant(rate_per_s=2.0))).rates_per_s(3, 0).tolist() == [3.0] * 3
    part = Noisy(load=Constant(rate_per_s=100.0), share=0.1)
    both = Sum(loads=(part, part)).rates_per_s(20_000, 0)
    assert both.std() == pytest.approx(math.sqrt(2.0) * 10.0, rel=0.05)


def test_random_loads_are_many_and_stay_around_their_mean() -> None:
    drawn = [random_load(seed, mean_per_s=1000.0) for seed in range(150)]
    assert len({load.name for load in drawn}) >= 9
    assert len(set(drawn)) == len(drawn)
    for seed, load in enumerate(drawn):
        assert 300.0 < load.rates_per_s(3600, seed).mean() < 2200.0


def test_the_same_seed_draws_the_same_load() -> None:
    assert random_load(5) == random_load(5)


@pytest.mark.parametrize("bad", [{"mean_per_s": math.nan}, {"mean_per_s": 0.0}, {"day_s": 0.5}, {"day_s": math.inf}])
def test_random_loads_of_no_size_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        random_load(0, **bad)
    with pytest.raises(InvalidValueError):
        random_load(-1)
