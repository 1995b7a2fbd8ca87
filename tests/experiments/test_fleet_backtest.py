"""A backtest of one job: errors are those that were made, and origins stay within what is there."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.experiments.fleets import job_rows, with_values
from tidewise.core import BadInputError, NotReadyError
from tidewise.experiments.fleet_backtest import FleetBacktestSettings, judge_job
from tidewise.experiments.telemetry_forecasts import HORIZONS_S


def _rows(samples: int, rates: list[float]) -> pa.Table:
    return with_values(job_rows(samples=samples), load_per_s=rates)


def test_a_steady_load_is_forecast_without_error() -> None:
    settings = FleetBacktestSettings(models=("naive", "level"), origins=3)
    found = judge_job("orders-1", _rows(200, [500.0] * 200), settings=settings)
    assert [(row["model"], row["horizon_s"]) for row in found] == [
        (model, horizon_s) for model in ("naive", "level") for horizon_s in HORIZONS_S
    ]
    for row in found:
        assert row["origins"] == 3
        assert row["wape"] == pytest.approx(0.0, abs=1e-6)
        assert row["inside"] == 1.0


def test_on_a_line_the_naive_forecast_is_off_by_the_steps_ahead() -> None:
    settings = FleetBacktestSettings(models=("naive",), origins=1)
    found = judge_job("orders-1", _rows(200, [float(number + 1) for number in range(200)]), settings=settings)
    # The origin lies after 190 samples: the last is 190, and 191, 193 and 200 come.
    assert [row["wape"] for row in found] == pytest.approx([1 / 191, 3 / 193, 10 / 200], rel=1e-6)


def test_a_job_with_too_few_samples_says_so() -> None:
    with pytest.raises(NotReadyError, match="orders-1 has 100 samples of 60 s, and a backtest needs 130"):
        judge_job("orders-1", job_rows(samples=100), settings=FleetBacktestSettings())


def test_origins_that_lie_too_early_are_left_out() -> None:
    settings = FleetBacktestSettings(models=("naive",), origins=50, every=10)
    found = judge_job("orders-1", job_rows(samples=160), settings=settings)
    assert {row["origins"] for row in found} == {4}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"models": ("oracle",)}, "no forecaster 'oracle'"),
        ({"models": ()}, "name each model"),
        ({"models": ("naive", "naive")}, "name each model"),
        ({"most_jobs": 0}, "at least one job"),
    ],
)
def test_wrong_settings_are_told(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        FleetBacktestSettings(**wrong)  # type: ignore[arg-type]  # that is the point
