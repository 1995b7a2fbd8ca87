"""What the latest reports say against forecasts and models, and when they are believed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tidewise.core import Configuration, Forecast, JobStatus, Observation
from tidewise.policies.surprise import Surprise
from tidewise.testing.situations import report


def forecast(low: float, middle: float, high: float, *, made_at_s: float = 0.0, steps: int = 5) -> Forecast:
    """Each step twice as high as the one before."""
    paths = tuple(tuple(rate * 2.0**step for step in range(steps)) for rate in (low, middle, high))
    return Forecast(made_at_s=made_at_s, step_s=60.0, levels=(0.1, 0.5, 0.9), paths_per_s=paths, model="m")


def surprise(history: list[Observation] | None = None) -> Surprise:
    follower = Surprise(settle_s=60.0)
    for observation in history or []:
        follower.learn(observation)
    return follower


def windows(rates: list[float], *, window_s: float = 10.0, busy: float | None = 0.5) -> list[Observation]:
    return [
        report(time_s=window_s * (place + 1), window_s=window_s, rate_per_s=rate, busy_share=busy)
        for place, rate in enumerate(rates)
    ]


# The load.


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    history = windows([9000.0, 1000.0, 2000.0, 3000.0])
    assert surprise().rate_per_s(history) == pytest.approx(2000.0)
    assert surprise().rate_per_s(windows([700.0], window_s=300.0)) == pytest.approx(700.0)


def test_two_reports_of_more_are_believed_at_once_and_one_is_a_jump() -> None:
    assert surprise().rate_per_s(windows([1000.0, 5000.0, 4000.0])) == pytest.approx(4000.0)
    assert surprise().is_jumping(windows([1000.0, 1000.0, 4000.0]))
    assert not surprise().is_jumping(windows([1000.0, 5000.0, 4000.0]))
    assert not surprise().is_jumping(windows([4000.0]))


def test_a_forecast_that_holds_is_left_as_it_is() -> None:
    made = forecast(80.0, 100.0, 120.0)
    assert surprise().bent(made, 110.0, 0.0) == made


def test_the_steps_that_have_passed_are_left_out_but_never_all() -> None:
    made = forecast(80.0, 100.0, 120.0)
    bent = surprise().bent(made, 100.0, 130.0)
    assert bent.made_at_s == 130.0
    assert bent.path() == (400.0, 800.0, 1600.0)
    assert surprise().bent(made, 100.0, 1e6).path() == (1600.0,)


def test_more_than_was_thought_possible_lifts_the_forecast() -> None:
    bent = surprise().bent(forecast(80.0, 100.0, 120.0), 300.0, 0.0)
    assert bent.path() == pytest.approx([300.0, 600.0, 1200.0, 2400.0, 4800.0])
    assert bent.path(0.9)[0] == pytest.approx(360.0)
    assert bent.path(0.1)[0] == pytest.approx(240.0)


def test_less_than_was_thought_possible_does_not_lower_it() -> None:
    made = forecast(80.0, 100.0, 120.0)
    assert surprise().bent(made, 1.0, 0.0) == made


@pytest.mark.parametrize("middle", [0.0, 5e-324])
def test_a_load_that_comes_out_of_nothing_is_believed(middle: float) -> None:
    bent = surprise().bent(forecast(0.0, middle, middle), 2000.0, 0.0)
    assert bent.path()[0] >= 1000.0


# The job.


def known(configuration: Configuration, _rate_per_s: float) -> tuple[float, float]:
    """Every executor does 1,000 records/s."""
    return math.log(1000.0 * configuration.executors), 0.05


def test_reports_that_agree_with_what_is_known_change_nothing() -> None:
    history = windows([2000.0] * 20, busy=0.52)
    assert surprise(history).slower(known) == 1.0


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_a_job_that_does_half_or_twice_as_much_is_believed(speed: float) -> None:
    history = windows([1000.0] * 20, busy=0.25 / speed)
    assert surprise(history).slower(known) == pytest.approx(speed, rel=0.05)


def test_no_more_than_a_factor_of_four_is_believed() -> None:
    history = windows([100.0] * 20, busy=1.0)
    assert surprise(history).slower(known) == pytest.approx(0.25)


def test_executors_that_join_do_not_hide_that_all_of_them_are_slow() -> None:
    history = windows([250.0] * 20, busy=0.5)
    few, more = Configuration(executors=1), Configuration(executors=2)
    alone = [replace(seen, configuration=few) for seen in history]
    joined = [replace(seen, configuration=few if place < 14 else more) for place, seen in enumerate(history)]
    ratio = surprise(joined).slower(known) / surprise(alone).slower(known)
    assert surprise(alone).slower(known) < 0.8
    assert 0.5 < ratio < 1.0


def shown(observation: Observation, *, least: bool) -> tuple[float, float]:
    del least
    return known(observation.configuration, observation.load_per_s)


def never_shown(observation: Observation, *, least: bool) -> None:
    del observation, least


def fewer_have_shown(observation: Observation, *, least: bool) -> tuple[float, float] | None:
    """One executor less has done what it is known to do."""
    fewer = observation.configuration.with_executors(observation.configuration.executors - 1)
    return known(fewer, observation.load_per_s) if least else None


def held(history: list[Observation], follower: Surprise | None = None) -> Surprise:
    follower = follower or surprise()
    for observation in history:
        follower.learn(observation)
        follower.hold(shown, known=known)
    return follower


def test_of_a_job_that_has_become_slower_it_is_held_until_it_shows_otherwise() -> None:
    slow = windows([1000.0] * 20, busy=0.5)
    failed = [replace(each, status=JobStatus.DOWN) for each in windows([1000.0] * 22, busy=0.5)[20:]]
    follower = held([*slow, *failed])
    assert follower.held == pytest.approx(0.5, rel=0.05)
    # Just after a failure nothing tells: it is as slow as it was.
    assert follower.slower(known) == follower.held
    held(windows([1000.0] * 60, busy=0.25)[22:], follower)
    assert follower.held == 1.0
    assert follower.slower(known) == 1.0


def test_what_never_showed_before_what_it_can_do_has_not_become_slower() -> None:
    follower = surprise()
    for observation in windows([1000.0] * 20, busy=0.5):
        follower.learn(observation)
        assert follower.hold(never_shown, known=known) == 1.0
    assert follower.slower(known) == pytest.approx(0.5, rel=0.05)
    assert follower.held == 1.0


@pytest.mark.parametrize(("busy", "left"), [(0.8, 1250.0 / 4000.0), (0.35, 1.0)])
def test_more_executors_are_no_reason_to_do_less(busy: float, left: float) -> None:
    """Of 4,000/s: 1,250/s is less than the 3,000/s of one executor less, and 2,900/s is about as much."""
    follower = surprise()
    for observation in windows([1000.0] * 20, busy=busy):
        follower.learn(replace(observation, configuration=observation.configuration.with_executors(4)))
        follower.hold(fewer_have_shown, known=known)
    assert follower.held == pytest.approx(left, rel=0.05)


def test_what_is_held_stays_while_what_never_ran_before_runs() -> None:
    follower = held(windows([1000.0] * 20, busy=0.5))
    for observation in windows([4000.0] * 40, busy=0.5)[20:]:
        follower.learn(observation)
        follower.hold(never_shown, known=known)
    assert follower.held == pytest.approx(0.5, rel=0.05)


def test_a_job_that_does_more_than_ever_is_believed_once_for_all_that_it_showed() -> None:
    follower = surprise()
    factors = []
    for observation in windows([1000.0] * 40, busy=0.125):
        follower.learn(observation)
        factors.append(follower.hold(shown, known=known))
    more = [factor for factor in factors if factor > 1.0]
    # Whoever is told learns it; this one does not, and is told again, of nothing that it was told of before.
    assert more == [pytest.approx(2.0, rel=0.05)] * len(more)
    assert 2 <= len(more) <= 6
    assert follower.held == 1.0


def test_what_is_held_for_long_is_how_the_job_is() -> None:
    follower, told = surprise(), []
    for observation in windows([1000.0] * 250, busy=0.5):
        follower.learn(observation)
        follower.hold(shown, known=known)
        told.append(follower.settled(observation.time_s))
    first = next(place for place, left in enumerate(told) if left < 1.0)
    assert told[first] == pytest.approx(0.5, rel=0.05)
    assert 180 <= first <= 200
    # Whoever is told learns it; this one does not, and so it is held again.
    assert set(told[first + 1 :]) == {1.0}


def test_a_failure_that_was_only_felt_disturbs_as_any_other() -> None:
    follower = surprise(windows([1000.0] * 20, busy=0.5))
    follower.felt(200.0)
    assert follower.slower(known) == 1.0
    assert not follower.is_calm(windows([1000.0] * 26)[-1])
    assert follower.is_calm(windows([1000.0] * 27)[-1])


def test_what_is_held_is_believed_whatever_the_doubt_about_what_was_known() -> None:
    def doubted(configuration: Configuration, rate_per_s: float) -> tuple[float, float]:
        return known(configuration, rate_per_s)[0], 2.0

    follower = held(windows([1000.0] * 20, busy=0.5))
    assert follower.slower(doubted) == pytest.approx(0.5, rel=0.05)
    assert surprise(windows([1000.0] * 20, busy=0.5)).slower(doubted) == 1.0


@pytest.mark.parametrize("disturbance", ["started", "failed", "moved", "idle", "untold"])
def test_reports_shortly_after_a_disturbance_tell_nothing(disturbance: str) -> None:
    history = windows([1000.0] * 20, busy=0.5)
    if disturbance == "started":
        history = history[:10]
    if disturbance == "failed":
        history[12] = replace(history[12], status=JobStatus.DOWN)
    if disturbance == "moved":
        other = Configuration(executors=9, cores_per_executor=2.0)
        history[:12] = [replace(seen, configuration=other) for seen in history[:12]]
    if disturbance == "idle":
        history = windows([1000.0] * 20, busy=0.01)
    if disturbance == "untold":
        history = windows([1000.0] * 20, busy=None)
    assert surprise(history).slower(known) == 1.0


def test_the_cpu_in_use_is_that_of_calm_work() -> None:
    history = [replace(seen, cpu_share=0.3) for seen in windows([1000.0] * 20)]
    cores = history[-1].configuration.total_cores
    assert surprise(history).cores_in_use == pytest.approx(0.3 * cores)
    history[19] = replace(history[19], status=JobStatus.DOWN)
    assert surprise(history).cores_in_use is None
    assert surprise([replace(seen, cpu_share=None) for seen in windows([1000.0] * 20)]).cores_in_use is None
