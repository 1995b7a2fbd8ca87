"""TidalScale: the meter, the predictions, the triggers and the target rate, each worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import (
    BadInputError,
    Configuration,
    Decision,
    InvalidValueError,
    JobStatus,
    Mechanism,
    Observation,
    Policy,
    Reconfigure,
    Situation,
)
from tidewise.policies.registry import make_policy
from tidewise.policies.tidalscale import TidalScale
from tidewise.testing import PolicyConformance
from tidewise.testing.situations import report, situation_of, space_of, stories


class TestTidalScale(PolicyConformance):
    def make_policy(self) -> Policy:
        return TidalScale()


class TestTidalScaleOnACompressedDay(PolicyConformance):
    def make_policy(self) -> Policy:
        return TidalScale(
            season_s=1200.0,
            short_window_s=90.0,
            horizon_s=30.0,
            cooldown_s=0.0,
            lag_s=5.0,
            least_cpu=0.0,
            mechanism=Mechanism.REDEPLOY,
        )


def seen(
    rates: Iterable[float],
    *,
    executors: int = 10,
    cpu: float | None = 0.6,
    lag: float = 0.0,
    memory: float | None = 0.5,
    start_s: float = 0.0,
    window_s: float = 60.0,
    status: JobStatus = JobStatus.RUNNING,
) -> list[Observation]:
    """A report a minute for each rate."""
    return [
        replace(
            report(
                time_s=start_s + window_s * (number + 1),
                window_s=window_s,
                executors=executors,
                rate_per_s=rate,
                backlog=lag,
                cpu_share=cpu,
                status=status,
            ),
            memory_share=memory,
        )
        for number, rate in enumerate(rates)
    ]


def decided(
    history: Sequence[Observation],
    *,
    policy: TidalScale | None = None,
    executors: Iterable[int] = range(1, 25),
    changed_at_s: float | None = None,
) -> Decision:
    made = TidalScale() if policy is None else policy
    for observation in history:
        made.learn(observation)
    return made.decide(
        situation_of(history[-1:], space=space_of(executors=executors), last_change_finished_at_s=changed_at_s)
    )


def wanted(decision: Decision) -> int | None:
    return decision.target.executors if isinstance(decision, Reconfigure) else None


STEADY = seen([1000.0] * 10)
"""Ten executors bear 1,000/s at a CPU of 0.6: a hundred each."""


def then(**report_of: object) -> list[Observation]:
    """The steady minutes, and one more that differs."""
    return STEADY + seen([1000.0], start_s=600.0, **report_of)  # type: ignore[arg-type]  # whatever `seen` takes


# Triggers ---------------------------------------------------------------------------------------------------------


def test_within_all_bounds_nothing_is_done() -> None:
    assert decided(STEADY).reason.code == "well-utilised"
    at_the_bounds = then(cpu=0.8, memory=0.9, lag=1000.0)
    assert decided(at_the_bounds).reason.code == "well-utilised"
    assert decided(then(cpu=0.4)).reason.code == "well-utilised"


@pytest.mark.parametrize(
    ("report_of", "says"),
    [
        ({"memory": 0.91}, "Memory is used to 91 %"),
        ({"cpu": 0.81}, "CPU is used to 81 %"),
        ({"lag": 1001.0}, "1001 records wait"),
    ],
)
def test_too_much_of_anything_is_overutilised(report_of: dict[str, float], says: str) -> None:
    decision = decided(then(**report_of))
    assert decision.reason.code in ("scale-up", "other-direction")
    assert says in decision.reason.sentence


def test_a_lag_that_rises_ten_times_in_a_row_is_overutilised() -> None:
    lags = [report_of for number in range(11) for report_of in seen([1000.0], lag=10.0 * number, start_s=60.0 * number)]
    assert decided(lags[:10]).reason.code == "well-utilised"
    assert "risen 10 times in a row" in decided(lags).reason.sentence
    level = [*lags[:6], *seen([1000.0], lag=50.0, start_s=360.0), *lags[7:]]
    assert decided(level).reason.code == "well-utilised"
    down = [*lags[:6], *seen([1000.0], lag=60.0, start_s=360.0, status=JobStatus.DOWN), *lags[7:]]
    assert decided(down).reason.code == "well-utilised"


def test_a_low_cpu_is_underutilised_only_if_the_rest_is_fine() -> None:
    low = then(cpu=0.39)
    assert "CPU is used to 39 % only" in decided(low).reason.sentence
    assert "records wait" in decided(then(cpu=0.39, lag=1001.0)).reason.sentence
    assert "Memory" in decided(then(cpu=0.39, memory=0.95)).reason.sentence


def test_what_is_not_reported_triggers_nothing() -> None:
    assert decided(then(memory=None)).reason.code == "well-utilised"
    # Nobody knows whether CPU is within its bounds: to say so would be a lie.
    unknown = decided(then(cpu=None, memory=None))
    assert unknown.reason.code == "no-metrics"
    assert "does not tell CPU" in unknown.reason.sentence
    assert decided(then(cpu=None, lag=90_000.0)).reason.code == "scale-up"


def test_nothing_is_done_within_the_cooldown() -> None:
    busy = then(cpu=0.9, lag=1e6)
    assert decided(busy, changed_at_s=481.0).reason.code == "cooling-down"
    assert isinstance(decided(busy, changed_at_s=480.0), Reconfigure)


# The target rate --------------------------------------------------------------------------------------------------


def test_the_lag_is_to_be_worked_off_within_the_horizon() -> None:
    # 1,000/s go on, and 90,000 wait: 1,000 + 90,000 / 180 = 1,500/s, fifteen executors.
    decision = decided(then(lag=90_000.0))
    assert wanted(decision) == 15
    assert decision.reason.evidence["target_per_s"] == pytest.approx(1500.0)


def test_half_of_what_is_predicted_counts() -> None:
    # A line that rises by 20/s a minute, read three minutes ahead; it is always right, and so Holt-Winters has no say.
    history = seen([1000.0 + 20.0 * minute for minute in range(30)])
    history += seen([1600.0], cpu=0.85, start_s=1800.0)
    evidence = decided(history).reason.evidence
    assert evidence["predicted_short_per_s"] == pytest.approx(1660.0)
    assert evidence["weight_short"] == pytest.approx(1.0, abs=1e-6)
    assert evidence["target_per_s"] == pytest.approx((1660.0 + 1600.0) / 2, rel=1e-3)


def test_the_line_goes_through_540_seconds() -> None:
    flat_then_rising = [500.0] * 20 + [1000.0 + 10.0 * minute for minute in range(9)]
    decision = decided(seen(flat_then_rising[:-1]) + seen(flat_then_rising[-1:], cpu=0.85, start_s=60.0 * 28))
    assert decision.reason.evidence["predicted_short_per_s"] == pytest.approx(1110.0)


def test_before_anything_can_be_predicted_the_present_goes_on() -> None:
    decision = decided(seen([1000.0], cpu=0.9))
    assert decision.reason.evidence["predicted_short_per_s"] is None
    assert decision.reason.evidence["target_per_s"] == pytest.approx(1000.0)


def test_the_better_prediction_weighs_more() -> None:
    # Teeth of a saw, a day in miniature: the season foresees the fall that no line can.
    day = [1000.0 + 1000.0 * (place % 36) / 36 for place in range(288)]
    history = seen(day * 4, window_s=10.0)
    policy = TidalScale(season_s=2880.0, short_window_s=90.0, horizon_s=30.0)
    before_the_fall = decided([*history[:-1], replace(history[-1], cpu_share=0.9)], policy=policy).reason.evidence
    assert before_the_fall["predicted_short_per_s"] == pytest.approx(2000.0 + 2 * 1000.0 / 36, rel=0.01)
    assert float(before_the_fall["predicted_long_per_s"] or 0.0) < 1400.0
    after = seen(day[:3], window_s=10.0, start_s=history[-1].time_s, cpu=0.9)
    weight_after = decided(history + after, policy=TidalScale(season_s=2880.0, short_window_s=90.0, horizon_s=30.0))
    assert float(before_the_fall["weight_short"] or 0.0) > 0.6
    assert float(weight_after.reason.evidence["weight_short"] or 0.0) < 0.4


@pytest.mark.parametrize("short_window_s", [90.0, 900.0])
def test_predictions_are_judged_alike_before_and_after_a_crash(short_window_s: float) -> None:
    # Just after the oldest samples were dropped, those before the moments that are judged have to be there still. The
    # first half is of another size, so that two samples more or fewer of it are seen.
    rates = [100.0 + 900.0 * (place % 7) * (1 if place < 1300 else 2) for place in range(2500)]
    policy = TidalScale(season_s=2880.0, short_window_s=short_window_s, horizon_s=30.0)
    history = seen(rates, window_s=10.0, cpu=0.9)
    for number, observation in enumerate(history, start=1):
        policy.learn(observation)
        if number < 2290:
            continue
        decision = policy.decide(situation_of([observation]))
        if number in (2306, 2312, 2400, 2450, 2500):
            assert decided(history[:number], policy=replace(policy)) == decision


# The table --------------------------------------------------------------------------------------------------------


def test_the_table_is_interpolated_between_executors() -> None:
    # 400/s with 4 and 1,000/s with 10 were coped with at 0.6, and 700/s lie in the middle.
    history = seen([400.0] * 5, executors=4) + seen([1000.0] * 5, start_s=300.0)
    history += seen([700.0] * 60, cpu=0.3, start_s=600.0)
    assert wanted(decided(history)) == 7


def test_the_table_is_continued_in_proportion() -> None:
    assert wanted(decided(then(lag=180_000.0))) == 20
    history = STEADY + seen([200.0] * 12, cpu=0.12, start_s=600.0)
    assert wanted(decided(history)) == 2


def test_the_table_is_read_at_the_target_cpu() -> None:
    # 500/s at 0.4 and 900/s at 0.8 make 700/s at 0.6 for ten executors.
    history = seen([500.0] * 5, cpu=0.4) + seen([900.0] * 5, cpu=0.8, start_s=300.0)
    history += seen([900.0] * 12, cpu=0.85, start_s=600.0)
    assert decided(history).reason.evidence["asked_for"] == 13
    only_high = seen([900.0] * 5, cpu=0.8) + seen([900.0] * 12, cpu=0.85, start_s=300.0)
    assert decided(only_high).reason.evidence["asked_for"] == 14  # 675/s at 0.6


def test_a_row_is_an_exponential_average() -> None:
    # 1,000 and then once 2,000: 1,200/s for ten executors. The lag makes the target rate 2,400/s.
    history = STEADY + seen([2000.0], start_s=600.0)
    history += seen([1000.0] * 60, lag=1400 * 180.0, start_s=660.0)
    decision = decided(history)
    assert decision.reason.evidence["asked_for"] == 20


@pytest.mark.parametrize(
    "not_coping",
    [{"cpu": 0.19}, {"cpu": 0.81}, {"memory": 0.95}, {"lag": 9000.0}, {"status": JobStatus.DOWN}, {"cpu": None}],
)
def test_only_what_is_coped_with_enters_the_table(not_coping: dict[str, float]) -> None:
    history = STEADY + seen([9000.0] * 3, start_s=600.0, **not_coping)  # type: ignore[arg-type]  # whatever `seen` takes
    history += seen([1000.0] * 12, lag=90_000.0, start_s=780.0)
    evidence = decided(history).reason.evidence
    assert (evidence["rows"], evidence["asked_for"]) == (1, 15)


def test_while_the_table_is_empty_the_report_at_hand_stands_in() -> None:
    # 1,000/s are processed at a CPU of 0.1 by ten: at 0.6 they would bear 6,000/s.
    assert wanted(decided(seen([1000.0] * 10, cpu=0.1))) == 2
    assert decided(seen([1000.0] * 10, cpu=None, lag=1e6)).reason.code == "no-table"


def test_a_change_of_anything_else_empties_the_table() -> None:
    wide = Configuration(executors=10, slots_per_executor=2)
    history = [*STEADY, *(replace(one, configuration=wide) for one in seen([1000.0], lag=5000.0, start_s=600.0))]
    assert decided(history).reason.evidence["rows"] == 0


def test_a_load_that_was_coped_with_before_counts_until_a_report_says_more() -> None:
    policy = TidalScale()
    policy.remember(Configuration(executors=4), cpu_share=0.6, load_per_s=800.0)
    policy.remember(Configuration(executors=4), cpu_share=0.6, load_per_s=9000.0)  # an older one
    policy.remember(Configuration(executors=5), cpu_share=0.9, load_per_s=9000.0)  # not coped with
    policy.remember(Configuration(executors=6, slots_per_executor=2), cpu_share=0.6, load_per_s=9000.0)
    # 200/s by each: with a lag that makes it 1,000/s, five. The report at hand alone would say otherwise.
    history = seen([500.0], executors=4, cpu=0.1, lag=500 * 180.0)
    decision = decided(history, policy=policy)
    assert (decision.reason.evidence["rows"], wanted(decision)) == (1, 5)
    another = [replace(one, configuration=Configuration(executors=4, slots_per_executor=2)) for one in history]
    assert decided(another, policy=policy).reason.evidence["rows"] == 0


def test_its_meter_goes_on_where_it_was_saved() -> None:
    lags = [report_of for number in range(9) for report_of in seen([1000.0], lag=10.0 * number, start_s=60.0 * number)]
    policy, again = TidalScale(), TidalScale()
    for observation in lags:
        policy.learn(observation)
    again.load(json.loads(json.dumps(policy.save())))
    more = [report_of for number in (9, 10) for report_of in seen([1000.0], lag=10.0 * number, start_s=60.0 * number)]
    decision = decided(more, policy=again)
    assert "risen 10 times in a row" in decision.reason.sentence
    assert decision.reason.evidence["rows"] == 1
    with pytest.raises(BadInputError, match="format 0"):
        again.load({**policy.save(), "format": 0})
    with pytest.raises(BadInputError, match="damaged"):
        again.load({**policy.save(), "table": [[1]]})


# Acting -----------------------------------------------------------------------------------------------------------


def test_it_acts_only_in_the_direction_that_was_triggered() -> None:
    # CPU is too high, but the table says that half of the executors would do.
    high = STEADY + seen([500.0] * 12, cpu=0.9, start_s=600.0)
    assert decided(high).reason.code == "other-direction"
    low = STEADY + seen([2000.0] * 12, cpu=0.1, start_s=600.0)
    assert decided(low).reason.code == "other-direction"


def test_it_stays_within_the_space() -> None:
    assert wanted(decided(then(lag=1e9))) == 24
    assert wanted(decided(STEADY + seen([10.0] * 12, cpu=0.05, start_s=600.0), executors=(3, 10))) == 3
    # Eleven are enough, and fifteen are what there is.
    assert wanted(decided(then(cpu=0.9, lag=18_000.0), executors=(5, 10, 15))) == 15


def test_it_names_the_mechanism_it_was_given() -> None:
    decision = decided(then(lag=90_000.0), policy=TidalScale(mechanism=Mechanism.REDEPLOY))
    assert isinstance(decision, Reconfigure)
    assert decision.mechanism is Mechanism.REDEPLOY


def test_it_says_what_a_space_lacks() -> None:
    assert TidalScale().requires(space_of()) is None
    assert "tidalscale changes executors" in str(TidalScale().requires(space_of(executors=[4])))


def test_it_is_made_by_name() -> None:
    made = make_policy("tidalscale", {"cooldown": "5min", "lag": "3s", "season": "12h"})
    assert made == TidalScale(cooldown_s=300.0, lag_s=3.0, season_s=43_200.0)


@pytest.mark.parametrize(
    ("given_settings", "says"),
    [
        ({"max_cpu": 0.0}, "max_cpu must be above 0"),
        ({"least_cpu": 0.9}, "least_cpu must be at least 0 and below max_cpu"),
        ({"low_cpu": 0.9}, "low_cpu must be below max_cpu"),
        ({"lag_rises": 0}, "lag_rises must be at least 1"),
        ({"table_smoothing": 1.5}, "table_smoothing"),
        ({"horizon_s": 3600.0}, "horizon must be at most 1800 s"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given_settings: dict[str, float], says: str) -> None:
    with pytest.raises(InvalidValueError, match=says):
        TidalScale(**given_settings)  # type: ignore[arg-type]  # numbers of either kind


@given(situation=stories())
@settings(max_examples=80, deadline=None)
def test_it_never_leaves_the_space_nor_breaks_its_cooldown(situation: Situation) -> None:
    policy = TidalScale(cooldown_s=60.0)
    for observation in situation.history:
        policy.learn(observation)
    decision = policy.decide(situation)
    if isinstance(decision, Reconfigure):
        assert decision.target.executors in situation.space.executors
        assert decision.target == situation.intended.with_executors(decision.target.executors)
        changed_s = situation.last_change_finished_at_s
        assert changed_s is None or situation.now_s - changed_s >= 60.0


@given(rates=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60), lag=st.floats(0.0, 1e9))
@settings(max_examples=60, deadline=None)
def test_more_lag_never_asks_for_fewer(rates: list[float], lag: float) -> None:
    def asked(extra: float) -> int:
        history = STEADY + seen(rates, start_s=600.0, cpu=0.9, lag=lag + extra)
        evidence = decided(history, executors=range(1, 500)).reason.evidence
        return int(evidence["asked_for"])  # type: ignore[arg-type]  # a number

    assert asked(0.0) <= asked(1e6)
