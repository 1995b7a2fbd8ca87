"""What every forecaster has to keep, as tests that anybody's forecaster can inherit."""

from __future__ import annotations

import math
import pickle
import random
import time
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tidewise.core import Configuration, Forecast, Forecaster, JobStatus, NotReadyError, Observation


def loads(rates_per_s: Iterable[float], *, window_s: float = 1.0, start_s: float = 0.0) -> list[Observation]:
    """Observations of a load, one window after the other."""
    return [
        Observation(
            time_s=start_s + window_s * (index + 1),
            window_s=window_s,
            configuration=Configuration(executors=4),
            status=JobStatus.RUNNING,
            input_rate_per_s=rate,
            processed_rate_per_s=rate,
            backlog_records=0.0,
        )
        for index, rate in enumerate(rates_per_s)
    ]


def day_like(count: int, *, period: int = 3600) -> list[float]:
    """A wave with noise, the same at every call."""
    noise = random.Random(7)  # noqa: S311 - a load, not a secret
    return [
        max(0.0, 1000.0 + 600.0 * math.sin(2 * math.pi * index / period) + noise.gauss(0.0, 40.0))
        for index in range(count)
    ]


class ForecasterConformance:
    """Tests of the promises in `tidewise.core.Forecaster`.

    Inherit and say how the forecaster is made; pytest does the rest::

        from tidewise.testing import ForecasterConformance


        class TestMyForecaster(ForecasterConformance):
            def make_forecaster(self) -> Forecaster:
                return MyForecaster(season_s=86400)
    """

    warm_up: int = 600
    """After this many observations of a second each, it has to be ready."""
    learn_limit_s: float = 200e-6
    """One observation has to be taken in within this time, on average."""
    forecast_limit_s: float = 0.001
    """A forecast of 60 steps has to be there within this time."""
    state_limit_bytes: int = 16 * 2**20
    """What it may keep, pickled."""
    state_growth: float = 1.1
    """By what factor the state may grow between 10,000 and 20,000 observations."""

    def make_forecaster(self) -> Forecaster:
        """A new forecaster, the same at every call; it has to be picklable for the test of its memory."""
        raise NotImplementedError("say how your forecaster is made: override make_forecaster")

    def taught(self, observations: Iterable[Observation]) -> Forecaster:
        """A new forecaster that has learnt these."""
        forecaster = self.make_forecaster()
        for observation in observations:
            forecaster.learn(observation)
        return forecaster

    def test_it_has_a_name(self) -> None:
        assert self.make_forecaster().name.strip(), "the name is empty"

    def test_it_is_not_ready_before_the_first_observation(self) -> None:
        with pytest.raises(NotReadyError):
            self.make_forecaster().forecast(horizon_s=600.0, step_s=60.0)

    def test_it_is_ready_or_says_so_at_any_time(self) -> None:
        forecaster = self.make_forecaster()
        for observation in loads(day_like(60)):
            forecaster.learn(observation)
            try:
                made = forecaster.forecast(horizon_s=600.0, step_s=60.0)
            except NotReadyError:
                continue
            self.check(made, made_at_s=observation.time_s, steps=10, step_s=60.0)

    @pytest.mark.parametrize(
        ("horizon_s", "step_s", "steps"), [(600.0, 60.0, 10), (600.0, 10.0, 60), (90.0, 60.0, 2), (60.0, 60.0, 1)]
    )
    def test_the_horizon_is_covered_from_the_last_observation(
        self, horizon_s: float, step_s: float, steps: int
    ) -> None:
        forecaster = self.taught(loads(day_like(self.warm_up)))
        made = forecaster.forecast(horizon_s=horizon_s, step_s=step_s)
        self.check(made, made_at_s=float(self.warm_up), steps=steps, step_s=step_s)

    def test_the_same_observations_give_the_same_forecast(self) -> None:
        seen = loads(day_like(self.warm_up))
        asked_often = self.make_forecaster()
        for index, observation in enumerate(seen):
            asked_often.learn(observation)
            if index > self.warm_up // 2 and index % 30 == 0:
                self._forecast_if_ready(asked_often)
        made = asked_often.forecast(horizon_s=600.0, step_s=60.0)
        assert made == asked_often.forecast(horizon_s=600.0, step_s=60.0), "asked again, it answered differently"
        assert made == self.taught(seen).forecast(horizon_s=600.0, step_s=60.0), "earlier forecasts changed this one"

    def test_it_follows_the_load(self) -> None:
        for rate in (10.0, 100_000.0):
            made = self.taught(loads([rate] * self.warm_up)).forecast(horizon_s=60.0, step_s=60.0)
            median = made.path()[0]
            assert median == pytest.approx(rate, rel=0.2), f"after {rate:g}/s for long, {median:g}/s is expected"

    def test_memory_and_time_are_bounded(self) -> None:
        forecaster = self.make_forecaster()
        rates = day_like(20_000)
        seen = loads(rates)
        for observation in seen[:10_000]:
            forecaster.learn(observation)
        half = len(pickle.dumps(forecaster))
        start_s = time.process_time()
        for observation in seen[10_000:]:
            forecaster.learn(observation)
        each_s = (time.process_time() - start_s) / 10_000
        whole = len(pickle.dumps(forecaster))
        assert whole <= self.state_limit_bytes, f"its state takes {whole:,} bytes"
        assert whole <= self.state_growth * half, f"its state grew from {half:,} to {whole:,} bytes"
        assert each_s <= self.learn_limit_s, f"an observation took {each_s * 1e6:.0f} us"
        took_s = min(_took_s(forecaster) for _ in range(10))
        assert took_s <= self.forecast_limit_s, f"a forecast took {took_s * 1e3:.2f} ms"

    def test_repeated_and_late_observations_are_ignored(self) -> None:
        seen = loads(day_like(self.warm_up))
        disturbed = []
        for index, observation in enumerate(seen):
            disturbed.append(observation)
            if index >= 10 and index % 5 == 0:
                wrong = loads([9e6], start_s=observation.time_s - 4.0)  # out of order, and wrong besides
                disturbed += [observation, *wrong]
        made = self.taught(disturbed).forecast(horizon_s=600.0, step_s=60.0)
        assert made == self.taught(seen).forecast(horizon_s=600.0, step_s=60.0)

    @pytest.mark.parametrize("shape", ["zeros", "constant", "spike", "step", "gap", "long-gap", "coarse", "late-clock"])
    def test_it_survives(self, shape: str) -> None:
        count = self.warm_up
        shapes = {
            "zeros": loads([0.0] * count),
            "constant": loads([250.0] * count),
            "spike": loads([100.0] * (count - 1) + [1e9]),
            "step": loads([100.0] * (count // 2) + [5000.0] * (count - count // 2)),
            "gap": loads(day_like(count)) + loads(day_like(5), start_s=count + 300.0),
            "long-gap": loads(day_like(count)) + loads(day_like(5), start_s=count + 1e6),
            "coarse": loads(day_like(count), window_s=60.0),
            "late-clock": loads(day_like(count), start_s=1.8e9),
        }
        seen = shapes[shape]
        made = self.taught(seen).forecast(horizon_s=600.0, step_s=60.0)
        self.check(made, made_at_s=seen[-1].time_s, steps=10, step_s=60.0)

    @settings(
        max_examples=50,
        deadline=None,  # time has a test of its own
        phases=(Phase.explicit, Phase.generate),  # a load is short enough to read as it is drawn
        derandomize=True,  # a plug-in's build must not fail on Tuesdays
        suppress_health_check=[HealthCheck.differing_executors],  # the tests are inherited: that is what they are for
    )
    @given(
        rates=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1e9)), min_size=1, max_size=40),
        window_s=st.sampled_from((0.1, 1.0, 60.0)),
        step_s=st.floats(0.5, 900.0),
        steps=st.integers(1, 20),
    )
    def test_any_load_gives_a_forecast_or_not_ready(
        self, rates: list[float], window_s: float, step_s: float, steps: int
    ) -> None:
        forecaster = self.taught(loads(rates, window_s=window_s))
        try:
            made = forecaster.forecast(horizon_s=steps * step_s, step_s=step_s)
        except NotReadyError:
            return
        assert len(made.path()) in (steps, steps + 1)  # one more where the product was rounded up

    def check(self, made: Forecast, *, made_at_s: float, steps: int, step_s: float) -> None:
        """A forecast is valid by construction; here: that it answers what was asked."""
        assert isinstance(made, Forecast)
        assert made.made_at_s == pytest.approx(made_at_s), "it does not begin at the end of the last observation"
        assert made.step_s == pytest.approx(step_s)
        assert len(made.path()) == steps, f"{len(made.path())} steps instead of {steps}"
        assert made.model.strip(), "the model has no name"
        assert min(made.levels) <= 0.1, "a forecast without a low path cannot say how sure it is"
        assert max(made.levels) >= 0.9, "a forecast without a high path cannot say how sure it is"

    @staticmethod
    def _forecast_if_ready(forecaster: Forecaster) -> None:
        try:
            forecaster.forecast(horizon_s=600.0, step_s=60.0)
        except NotReadyError:
            return


def _took_s(forecaster: Forecaster) -> float:
    start_s = time.process_time()
    forecaster.forecast(horizon_s=600.0, step_s=10.0)
    return time.process_time() - start_s
