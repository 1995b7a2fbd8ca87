"""Forecasters that each break one promise; `breaks` names the test that has to notice. Run by test_forecasters.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from tidewise.core import Forecast, Forecaster, Observation
from tidewise.forecast import Naive
from tidewise.testing import ForecasterConformance


class OnMutant(ForecasterConformance):
    breaks: ClassVar[str]
    forecaster: ClassVar[Callable[[], Forecaster]]

    def make_forecaster(self) -> Forecaster:
        return type(self).forecaster()


class Nameless(Naive):
    name = " "

    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        return Naive.forecast(self, horizon_s=horizon_s, step_s=step_s)


class TestNameless(OnMutant):
    breaks = "test_it_has_a_name"
    forecaster = Nameless


class Guessing(Naive):
    """Knows before it has seen anything."""

    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        steps = max(1, round(horizon_s / step_s))
        return Forecast(
            made_at_s=0.0, step_s=step_s, levels=(0.05, 0.5, 0.95), paths_per_s=((1.0,) * steps,) * 3, model="guess"
        )


class TestGuessing(OnMutant):
    breaks = "test_it_is_not_ready_before_the_first_observation"
    forecaster = Guessing


class TestGuessingAllTheTime(OnMutant):
    breaks = "test_it_is_ready_or_says_so_at_any_time"
    forecaster = Guessing


class TestGuessingWhateverTheLoad(OnMutant):
    breaks = "test_it_follows_the_load"
    forecaster = Guessing


class Shortsighted(Naive):
    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        return super().forecast(horizon_s=max(step_s, horizon_s - step_s), step_s=step_s)


class TestShortsighted(OnMutant):
    breaks = "test_the_horizon_is_covered_from_the_last_observation"
    forecaster = Shortsighted


class Late(Naive):
    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        made = super().forecast(horizon_s=horizon_s, step_s=step_s)
        return replace(made, made_at_s=made.made_at_s + 1.0)


class TestLate(OnMutant):
    breaks = "test_the_horizon_is_covered_from_the_last_observation"
    forecaster = Late


class TestLateAfterAnything(OnMutant):
    breaks = "test_it_survives"
    forecaster = Late


class Sure(Naive):
    """Has a median only."""

    def __init__(self) -> None:
        super().__init__(levels=(0.5,))


class TestSure(OnMutant):
    breaks = "test_the_horizon_is_covered_from_the_last_observation"
    forecaster = Sure


class Fickle(Naive):
    """Answers differently the more often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        self.asked += 1
        made = super().forecast(horizon_s=horizon_s, step_s=step_s)
        return replace(made, paths_per_s=tuple(tuple(rate + self.asked for rate in path) for path in made.paths_per_s))


class TestFickle(OnMutant):
    breaks = "test_the_same_observations_give_the_same_forecast"
    forecaster = Fickle


class Hoarding(Naive):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def learn(self, observation: Observation) -> None:
        self.seen += [observation.input_rate_per_s] * 10
        super().learn(observation)


class TestHoarding(OnMutant):
    breaks = "test_memory_and_time_are_bounded"
    forecaster = Hoarding


class Pondering(Naive):
    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        # Of its own time: on a busy machine others would use up that of the wall.
        ends_s = time.process_time() + 0.005
        while time.process_time() < ends_s:
            pass
        return super().forecast(horizon_s=horizon_s, step_s=step_s)


class TestPondering(OnMutant):
    breaks = "test_memory_and_time_are_bounded"
    forecaster = Pondering


class Credulous(Naive):
    """Takes everything in, in whatever order it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = 0.0

    def learn(self, observation: Observation) -> None:
        self.bias = 0.9 * self.bias + 0.1 * observation.input_rate_per_s
        super().learn(observation)

    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        made = super().forecast(horizon_s=horizon_s, step_s=step_s)
        return replace(made, paths_per_s=tuple((self.bias,) * len(path) for path in made.paths_per_s))


class TestCredulous(OnMutant):
    breaks = "test_repeated_and_late_observations_are_ignored"
    forecaster = Credulous


class Dividing(Naive):
    """Thinks that there is always some load."""

    def __init__(self) -> None:
        super().__init__()
        self.growth = 1.0
        self.last: float | None = None

    def learn(self, observation: Observation) -> None:
        if self.last is not None:
            self.growth = observation.input_rate_per_s / self.last
        self.last = observation.input_rate_per_s
        super().learn(observation)


class TestDividing(OnMutant):
    breaks = "test_it_survives"
    forecaster = Dividing


class TestDividingByAnything(OnMutant):
    breaks = "test_any_load_gives_a_forecast_or_not_ready"
    forecaster = Dividing
