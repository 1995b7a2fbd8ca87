"""Hindsight finds what every configuration tried one by one would show, and refuses only what is impossible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidewise.core import BadInputError, Configuration, ConfigurationSpace, Prices, Promises
from tidewise.engines.simulator import SimulatorProfile, load_profile
from tidewise.experiments.fixed_run import run_fixed
from tidewise.experiments.hindsight import Hindsight, judge
from tidewise.experiments.measures import baseline_of, summarise
from tidewise.experiments.record import FaultRecord, RunRecord
from tidewise.workload import Rates

PAPER = load_profile("paper-cluster")
PRICES = Prices()


def coherent(coherence: float) -> SimulatorProfile:
    """A cluster on which more executors are slower at some point."""
    plain = PAPER.model_dump()
    plain["capacity"]["coherence"] = coherence
    return SimulatorProfile.model_validate(plain)


def hindsight(
    rates_per_s: Rates,
    promises: Promises,
    *,
    profile: SimulatorProfile = PAPER,
    most: int = 12,
    slots: tuple[int, ...] = (1,),
    memory_mib: tuple[int, ...] = (4096,),
    intervals_s: tuple[float, ...] = (10.0,),
    faults: tuple[FaultRecord, ...] = (),
) -> Hindsight:
    space = ConfigurationSpace(
        executors=tuple(range(1, most + 1)),
        slots_per_executor=slots,
        memory_mib_per_executor=memory_mib,
        commit_interval_s=intervals_s,
        changes=profile.changes,
    )
    return Hindsight(
        profile=profile, rates_per_s=rates_per_s, seed=1, faults=faults, space=space, promises=promises, prices=PRICES
    )


def executors(configuration: Configuration | None) -> int | None:
    return None if configuration is None else configuration.executors


def test_what_a_smaller_configuration_keeps_is_not_refused() -> None:
    # The largest has four slots to a core, which is slower than one.
    found = hindsight(np.full(1200, 55_000.0), Promises(latency_p95_s=3.0), most=8, slots=(1, 2, 4))
    assert not found.keeps(
        Configuration(executors=8, slots_per_executor=4, memory_mib_per_executor=4096, commit_interval_s=10.0)
    )
    found.refuse_the_impossible("steady")
    best = found.cheapest()
    assert best is not None
    assert (best.executors, best.slots_per_executor) == (7, 1)


def test_a_refusal_names_the_nearest_and_only_what_it_breaks() -> None:
    faults = (FaultRecord(at_s=300.0, kind="network-delay"),)
    rates = np.full(1200, 20_000.0)
    few = hindsight(rates, Promises(latency_p95_s=3.0, recovery_s=900.0), most=2, faults=faults)
    with pytest.raises(BadInputError) as told:
        few.refuse_the_impossible("l")
    assert "on the load 'l': the nearest that was found, 2 executors" in str(told.value)
    assert "instead of 95.0%" in str(told.value)
    fast = hindsight(rates, Promises(latency_p95_s=3.0, good_share=0.5, recovery_s=5.0), faults=faults)
    with pytest.raises(BadInputError, match=r"executors .*, takes up to .* to recover instead of 5 s; promise") as told:
        fast.refuse_the_impossible("l")
    assert "latency" not in str(told.value)


def test_more_executors_than_are_good_are_not_taken() -> None:
    # At its best with 16 executors, slower with more: 24 cannot do what fewer can.
    found = hindsight(
        np.full(1200, 0.992 * 73_306), Promises(latency_p95_s=20.0, good_share=0.6), profile=coherent(0.004), most=24
    )
    able = [
        count
        for count in range(1, 25)
        if found.keeps(Configuration(executors=count, memory_mib_per_executor=4096, commit_interval_s=10.0))
    ]
    assert 24 not in able
    assert executors(found.cheapest()) == able[0]
    found.refuse_the_impossible("steady")


def test_a_promise_about_few_seconds_needs_less_than_the_mean_load() -> None:
    rates = np.concatenate([np.full(2000, 5_000.0), np.full(1000, 60_000.0)])
    assert executors(hindsight(rates, Promises(latency_p95_s=3.0, good_share=0.6)).cheapest()) == 1


def test_where_nothing_keeps_the_promises_there_is_no_cheapest() -> None:
    assert hindsight(np.full(600, 60_000.0), Promises(latency_p95_s=0.1)).cheapest() is None


@given(
    mean_per_s=st.floats(5_000, 60_000),
    swing=st.floats(0, 0.9),
    coherence=st.sampled_from([0.0, 0.004, 0.02]),
    good_share=st.sampled_from([0.3, 0.6, 0.9]),
    limit_s=st.sampled_from([1.0, 3.0, 30.0]),
    recovery_s=st.sampled_from([None, 60.0]),
)
@example(mean_per_s=16_956.0, swing=0.5, coherence=0.02, good_share=0.3, limit_s=30.0, recovery_s=60.0)
@settings(max_examples=15, deadline=None)
def test_hindsight_agrees_with_trying_everything(
    *, mean_per_s: float, swing: float, coherence: float, good_share: float, limit_s: float, recovery_s: float | None
) -> None:
    rates = mean_per_s * (1 + swing * np.sin(np.arange(900) / 100))
    promises = Promises(latency_p95_s=limit_s, good_share=good_share, recovery_s=recovery_s)
    profile = coherent(coherence)
    faults = (FaultRecord(at_s=400.0, kind="network-delay"),)
    memory_mib, intervals_s = (640, 4096), (10.0, 50.0)  # of the smaller one, two slots feel the lack
    found = hindsight(
        rates,
        promises,
        profile=profile,
        faults=faults,
        most=8,
        slots=(1, 2),
        memory_mib=memory_mib,
        intervals_s=intervals_s,
    )

    def keeps(configuration: Configuration) -> bool:
        series, _ = run_fixed(profile=profile, rates_per_s=rates, seed=1, faults=faults, configuration=configuration)
        share, recovery = judge(series, faults, promises)
        return share >= good_share and (recovery_s is None or recovery <= recovery_s)

    space = ConfigurationSpace(
        executors=tuple(range(1, 9)),
        slots_per_executor=(1, 2),
        memory_mib_per_executor=memory_mib,
        commit_interval_s=intervals_s,
        changes=profile.changes,
    )
    costs = [PRICES.per_hour(one) for one in space if keeps(one)]
    best = found.cheapest()
    assert (None if best is None else PRICES.per_hour(best)) == min(costs, default=None)


def test_few_of_many_configurations_are_simulated() -> None:
    profile = load_profile("paper-cluster")
    space = ConfigurationSpace(
        executors=tuple(range(1, 25)),
        slots_per_executor=(1, 2, 3, 4),
        cores_per_executor=(1.0, 2.0, 3.0),
        memory_mib_per_executor=(1024, 2048, 3072, 4096),
        commit_interval_s=(10.0, 30.0, 50.0, 70.0, 90.0),
        changes=profile.changes,
    )
    rates = 40_000 * (1 + 0.5 * np.sin(np.arange(7200) / 500))
    found = Hindsight(
        profile=profile,
        rates_per_s=rates,
        seed=1,
        faults=(FaultRecord(at_s=1000.0, kind="network-delay"),),
        space=space,
        promises=Promises(latency_p95_s=3.0, recovery_s=180.0),
        prices=PRICES,
    )
    best = found.cheapest()
    assert best is not None
    assert found.keeps(best)
    assert len(found._by_physics) <= 60 < len(space) / 50


def test_hindsight_and_summaries_judge_alike() -> None:
    rates = 60_000 * (1 + 0.6 * np.sin(np.arange(7200) / 382))
    faults = tuple(FaultRecord(at_s=at_s, kind="driver-kill") for at_s in (600.0, 1815.5, 3020.0, 4222.0))
    promises = Promises(latency_p95_s=20.0, good_share=0.5, recovery_s=120.0)
    profile = load_profile("spark-local")
    static, few = (
        Configuration(executors=count, memory_mib_per_executor=4096, commit_interval_s=10.0) for count in (24, 5)
    )
    records, told = [], []
    for configuration in (static, few):
        series, meter = run_fixed(
            profile=profile, rates_per_s=rates, seed=1, faults=faults, configuration=configuration
        )
        records.append(
            RunRecord(
                name="x",
                engine="simulator",
                profile=profile.name,
                load="l",
                policy="p",
                seed=1,
                duration_s=7200.0,
                start=configuration,
                promises=promises,
                prices=PRICES,
                faults=faults,
                meter=meter,
                versions={},
                plan={},
                complete=True,
                created="2026-01-01",
            )
        )
        told.append(series)
    summary = summarise(records[1], told[1], baseline_of(records[0], told[0]))
    share, longest_s = judge(told[1], faults, promises)
    assert summary.promise_share == share
    assert max(recovery.at_least_s for recovery in summary.recoveries) == longest_s
