"""What runs and what is meant to run: the engine's word against reports, and executors that it replaces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidewise.control import Command, GuardSettings
from tidewise.core import (
    ChangeCost,
    ChangeStatus,
    Configuration,
    ConfigurationSpace,
    ControllerStarted,
    JobStatus,
    Mechanism,
    Overridden,
    Policy,
    Reported,
    Ticked,
)
from tidewise.policies import BestFixed, Static

from .bench import SETTINGS, Bench
from .fakes import build_loop, config, observation


def test_a_report_sent_just_after_the_end_of_a_change_does_not_bring_the_old_configuration_back() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    bench.report(30.0, config(4))  # What ran when its window began.
    bench.end(request, 29.6, runs=config(6))
    assert bench.loop.state.observed == bench.loop.state.intended == config(6)
    bench.report(39.0, config(4))  # Its window began before the end as well.
    assert bench.loop.state.observed == config(6)
    bench.wanted = config(6)
    bench.tell(Ticked(at_s=100.0))
    assert len(bench.commands) == 1


def test_an_engine_whose_clock_is_ahead_does_not_make_its_reports_look_old() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    outcome_at_s, now_s = 5000.0, 30.0
    outcome = replace(bench.end(request, outcome_at_s, runs=config(6)).events[0], at_s=now_s)
    again = Bench(config(4))
    again.ask(10.0, config(4), config(6))
    again.tell(outcome)
    again.report(50.0, config(5))
    assert again.loop.state.observed == config(5)


@pytest.mark.parametrize(
    "policy", [Static(executors=4), Static(configuration=config(4)), BestFixed(configuration=config(4))]
)
def test_a_lost_executor_is_the_engines_to_replace_and_no_reason_for_a_change(policy: Policy) -> None:
    redeploy = ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=50.0)
    loop = build_loop(policy, space=ConfigurationSpace(executors=(1, 2, 3, 4), changes=(redeploy,)))
    loop.handle(ControllerStarted(at_s=0.0, version="test", policy="test", configuration=config(4)))
    commands: list[Command] = []
    for step in range(1, 31):
        runs = config(3 if 5 <= step < 25 else 4)
        loop.handle(Reported(at_s=10.0 * step, observation=observation(10.0 * step, runs)))
        assert loop.state.observed == runs
        assert loop.state.intended == config(4)
        commands += loop.handle(Ticked(at_s=10.0 * step)).commands
    assert commands == []


def test_executors_that_stay_missing_count_as_gone_after_a_time() -> None:
    bench = Bench(config(4), replace(SETTINGS, shortfall_s=100.0))
    for step in range(11):
        bench.report(10.0 + 10 * step, config(3))
        assert bench.loop.state.intended == config(3 if step == 10 else 4)
    assert bench.ask(120.0, config(3), config(4)).source == config(3)


def test_a_job_that_is_down_does_not_tell_how_many_executors_it_will_have() -> None:
    bench = Bench(config(4), replace(SETTINGS, shortfall_s=100.0))
    for step in range(30):
        bench.report(10.0 + 10 * step, config(1), latency_s=None, status=JobStatus.DOWN)
    assert bench.loop.state.intended == config(4)
    bench.report(310.0, config(3))
    assert bench.loop.state.intended == config(4)


@pytest.mark.parametrize("runs", [config(5), config(4, memory_mib=2048), config(3, memory_mib=2048)])
def test_what_differs_in_more_than_missing_executors_is_what_is_meant_now(runs: Configuration) -> None:
    bench = Bench(config(4))
    bench.report(10.0, runs)
    assert bench.loop.state.intended == runs


def test_a_change_of_a_job_short_of_executors_counts_from_what_is_meant_and_goes_back_there() -> None:
    bench = Bench(config(6))
    request = bench.ask(10.0, config(5), config(8))
    assert request.source == config(6)
    bench.end(request, 20.0, status=ChangeStatus.FAILED, runs=config(5))
    assert len(bench.commands) == 1  # Nothing was left half-way: the sixth was missing before.
    down = bench.ask(80.0, config(6), config(4))
    bench.end(down, 90.0, status=ChangeStatus.FAILED, runs=config(5))
    assert bench.commands[-1].undoes == down.request_id
    assert bench.commands[-1].target == config(6)


def test_what_is_asked_for_and_only_being_replaced_is_no_change() -> None:
    bench = Bench(config(6))
    bench.wanted = config(6)
    bench.report(10.0, config(5))
    bench.tell(Ticked(at_s=10.0))
    assert bench.commands == []


def test_a_target_that_arrives_after_the_deadline_is_what_is_meant() -> None:
    bench = Bench(config(6))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(4)))
    bench.tell(Ticked(at_s=110.0))
    assert not bench.loop.state.override_in_force
    bench.report(125.0, config(4))
    assert bench.loop.state.override_in_force


def test_the_quota_counts_executors_that_are_being_replaced() -> None:
    loop = build_loop(Static(executors=12), guard_settings=GuardSettings(quota_cores=8.0, cooldown_s=None))
    loop.handle(ControllerStarted(at_s=0.0, version="test", policy="test", configuration=config(8)))
    loop.handle(Reported(at_s=10.0, observation=observation(10.0, config(7))))
    assert loop.handle(Ticked(at_s=10.0)).commands == ()


def test_what_somebody_else_made_of_the_job_during_a_lost_change_is_what_is_meant_then() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(8))
    bench.report(30.0, config(6))  # On the way, or somebody's doing: nobody knows while the change is on.
    assert bench.loop.state.intended == config(4)
    bench.report(request.deadline_s, config(6))
    bench.tell(Ticked(at_s=request.deadline_s + 1.0))
    assert bench.loop.state.requested != config(8)
    assert bench.loop.state.intended == bench.loop.state.observed == config(6)
