"""Ds2: each number worked out by hand from the formula for the needed capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import Configuration, Decision, InvalidValueError, JobStatus, Observation, Reconfigure
from tidewise.policies import Ds2
from tidewise.testing.situations import report, situation_of, space_of

SHORT = Ds2(
    metric_window_s=60.0,
    stabilisation_s=120.0,
    catch_up_s=300.0,
    restart_s=60.0,
    scale_down_interval_s=600.0,
)
"""The operator's targets on a shorter scale."""


def steady(
    busy: float | None,
    *,
    rate: float = 1000.0,
    executors: int = 10,
    minutes: int = 15,
    start_s: float = 0.0,
    backlog: float = 0.0,
    processed: float | None = None,
) -> list[Observation]:
    return [
        report(
            time_s=start_s + 10.0 * (number + 1),
            window_s=10.0,
            executors=executors,
            busy_share=busy,
            rate_per_s=rate,
            processed_per_s=processed,
            backlog=backlog,
        )
        for number in range(6 * minutes)
    ]


def wanted(decision: Decision) -> int | None:
    return decision.target.executors if isinstance(decision, Reconfigure) else None


def test_a_saturated_job_gets_what_the_formula_says() -> None:
    # True rate 900 / 1.0 = 900. Needed: 30000 / 300 + 1000 x 60 / 300 + 1000 / 0.7 = 100 + 200 + 1428.6 = 1728.6.
    # 10 x 1728.6 / 900 = 19.2
    decision = SHORT.decide(situation_of(steady(1.0, processed=900.0, backlog=30_000.0)))
    assert wanted(decision) == 20
    assert decision.reason.code == "scale-up"
    assert decision.reason.evidence["true_rate_per_s"] == pytest.approx(900.0)
    assert decision.reason.evidence["needed_per_s"] == pytest.approx(1728.571, abs=0.01)
    assert "asks for 20 executors instead of 10" in decision.reason.sentence


def test_executors_that_are_being_replaced_are_not_asked_for_again() -> None:
    # True rate 900 on 10 executors where 1628.6 is needed (and 100 for the lag): 20 of them, as above.
    history = steady(1.0, processed=900.0, backlog=30_000.0)
    for intended, asked in ((10, 20), (12, 20), (20, None)):
        short = situation_of(history, intended=Configuration(executors=intended))
        assert wanted(SHORT.decide(short)) == asked
    assert SHORT.decide(short).reason.code == "already-there"


def test_the_true_rate_is_a_ratio_of_means() -> None:
    # Half of the window 500/s at 0.4, half 1500/s at 0.6: 2000 / 1.0 = 2000, where the mean of ratios is 1875.
    history = steady(0.4, rate=500.0) + steady(0.6, rate=1500.0, minutes=0)
    for number, seen in enumerate(history):
        if number % 2:
            history[number] = replace(seen, busy_share=0.6, input_rate_per_s=1500.0, processed_rate_per_s=1500.0)
    assert SHORT.decide(situation_of(history)).reason.evidence["true_rate_per_s"] == pytest.approx(2000.0)


@pytest.mark.parametrize("busy", [0.39, 0.5, 0.7, 0.99])
def test_within_the_band_nothing_is_done(busy: float) -> None:
    # With 0.7 +/- 0.3 the true rate may be from 1000 / 1.0 to 200 + 1000 / 0.4 = 2700, which is busy 0.37.
    assert SHORT.decide(situation_of(steady(busy))).reason.code == "within-band"


def test_below_the_band_executors_are_taken_away() -> None:
    # Busy 0.36: 2777.8. Needed 1628.6, so 10 x 1628.6 / 2777.8 = 5.9.
    assert wanted(SHORT.decide(situation_of(steady(0.36)))) == 6


def test_a_backlog_alone_asks_for_more() -> None:
    # True rate 1250, at 10 executors. Up below 90000 / 300 + 1000 / 1.0 = 1300.
    # Needed 300 + 200 + 1428.6 = 1928.6: 10 x 1928.6 / 1250 = 15.4
    assert wanted(SHORT.decide(situation_of(steady(0.8, backlog=90_000.0)))) == 16


def test_the_settings_of_demeters_baseline() -> None:
    # 0.35 +/- 0.15: up below 1000 / 0.5 = 2000. Busy 0.55: 1818.2. Needed 200 + 1000 / 0.35 = 3057.1: 16.8.
    policy = Ds2.as_in_demeter()
    assert wanted(policy.decide(situation_of(steady(0.55)))) == 17
    assert policy.decide(situation_of(steady(0.49))).reason.code == "within-band"


def test_one_step_down_takes_at_most_sixty_per_cent() -> None:
    assert wanted(SHORT.decide(situation_of(steady(0.01)))) == 4
    assert wanted(replace(SHORT, max_scale_down_share=1.0).decide(situation_of(steady(0.01)))) == 1


def test_an_idle_job_shrinks_though_its_true_rate_is_unknown() -> None:
    decision = SHORT.decide(situation_of(steady(0.0, rate=0.0)))
    assert wanted(decision) == 4
    assert decision.reason.evidence["true_rate_per_s"] is None


def test_scaling_down_waits_for_its_interval() -> None:
    # Settled after 2 min, a full window after 3: at 12 min the recommendation is 9 of the 10 min old.
    waits = SHORT.decide(situation_of(steady(0.3, minutes=11)))
    assert waits.reason.code == "scale-down-waits"
    assert wanted(SHORT.decide(situation_of(steady(0.3, minutes=13)))) is not None
    busy_before = steady(0.8, minutes=10) + steady(0.3, minutes=6, start_s=600.0)
    assert SHORT.decide(situation_of(busy_before)).reason.code == "scale-down-waits"


def test_scaling_down_takes_the_largest_number_of_the_interval() -> None:
    # Busy 0.36 asks for 6 (see above), busy 0.2 for 10 x 1628.6 / 5000 = 3.3, kept above 4.
    history = steady(0.36, minutes=14) + steady(0.2, minutes=3, start_s=840.0)
    decision = SHORT.decide(situation_of(history))
    assert wanted(decision) == 6
    assert decision.reason.evidence["asked_for"] == 4


def test_nothing_is_decided_while_the_job_settles() -> None:
    overloaded = steady(1.0, processed=500.0, minutes=15)
    just_changed = situation_of(overloaded, last_change_finished_at_s=850.0)
    assert SHORT.decide(just_changed).reason.code == "stabilising"
    longer_ago = situation_of(overloaded, last_change_finished_at_s=750.0)
    assert SHORT.decide(longer_ago).reason.code == "collecting"
    settled = situation_of(overloaded, last_change_finished_at_s=700.0)
    assert SHORT.decide(settled).reason.code == "scale-up"


def test_a_failure_and_the_start_have_to_settle_too() -> None:
    history = steady(1.0, processed=500.0)
    failed = [*history[:-5], replace(history[-5], status=JobStatus.DOWN), *history[-4:]]
    assert SHORT.decide(situation_of(failed)).reason.code == "stabilising"
    assert SHORT.decide(situation_of(steady(1.0, processed=500.0, minutes=1))).reason.code == "stabilising"


def test_without_the_busy_share_nothing_is_decided() -> None:
    assert SHORT.decide(situation_of(steady(None))).reason.code == "no-metrics"


def test_an_ineffective_scale_up_is_told_and_not_repeated() -> None:
    # From 5 to 10 executors 500/s were expected on top of 500/s; 520/s came.
    before = steady(1.0, executors=5, processed=500.0)
    after = steady(1.0, executors=10, processed=520.0, start_s=900.0)
    decision = SHORT.decide(situation_of(before + after, last_change_finished_at_s=905.0))
    assert decision.reason.code == "scale-up-ineffective"
    assert decision.reason.evidence["gain_per_s"] == pytest.approx(20.0)
    assert decision.reason.evidence["expected_gain_per_s"] == pytest.approx(500.0)
    assert "from 5 to 10" in decision.reason.sentence


def test_an_effective_scale_up_may_be_repeated() -> None:
    before = steady(1.0, executors=5, processed=300.0)
    after = steady(1.0, executors=10, processed=540.0, start_s=900.0)
    assert SHORT.decide(situation_of(before + after)).reason.code == "scale-up"


def test_executors_that_come_one_by_one_do_not_hide_the_last_step() -> None:
    before = steady(1.0, executors=5, processed=500.0)
    ramp = [replace(seen, time_s=910.0 + n) for n, seen in enumerate(steady(1.0, executors=7, minutes=1)[:2])]
    after = steady(1.0, executors=10, processed=520.0, start_s=920.0)
    assert SHORT.decide(situation_of(before + ramp + after)).reason.code == "scale-up-ineffective"


def test_the_space_bounds_and_rounds_up() -> None:
    saturated = steady(1.0, processed=900.0, backlog=30_000.0)
    assert wanted(SHORT.decide(situation_of(saturated, space=space_of(executors=(5, 10, 24))))) == 24
    at_limit = SHORT.decide(situation_of(saturated, space=space_of(executors=(5, 10))))
    assert at_limit.reason.code == "at-limit"


def test_without_catch_up_backlogs_do_not_count() -> None:
    # Needed 1000 / 0.7 = 1428.6; true rate 900: 15.9
    decision = replace(SHORT, catch_up_s=0.0).decide(situation_of(steady(1.0, processed=900.0, backlog=1e9)))
    assert wanted(decision) == 16


@settings(max_examples=50)
@given(low=st.floats(1.0, 1e5), high=st.floats(1.0, 1e5), lag=st.floats(0.0, 1e6))
def test_more_load_never_asks_for_fewer_executors(low: float, high: float, lag: float) -> None:
    counts = []
    for rate in sorted((low, high)):
        # A job of 1000/s at most: busy in proportion, then saturated.
        history = steady(min(1.0, rate / 1000.0), rate=rate, processed=min(rate, 1000.0), backlog=lag)
        counts.append(wanted(SHORT.decide(situation_of(history))) or 10)
    assert counts[0] <= counts[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"target_utilisation": 0.0},
        {"utilisation_boundary": -0.1},
        {"metric_window_s": 0.0},
        {"max_scale_down_share": 0.0},
        {"catch_up_s": float("nan")},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        Ds2(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_it_says_what_a_space_lacks() -> None:
    assert Ds2().requires(space_of()) is None
    assert "ds2 changes executors, and the space offers 4 only" in str(Ds2().requires(space_of(executors=[4])))
