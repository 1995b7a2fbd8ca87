"""The table of candidates is the space, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.qos.worlds import SPACE, TABLE
from tidewise.core import BadInputError, Configuration, Prices
from tidewise.qos import Candidates


def test_rows_are_the_configurations_of_the_space_in_its_order() -> None:
    assert [TABLE[row] for row in range(len(TABLE))] == list(SPACE)


def test_every_row_is_found_and_nothing_else() -> None:
    assert [TABLE.row_of(configuration) for configuration in SPACE] == list(range(len(SPACE)))
    assert TABLE.row_of(Configuration(executors=3)) is None


def test_costs_are_those_of_the_prices() -> None:
    prices = Prices(core_hour=0.07, gib_hour=0.003)
    assert TABLE.cost_per_hour(prices) == pytest.approx([prices.per_hour(each) for each in SPACE])


def test_only_what_is_to_be_kept_is_kept() -> None:
    kept = Candidates.of(SPACE, keep=lambda each: each.total_cores <= 2.0)
    assert [kept[row] for row in range(len(kept))] == [each for each in SPACE if each.total_cores <= 2.0]
    with pytest.raises(BadInputError, match="none of the"):
        Candidates.of(SPACE, keep=lambda _: False)


def test_partitions_that_are_none_come_back_as_none_and_settings_as_they_were() -> None:
    listed = [
        Configuration(executors=2, state_partitions=8, settings=(("a", "1"),)),
        Configuration(executors=2),
        Configuration(executors=2),
    ]
    table = Candidates.listing(listed)
    assert [table[row] for row in range(3)] == listed
    assert table.row_of(listed[2]) == 1
    with pytest.raises(BadInputError, match="no configuration"):
        Candidates.listing([])


def test_only_some_rows_in_the_order_asked_for() -> None:
    rows = np.array([5, 2, 40], dtype=np.int64)
    few = TABLE.only(rows)
    assert [few[row] for row in range(3)] == [TABLE[5], TABLE[2], TABLE[40]]
    listed = [Configuration(executors=1, settings=(("a", value),)) for value in "xyz"]
    table = Candidates.listing(listed)
    assert [table.only(np.array([2, 0]))[row] for row in range(2)] == [listed[2], listed[0]]
    assert table.only(np.array([2, 0])).row_of(listed[0]) == 1


@pytest.mark.parametrize(
    "further",
    [
        Configuration(executors=3),
        Configuration(executors=3, state_partitions=4),
        Configuration(executors=1, settings=(("a", "1"),)),
    ],
)
def test_one_more_row_stands_at_the_end(further: Configuration) -> None:
    table = TABLE.with_one_more(further)
    assert [table[row] for row in range(len(table))] == [*SPACE, further]
    assert table.row_of(further) == len(TABLE)
    assert table.row_of(TABLE[7]) == 7
    twice = table.with_one_more(further.with_executors(9))
    assert twice[len(TABLE)] == further
    assert twice.row_of(further.with_executors(9)) == len(TABLE) + 1
    assert TABLE.row_of(further) is None


def test_rows_that_differ_in_settings_or_partitions_alone_are_told_apart() -> None:
    one = Configuration(executors=1)
    listed = [replace(one, state_partitions=1), replace(one, settings=(("a", "1"),)), one]
    table = Candidates.listing(listed)
    assert [table.row_of(each) for each in listed] == [0, 1, 2]
    assert table.row_of(replace(one, state_partitions=1, settings=(("a", "1"),))) is None


def test_features_leave_out_what_does_not_vary() -> None:
    assert TABLE.features.shape == (len(TABLE), 5)
    assert 0.0 <= TABLE.features.min() <= TABLE.features.max() <= 1.3
    assert Candidates.listing([TABLE[7]]).features.shape == (1, 1)


def test_a_table_of_one_settings_change_is_two_groups() -> None:
    one = Configuration(executors=1)
    table = Candidates.listing([one, replace(one, settings=(("a", "1"),)), one.with_executors(2)])
    assert table.group_numbers[0] == table.group_numbers[2] != table.group_numbers[1]
