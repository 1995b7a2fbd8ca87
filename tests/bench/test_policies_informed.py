"""What it takes to be ready for a failure, against sums that can be done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from bench.policies_informed import informed_cores, least_cores, needed_per_s

from tidewise.core import ChangeCost, ConfigurationSpace, Mechanism
from tidewise.engines.simulator import load_profile
from tidewise.experiments import Experiment, find_plan

PROFILE = load_profile("paper-cluster")
FAILURE = PROFILE.failures["network-delay"]
SPACE = ConfigurationSpace(executors=(1, 2, 4, 8), changes=(ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=10.0),))


def test_a_steady_load_is_caught_up_with_by_the_end_of_the_time() -> None:
    # With one failure, half of one is expected to last longer than the median.
    needed = needed_per_s(np.full(2000, 1000.0), PROFILE, "network-delay", limit_s=180.0, failures=1)
    works_from_s = FAILURE.detection_s + FAILURE.downtime_s
    last_s = works_from_s + 5.0 * ((180.0 - works_from_s) // 5.0)
    assert needed == pytest.approx(1000.0 * (last_s - FAILURE.detection_s) / (last_s - works_from_s), rel=1e-6)


def test_more_failures_are_more_long_ones() -> None:
    rates = np.full(2000, 1000.0)
    few, many = (needed_per_s(rates, PROFILE, "network-delay", limit_s=180.0, failures=count) for count in (2, 100))
    assert (many > few).all()


def test_a_load_that_falls_is_easier_to_catch_up_with() -> None:
    rates = np.concatenate((np.full(1000, 2000.0), np.full(1000, 500.0)))
    needed = needed_per_s(rates, PROFILE, "network-delay", limit_s=180.0, failures=10)
    assert needed[100] > needed[950] > needed[1500]


def test_the_fewest_cores_that_are_enough_are_taken() -> None:
    per_core = PROFILE.capacity.records_per_core_s
    needed = per_core * np.array([0.5, 1.5, 4.0, 7.0, 99.0])
    assert least_cores(needed, PROFILE, SPACE).tolist() == [1.0, 2.0, 4.0, 8.0, 8.0]


def test_it_is_more_than_the_load_alone_needs() -> None:
    experiment = Experiment(find_plan("paper"))
    mean = float(experiment.trial("ysb", 1).rates_per_s.mean()) / PROFILE.capacity.records_per_core_s
    cores = informed_cores(experiment, "ysb", [1])
    assert cores is not None
    assert 1.2 * mean < cores < 4.0 * mean
