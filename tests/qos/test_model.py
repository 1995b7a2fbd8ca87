"""The model of a job: in order whatever it was taught, the same after saving, bounded, honest when it knows nothing."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.qos.worlds import CHANGES, SPACE, TABLE, evidence, never_falls_with_resources, observed, rates, taught
from tidewise.core import (
    BadInputError,
    Censored,
    ChangeOutcome,
    ChangeStatus,
    Configuration,
    Forecast,
    InvalidValueError,
    JobStatus,
    Mechanism,
    NotReadyError,
    Prices,
    ProfileMeasurement,
    QosModel,
)
from tidewise.qos import Belief, Candidates, Floats, JobModel, Outlook, Physics, Standing, Usual

PRICES = Prices()


def look(model: JobModel, rate_per_s: float, table: Candidates = TABLE) -> Outlook:
    return model.outlook(table, prices=PRICES, rate_per_s=rate_per_s)


def beliefs(outlook: Outlook) -> list[Belief]:
    return [outlook.latency_p50, outlook.latency_p95, outlook.latency_p99, outlook.recovery, outlook.capacity]


def figures(outlook: Outlook) -> list[Floats]:
    found = [part for belief in beliefs(outlook) for part in (belief.log_mean, belief.log_sd)]
    if outlook.recovery.never is not None:
        found.append(outlook.recovery.never)
    found += [outlook.latency_noise, outlook.recovery_noise]
    return [*found, outlook.overload_probability, outlook.out_of_memory_probability, outlook.cost_per_hour]


@settings(max_examples=12)
@given(evidence, rates, st.booleans())
def test_more_resources_never_make_anything_worse(seen: list, rate: float, micro_batch: bool) -> None:  # type: ignore[type-arg]  # as drawn
    outlook = look(taught(seen, micro_batch=micro_batch), rate)
    for level in (0.02, 0.5, 0.98):
        assert never_falls_with_resources(np.log(outlook.capacity.quantile(level)))
    for latency in (outlook.latency_p50, outlook.latency_p95, outlook.latency_p99):
        for level in (0.5, 0.9, 0.98):
            assert never_falls_with_resources(-np.log(latency.quantile(level)))
    assert never_falls_with_resources(-outlook.overload_probability)
    assert outlook.recovery.never is not None
    assert never_falls_with_resources(-outlook.recovery.never)
    assert never_falls_with_resources(-outlook.out_of_memory_probability)


@settings(max_examples=12)
@given(evidence, rates, st.floats(1.0, 20.0), st.booleans())
def test_a_higher_rate_never_makes_anything_better(
    seen: list,  # type: ignore[type-arg]  # as drawn
    rate: float,
    factor: float,
    micro_batch: bool,
) -> None:
    model = taught(seen, micro_batch=micro_batch)
    low, high = look(model, rate), look(model, rate * factor)
    for before, after in zip(beliefs(low)[:3], beliefs(high)[:3], strict=True):
        for level in (0.5, 0.9, 0.98):
            assert (np.log(after.quantile(level)) >= np.log(before.quantile(level)) - 1e-9).all()
    assert (high.recovery.median >= low.recovery.median * (1.0 - 1e-9)).all()
    assert low.recovery.never is not None
    assert high.recovery.never is not None
    assert (high.recovery.never >= low.recovery.never).all()
    assert (high.overload_probability >= low.overload_probability - 1e-9).all()
    assert (high.out_of_memory_probability >= low.out_of_memory_probability - 1e-9).all()


@settings(max_examples=8)
@given(evidence, rates, st.booleans())
def test_saved_and_loaded_it_says_the_same(seen: list, rate: float, micro_batch: bool) -> None:  # type: ignore[type-arg]  # as drawn
    model = taught(seen, micro_batch=micro_batch)
    for part in (seen[::2], seen[1::2]):
        look(model, rate)  # what was asked in between must not show
        for configuration, rate_per_s, took_s, busy in part:
            model.learn_recovery("flood", took_s, configuration=configuration, rate_per_s=rate_per_s)
            model.capacity.learn(configuration, 2.0 * rate_per_s / busy)
    physics = model._physics
    again = JobModel.load(json.loads(json.dumps(model.save())), physics=physics, changes=CHANGES)
    for before, after in zip(figures(look(model, rate)), figures(look(again, rate)), strict=True):
        assert np.array_equal(before, after)


@settings(max_examples=8)
@given(evidence, st.floats(0.0, 1e9), st.booleans())
def test_nothing_is_ever_nan_or_beyond_its_range(seen: list, rate: float, micro_batch: bool) -> None:  # type: ignore[type-arg]  # as drawn
    outlook = look(taught(seen, micro_batch=micro_batch), rate)
    assert all(np.isfinite(figure).all() for figure in figures(outlook))
    for probability in (outlook.overload_probability, outlook.out_of_memory_probability):
        assert ((probability >= 0.0) & (probability <= 1.0)).all()
    assert (outlook.latency_p50.median <= outlook.latency_p95.median + 1e-9).all()
    assert (outlook.latency_p95.median <= outlook.latency_p99.median + 1e-9).all()
    for noise, belief in ((outlook.latency_noise, outlook.latency_p95), (outlook.recovery_noise, outlook.recovery)):
        assert ((noise >= 0.0) & (noise <= belief.log_sd)).all()


def test_without_data_it_has_the_prior_and_says_that_it_is_not_sure() -> None:
    model = JobModel(changes=CHANGES)
    outlook = look(model, 20_000.0)
    assert (outlook.capacity.log_sd > 2.0).all()
    assert (outlook.latency_p95.quantile(0.95) > 5 * outlook.latency_p95.median).all()
    port: QosModel = model
    with pytest.raises(NotReadyError):
        port.latency_p95_s(Configuration(executors=1), 10.0)
    with pytest.raises(NotReadyError):
        port.recovery_s(Configuration(executors=1), flat(10.0))


def flat(rate_per_s: float, high: float | None = None) -> Forecast:
    path = (rate_per_s,) * 10
    if high is None:
        return Forecast(made_at_s=0.0, step_s=60.0, levels=(0.5,), paths_per_s=(path,), model="flat")
    return Forecast(made_at_s=0.0, step_s=60.0, levels=(0.5, 0.9), paths_per_s=(path, (high,) * 10), model="flat")


@pytest.fixture(scope="module")
def operated() -> JobModel:
    """A model that saw a simulated job in three sizes; one core does about 32,500 records a second."""
    model = JobModel(physics=Physics(), changes=CHANGES, standing=Standing(cores=0.5, memory_mib=1024))
    for executors, rate in ((2, 30_000.0), (4, 90_000.0), (8, 120_000.0)):
        configuration = Configuration(executors=executors, memory_mib_per_executor=2048, commit_interval_s=5.0)
        for report in observed(configuration, rate, seed=executors):
            model.learn(report)
    return model


def test_it_learns_the_capacity_of_a_simulated_job_from_its_busy_share(operated: JobModel) -> None:
    table = Candidates.listing([Configuration(executors=6, memory_mib_per_executor=2048, commit_interval_s=5.0)])
    capacity = look(operated, 1000.0, table).capacity
    truth = 6 * 32_500.0 / (1 + 0.005 * 5)
    assert capacity.median[0] == pytest.approx(truth, rel=0.08)
    assert capacity.quantile(0.05)[0] < truth < capacity.quantile(0.95)[0]


def test_what_a_job_shows_that_has_itself_become_slower_leaves_its_capacities_as_they_were() -> None:
    configuration = Configuration(executors=4, memory_mib_per_executor=2048, commit_interval_s=5.0)
    other = configuration.with_executors(2)
    model, unaware = JobModel(changes=CHANGES), JobModel(changes=CHANGES)
    for report in observed(configuration, 40_000.0, seed=1):
        model.learn(report)
        unaware.learn(report)
    before = look(model, 1000.0, Candidates.listing([configuration, other])).capacity
    assert model.capacity.shown(configuration) is not None
    assert model.capacity.shown(other) is None
    for report in observed(other, 20_000.0, seed=2):
        slow = replace(report, busy_share=min(1.0, 2.0 * (report.busy_share or 0.0)))
        model.learn(slow, speed=0.5)
        unaware.learn(slow)
    after = look(model, 1000.0, Candidates.listing([configuration, other])).capacity
    assert after.median == pytest.approx(before.median, rel=0.12)
    assert look(unaware, 1000.0, Candidates.listing([other])).capacity.median[0] < 0.7 * before.median[1]
    # What it has shown before stands, however long it is slow now.
    stands = model.capacity.shown(configuration)
    for report in observed(configuration, 40_000.0, seed=3):
        model.learn(replace(report, busy_share=min(1.0, 2.0 * (report.busy_share or 0.0))), speed=0.4)
    assert model.capacity.shown(configuration) == stands


def test_it_predicts_the_latency_of_a_size_and_rate_it_has_not_seen(operated: JobModel) -> None:
    configuration = Configuration(executors=6, memory_mib_per_executor=2048, commit_interval_s=5.0)
    seen = [report.latency_p95_s for report in observed(configuration, 80_000.0, seed=9) if report.time_s > 60]
    estimate = operated.latency_p95_s(configuration, 80_000.0)
    assert estimate.mean == pytest.approx(float(np.median([each for each in seen if each is not None])), rel=0.2)


def test_the_noise_of_a_window_is_part_of_what_is_not_known(operated: JobModel) -> None:
    """Once a configuration was seen, it is most of the spread; before anything was seen, there is far more to learn."""
    table = Candidates.listing([Configuration(executors=4, memory_mib_per_executor=2048, commit_interval_s=5.0)])
    seen, unseen = look(operated, 20_000.0, table), look(JobModel(changes=CHANGES), 20_000.0, table)
    assert seen.latency_noise[0] > 0.5 * seen.latency_p95.log_sd[0]
    assert unseen.latency_noise[0] < 0.2 * unseen.latency_p95.log_sd[0]
    assert 0.01 < seen.latency_noise[0] < 0.3


def test_a_job_that_can_never_catch_up_keeps_no_promise_of_recovery_however_long() -> None:
    model = JobModel(changes=CHANGES)
    for row in range(0, len(TABLE), 5):
        model.capacity.learn(TABLE[row], 1000.0 * float(TABLE.total_cores[row]))
    outlook = look(model, 1e6)
    assert (outlook.overload_probability > 0.99).all()
    for limit_s in (600.0, 14_400.0, 1e6, 1e30):
        assert (outlook.recovery.probability_at_most(limit_s) < 0.01).all()
    assert np.isfinite(outlook.recovery.median).all()


def test_a_capacity_learnt_later_shows_in_the_latency_at_once() -> None:
    """Without busy shares the capacity tells the load of what was seen."""
    model, asked_later = JobModel(changes=CHANGES), JobModel(changes=CHANGES)
    for rate, latency_s in ((1000.0, 1.0), (9000.0, 8.0)):
        for each in (model, asked_later):
            each.latency.learn(TABLE[0], rate, p50_s=latency_s, p95_s=latency_s, p99_s=None, busy_share=None)
    look(model, 5000.0)
    for each in (model, asked_later):
        each.capacity.learn(TABLE[0], 10_000.0)
    assert np.array_equal(look(model, 5000.0).latency_p95.log_mean, look(asked_later, 5000.0).latency_p95.log_mean)


def test_without_any_known_kind_of_failure_the_usual_downtime_is_foretold() -> None:
    model = JobModel(physics=Physics(downtimes={}, other_downtime=Usual(median=50.0, log_sd=0.1)), changes=CHANGES)
    assert look(model, 1e-3).recovery.median == pytest.approx(np.full(len(TABLE), 50.0), rel=0.1)


def test_overload_is_told_on_both_sides_of_the_capacity(operated: JobModel) -> None:
    table = Candidates.listing([Configuration(executors=4, memory_mib_per_executor=2048, commit_interval_s=5.0)])
    assert look(operated, 80_000.0, table).overload_probability[0] < 0.05
    assert look(operated, 190_000.0, table).overload_probability[0] > 0.95


def test_memory_that_cannot_hold_the_working_set_is_told(operated: JobModel) -> None:
    small, large = (
        Configuration(executors=4, slots_per_executor=2, memory_mib_per_executor=size) for size in (512, 4096)
    )
    chances = look(operated, 50_000.0, Candidates.listing([small, large])).out_of_memory_probability
    assert chances[0] > 0.9
    assert chances[1] < 0.01


def test_an_unsure_forecast_makes_for_an_unsure_outlook(operated: JobModel) -> None:
    sure = operated.outlook(TABLE, prices=PRICES, forecast=flat(60_000.0))
    unsure = operated.outlook(TABLE, prices=PRICES, forecast=flat(60_000.0, high=120_000.0))
    assert (unsure.latency_p95.quantile(0.95) >= sure.latency_p95.quantile(0.95)).all()
    assert (unsure.latency_p95.quantile(0.95) > sure.latency_p95.quantile(0.95)).any()
    with pytest.raises(InvalidValueError, match="one of them"):
        operated.outlook(TABLE, prices=PRICES)


def test_costs_hold_the_driver_and_the_controller(operated: JobModel) -> None:
    always = 0.5 * PRICES.core_hour + 1.0 * PRICES.gib_hour
    assert look(operated, 1.0).cost_per_hour == pytest.approx(TABLE.cost_per_hour(PRICES) + always)


def test_another_version_of_the_program_forgets_what_depends_on_it() -> None:
    model = taught([(TABLE[0], 100.0, 1.0, 0.5)] * 3, micro_batch=True)
    model.learn_recovery("driver-kill", 500.0, configuration=TABLE[0], rate_per_s=1.0)
    model.learn_change(outcome(60.0), Mechanism.REDEPLOY)
    fresh = JobModel(changes=CHANGES)
    learnt_gap = model.gaps.gap(Mechanism.REDEPLOY)
    model.use_version("2")
    assert model.program_version == "2"
    known, prior = look(model, 1000.0), look(fresh, 1000.0)
    assert np.array_equal(known.capacity.log_mean, prior.capacity.log_mean)
    assert np.array_equal(known.latency_p95.log_mean, prior.latency_p95.log_mean)
    assert np.array_equal(known.out_of_memory_probability, prior.out_of_memory_probability)
    assert (known.recovery.median > prior.recovery.median).all()
    widened = model.gaps.gap(Mechanism.REDEPLOY)
    assert widened.log_sd[0] > learnt_gap.log_sd[0]
    assert widened.median[0] > fresh.gaps.gap(Mechanism.REDEPLOY).median[0]


def outcome(gap_s: float) -> ChangeOutcome:
    return ChangeOutcome(
        request_id="1", status=ChangeStatus.APPLIED, finished_at_s=1.0, configuration=TABLE[0], gap_s=gap_s
    )


def test_the_same_version_again_forgets_nothing() -> None:
    model = taught([(TABLE[0], 100.0, 1.0, 0.5)] * 3, micro_batch=True)
    before = look(model, 1000.0).capacity.log_sd
    model.use_version(model.program_version)
    assert np.array_equal(look(model, 1000.0).capacity.log_sd, before)


def profile(processed: float) -> ProfileMeasurement:
    return ProfileMeasurement(
        configuration=SPACE.largest,
        input_rate_per_s=processed,
        processed_rate_per_s=processed,
        latency_p50_s=1.0,
        latency_p95_s=2.0,
        busy_share=1.0,
    )


def test_contradictory_profiles_widen_the_spread() -> None:
    agreed, contradictory = JobModel(changes=CHANGES), JobModel(changes=CHANGES)
    for first, second in ((10_000.0, 10_000.0), (10_000.0, 10_500.0)):
        agreed.learn_profile(profile(first))
        agreed.learn_profile(profile(second))
        contradictory.learn_profile(profile(first))
        contradictory.learn_profile(profile(second * 8))
    row = TABLE.row_of(SPACE.largest)
    assert row is not None
    assert look(contradictory, 1.0).capacity.log_sd[row] > 2 * look(agreed, 1.0).capacity.log_sd[row]


def test_a_profile_that_never_recovered_makes_recovery_look_longer() -> None:
    recovered, lost = JobModel(changes=CHANGES), JobModel(changes=CHANGES)
    idle_enough = replace(profile(10_000.0), busy_share=0.2)
    for _ in range(3):
        recovered.learn_profile(replace(idle_enough, recovery_s=40.0))
        lost.learn_profile(replace(idle_enough, recovery_s=Censored(at_least=360.0)))
    row = TABLE.row_of(SPACE.largest)
    assert row is not None
    assert look(lost, 10_000.0).recovery.median[row] > 2 * look(recovered, 10_000.0).recovery.median[row]


def test_a_copy_that_died_teaches_nothing_wrong() -> None:
    model = JobModel(changes=CHANGES)
    model.learn_profile(replace(profile(0.0), busy_share=None, detail="it ran out of memory"))
    assert (look(model, 1000.0).capacity.log_sd > 2.0).all()


def test_an_endless_stream_of_reports_costs_little_time_and_no_memory() -> None:
    model = JobModel(changes=CHANGES)
    report = observed(TABLE[9], 10_000.0, seed=1)[-1]
    assert report.status is JobStatus.RUNNING
    configurations = [TABLE[row] for row in range(len(TABLE))]
    begin = time.perf_counter()
    windows = 20_000
    for number in range(windows):
        # Every configuration for a while, at ever other rates: far more points than may be kept.
        model.learn(
            replace(
                report,
                time_s=10.0 * number,
                configuration=configurations[number // 20 % len(configurations)],
                input_rate_per_s=100.0 * 2.0 ** (number % 9),
            )
        )
    per_window_s = (time.perf_counter() - begin) / windows
    assert per_window_s < 1e-3
    assert len(json.dumps(model.save())) < 300_000


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"format": 99}, "has format 99"),
        ({"capacity": None}, "is damaged"),
        ({"latency": {"count": 1, "points": [{}]}}, "is damaged"),
        ({"memory": {"count": "many", "points": []}}, "is damaged"),
    ],
)
def test_a_saved_model_that_cannot_be_read_is_refused_in_one_sentence(damage: dict[str, object], sentence: str) -> None:
    saved = taught([(TABLE[0], 100.0, 1.0, 0.5)], micro_batch=True).save()
    with pytest.raises(BadInputError, match=sentence):
        JobModel.load(saved | damage, changes=CHANGES)


@pytest.mark.parametrize(
    "damage",
    [
        {"means": [math.nan]},
        {"means": [1e300]},
        {"weights": [0.0]},
        {"weights": [-1.0]},
        {"weights": [1e9]},
        {"variances": [-0.1]},
        {"variances": []},
    ],
)
def test_a_saved_point_that_no_windows_can_make_is_refused(damage: dict[str, list[float]]) -> None:
    saved = json.loads(json.dumps(taught([(TABLE[0], 100.0, 1.0, 0.5)], micro_batch=True).save()))
    saved["capacity"]["exact"]["points"][0] |= damage
    with pytest.raises(BadInputError, match="is damaged"):
        JobModel.load(saved, changes=CHANGES)
