"""The models of one job of a fleet: what was put in is found again, and what is read back works as what was fitted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.experiments.fleets import job_rows, with_values
from tidewise.core import BadInputError, ChangeCost, Configuration, JobStatus, Mechanism, NotReadyError, Observation
from tidewise.experiments.fleet_fit import SCHEMA, FittedJob, fit_job, fitted_job, forecaster_of, forecaster_state
from tidewise.experiments.fleet_samples import SAMPLE_S, SAMPLES, WINDOWS, samples_of, windows_of
from tidewise.forecast import load_forecaster
from tidewise.forecast.registry import ENSEMBLE
from tidewise.pipeline.job_files import START
from tidewise.qos import Candidates

_CHANGES = (ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=30.0),)
_NAMES = [words.split()[0] for words in SCHEMA.replace("\n", " ").split(",")]


def _row(rows: pa.Table) -> dict[str, Any]:
    """As it comes back from the table of models."""
    (found,) = fit_job("orders-1", rows, now_unix_s=7.0)
    assert set(found) <= set(_NAMES)
    return {"job": "orders-1", "error": None, **dict.fromkeys(_NAMES), **found}


@pytest.fixture(scope="module")
def fitted() -> FittedJob:
    return fitted_job(_row(job_rows()))


def test_capacity_and_fixed_cost_are_found(fitted: FittedJob) -> None:
    assert fitted.summary["records_per_core_s"] == pytest.approx(4000.0, rel=0.1)
    assert fitted.summary["batch_fixed_s"] == pytest.approx(0.6, rel=0.5)
    assert fitted.summary["executor_mib"] == pytest.approx(0.4 * 2048, rel=0.2)
    assert fitted.summary["points"] == SAMPLES
    assert fitted.program == "orders 1.0"


def test_the_season_is_found_and_the_error_is_that_of_the_noise(fitted: FittedJob) -> None:
    assert fitted.summary["season_s"] == pytest.approx(86400.0, rel=0.02)
    error, naive = fitted.summary["error_10min"], fitted.summary["naive_error_10min"]
    assert isinstance(error, float)
    assert isinstance(naive, float)
    assert 0.0 < error < 0.05
    assert 1 <= len(fitted.members) <= 3


def test_what_is_read_back_forecasts_as_one_that_has_learnt_everything(fitted: FittedJob) -> None:
    taught = forecaster_of(fitted.members)
    samples = samples_of(job_rows())
    for back, rate in enumerate(samples.rates_per_s[::-1]):
        assert back < SAMPLES
        assert rate > 0.0
    for number, rate in enumerate(samples.rates_per_s.tolist()):
        taught.learn(_report(samples.end_unix_s - (len(samples.rates_per_s) - 1 - number) * SAMPLE_S, rate))
    asked = {"horizon_s": 600.0, "step_s": 60.0}
    expected, found = taught.forecast(**asked), fitted.forecaster().forecast(**asked)
    assert found.made_at_s == expected.made_at_s
    for level in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(found.path(level), expected.path(level), rtol=2e-3)


def test_the_whole_ensemble_goes_on_from_the_same_state(fitted: FittedJob) -> None:
    everyone = load_forecaster(fitted.forecaster_state)
    assert everyone.save()["series"] == fitted.forecaster_state["series"]


def test_the_job_model_is_the_one_that_was_fitted(fitted: FittedJob) -> None:
    model = fitted.job_model(changes=_CHANGES)
    alone = Candidates.listing([Configuration(executors=1, memory_mib_per_executor=2048)])
    assert float(model.capacity.predict(alone).median[0]) == pytest.approx(
        fitted.summary["records_per_core_s"], rel=1e-4
    )
    assert model.program_version == "orders 1.0"
    model.learn(next(window for _, window in windows_of(job_rows())))


def test_states_are_bounded(fitted: FittedJob) -> None:
    assert len(json.dumps(fitted.forecaster_state)) < 12 * SAMPLES
    assert len(json.dumps(fitted.job_model_state)) < 60_000


def test_a_new_program_is_learnt_anew() -> None:
    rows = job_rows(samples=1200, whole_every=2)
    faster = job_rows(samples=1200, whole_every=2, per_core_s=12_000.0)
    later = faster.column(START).to_numpy() + 1200 * round(SAMPLE_S)
    faster = with_values(faster, program="orders 2.0", **{START: later})
    row = _row(pa.concat_tables([rows, faster]))
    assert row["program"] == "orders 2.0"
    assert row["records_per_core_s"] == pytest.approx(12_000.0, rel=0.15)


def test_few_samples_keep_all_members_and_tell_no_error() -> None:
    row = _row(job_rows(samples=90, whole_every=1))
    assert row["members"].split(",") == [model.name for model in ENSEMBLE]
    assert row["error_10min"] is None
    assert row["records_per_core_s"] is not None


def test_without_any_load_there_is_nothing_to_fit() -> None:
    rows = job_rows(samples=30)
    with pytest.raises(NotReadyError, match="no row tells of the load"):
        fit_job("orders-1", with_values(rows, load_per_s=pa.nulls(30, pa.float64())), now_unix_s=0.0)


def test_without_a_whole_window_the_load_is_still_forecast() -> None:
    row = _row(with_values(job_rows(samples=600), is_whole=False))
    assert row["windows"] == 0
    assert row["records_per_core_s"] is None
    assert fitted_job(row).forecaster().forecast(horizon_s=60.0, step_s=60.0).path(0.5)[0] > 0.0


def test_windows_that_no_job_can_have_are_left_out() -> None:
    rows = with_values(job_rows(samples=20, whole_every=1), executors=[0, -3, *([2] * 18)])
    assert len(list(windows_of(rows))) == 18
    rows = with_values(rows, busy_share=[1.5] * 20, latency_p95_s=[float("nan")] * 20)
    windows = [window for _, window in windows_of(rows)]
    assert {window.busy_share for window in windows} == {1.0}
    assert {window.latency_p95_s for window in windows} == {None}


def test_samples_lie_on_a_grid_with_holes_where_nothing_is_known() -> None:
    rows = job_rows(samples=10)
    rates = samples_of(rows.take([0, 1, 5, 9])).rates_per_s
    assert len(rates) == 10
    assert np.flatnonzero(~np.isnan(rates)).tolist() == [0, 1, 5, 9]


def test_a_minute_with_two_configurations_is_their_mean_by_time() -> None:
    rows = job_rows(samples=3).take([0, 1, 1, 2])
    rows = with_values(rows, load_per_s=[100.0, 100.0, 400.0, 100.0], observed_s=[60.0, 20.0, 40.0, 10.0])
    assert samples_of(rows).rates_per_s.tolist() == pytest.approx([100.0, 300.0, 100.0])


def test_more_than_the_newest_samples_are_not_kept() -> None:
    assert len(samples_of(job_rows(samples=SAMPLES + 500)).rates_per_s) == SAMPLES
    assert WINDOWS < SAMPLES


def test_a_row_with_an_error_has_no_models() -> None:
    row = {**_row(job_rows(samples=90)), "error": "NotReadyError: no row tells of the load"}
    with pytest.raises(BadInputError, match="orders-1 has no models: NotReadyError"):
        fitted_job(row)


def test_members_of_another_version_are_refused() -> None:
    with pytest.raises(BadInputError, match="no member 'oracle'"):
        forecaster_of(["oracle"])


def test_holes_stay_holes_in_what_is_saved() -> None:
    state = forecaster_state(samples_of(job_rows(samples=10).take([0, 1, 5, 9])))
    series = state["series"]
    assert isinstance(series, dict)
    assert [rate is None for rate in series["rates"]].count(True) == 6


def _report(at_s: float, rate: float) -> Observation:
    return Observation(
        time_s=at_s,
        window_s=SAMPLE_S,
        configuration=Configuration(executors=1),
        status=JobStatus.RUNNING,
        input_rate_per_s=rate,
        processed_rate_per_s=rate,
        backlog_records=0.0,
    )
