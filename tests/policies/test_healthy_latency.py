"""Which latency is healthy, by boosted trees and two clusters; and what they are fitted to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tidewise.core import Configuration, JobStatus
from tidewise.policies.boosting import fit_boosted
from tidewise.policies.healthy_latency import LatencySamples, fit_healthy_latency, sample_of
from tidewise.testing.situations import report


def test_trees_learn_a_border_that_no_line_could_draw() -> None:
    rng = np.random.default_rng(1)
    rows = rng.uniform(0.0, 1.0, (400, 2))
    targets = np.where((rows[:, 0] > 0.5) != (rows[:, 1] > 0.5), 1.0, -1.0)
    left_over = fit_boosted(rows, targets).predict(rows) - targets
    assert float(np.mean(left_over**2)) < 0.1


def test_rows_that_are_all_alike_have_the_mean() -> None:
    fitted = fit_boosted(np.ones((3, 2)), np.array([1.0, 2.0, 6.0]))
    assert fitted.predict(np.array([[1.0, 1.0], [9.0, 0.0]])).tolist() == pytest.approx([3.0, 3.0])


def test_the_limit_lies_between_the_two_clusters() -> None:
    samples = [
        sample_of(Configuration(executors=count), rate, 100.0 if rate > 1000.0 * count else 1.0)
        for count in range(1, 11)
        for rate in (500.0, 2500.0, 4500.0, 6500.0)
    ]
    healthy = fit_healthy_latency(samples)
    assert healthy.limit_s == pytest.approx(10.0)
    well = healthy.latency_s([1, 2, 4, 5, 10], 4500.0) <= healthy.limit_s
    assert well.tolist() == [False, False, False, True, True]


def test_latencies_within_a_factor_of_two_are_one_cluster() -> None:
    samples = [sample_of(Configuration(executors=1), 100.0 * n, 1.0 + 0.05 * n) for n in range(10)]
    assert fit_healthy_latency(samples).limit_s == math.inf
    assert fit_healthy_latency(samples[:1]).limit_s == math.inf


def test_a_job_that_has_not_settled_is_not_sampled() -> None:
    samples = LatencySamples()
    latest = 0
    for minute in range(1, 30):
        status = JobStatus.DOWN if minute == 10 else JobStatus.RUNNING
        # Restless: 60 s before each report counts, the start of the first and the end of the downtime.
        seen = report(time_s=60.0 * minute, window_s=60.0, status=status, rate_per_s=1000.0 * 2.0**minute)
        samples.learn(seen, settle_s=300.0, copy_every_s=60.0)
        latest = len(samples.taken)
    # Minutes 6 to 9, and 16 to 29.
    assert latest == 4 + 14


def test_the_table_changes_with_its_copies_only_and_stays_bounded() -> None:
    samples = LatencySamples()
    for number in range(3000):
        seen = report(time_s=10.0 * number, window_s=10.0, rate_per_s=1.12 ** (number % 2500) * 1e-2)
        samples.learn(seen, settle_s=0.0, copy_every_s=1000.0)
        if number == 150:
            assert len(samples.taken) == 101
    assert len(samples.taken) <= 512


def test_reports_of_one_cell_are_averaged() -> None:
    samples = LatencySamples()
    for number, latency_s in enumerate((0.5, 2.0)):
        seen = report(time_s=10.0 * (number + 1), window_s=10.0, latency_s=latency_s)
        samples.learn(seen, settle_s=0.0, copy_every_s=0.0)
    (sample,) = samples.taken
    assert math.exp(sample.log_latency) == pytest.approx(2.0)  # between 1 s and 4 s
    samples.learn(replace(seen, time_s=30.0, latency_p95_s=None, latency_p99_s=None), settle_s=0.0, copy_every_s=0.0)
    assert len(samples.taken) == 1
