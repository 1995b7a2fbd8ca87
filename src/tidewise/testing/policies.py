"""What every policy has to keep, as tests that anybody's policy can inherit."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tidewise.core import Decision, JobStatus, Keep, Policy, Profile, Reconfigure, Situation
from tidewise.testing.situations import report, situation_of, stories
from tidewise.testing.strategies import situations

_thorough = settings(
    max_examples=30,
    deadline=None,  # the time of a decision has a test of its own
    phases=(Phase.explicit, Phase.generate),  # to shrink a situation takes minutes, and its numbers tell as much
    derandomize=True,  # a plug-in's build must not fail on Tuesdays
    suppress_health_check=[
        HealthCheck.differing_executors,  # the tests are inherited: that is what they are for
        HealthCheck.too_slow,  # long histories take their time to draw
    ],
)


_any_situation = stories() | situations()


class PolicyConformance:
    """Tests of the promises in `tidewise.core.Policy`.

    Inherit and say how the policy is made; pytest does the rest::

        from tidewise.testing import PolicyConformance


        class TestMyPolicy(PolicyConformance):
            def make_policy(self) -> Policy:
                return MyPolicy(target=0.6)
    """

    decision_limit_s: float = 0.25
    """A decision on the longest history has to be there within this time."""

    def make_policy(self) -> Policy:
        """A new policy, the same at every call."""
        raise NotImplementedError("say how your policy is made: override make_policy")

    def decide(self, situation: Situation, *, policy: Policy | None = None) -> Decision:
        """The decision of a new policy, or of this one, that has learnt all of the history."""
        decider = self.make_policy() if policy is None else policy
        for observation in situation.history:
            decider.learn(observation)
        return decider.decide(situation)

    def cut(self, situation: Situation) -> Situation:
        """The situation with no more history than the policy asks for."""
        since_s = situation.now_s - self.make_policy().history_s
        recent = [seen for seen in situation.history if seen.time_s > since_s]
        return replace(situation, history=recent or list(situation.history[-1:]))

    def test_it_has_a_name(self) -> None:
        name = self.make_policy().name
        assert isinstance(name, str)
        assert name.strip(), "the name is empty"

    def test_it_says_how_much_history_it_needs(self) -> None:
        history_s = self.make_policy().history_s
        assert math.isfinite(history_s)
        assert history_s >= 0.0, f"history_s is {history_s}"

    @_thorough
    @given(situation=_any_situation)
    def test_the_same_calls_give_the_same_decision(self, situation: Situation) -> None:
        situation = self.cut(situation)
        policy = self.make_policy()
        first = self.decide(situation, policy=policy)
        assert policy.decide(situation) == first, "asked again, the policy decided differently"
        assert self.decide(situation) == first, "a fresh policy that learnt the same decided differently"

    @_thorough
    @given(earlier=stories(), situation=stories())
    def test_earlier_decisions_leave_no_trace(self, earlier: Situation, situation: Situation) -> None:
        # After a crash the observations are learnt again from the journal, but no decision is taken again.
        situation = self.cut(situation)
        policy = self.make_policy()
        for observation in situation.history:
            policy.learn(observation)
        policy.decide(self.cut(earlier))
        assert policy.decide(situation) == self.decide(situation), "the decision depends on an earlier one"

    @_thorough
    @given(situation=_any_situation)
    def test_the_situation_is_left_as_it_was(self, situation: Situation) -> None:
        situation = self.cut(situation)
        # All else is frozen; a list of reports is the one thing that a policy could spoil for the next.
        before = replace(situation, history=list(situation.history))
        self.decide(situation)
        assert situation == before, "the policy has altered what it was given"

    @_thorough
    @given(situation=_any_situation)
    def test_it_decides_whatever_the_situation(self, situation: Situation) -> None:
        self._check(self.cut(situation))

    @pytest.mark.parametrize("executors", [1, 4, 24])
    @pytest.mark.parametrize("load", ["overloaded", "idle", "steady"])
    def test_it_decides_after_long_steady_operation(self, executors: int, load: str) -> None:
        share = {"overloaded": 1.0, "idle": 0.01, "steady": 0.5}[load]
        backlog = 1e6 if load == "overloaded" else 0.0
        self._check(
            self.cut(
                situation_of(
                    report(
                        time_s=60.0 * (minute + 1),
                        window_s=60.0,
                        executors=executors,
                        busy_share=share,
                        cpu_share=share,
                        backlog=backlog,
                    )
                    for minute in range(240)
                )
            )
        )

    @pytest.mark.parametrize("status", list(JobStatus))
    def test_it_decides_on_one_report_that_tells_nothing(self, status: JobStatus) -> None:
        bare = report(time_s=1.0, status=status, rate_per_s=0.0, busy_share=None, cpu_share=None, latency_s=None)
        self._check(situation_of([bare]))

    def test_it_decides_in_time(self) -> None:
        policy = self.make_policy()
        seconds = max(1, min(7200, int(policy.history_s)))
        history = [report(time_s=float(second + 1), busy_share=0.1, cpu_share=0.1) for second in range(seconds)]
        situation = situation_of(history)
        for observation in history:
            policy.learn(observation)
        took_s = min(_took_s(policy, situation) for _ in range(3))
        assert took_s <= self.decision_limit_s, f"a decision took {took_s:.3f} s of {self.decision_limit_s} s"

    def _check(self, situation: Situation) -> None:
        decision = self.decide(situation)
        assert isinstance(decision, Keep | Reconfigure | Profile), f"{decision!r} is not a decision"
        assert decision.reason.sentence.strip(), "the reason is empty"
        for name, value in decision.reason.evidence.items():
            assert not isinstance(value, float) or math.isfinite(value), f"the evidence {name} is {value}, not None"
        if isinstance(decision, Reconfigure):
            if situation.observed == situation.intended:
                assert decision.target != situation.observed, "to reconfigure to what runs is to keep"
            if situation.intended in situation.space:
                assert decision.target in situation.space, f"{decision.target} is outside the space"
            situation.space.change(situation.intended, decision.target, decision.mechanism)  # raises if impossible
        if isinstance(decision, Profile):
            outside = [candidate for candidate in decision.candidates if candidate not in situation.space]
            assert not outside, f"candidates outside the space: {outside}"


def _took_s(policy: Policy, situation: Situation) -> float:
    start_s = time.perf_counter()
    policy.decide(situation)
    return time.perf_counter() - start_s
