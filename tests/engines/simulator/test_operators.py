"""Operators in a simulated job's reports: the whole job's figures, divided honestly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from tests.engines.simulator.parts import batch_profile, continuous_profile
from tidewise.core import BadInputError, Configuration, Observation, OperatorKind, OperatorReport
from tidewise.engines.simulator import Simulator, SimulatorProfile, load_profile
from tidewise.engines.simulator.latency import Floats
from tidewise.engines.simulator.profile_file import profile_to_toml

OPERATORS = [
    {"name": "views", "kind": "continuous", "work_share": 0.7},
    {"name": "counts", "kind": "window", "work_share": 0.3, "records_share": 0.25},
]


def with_operators(profile: SimulatorProfile, operators: list[dict[str, object]] | None = None) -> SimulatorProfile:
    whole = profile.model_dump(mode="json")
    return SimulatorProfile.model_validate({**whole, "operators": OPERATORS if operators is None else operators})


def reports_of(profile: SimulatorProfile, rates: Floats, *, executors: int = 2, slots: int = 1) -> list[Observation]:
    simulator = Simulator(profile=profile, rates_per_s=rates, seed=1)
    job = simulator.launch(
        Configuration(executors=executors, slots_per_executor=slots, cores_per_executor=slots, commit_interval_s=1.0)
    )
    simulator.clock.wait_until(float(len(rates)))
    return list(job.reports())


def last_pair(profile: SimulatorProfile, rates: Floats, *, slots: int = 1) -> tuple[OperatorReport, OperatorReport]:
    views, counts = reports_of(profile, rates, slots=slots)[-1].operators
    return views, counts


@pytest.mark.parametrize("profile", [continuous_profile(), batch_profile()])
def test_a_profile_without_operators_reports_none(profile: SimulatorProfile) -> None:
    assert all(report.operators == () for report in reports_of(profile, np.full(60, 500.0)))


def test_rates_and_throughput_follow_from_the_shares() -> None:
    # Two executors of 1,000/s each, half used; views have 0.7 of the work and see every record, counts every fourth.
    views, counts = last_pair(with_operators(continuous_profile()), np.full(60, 1000.0))
    assert (views.name, views.kind, views.channels) == ("views", OperatorKind.CONTINUOUS, 2)
    assert (counts.name, counts.kind, counts.channels) == ("counts", OperatorKind.WINDOW, 2)
    assert views.input_rate_per_s == pytest.approx(1000.0)
    assert counts.input_rate_per_s == pytest.approx(250.0)
    assert views.throughput_per_channel_per_s == pytest.approx(1000.0 / 0.7)
    assert counts.throughput_per_channel_per_s == pytest.approx(250.0 / 0.3)


def test_channels_are_the_slots_of_the_job() -> None:
    views, counts = last_pair(with_operators(continuous_profile()), np.full(60, 1000.0), slots=3)
    assert views.channels == counts.channels == 6


@pytest.mark.parametrize("profile", [continuous_profile(noise_share=0.1), batch_profile()])
@pytest.mark.parametrize("rate", [200.0, 1500.0, 2600.0])
def test_together_they_keep_as_many_slots_busy_as_the_job(profile: SimulatorProfile, rate: float) -> None:
    for report in reports_of(with_operators(profile), np.full(120, rate))[1:]:
        busy = sum(
            one.input_rate_per_s / one.throughput_per_channel_per_s
            for one in report.operators
            if one.throughput_per_channel_per_s is not None
        )
        assert report.busy_share is not None
        if report.processed_rate_per_s > 0.0:
            assert busy == pytest.approx(2 * report.busy_share)


def test_the_slowest_operator_has_the_queue_before_it() -> None:
    profile = with_operators(continuous_profile())
    calm_views, calm_counts = last_pair(profile, np.full(120, 1000.0))
    views, counts = last_pair(profile, np.full(120, 3000.0))
    assert calm_views.latency_s == pytest.approx(0.7)
    assert calm_counts.latency_s == counts.latency_s == pytest.approx(0.3)
    # A third of what arrives in 115 s has to wait: its median age is that of the report's middle.
    assert views.latency_s == pytest.approx(0.7 + 115.0 / 3, abs=2.0)


def test_the_time_of_a_batch_is_divided_and_its_fixed_cost_is_nobodys() -> None:
    # 1,000 records a batch on 2,000/s: half a second of work each, whatever the fixed cost.
    views, counts = last_pair(with_operators(batch_profile(fixed_s=0.2)), np.full(60, 1000.0))
    assert views.latency_s == pytest.approx(0.35)
    assert counts.latency_s == pytest.approx(0.15)


def test_a_batch_that_outlasts_its_interval_makes_the_slowest_wait() -> None:
    views, counts = last_pair(with_operators(batch_profile(fixed_s=1.0)), np.full(120, 1000.0))
    # Batches of b seconds: b = 1 + 1,000 b / 2,000, so two seconds of which one is work and half of one was waited.
    assert counts.latency_s == pytest.approx(0.3)
    assert views.latency_s == pytest.approx(0.7 + 0.5)


def test_a_job_that_is_down_or_idle_says_what_it_does_not_know() -> None:
    simulator = Simulator(profile=with_operators(continuous_profile()), rates_per_s=np.full(300, 1000.0), seed=1)
    job = simulator.launch(Configuration(executors=2))
    simulator.clock.wait_until(100.0)
    job.inject("crash")
    simulator.clock.wait_until(120.0)
    down = job.reports()[-1]
    assert [one.throughput_per_channel_per_s for one in down.operators] == [None, None]
    assert [one.latency_s for one in down.operators] == [None, None]
    assert [one.input_rate_per_s for one in down.operators] == [0.0, 0.0]
    idle = reports_of(with_operators(continuous_profile()), np.zeros(60))[-1]
    assert [one.throughput_per_channel_per_s for one in idle.operators] == [None, None]


def test_operators_change_nothing_but_the_reports() -> None:
    rates = np.random.default_rng(3).uniform(500.0, 2500.0, 300)
    for profile in (continuous_profile(noise_share=0.1), batch_profile()):
        jobs = []
        for each in (profile, with_operators(profile)):
            simulator = Simulator(profile=each, rates_per_s=rates, seed=1)
            jobs.append(simulator.launch(Configuration(executors=2)))
            simulator.clock.wait_until(300.0)
        plain, told = (job.series() for job in jobs)
        for name, values in plain.items():
            np.testing.assert_array_equal(values, told[name])


@pytest.mark.parametrize(
    ("operators", "said"),
    [
        ([{**OPERATORS[0]}], "must be 1, not 0.7"),
        ([{**OPERATORS[0], "work_share": 0.5}, {**OPERATORS[0], "work_share": 0.5}], "same name"),
        ([{**OPERATORS[0], "work_share": 1.0, "records_share": 0.0}], "greater than 0"),
        ([{**OPERATORS[0], "work_share": 1.0, "kind": "magic"}], "continuous"),
    ],
)
def test_operators_that_cannot_be_are_refused(operators: list[dict[str, object]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        with_operators(continuous_profile(), operators)


def test_operators_are_written_and_read_back(tmp_path: Path) -> None:
    profile = with_operators(continuous_profile())
    path = tmp_path / "mine.toml"
    path.write_text(profile_to_toml(profile, preface="For a test."))
    assert load_profile(str(path)) == profile
    assert path.read_text().count("[[operators]]") == 2
    path.write_text(path.read_text().replace("work_share = 0.7", "work_share = 0.6"))
    with pytest.raises(BadInputError, match=r"\[\[operators\]\] together must be 1"):
        load_profile(str(path))


@pytest.mark.parametrize("name", ["paper-cluster", "spark-local"])
def test_the_shipped_profiles_tell_a_window_from_the_rest(name: str) -> None:
    kinds = [operator.kind for operator in load_profile(name).operators]
    assert kinds[0] is OperatorKind.CONTINUOUS
    assert OperatorKind.WINDOW in kinds
