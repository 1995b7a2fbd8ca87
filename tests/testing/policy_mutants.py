"""Policies that each break one promise; `breaks` names the test that has to notice. Run by test_policies.py only."""

# ruff: noqa: ARG002 - mutants do not look at what they are given
from __future__ import annotations

import itertools
import time
from collections.abc import Callable, MutableSequence
from dataclasses import replace
from typing import ClassVar, cast

from tidewise.core import (
    Configuration,
    Decision,
    Keep,
    Mechanism,
    Observation,
    Policy,
    Profile,
    Reason,
    Reconfigure,
    Situation,
)
from tidewise.testing import PolicyConformance

WHY = Reason(code="mutant", sentence="For no good reason.")


class Mutant:
    """Keeps; a subclass does worse."""

    name = "mutant"
    history_s = 600.0

    def learn(self, observation: Observation) -> None:
        pass

    def decide(self, situation: Situation) -> Decision:
        return Keep(reason=WHY)


class OnMutant(PolicyConformance):
    breaks: ClassVar[str]
    policy: ClassVar[Callable[[], Policy]]
    decision_limit_s = 0.02

    def make_policy(self) -> Policy:
        return type(self).policy()


class Nameless(Mutant):
    name = " "


class TestNameless(OnMutant):
    breaks = "test_it_has_a_name"
    policy = Nameless


class Boundless(Mutant):
    history_s = float("inf")


class TestBoundless(OnMutant):
    breaks = "test_it_says_how_much_history_it_needs"
    policy = Boundless


class Counting(Mutant):
    def __init__(self) -> None:
        self.asked = 0

    def decide(self, situation: Situation) -> Decision:
        self.asked += 1
        return Keep(reason=replace(WHY, evidence={"asked": self.asked}))


class TestCounting(OnMutant):
    breaks = "test_the_same_calls_give_the_same_decision"
    policy = Counting


class Numbered(Mutant):
    """Every instance decides its own way."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self.numbers)

    def decide(self, situation: Situation) -> Decision:
        return Keep(reason=replace(WHY, evidence={"number": self.number}))


class TestNumbered(OnMutant):
    breaks = "test_the_same_calls_give_the_same_decision"
    policy = Numbered


class Remembering(Mutant):
    """Rests on the last situation that it saw: lost in a crash."""

    def __init__(self) -> None:
        self.seen_s: float | None = None

    def decide(self, situation: Situation) -> Decision:
        before_s = situation.now_s if self.seen_s is None else self.seen_s
        self.seen_s = situation.now_s
        return Keep(reason=replace(WHY, evidence={"before_s": before_s}))


class TestRemembering(OnMutant):
    breaks = "test_earlier_decisions_leave_no_trace"
    policy = Remembering


class Spoiling(Mutant):
    def decide(self, situation: Situation) -> Decision:
        cast("MutableSequence[Observation]", situation.history)[:0] = situation.history[:1]
        return Keep(reason=WHY)


class TestSpoiling(OnMutant):
    breaks = "test_the_situation_is_left_as_it_was"
    policy = Spoiling


class Trusting(Mutant):
    """Thinks that CPU is always known."""

    def decide(self, situation: Situation) -> Decision:
        cpu = sum(cast("float", report.cpu_share) for report in situation.history)
        return Keep(reason=replace(WHY, evidence={"cpu": cpu}))


class TestTrusting(OnMutant):
    breaks = "test_it_decides_on_one_report_that_tells_nothing"
    policy = Trusting


class TestTrustingOnAnything(OnMutant):
    breaks = "test_it_decides_whatever_the_situation"
    policy = Trusting


class Dividing(Mutant):
    def decide(self, situation: Situation) -> Decision:
        share = situation.latest.backlog_records / situation.latest.input_rate_per_s
        return Keep(reason=replace(WHY, evidence={"share": min(share, 1e9)}))


class TestDividing(OnMutant):
    breaks = "test_it_decides_on_one_report_that_tells_nothing"
    policy = Dividing


class Unbounded(Mutant):
    def decide(self, situation: Situation) -> Decision:
        more = situation.observed.with_executors(situation.observed.executors + 1)
        return Reconfigure(target=more, reason=WHY, mechanism=_executors_by(situation))


class TestUnbounded(OnMutant):
    breaks = "test_it_decides_after_long_steady_operation"
    policy = Unbounded


class Unreachable(Mutant):
    """Asks for a mechanism that nobody offers."""

    def decide(self, situation: Situation) -> Decision:
        if situation.observed.executors == 1:
            return Keep(reason=WHY)
        return Reconfigure(
            target=situation.observed.with_executors(1), reason=WHY, mechanism=Mechanism.OPERATOR_UPGRADE
        )


class TestUnreachable(OnMutant):
    breaks = "test_it_decides_after_long_steady_operation"
    policy = Unreachable


class Standing(Mutant):
    def decide(self, situation: Situation) -> Decision:
        return Reconfigure(target=situation.observed, reason=WHY)


class TestStanding(OnMutant):
    breaks = "test_it_decides_whatever_the_situation"
    policy = Standing


class Undecided(Mutant):
    def decide(self, situation: Situation) -> Decision:
        return cast("Decision", None)


class TestUndecided(OnMutant):
    breaks = "test_it_decides_whatever_the_situation"
    policy = Undecided


class NotANumber(Mutant):
    def decide(self, situation: Situation) -> Decision:
        return Keep(reason=replace(WHY, evidence={"cpu": float("nan")}))


class TestNotANumber(OnMutant):
    breaks = "test_it_decides_whatever_the_situation"
    policy = NotANumber


class ProfilesAnything(Mutant):
    def decide(self, situation: Situation) -> Decision:
        return Profile(candidates=(Configuration(executors=100_000),), reason=WHY)


class TestProfilesAnything(OnMutant):
    breaks = "test_it_decides_whatever_the_situation"
    policy = ProfilesAnything


class Slow(Mutant):
    def decide(self, situation: Situation) -> Decision:
        ends_s = time.process_time() + 0.03
        while time.process_time() < ends_s:
            pass
        return Keep(reason=WHY)


class TestSlow(OnMutant):
    breaks = "test_it_decides_in_time"
    policy = Slow


def _executors_by(situation: Situation) -> Mechanism | None:
    return situation.space.changes[0].mechanism
