"""Whom the loop blames for a broken promise: the change, or what it does not answer for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tidewise.control import Loop, Phase, Runner
from tidewise.core import (
    ChangeCost,
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeStatus,
    Configuration,
    ConfigurationSpace,
    Decided,
    JobStatus,
    Mechanism,
    Origin,
    Overridden,
    OverrideLifted,
    Policy,
    Prices,
    Promises,
    Ticked,
)
from tidewise.engines.simulator import Simulator, load_profile
from tidewise.policies import Reactive, Static

from .bench import SETTINGS, Bench
from .fakes import LIVE, ListJournal, config

REDEPLOY = ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=50.0)


def test_a_longer_change_has_a_longer_grace() -> None:
    bench = Bench(config(4), replace(SETTINGS, grace_factor=2.0, broken_reports=1))
    request = bench.ask(10.0, config(4), config(2))
    outcome = ChangeOutcome(
        request_id=request.request_id,
        status=ChangeStatus.APPLIED,
        finished_at_s=60.0,
        configuration=config(2),
        gap_s=45.0,
    )
    bench.tell(ChangeFinished(at_s=60.0, outcome=outcome))
    for time_s in range(70, 170, 10):
        assert not bench.report(float(time_s), config(2), latency_s=9.0).commands
    assert bench.report(170.0, config(2), latency_s=9.0).commands


def test_a_job_that_works_off_its_backlog_is_not_judged_and_one_that_does_not_is() -> None:
    for faster, commands in ((True, 1), (False, 2)):
        bench = Bench(config(4))
        bench.reduced(config(4), config(2))
        backlog = 50_000.0
        for time_s in range(30, 200, 10):
            backlog += -2500.0 if faster else 2500.0
            bench.report(float(time_s), config(2), latency_s=9.0, backlog=backlog)
        assert len(bench.commands) == commands


def test_a_backlog_that_goes_down_too_slowly_is_not_waited_for() -> None:
    bench = Bench(config(4), replace(SETTINGS, catch_up_s=1000.0))
    bench.reduced(config(4), config(2))
    for step in range(10):
        bench.report(30.0 + 10 * step, config(2), latency_s=9.0, backlog=50_000.0 - 100 * step)
    assert bench.commands[-1].origin is Origin.ROLLBACK


def test_a_change_settles_later_for_the_time_that_its_catching_up_took_but_not_for_ever() -> None:
    bench = Bench(config(4), replace(SETTINGS, catch_up_s=200.0))
    bench.reduced(config(4), config(2))
    backlog = 1e9
    for time_s in range(30, 400, 10):
        backlog *= 0.9
        bench.report(float(time_s), config(2), backlog=backlog)
        bench.tell(Ticked(at_s=float(time_s)))
        # 20 s, the end, 20 s of grace, 200 s to catch up at the most, and 80 s to be judged in.
        assert bench.phase() is (Phase.ON_PROBATION if time_s < 320 else Phase.SETTLED)


@pytest.mark.parametrize("status", [JobStatus.DOWN, JobStatus.CHANGING])
def test_a_failure_is_not_blamed_on_a_change_and_the_job_may_catch_up_after_it(status: JobStatus) -> None:
    bench = Bench(config(4))
    bench.reduced(config(4), config(2))
    for time_s in (50.0, 60.0):
        bench.report(time_s, config(2), latency_s=9.0)
    for time_s in (70.0, 80.0, 90.0, 100.0):
        bench.report(time_s, config(2), latency_s=None, status=status)
    for time_s in (110.0, 120.0):  # Within the grace of 20 s after the failure.
        bench.report(time_s, config(2), latency_s=9.0)
    for time_s in (130.0, 140.0):
        bench.report(time_s, config(2), latency_s=9.0)
    assert len(bench.commands) == 1
    bench.report(150.0, config(2), latency_s=9.0)
    assert bench.commands[-1].origin is Origin.ROLLBACK


def test_a_job_short_of_executors_is_not_what_the_change_made_of_it() -> None:
    bench = Bench(config(4))
    bench.reduced(config(4), config(2))
    for time_s in range(50, 110, 10):
        bench.report(float(time_s), config(1), latency_s=9.0)
    assert len(bench.commands) == 1


def test_no_rollback_is_commanded_while_the_job_is_down() -> None:
    failed = Bench(config(4))
    request = failed.ask(10.0, config(4), config(2))
    failed.report(20.0, config(4), latency_s=None, status=JobStatus.DOWN)
    handled = failed.end(request, 25.0, status=ChangeStatus.FAILED, runs=config(3))
    assert isinstance(handled.events[-1], Decided)
    assert handled.events[-1].decision.reason.code == "rollback-withheld"
    expired = Bench(config(4))
    expired.ask(10.0, config(4), config(2))
    expired.report(105.0, config(4), latency_s=None, status=JobStatus.DOWN)
    handled = expired.tell(Ticked(at_s=110.0))
    assert isinstance(handled.events[0], ChangeExpired)
    assert len(failed.commands) == len(expired.commands) == 1


def test_nothing_is_rolled_back_while_a_person_has_decided() -> None:
    broken = Bench(config(4))
    broken.reduced(config(4), config(2))
    broken.tell(Overridden(at_s=25.0, by="ada", target=config(2)))
    for time_s in range(50, 110, 10):
        broken.report(float(time_s), config(2), latency_s=9.0)
    assert len(broken.commands) == 1
    failed = Bench(config(4))
    request = failed.ask(10.0, config(4), config(6))
    failed.tell(Overridden(at_s=15.0, by="ada", target=config(9)))
    failed.end(request, 25.0, status=ChangeStatus.FAILED, runs=config(5))
    assert [each.origin for each in failed.commands] == [Origin.POLICY, Origin.OPERATOR]


def test_without_a_number_of_broken_reports_no_promise_takes_a_change_back_but_a_failure_does() -> None:
    bench = Bench(config(4), replace(SETTINGS, broken_reports=None))
    bench.reduced(config(4), config(2))
    for time_s in range(50, 110, 10):
        bench.report(float(time_s), config(2), latency_s=9.0)
    assert len(bench.commands) == 1
    up = bench.ask(130.0, config(2), config(6))
    bench.end(up, 140.0, status=ChangeStatus.FAILED, runs=config(4, cores=2.0))
    assert bench.commands[-1].undoes == up.request_id


def test_a_change_is_taken_back_by_the_mechanism_that_made_it() -> None:
    space = ConfigurationSpace(executors=(1, 2, 3, 4), changes=(LIVE, REDEPLOY))
    bench = Bench(config(4), space=space)
    bench.mechanism = Mechanism.REDEPLOY
    bench.reduced(config(4), config(2))
    for time_s in range(50, 90, 10):
        bench.report(float(time_s), config(2), latency_s=9.0)
    assert (bench.commands[-1].origin, bench.commands[-1].mechanism) == (Origin.ROLLBACK, Mechanism.REDEPLOY)


def test_where_the_mechanism_of_the_change_cannot_go_back_another_does() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    assert request.mechanism is Mechanism.LIVE
    bench.end(request, 20.0, status=ChangeStatus.FAILED, runs=config(6, memory_mib=2048, cores=1.0))
    bench.tell(Ticked(at_s=20.0))
    assert bench.commands[-1].mechanism is Mechanism.HANDOVER


def test_the_probation_of_an_override_goes_on_when_it_is_lifted() -> None:
    bench = Bench(config(4))
    bench.report(4.0, config(4))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(2)))
    bench.end(bench.commands[-1], 10.0, runs=config(2))
    bench.tell(OverrideLifted(at_s=20.0, by="ada"))
    for time_s in range(40, 80, 10):
        bench.report(float(time_s), config(2), latency_s=9.0)
    assert bench.commands[-1].origin is Origin.ROLLBACK


@pytest.mark.parametrize(
    "policy",
    [
        Static(executors=12, mechanism=Mechanism.OPERATOR_UPGRADE),
        Reactive(target_cpu=0.6, mechanism=Mechanism.OPERATOR_UPGRADE),
    ],
)
def test_a_job_on_half_of_its_executors_that_are_enough_stays_there_after_two_minutes_of_standstill(
    policy: Policy,
) -> None:
    simulator = Simulator(
        profile=load_profile("paper-cluster"), rates_per_s=np.full(3600, 60_000.0), seed=1, report_every_s=10
    )
    start = Configuration(executors=24, memory_mib_per_executor=4096, commit_interval_s=10.0)
    job = simulator.launch(start)
    space = ConfigurationSpace(
        executors=tuple(range(1, 25)),
        memory_mib_per_executor=(4096,),
        commit_interval_s=(10.0,),
        changes=simulator.changes,
    )
    loop = Loop(run="test", policy=policy, space=space, promises=Promises(latency_p95_s=3.0), prices=Prices())
    journal = ListJournal()
    Runner(job=job, loop=loop, journal=journal, clock=simulator.clock).run(3600.0)
    assert job.observed() == start.with_executors(12)
    assert loop.state.requests == 1
    assert loop.state.change is not None
    assert loop.state.change.phase is Phase.SETTLED
