"""What it takes with the load known and the failures not, against sums that can be done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from bench.policies_informed import Course, ablest, informed_cores, longest_down_s

from tidewise.core import ChangeCost, ConfigurationSpace, Mechanism
from tidewise.engines.simulator import load_profile
from tidewise.experiments import Experiment, find_plan
from tidewise.experiments.bound import Quality
from tidewise.qos import Floats

PROFILE = load_profile("paper-cluster")
PER_CORE = PROFILE.capacity.records_per_core_s
SPACE = ConfigurationSpace(
    executors=(1, 2, 4, 8), commit_interval_s=(10.0,), changes=(ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=10.0),)
)
HOUR = np.full(3600, 2.5 * PER_CORE)
QUALITY = Quality(bad_s=500.0, limit_s=2.4)


def course(rates: Floats, *, failures: int = 2, limit_s: float = 180.0, start_cores: float = 8.0) -> Course:
    return Course.of(
        rates,
        PROFILE,
        SPACE,
        kind="network-delay",
        failures=failures,
        limit_s=limit_s,
        quality=QUALITY,
        start_cores=start_cores,
    )


def test_with_twice_the_capacity_half_of_the_time_may_be_lost() -> None:
    longest_s = longest_down_s(np.full(600, 100.0), np.array([200.0]), again_s=0.0, stands_s=20.0, limit_s=180.0)
    # Down for 80 s, and 160 s of load are worked off in the other 80.
    assert longest_s == pytest.approx(80.0)


def test_what_is_done_again_has_to_be_caught_up_with_as_well() -> None:
    longest_s = longest_down_s(np.full(600, 100.0), np.array([200.0]), again_s=10.0, stands_s=20.0, limit_s=180.0)
    assert longest_s == pytest.approx(75.0)


def test_a_load_that_falls_is_easier_to_catch_up_with() -> None:
    rates = np.concatenate((np.full(600, 200.0), np.full(600, 50.0)))
    longest_s = longest_down_s(rates, np.array([250.0]), again_s=0.0, stands_s=20.0, limit_s=180.0)[:, 0]
    assert longest_s[2] < longest_s[9] < longest_s[15]


def test_the_ablest_of_as_many_cores_counts() -> None:
    cores, able_per_s = ablest(PROFILE, SPACE)
    assert cores.tolist() == [1.0, 2.0, 4.0, 8.0]
    assert able_per_s == pytest.approx(PER_CORE * cores)


def test_more_cores_break_fewer_recoveries_and_have_fewer_bad_seconds() -> None:
    made = course(HOUR)
    assert (np.diff(made.broken, axis=1) <= 0.0).all()
    assert (np.diff(made.bad_s, axis=1) <= 0.0).all()
    assert (made.bad_s[:, 0] >= 60.0).all()  # one core is overloaded all the time


def test_without_limits_the_fewest_cores_are_enough_and_with_strict_ones_all_of_them_are_needed() -> None:
    made = course(HOUR)
    assert made.at_least(bad_s=1e9, broken=1e9) <= 1.1
    assert made.at_least(bad_s=1e9, broken=1e-3) > 4.0


def test_what_is_allowed_lowers_it_and_nothing_lies_below_a_constant_that_keeps_both() -> None:
    made = course(HOUR)
    for row, cores in enumerate(made.cores):
        bad_s, broken = float(made.bad_s[:, row].sum()), float(made.broken[:, row].sum())
        gap_s = float(made.changed_bad_s[:, row].max()) if cores != 8.0 else 0.0
        assert made.at_least(bad_s=bad_s + gap_s, broken=broken) <= cores + 1e-6
    few, many = made.at_least(bad_s=300.0, broken=0.01), made.at_least(bad_s=300.0, broken=0.1)
    assert many <= few + 1e-6


def test_it_is_more_than_the_load_alone_needs() -> None:
    experiment = Experiment(find_plan("paper"))
    mean = float(experiment.trial("ysb", 1).rates_per_s.mean()) / PER_CORE
    cores = informed_cores(experiment, "ysb", {1: Quality(bad_s=2500.0, limit_s=2.4)})
    assert cores is not None
    assert 1.2 * mean < cores < 4.0 * mean
