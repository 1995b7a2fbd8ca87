"""Reactive: each number worked out by hand from ceil(executors x CPU / target)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import Configuration, Decision, InvalidValueError, JobStatus, Observation, Reconfigure
from tidewise.policies import Reactive
from tidewise.testing.situations import report, situation_of, space_of


def steady(cpu: float | None, *, executors: int = 12, seconds: int = 400, start_s: float = 0.0) -> list[Observation]:
    return [report(time_s=start_s + second + 1, executors=executors, cpu_share=cpu) for second in range(seconds)]


def wanted(decision: Decision) -> int | None:
    return decision.target.executors if isinstance(decision, Reconfigure) else None


def test_cpu_over_target_gives_the_executors() -> None:
    # 12 x 0.52 / 0.35 = 17.83
    decision = Reactive().decide(situation_of(steady(0.52)))
    assert wanted(decision) == 18
    assert decision.reason.code == "scale-up"
    expected = "CPU at 52 % against a target of 35 % asks for 18 executors instead of 12."
    assert decision.reason.sentence == expected
    assert decision.reason.evidence["asked_for"] == 18


@pytest.mark.parametrize(("cpu", "executors"), [(0.7, 20), (0.175, 5), (0.05, 2), (0.001, 1)])
def test_whole_results_are_not_rounded_up(cpu: float, executors: int) -> None:
    # 10 x 0.7 / 0.35 = 20 exactly; 10 x 0.175 / 0.35 = 5; 10 x 0.05 / 0.35 = 1.4; never less than one
    policy = Reactive(scale_up_max_percent=None, scale_up_max_executors=None)
    assert wanted(policy.decide(situation_of(steady(cpu, executors=10)))) == executors


@pytest.mark.parametrize("cpu", [0.3151, 0.35, 0.385])
def test_within_the_tolerance_nothing_is_done(cpu: float) -> None:
    # 0.385 / 0.35 = 1.1 and 0.3151 / 0.35 = 0.9003
    assert Reactive().decide(situation_of(steady(cpu))).reason.code == "within-tolerance"


@pytest.mark.parametrize(("cpu", "executors"), [(0.386, 14), (0.314, 11)])
def test_just_outside_the_tolerance_something_is(cpu: float, executors: int) -> None:
    # 12 x 0.386 / 0.35 = 13.2, 12 x 0.314 / 0.35 = 10.8
    assert wanted(Reactive().decide(situation_of(steady(cpu)))) == executors


def test_executors_that_are_being_replaced_are_counted_from_and_not_asked_for_again() -> None:
    # 11 x 0.38 / 0.35 = 11.9: the twelfth, which is on its way.
    twelve = Configuration(executors=12)
    short = situation_of(steady(0.38, executors=11), intended=twelve)
    assert wanted(Reactive().decide(short)) is None
    # 11 x 0.6 / 0.35 = 18.9, from 12 as from 11; the evidence counts from 12.
    decision = Reactive().decide(situation_of(steady(0.6, executors=11), intended=twelve))
    assert wanted(decision) == 19
    assert decision.reason.evidence["executors"] == 12


def test_scaling_down_waits_for_the_whole_window() -> None:
    quiet = Reactive().decide(situation_of(steady(0.5, seconds=100) + steady(0.1, seconds=280, start_s=100)))
    assert quiet.reason.code == "stabilising"
    # A recommendation looks back by 15 s: the last one with high CPU in it was made at 114 s.
    later = Reactive().decide(situation_of(steady(0.5, seconds=100) + steady(0.1, seconds=330, start_s=100)))
    assert wanted(later) == 4  # 12 x 0.1 / 0.35 = 3.4


def test_scaling_down_takes_the_largest_number_asked_for_in_the_window() -> None:
    # 12 x 0.2 / 0.35 = 6.9 for a while, 12 x 0.1 / 0.35 = 3.4 at the end
    history = steady(0.2, seconds=400) + steady(0.1, seconds=60, start_s=400)
    assert wanted(Reactive().decide(situation_of(history))) == 7


def test_a_new_controller_scales_down_only_after_a_whole_window() -> None:
    assert Reactive().decide(situation_of(steady(0.1, seconds=290))).reason.code == "stabilising"
    assert wanted(Reactive().decide(situation_of(steady(0.1, seconds=301)))) == 4


def test_scaling_up_may_be_stabilised_too() -> None:
    policy = Reactive(scale_up_stabilisation_s=60.0)
    risen = steady(0.35, seconds=400) + steady(0.7, seconds=30, start_s=400)
    assert policy.decide(situation_of(risen)).reason.code == "stabilising"
    assert wanted(Reactive().decide(situation_of(risen))) == 24


@pytest.mark.parametrize(("executors", "allowed"), [(1, 3), (2, 6), (3, 7), (6, 12)])
def test_growth_is_limited_to_the_larger_of_double_and_four_more(executors: int, allowed: int) -> None:
    # Full CPU asks for 1 / 0.35 = 2.86 times as many: 3, 6, 9, 18.
    history = steady(1.0, executors=executors)
    assert wanted(Reactive().decide(situation_of(history))) == allowed


def test_the_pace_counts_from_the_start_of_the_period() -> None:
    # Grown from 2 to 4 five seconds ago: 2 + max(100 %, 4) = 6 is as far as this period goes, though 4 would allow 8.
    history = steady(1.0, executors=2) + steady(1.0, executors=4, seconds=5, start_s=400)
    assert wanted(Reactive().decide(situation_of(history))) == 6


def test_shrinking_can_be_limited() -> None:
    one = Reactive(scale_down_max_percent=None, scale_down_max_executors=1)
    assert wanted(one.decide(situation_of(steady(0.01)))) == 11
    half = Reactive(scale_down_max_percent=50.0, scale_down_max_executors=1)
    assert wanted(half.decide(situation_of(steady(0.01)))) == 6


def test_executors_that_do_not_report_yet_count_as_idle_when_growing() -> None:
    # 12 report 0.5, 2 are new: 12 x 0.5 / 0.35 = 17.1, and not 14 x 0.5 / 0.35 = 20
    decision = Reactive().decide(situation_of(steady(0.5), observed=Configuration(executors=14)))
    assert wanted(decision) == 18
    assert "on the 12 executors that report" in decision.reason.sentence
    # With 8 new ones, what is used is no more than the target: 6 / 20 = 0.3.
    assert wanted(Reactive().decide(situation_of(steady(0.5), observed=Configuration(executors=20)))) is None


def test_executors_that_do_not_report_yet_count_as_used_when_shrinking() -> None:
    # 12 x 0.1 + 2 = 3.2, / 0.35 = 9.1; the twelve that were there ask for 4 in the past
    decision = Reactive().decide(situation_of(steady(0.1), observed=Configuration(executors=14)))
    assert wanted(decision) == 10


def test_reports_of_a_job_that_does_not_run_are_ignored() -> None:
    history = steady(0.52)
    broken = [replace(seen, status=JobStatus.DOWN, cpu_share=0.0) for seen in history[-10:-5]]
    decision = Reactive().decide(situation_of(history[:-10] + broken + history[-5:]))
    assert wanted(decision) == 18
    down = Reactive().decide(situation_of(history[:-5] + [replace(s, status=JobStatus.DOWN) for s in history[-5:]]))
    assert down.reason.code == "job-not-running"


def test_without_cpu_nothing_is_decided() -> None:
    assert Reactive().decide(situation_of(steady(None))).reason.code == "no-metrics"
    stale = Reactive().decide(situation_of(steady(0.9), now_s=420.0))
    assert stale.reason.code == "no-metrics"


def test_coarse_reports_speak_until_the_next_one() -> None:
    history = [report(time_s=60.0 * n, window_s=60.0, executors=12, cpu_share=0.52) for n in range(1, 10)]
    assert wanted(Reactive().decide(situation_of(history, now_s=590.0))) == 18


def test_the_space_bounds_and_rounds_up() -> None:
    steps = space_of(executors=(4, 8, 12, 16, 24))
    assert wanted(Reactive().decide(situation_of(steady(0.45), space=steps))) == 16  # 15.4 -> 16
    assert wanted(Reactive().decide(situation_of(steady(0.52), space=steps))) == 24  # 17.8 -> 18 -> 24
    full = Reactive().decide(situation_of(steady(0.9, executors=24), space=steps))
    assert full.reason.code == "at-limit"
    low = Reactive().decide(situation_of(steady(0.01, executors=4), space=steps))
    assert low.reason.code == "at-limit"


@given(executors=st.integers(1, 24), low=st.floats(0.0, 1.0), high=st.floats(0.0, 1.0), observed=st.integers(1, 24))
def test_more_cpu_never_asks_for_fewer_executors(executors: int, low: float, high: float, observed: int) -> None:
    low, high = sorted((low, high))
    counts = []
    for cpu in (low, high):
        # A minute of reports is a whole window here.
        situation = situation_of(
            steady(cpu, executors=executors, seconds=60), observed=Configuration(executors=observed)
        )
        decision = Reactive(scale_down_stabilisation_s=30.0).decide(situation)
        counts.append(wanted(decision) or observed)
    assert counts[0] <= counts[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"target_cpu": 0.0},
        {"target_cpu": 1.5},
        {"target_cpu": float("nan")},
        {"tolerance": -0.1},
        {"metric_window_s": 0.0},
        {"scale_down_stabilisation_s": float("inf")},
        {"scale_up_max_executors": 0},
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        Reactive(**settings)  # type: ignore[arg-type]  # wrong on purpose


def test_it_says_what_a_space_lacks() -> None:
    assert Reactive().requires(space_of()) is None
    assert "reactive changes executors, and the space offers 4 only" in str(
        Reactive().requires(space_of(executors=[4]))
    )
