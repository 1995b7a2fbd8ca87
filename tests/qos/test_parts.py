"""Capacity, latency, memory, points and money, each by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.qos.worlds import TABLE
from tidewise.core import ChangeCost, Configuration, InvalidValueError, Mechanism, Prices
from tidewise.qos import CONTINUOUS, Candidates, Physics, Usual, cost_of_change
from tidewise.qos.capacity import Capacity
from tidewise.qos.fit import Fit, fit, spread_of
from tidewise.qos.latency import Latency
from tidewise.qos.memory import Memory
from tidewise.qos.physics import log_capacity
from tidewise.qos.points import Points

LAW = np.log([10_000.0, 1.0, 0.2, 0.02, 1e-4])


def noisy(random: np.random.Generator, sd: float) -> float:
    return math.exp(sd * random.standard_normal())


def test_capacity_finds_the_law_behind_saturated_rates() -> None:
    random = np.random.default_rng(2)
    truth = np.exp(log_capacity(TABLE, LAW))
    model = Capacity(Physics())
    for row in random.choice(len(TABLE), 15, replace=False):
        model.learn(TABLE[int(row)], float(truth[row]) * noisy(random, 0.05))
    belief = model.predict(TABLE)
    assert np.median(np.abs(belief.median / truth - 1.0)) < 0.06
    inside = (belief.quantile(0.05) <= truth) & (truth <= belief.quantile(0.95))
    assert inside.mean() > 0.8
    assert belief.log_sd.max() < 0.5


def test_a_lower_bound_lifts_a_capacity_and_never_lowers_it() -> None:
    one = Candidates.listing([Configuration(executors=4)])
    model = Capacity(Physics())
    model.learn(one[0], 40_000.0)
    before = model.predict(one).median[0]
    model.learn(one[0], 1_000.0, at_least=True)
    assert model.predict(one).median[0] == pytest.approx(before)
    for _ in range(5):
        model.learn(one[0], 90_000.0, at_least=True)
    assert model.predict(one).median[0] > 1.15 * before


def test_bounds_that_are_kept_anyway_change_nothing() -> None:
    truth = np.exp(log_capacity(TABLE, LAW))
    known, with_bounds = Capacity(Physics()), Capacity(Physics())
    for row in range(0, len(TABLE), 9):
        for model in (known, with_bounds):
            model.learn(TABLE[row], float(truth[row]))
        with_bounds.learn(TABLE[row], 0.3 * float(truth[row]), at_least=True)
    assert with_bounds.predict(TABLE).log_mean == pytest.approx(known.predict(TABLE).log_mean)


def test_bounds_alone_rule_out_small_capacities() -> None:
    one = Candidates.listing([Configuration(executors=1)])
    model = Capacity(Physics())
    model.learn(one[0], 200_000.0, at_least=True)
    assert model.predict(one).probability_at_most(100_000.0)[0] < 0.35
    assert Capacity(Physics()).predict(one).probability_at_most(100_000.0)[0] > 0.6


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        Capacity(Physics()).learn(Configuration(executors=1), 0.0)
    with pytest.raises(InvalidValueError):
        Capacity(Physics()).learn(Configuration(executors=1), math.nan)


def own_log(model: Capacity, configuration: Configuration) -> float:
    shown = model.shown(configuration)
    assert shown is not None
    return shown[0]


def test_a_configuration_that_does_twice_as_much_tells_of_all_that_were_seen_before_it() -> None:
    model, sizes = Capacity(Physics()), [Configuration(executors=executors) for executors in (2, 4, 8)]
    for configuration in sizes[:2]:
        for _ in range(20):
            model.learn(configuration, 1000.0 * configuration.executors)
    before, version = model.predict(Candidates.listing(sizes)), model.version
    model.correct(2.0, by=sizes[1])
    after = model.predict(Candidates.listing(sizes))
    assert after.median == pytest.approx(2.0 * before.median, rel=0.1)
    assert (after.log_sd >= before.log_sd - 1e-9).all()
    assert model.version != version
    assert own_log(model, sizes[1]) == pytest.approx(math.log(8000.0))
    # What was seen later than it is right as it is; what was never seen tells of nothing.
    model.correct(2.0, by=sizes[0])
    model.correct(2.0, by=sizes[2])
    assert [own_log(model, size) for size in sizes[:2]] == [pytest.approx(math.log(8000.0))] * 2
    assert model.shown(sizes[2]) is None
    assert model.shown(sizes[2], least=True) == model.shown(sizes[1])
    model.learn(sizes[0], 3000.0, at_least=True)
    model.correct(0.5)
    assert [own_log(model, size) for size in sizes[:2]] == [pytest.approx(math.log(4000.0))] * 2
    with pytest.raises(InvalidValueError):
        model.correct(0.0)


def test_more_cores_than_the_law_can_use_lie_idle() -> None:
    crowd = Candidates.listing([Configuration(executors=count, cores_per_executor=1.0) for count in (50, 100, 200)])
    logs = log_capacity(crowd, np.log([10_000.0, 1.0, 0.1, 0.01, 1e-3]))
    assert logs[1] == logs[2]
    assert logs[0] <= logs[1]


def predicted_p95(model: Latency, table: Candidates, load: float) -> float:
    model.refit(Capacity(Physics()))
    return float(model.predict(table, np.full(len(table), math.log(load)), np.zeros(len(table))).p95.median[0])


def test_micro_batches_wait_for_the_trigger_and_outlast_it_under_load() -> None:
    sharp = Usual(median=1e-6, log_sd=0.01)
    physics = Physics(batch_overhead_s=Usual(median=1.0, log_sd=0.01), at_rest_s=sharp, queueing_s=sharp)
    model = Latency(physics)
    ten, zero = (
        Candidates.listing([Configuration(executors=1, commit_interval_s=interval)]) for interval in (10.0, 0.0)
    )
    assert predicted_p95(model, ten, 0.5) == pytest.approx(1.0 + 5.0 + 0.95 * 10.0, rel=1e-3)
    assert predicted_p95(model, zero, 0.5) == pytest.approx(2.0 + 0.95 * 2.0, rel=1e-3)
    assert predicted_p95(model, ten, 0.95) == pytest.approx(20.0 + 0.95 * 20.0, rel=1e-3)
    assert predicted_p95(model, ten, 1.5) > 0.95 * 0.5 * physics.overload_horizon_s


def test_in_continuous_mode_the_interval_does_not_matter() -> None:
    model = Latency(CONTINUOUS)
    near, far = (
        Candidates.listing([Configuration(executors=1, commit_interval_s=interval)]) for interval in (1.0, 90.0)
    )
    assert predicted_p95(model, near, 0.5) == predicted_p95(model, far, 0.5)


def test_latency_learns_the_overhead_of_a_batch_and_its_own_spread() -> None:
    random = np.random.default_rng(4)
    model = Latency(Physics())
    for interval in (2.0, 5.0, 10.0):
        for load in (0.2, 0.5, 0.7):
            batch_s = max(1.6 + load * interval, 1.6 / (1.0 - load))
            for _ in range(30):
                model.learn(
                    Configuration(executors=2, commit_interval_s=interval),
                    1000.0 * load,
                    p50_s=(batch_s + 0.5 * max(interval, batch_s)) * noisy(random, 0.05),
                    p95_s=None,
                    p99_s=None,
                    busy_share=load,
                )
    model.refit(Capacity(Physics()))
    twenty = Candidates.listing([Configuration(executors=2, commit_interval_s=20.0)])
    latencies = model.predict(twenty, np.array([math.log(0.6)]), np.array([0.0]))
    assert latencies.p50.median[0] == pytest.approx(1.6 + 12.0 + 10.0, rel=0.1)
    assert latencies.p50.log_sd[0] < 0.3


def test_without_a_busy_share_the_capacity_tells_the_load() -> None:
    model, capacity = Latency(CONTINUOUS), Capacity(CONTINUOUS)
    one = Configuration(executors=1)
    for rate, p50_s in ((100.0, 1.0), (900.0, 1.8)):
        for _ in range(20):
            model.learn(one, rate, p50_s=p50_s, p95_s=None, p99_s=None, busy_share=None)
            capacity.learn(one, 1000.0)
    model.refit(capacity)
    table = Candidates.listing([one])
    low, high = (
        float(model.predict(table, np.array([math.log(load)]), np.zeros(1)).p50.median[0]) for load in (0.1, 0.9)
    )
    assert high > 1.3 * low


def test_memory_tells_base_slots_and_state_apart() -> None:
    model = Memory(Physics())
    for executors in (1, 2, 4):
        for slots in (1, 4):
            for rate in (1_000.0, 10_000.0):
                state = 0.05 * rate
                used = 500.0 + 100.0 * slots + state / executors
                model.learn(
                    Configuration(executors=executors, slots_per_executor=slots, memory_mib_per_executor=4096),
                    rate,
                    memory_share=used / 4096,
                    state_mib=state,
                )
    asked = Candidates.listing([Configuration(executors=2, slots_per_executor=2, memory_mib_per_executor=2048)])
    assert model.predict(asked, 20_000.0).median[0] == pytest.approx(500.0 + 200.0 + 500.0, rel=0.1)
    assert model.out_of_memory_probability(asked, 20_000.0)[0] < 0.02
    assert model.out_of_memory_probability(asked, 100_000.0)[0] > 0.9


def test_a_memory_share_of_nothing_teaches_nothing() -> None:
    model = Memory(Physics())
    model.learn(Configuration(executors=1), 10.0, memory_share=0.0, state_mib=None)
    assert np.array_equal(model.predict(TABLE, 1.0).log_mean, Memory(Physics()).predict(TABLE, 1.0).log_mean)


def test_points_are_bounded_and_the_fullest_configuration_gives_way() -> None:
    points = Points(1, limit=4)
    rare = Configuration(executors=7)
    points.take(rare, 1.0, (1.0,))
    for doubling in range(30):
        points.take(Configuration(executors=1), 2.0**doubling, (2.0,))
    table = points.table()
    assert table is not None
    assert len(points) == 4
    assert table.candidates.row_of(rare) is not None


def test_a_mean_follows_a_job_that_has_changed() -> None:
    points = Points(1)
    for value in [1.0] * 5000 + [2.0] * 300:
        points.take(Configuration(executors=1), 10.0, (value,))
    table = points.table()
    assert table is not None
    assert table.means[0, 0] > 1.98


def test_a_fit_without_data_is_its_prior_and_one_wild_point_does_not_turn_it() -> None:
    usual = (Usual(median=5.0, log_sd=2.0),)
    nothing = np.zeros(0)
    assert fit(lambda logs: logs[..., :1] + nothing, nothing, nothing, usual).logs[0] == pytest.approx(math.log(5.0))
    seen = np.array([1.0, 1.02, 0.98, 1.01, 9.0])
    found = fit(lambda logs: logs[..., :1] + np.zeros(5), seen, np.full(5, 0.05), usual)
    assert found.logs[0] == pytest.approx(1.0, abs=0.05)
    assert found.covariance[0, 0] < 0.01
    assert Fit.prior(usual).spent(usual) == 0.0 < found.spent(usual) <= 1.0


def test_formulas_answer_for_many_sets_of_parameters_what_they_answer_for_each() -> None:
    sets = LAW + np.random.default_rng(3).normal(0.0, 0.3, (6, len(LAW)))
    assert log_capacity(TABLE, sets) == pytest.approx(np.array([log_capacity(TABLE, one) for one in sets]))


def test_few_residuals_do_not_make_sure() -> None:
    assert spread_of(np.zeros(0), usual=0.3) == 0.3
    assert 0.15 < spread_of(np.zeros(4), usual=0.3) < 0.3
    assert spread_of(np.full(50, 2.0), usual=0.3) > 1.0
    assert spread_of(np.full(4, 0.1), usual=0.1, spent=3.0) > spread_of(np.full(4, 0.1), usual=0.1)


def test_a_handover_costs_its_double_running_and_a_restart_its_gap() -> None:
    prices = Prices(core_hour=1.0, gib_hour=0.0)
    small, large = Configuration(executors=2), Configuration(executors=4)
    handover = ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=0.0, preparation_s=900.0, runs_double=True)
    assert cost_of_change(small, large, handover, prices) == pytest.approx(1.0)
    restart = replace(handover, gap_s=1800.0, runs_double=False)
    assert cost_of_change(large, small, restart, prices) == pytest.approx(2.0)


@pytest.mark.parametrize("physics", [Physics(), CONTINUOUS])
def test_latencies_at_many_loads_are_those_of_one_load_at_a_time(physics: Physics) -> None:
    model = Latency(physics)
    seen = Configuration(executors=4, commit_interval_s=10.0)
    for load in (0.2, 0.4, 0.6, 0.8):
        for _ in range(4):
            model.learn(seen, 1e4 * load, p50_s=5.0 + load, p95_s=9.0 + 2.0 * load, p99_s=None, busy_share=load)
    model.refit(Capacity(physics))
    loads = np.log([0.1, 0.5, 0.9, 1.3])
    rows = [seen, seen.with_executors(2), Configuration(executors=4, commit_interval_s=0.0)]
    spreads = np.array([0.05, 0.1, 0.3])
    means, sds = model.p95_by_load(Candidates.listing(rows), loads, spreads)
    assert means.shape == sds.shape == (3, 4)
    for row, configuration in enumerate(rows):
        # One at a time, so that nothing is bent to keep the order of resources.
        one = Candidates.listing([configuration])
        for place, load in enumerate(loads):
            said = model.predict(one, np.array([load]), spreads[row : row + 1]).p95
            assert means[row, place] == pytest.approx(said.log_mean[0])
            assert sds[row, place] == pytest.approx(said.log_sd[0])


def test_latencies_at_many_loads_need_a_fit_too() -> None:
    with pytest.raises(InvalidValueError, match="refit"):
        Latency(Physics()).p95_by_load(TABLE, np.log([0.5]), np.zeros(len(TABLE)))
