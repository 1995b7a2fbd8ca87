"""Static and BestFixed hold what they were given."""

from __future__ import annotations

import pytest

from tidewise.core import Configuration, InvalidValueError, JobStatus, Keep, Mechanism, Policy, Reconfigure
from tidewise.policies import BestFixed, Static
from tidewise.testing.situations import report, situation_of, space_of

TWELVE = Configuration(executors=12)


def test_without_settings_it_leaves_the_job_as_it_finds_it() -> None:
    decision = Static().decide(situation_of([report(time_s=1.0, executors=5, cpu_share=1.0)]))
    assert isinstance(decision, Keep)


@pytest.mark.parametrize(
    "policy", [Static(configuration=TWELVE), Static(executors=12), BestFixed(configuration=TWELVE)]
)
def test_it_moves_back_to_what_it_holds(policy: Policy) -> None:
    decision = policy.decide(situation_of([report(time_s=1.0, executors=5)]))
    assert isinstance(decision, Reconfigure)
    assert decision.target == TWELVE
    assert decision.reason.code == "return-to-static"
    assert isinstance(policy.decide(situation_of([report(time_s=1.0, executors=12)])), Keep)


@pytest.mark.parametrize(
    "policy", [Static(), Static(configuration=TWELVE), Static(executors=12), BestFixed(configuration=TWELVE)]
)
def test_an_executor_that_the_engine_replaces_is_no_reason_to_move(policy: Policy) -> None:
    decision = policy.decide(situation_of([report(time_s=1.0, executors=11)], intended=TWELVE))
    assert isinstance(decision, Keep)
    assert "12 executors" in decision.reason.sentence


def test_it_waits_while_a_change_is_on_or_the_job_is_down() -> None:
    policy = Static(configuration=TWELVE)
    on = policy.decide(situation_of([report(time_s=1.0)], requested=TWELVE))
    assert on.reason.code == "change-is-on"
    down = policy.decide(situation_of([report(time_s=1.0, status=JobStatus.DOWN)]))
    assert down.reason.code == "job-not-running"


def test_outside_the_space_it_takes_the_nearest_and_says_so() -> None:
    space = space_of(executors=(2, 4, 8))
    decision = Static(configuration=TWELVE).decide(situation_of([report(time_s=1.0)], space=space))
    assert isinstance(decision, Reconfigure)
    assert decision.target == Configuration(executors=8)
    assert "nearest that the space allows" in decision.reason.sentence


def test_what_no_mechanism_can_reach_is_not_asked_for() -> None:
    space = space_of(mechanisms=(Mechanism.QUERY_RESTART,))
    decision = Static(executors=12).decide(situation_of([report(time_s=1.0)], space=space))
    assert decision.reason.code == "unreachable"
    named = Static(executors=12, mechanism=Mechanism.OPERATOR_UPGRADE).decide(situation_of([report(time_s=1.0)]))
    assert named.reason.code == "unreachable"


def test_the_mechanism_it_is_given_is_named() -> None:
    decision = Static(executors=12, mechanism=Mechanism.REDEPLOY).decide(situation_of([report(time_s=1.0)]))
    assert isinstance(decision, Reconfigure)
    assert decision.mechanism is Mechanism.REDEPLOY


@pytest.mark.parametrize("settings", [{"executors": 0}, {"executors": 2, "configuration": TWELVE}])
def test_senseless_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        Static(**settings)  # type: ignore[arg-type]  # wrong on purpose
