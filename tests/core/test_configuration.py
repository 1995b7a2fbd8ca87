"""Configurations, what differs between two, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import REACH, ChangeCost, Configuration, Mechanism, Parameter, Prices, Usage, total
from tidewise.core.usage import Meter
from tidewise.testing import strategies

configurations = strategies.configurations()


@given(configuration=configurations)
def test_totals_are_executors_times_what_each_has(configuration: Configuration) -> None:
    assert configuration.total_slots == configuration.executors * configuration.slots_per_executor
    assert configuration.total_cores == configuration.executors * configuration.cores_per_executor
    assert configuration.total_memory_mib == configuration.executors * configuration.memory_mib_per_executor


@given(configuration=configurations)
def test_nothing_differs_from_itself_or_takes_less_than_itself(configuration: Configuration) -> None:
    assert configuration.differs_from(configuration) == frozenset()
    assert not configuration.takes_less_than(configuration)


@given(one=configurations, other=configurations)
def test_to_differ_is_mutual_and_means_to_be_unequal(one: Configuration, other: Configuration) -> None:
    assert one.differs_from(other) == other.differs_from(one)
    assert bool(one.differs_from(other)) == (one != other)


@given(configuration=configurations, more=st.integers(1, 100))
def test_fewer_executors_take_less_and_more_do_not(configuration: Configuration, more: int) -> None:
    larger = configuration.with_executors(configuration.executors + more)
    assert configuration.takes_less_than(larger)
    assert not larger.takes_less_than(configuration)
    assert larger.differs_from(configuration) == {Parameter.EXECUTORS}


def test_a_trade_of_memory_for_cores_takes_less_both_ways() -> None:
    cores = Configuration(executors=1, cores_per_executor=2.0, memory_mib_per_executor=1024)
    memory = Configuration(executors=1, cores_per_executor=1.0, memory_mib_per_executor=2048)
    assert cores.takes_less_than(memory)
    assert memory.takes_less_than(cores)


def test_what_has_no_price_takes_nothing() -> None:
    plain = Configuration(executors=1)
    assert not replace(plain, commit_interval_s=60.0).takes_less_than(plain)
    assert not replace(plain, commit_interval_s=0.1).takes_less_than(plain)


def test_every_parameter_is_a_field_and_every_mechanism_has_a_reach() -> None:
    assert {parameter.value for parameter in Parameter} == set(Configuration.__dataclass_fields__)
    assert set(REACH) == set(Mechanism)


@given(cost=strategies.change_costs(), one=configurations, other=configurations)
def test_a_mechanism_carries_what_is_within_its_reach(
    cost: ChangeCost, one: Configuration, other: Configuration
) -> None:
    assert cost.can_carry(one, one)
    assert cost.can_carry(one, other) == (one.differs_from(other) <= REACH[cost.mechanism])
    assert cost.duration_s == cost.preparation_s + cost.gap_s


def test_a_configuration_reads_as_a_sentence() -> None:
    assert str(Configuration(executors=1)) == "1 executor x 1 core, 1 slot, 1 GiB, commit every 1 s"
    full = Configuration(
        executors=2,
        cores_per_executor=0.5,
        slots_per_executor=4,
        memory_mib_per_executor=512,
        commit_interval_s=0.25,
        state_partitions=8,
        settings=(("a", "1"), ("b", "2")),
    )
    expected = "2 executors x 0.5 cores, 4 slots, 512 MiB, commit every 250 ms, 8 state partitions, a=1, b=2"
    assert str(full) == expected


@given(prices=strategies.prices(), configuration=configurations, more=st.integers(1, 100))
def test_more_executors_cost_more(prices: Prices, configuration: Configuration, more: int) -> None:
    larger = configuration.with_executors(configuration.executors + more)
    assert prices.per_hour(larger) > prices.per_hour(configuration) > 0.0


def test_prices_are_per_hour_and_gib() -> None:
    prices = Prices(core_hour=2.0, gib_hour=0.5)
    assert prices.cost(core_s=3600.0, memory_mib_s=3600.0 * 1024) == pytest.approx(2.5)
    two = Configuration(executors=2, cores_per_executor=2.0, memory_mib_per_executor=2048)
    assert prices.per_hour(two) == pytest.approx(10.0)


@given(meter=strategies.meters())
def test_the_total_is_the_sum_over_all_purposes(meter: Meter) -> None:
    assert total(meter).core_s == pytest.approx(sum(usage.core_s for usage in meter.values()))
    assert total(meter).memory_mib_s == pytest.approx(sum(usage.memory_mib_s for usage in meter.values()))
    assert total({}) == Usage()


@given(one=strategies.usages(), other=strategies.usages())
def test_usage_adds_in_any_order_and_nothing_adds_nothing(one: Usage, other: Usage) -> None:
    assert one + other == other + one
    assert one + Usage() == one
