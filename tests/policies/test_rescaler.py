"""Rescaler: violations, the slowest operators, nodes and rest, each worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import (
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    Decision,
    InvalidValueError,
    JobStatus,
    Mechanism,
    Observation,
    OperatorKind,
    OperatorReport,
    Policy,
    Reconfigure,
    Situation,
)
from tidewise.policies.registry import make_policy
from tidewise.policies.rescaler import Rescaler
from tidewise.testing import PolicyConformance
from tidewise.testing.situations import report, situation_of, stories

SPACE = ConfigurationSpace(
    executors=tuple(range(1, 25)),
    slots_per_executor=(1, 2, 3, 4),
    changes=(ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=45.0),),
)


class TestRescaler(PolicyConformance):
    def make_policy(self) -> Policy:
        return Rescaler()


class TestRescalerInAHurry(PolicyConformance):
    def make_policy(self) -> Policy:
        return Rescaler(look_every_s=1.0, latency_limit_s=0.0, violations=1, rest_s=0.0, mechanism=Mechanism.REDEPLOY)


def operator(
    name: str = "views",
    *,
    kind: OperatorKind = OperatorKind.CONTINUOUS,
    rate: float = 1000.0,
    throughput: float | None = 250.0,
    latency_s: float | None = 1.0,
) -> OperatorReport:
    return OperatorReport(
        name=name,
        kind=kind,
        channels=4,
        input_rate_per_s=rate,
        throughput_per_channel_per_s=throughput,
        latency_s=latency_s,
    )


def looks(
    latencies_s: Sequence[float | None],
    *operators: OperatorReport,
    start_s: float = 0.0,
    cpu: float | None = 0.1,
    memory: float | None = 0.1,
    state_mib: float | None = 100.0,
    arrives: float = 1000.0,
    processed: float = 1000.0,
    configuration: Configuration | None = None,
) -> list[Observation]:
    """A look of two minutes for each latency, in reports of 30 s."""
    return [
        replace(
            report(
                time_s=start_s + 120.0 * number + 30.0 * quarter,
                window_s=30.0,
                latency_s=latency_s,
                cpu_share=cpu,
                rate_per_s=arrives,
                processed_per_s=processed,
            ),
            configuration=Configuration(executors=4) if configuration is None else configuration,
            memory_share=memory,
            state_mib=state_mib,
            operators=operators,
        )
        for number, latency_s in enumerate(latencies_s)
        for quarter in range(1, 5)
    ]


def decided(
    history: Sequence[Observation],
    *,
    policy: Rescaler | None = None,
    space: ConfigurationSpace = SPACE,
    changed_at_s: float | None = None,
) -> Decision:
    rescaler = Rescaler() if policy is None else policy
    for observation in history:
        rescaler.learn(observation)
    recent = [seen for seen in history if seen.time_s > history[-1].time_s - rescaler.history_s]
    return rescaler.decide(situation_of(recent, space=space, last_change_finished_at_s=changed_at_s))


def wanted(decision: Decision) -> tuple[int, int] | None:
    if not isinstance(decision, Reconfigure):
        return None
    return decision.target.executors, decision.target.slots_per_executor


RISING = [1.0, 1.1, 1.2, 1.3]
"""Three violations: the first look has none before it."""


def test_three_looks_with_a_high_and_rising_latency_are_acted_upon() -> None:
    window = operator(kind=OperatorKind.WINDOW)
    assert wanted(decided(looks(RISING, window))) == (4, 2)
    assert decided(looks(RISING[:3], window)).reason.code == "few-violations"


@pytest.mark.parametrize(
    "latencies_s",
    [
        [0.1, 0.2, 0.3, 0.4, 0.5],  # rising, but below the limit
        [5.0, 5.0, 5.0, 5.0, 5.0],  # high, but not rising
        [9.0, 8.0, 7.0, 6.0, 5.0],
        [1.0, 1.1, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1],  # each violation is taken away again
    ],
)
def test_anything_else_takes_a_violation_away(latencies_s: list[float]) -> None:
    assert decided(looks(latencies_s, operator(kind=OperatorKind.WINDOW))).reason.code == "few-violations"


def test_a_violation_taken_away_leaves_the_others() -> None:
    window = operator(kind=OperatorKind.WINDOW)
    assert wanted(decided(looks([1.0, 1.1, 1.2, 1.1, 1.2], window))) is None
    assert wanted(decided(looks([1.0, 1.1, 1.2, 1.1, 1.2, 1.3], window))) == (4, 2)


def test_a_running_job_without_the_output_that_was_due_violates() -> None:
    window = operator(kind=OperatorKind.WINDOW)
    assert wanted(decided(looks([1.0, None, None, None], window))) == (4, 2)
    assert decided(looks([1.0, None, None], window)).reason.code == "few-violations"
    # One report of a look tells enough.
    partly = [*looks([1.0, None, None, None], window)[:-1], looks([1.0, None, None, 0.5], window)[-1]]
    assert decided(partly).reason.code == "few-violations"


def test_a_job_that_is_down_or_idle_owes_no_output() -> None:
    window = operator(kind=OperatorKind.WINDOW)
    idle = looks([1.0, None, None, None], window, arrives=0.0, processed=0.0)
    assert decided(idle).reason.code == "few-violations"
    failed = [
        seen if seen.latency_p50_s is not None else replace(seen, status=JobStatus.DOWN)
        for seen in looks([1.0, 1.1, None, None, 1.2], window)
    ]
    assert decided(failed).reason.evidence["violations"] == 2


def test_a_continuous_operator_gets_its_input_rate_over_its_throughput() -> None:
    # It works on 1,000/s with 250/s a channel, and 2,000/s arrive: eight channels instead of four.
    views = operator(rate=1000.0, throughput=250.0)
    decision = decided(looks(RISING, views, arrives=2000.0, processed=1000.0))
    assert wanted(decision) == (4, 2)
    assert decision.reason.evidence["slots_wanted"] == 8
    # One more record, and eight are not enough: nine slots are three for each of four executors.
    assert wanted(decided(looks(RISING, views, arrives=2001.0, processed=1000.0))) == (4, 3)


def test_a_continuous_operator_that_keeps_up_gets_nothing() -> None:
    assert decided(looks(RISING, operator())).reason.code == "enough"
    idle = operator(rate=0.0, throughput=None)
    assert decided(looks(RISING, idle, arrives=2000.0)).reason.code == "enough"


@pytest.mark.parametrize("kind", [OperatorKind.WINDOW, OperatorKind.JOIN])
def test_windows_and_joins_get_two_more(kind: OperatorKind) -> None:
    assert decided(looks(RISING, operator(kind=kind))).reason.evidence["slots_wanted"] == 6


def test_only_the_slowest_operators_are_acted_upon() -> None:
    stateful = [
        operator(str(number), kind=OperatorKind.WINDOW, latency_s=None if number == 0 else float(number))
        for number in range(6)
    ]
    decision = decided(looks(RISING, *stateful))
    assert decision.reason.evidence["slots_wanted"] == 4 + 3 * 2
    assert "(5, 4, 3)" in decision.reason.sentence
    one = decided(looks(RISING, *stateful), policy=Rescaler(slowest=1))
    assert one.reason.evidence["slots_wanted"] == 6


def test_the_parallelism_has_a_limit() -> None:
    views = operator(rate=1000.0, throughput=250.0)
    flood = looks(RISING, views, arrives=1e9, processed=1000.0)
    assert decided(flood).reason.evidence["slots_wanted"] == 128
    assert wanted(decided(flood)) == (4, 4)
    # What runs is more than the limit: it stays.
    assert decided(flood, policy=Rescaler(max_parallelism=2)).reason.code == "enough"


@pytest.mark.parametrize(
    ("cpu", "memory", "state_mib", "node"),
    [
        (0.5, 0.5, 100.0, False),  # 0.5 is not above 0.5
        (0.8, 0.3, 100.0, True),  # 0.55, and the state is moved at once
        (0.8, 0.3, 10_700.0, True),  # 2 x 10,700 MiB at 125 MB/s: 179.5 s
        (0.8, 0.3, 10_800.0, False),  # 181.2 s
        (0.8, 0.3, None, False),  # nobody knows how long
        (0.8, 0.6, 1e6, True),  # 0.7, whatever the downtime
        (0.9, None, 1e6, True),
        (None, None, 1.0, False),
    ],
)
def test_a_node_comes_with_the_load_of_the_cluster(
    cpu: float | None, memory: float | None, state_mib: float | None, node: bool
) -> None:
    decision = decided(looks(RISING, operator(), cpu=cpu, memory=memory, state_mib=state_mib))
    assert wanted(decision) == ((5, 1) if node else None)


def test_with_a_node_the_slots_are_spread_over_all() -> None:
    window = operator(kind=OperatorKind.WINDOW)
    assert wanted(decided(looks(RISING, window, cpu=0.9, memory=0.9))) == (5, 2)
    only_nodes = ConfigurationSpace(executors=(4, 8), changes=SPACE.changes)
    assert wanted(decided(looks(RISING, window, cpu=0.9, memory=0.9), space=only_nodes)) == (8, 1)


def test_it_rests_after_a_change_and_counts_anew() -> None:
    window = operator(kind=OperatorKind.WINDOW)
    latencies = [1.0 + 0.1 * number for number in range(12)]
    history = looks(latencies, window)  # looks at 120, 240, ... 1,440 s
    assert decided(history[:48], changed_at_s=721.0).reason.code == "cooling-down"
    # A change that ended at 360 s: rest until 1,080 s, then the looks at 1,200, 1,320 and 1,440 s.
    assert decided(history[:44], changed_at_s=360.0).reason.code == "few-violations"
    assert wanted(decided(history[:48], changed_at_s=360.0)) == (4, 2)


def test_without_operators_it_keeps_and_says_so() -> None:
    decision = decided(looks(RISING, cpu=0.9, memory=0.9))
    assert decision.reason.code == "no-operators"
    assert "do not tell the job's operators apart" in decision.reason.sentence


def test_at_the_end_of_the_space_it_says_so() -> None:
    full = Configuration(executors=24, slots_per_executor=4)
    history = looks(RISING, operator(kind=OperatorKind.WINDOW), cpu=0.9, memory=0.9, configuration=full)
    assert decided(history).reason.code == "at-limit"


def test_what_it_requires_is_told_beforehand() -> None:
    policy = Rescaler()
    assert policy.requires(SPACE) is None
    assert policy.requires(ConfigurationSpace(executors=(1, 2), changes=SPACE.changes)) is None
    assert policy.requires(ConfigurationSpace(executors=(2,), slots_per_executor=(1, 2), changes=SPACE.changes)) is None
    lacking = policy.requires(ConfigurationSpace(executors=(2,), changes=SPACE.changes))
    assert lacking is not None
    assert "slots_per_executor" in lacking


def test_it_is_made_by_name() -> None:
    made = make_policy("rescaler", {"look_every": "1min", "bandwidth_mb_per_s": 500, "mechanism": "redeploy"})
    assert made == Rescaler(look_every_s=60.0, bandwidth_mb_per_s=500.0, mechanism=Mechanism.REDEPLOY)


@pytest.mark.parametrize(
    ("settings_given", "says"),
    [
        ({"look_every_s": 0.0}, "look_every"),
        ({"violations": 0}, "violations must be at least 1"),
        ({"full_load": 1.5}, "full_load must be between 0 and 1"),
        ({"stateful_step": -1}, "stateful_step"),
        ({"bandwidth_mb_per_s": 0.0}, "bandwidth"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings_given: dict[str, float], says: str) -> None:
    with pytest.raises(InvalidValueError, match=says):
        Rescaler(**settings_given)  # type: ignore[arg-type]  # numbers of either kind


@given(
    situation=stories(),
    operators=st.lists(
        st.builds(
            operator,
            name=st.sampled_from("abcde"),
            kind=st.sampled_from(OperatorKind),
            rate=st.sampled_from((0.0, 5e-324, 1.0, 1e12)),
            throughput=st.sampled_from((None, 5e-324, 1.0, 1e12)),
            latency_s=st.none() | st.floats(0.0, 1e5),
        ),
        max_size=5,
    ),
)
@settings(max_examples=60, deadline=None)
def test_it_never_takes_anything_away(situation: Situation, operators: list[OperatorReport]) -> None:
    history = [replace(seen, operators=tuple(operators)) for seen in situation.history]
    situation = replace(situation, history=history)
    policy = Rescaler(look_every_s=1.0, latency_limit_s=0.0, violations=1, rest_s=60.0)
    for observation in history:
        policy.learn(observation)
    decision = policy.decide(situation)
    if isinstance(decision, Reconfigure):
        assert decision.target.executors >= situation.intended.executors
        assert decision.target.slots_per_executor >= situation.intended.slots_per_executor
        if situation.intended in situation.space:
            assert decision.target in situation.space
        changed_s = situation.last_change_finished_at_s
        assert changed_s is None or situation.now_s - changed_s >= 60.0
