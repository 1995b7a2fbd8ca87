"""A policy that is written in one line is the one that a plan would have, or told wrong in one sentence."""

from __future__ import annotations

import pytest

from tidewise.core import BadInputError
from tidewise.experiments.policy_words import plain_value, policy_of


def test_settings_stand_behind_the_name() -> None:
    table = policy_of("ds2:target_utilisation=0.7,stabilisation=30s")
    assert (table.policy, table.label) == ("ds2", "ds2")
    assert table.settings == {"target_utilisation": 0.7, "stabilisation": "30s"}


def test_usual_settings_count_where_none_are_written() -> None:
    assert policy_of("ds2", usual={"target_utilisation": 0.6}).settings == {"target_utilisation": 0.6}
    assert policy_of("ds2:stabilisation=30s", usual={"target_utilisation": 0.6}).settings == {"stabilisation": "30s"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ds3", "did you mean 'ds2'"),
        ("reactive:foo=1", "foo"),
        ("tidewise:payback=abc", "payback"),
        ("ds2:target", "write settings like"),
        (":foo=1", "--policy :foo=1: "),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(BadInputError) as error:
        policy_of(text)
    assert told in str(error.value)


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("0.5", 0.5), ("true", True), ("30s", "30s"), ("live", "live")])
def test_values_are_read_as_a_plan_would(text: str, value: object) -> None:
    assert plain_value(text) == value
