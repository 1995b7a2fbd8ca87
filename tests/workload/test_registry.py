"""Loads by name, as plans write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import BadInputError
from tidewise.workload import LOADS, Constant, Daily, Growth, Load, Noisy, Steps, Sum, build_load

SMALLEST: dict[str, dict[str, object]] = {
    "bursts": {"base_per_s": 5},
    "constant": {"rate_per_s": 5},
    "daily": {"mean_per_s": 5},
    "growth": {"start_per_s": 5, "end_per_s": 6},
    "noisy": {"load": {"shape": "constant", "rate_per_s": 5}},
    "regime-change": {"at_s": 5, "mean_before_per_s": 5, "mean_after_per_s": 5},
    "sine": {"mean_per_s": 5},
    "square": {"low_per_s": 5, "high_per_s": 5},
    "steps": {"levels": [[0, 5]]},
    "sum": {"loads": [{"shape": "constant", "rate_per_s": 5}]},
    "trace": {"file": "trace.csv"},
    "weekly": {"mean_per_s": 5},
}


@pytest.mark.parametrize("shape", LOADS)
def test_every_load_can_be_built_by_its_name(shape: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("0,1\n10,2\n")
    load = build_load(shape, SMALLEST[shape], folder=tmp_path)
    assert len(load.rates_per_s(5, 0)) == 5


def test_lists_and_tables_become_what_the_shape_needs() -> None:
    assert build_load("steps", {"levels": [[0, 5], [10, 6.5]]}) == Steps(levels=((0.0, 5.0), (10.0, 6.5)))
    assert build_load("daily", {"mean_per_s": 10, "day_s": 600}) == Daily(mean_per_s=10.0, day_s=600.0)
    growth = build_load("growth", {"start_per_s": 1, "end_per_s": 2, "kind": "exponential"})
    assert growth == Growth(start_per_s=1.0, end_per_s=2.0, kind="exponential")
    inner = {"shape": "constant", "rate_per_s": 5}
    five = Constant(rate_per_s=5.0)
    assert build_load("noisy", {"load": inner, "share": 0.2}) == Noisy(load=five, share=0.2)
    assert build_load("sum", {"loads": [inner, inner]}) == Sum(loads=(five, five))


def test_the_options_of_a_trace_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("0,1\n10,2\n")
    options: dict[str, object] = {"file": str(tmp_path / "trace.csv"), "between": "hold", "repeat": True, "factor": 3}
    assert build_load("trace", options).rates_per_s(25, 0).tolist() == [3.0] * 10 + [6.0] * 10 + [3.0] * 5


@pytest.mark.parametrize(
    ("shape", "parameters", "words"),
    [
        ("dayly", {}, ["no load shape 'dayly'", "did you mean 'daily'?", "weekly"]),
        ("?", {}, ["no load shape", "shapes: bursts"]),
        ("daily", {"mean": 5}, ["no parameter 'mean'", "did you mean 'mean_per_s'?", "night_share"]),
        ("daily", {"name": 5}, ["no parameter 'name'"]),
        ("daily", {}, ["needs mean_per_s"]),
        ("daily", {"mean_per_s": "5"}, ["mean_per_s must be a number, not '5'"]),
        ("daily", {"mean_per_s": True}, ["must be a number"]),
        ("daily", {"mean_per_s": 10**400}, ["not so large"]),
        ("daily", {"mean_per_s": -5}, ["'daily'", "at least 0"]),
        ("daily", {"mean_per_s": float("nan")}, ["finite"]),
        ("weekly", {"mean_per_s": 5, "start_day": 1.5}, ["start_day must be a whole number"]),
        ("growth", {"start_per_s": 1, "end_per_s": 2, "kind": "fast"}, ['kind must be "linear" or "exponential"']),
        ("growth", {"start_per_s": 1, "end_per_s": 2, "kind": ["linear"]}, ['kind must be "linear" or "exponential"']),
        ("steps", {"levels": 5}, ["levels must be a list"]),
        ("steps", {"levels": [[0, 1, 2]]}, ["levels must be a list of lists of 2"]),
        ("noisy", {"load": 5}, ["load must be a table with a shape of its own"]),
        ("noisy", {"load": {}}, ["load must be a table with a shape of its own"]),
        ("noisy", {"load": {"shape": "dayly"}}, ["did you mean 'daily'?"]),
        ("trace", {}, ["needs file"]),
        ("trace", {"file": 5}, ["file must be a text"]),
        ("trace", {"file": "x", "factor": "5"}, ["factor must be a number"]),
        ("trace", {"file": "x", "repeat": 1}, ["repeat must be true or false"]),
        ("trace", {"file": "x", "scale_to_mean": 1}, ["did you mean 'scale_to_mean_per_s'?"]),
        ("trace", {"file": "no such file"}, ["does not exist"]),
    ],
)
def test_what_is_wrong_is_told_with_what_to_write(shape: str, parameters: dict[str, object], words: list[str]) -> None:
    with pytest.raises(BadInputError) as caught:
        build_load(shape, parameters)
    for word in words:
        assert word in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["shape", "x"]), inner, max_size=2),
    max_leaves=5,
)


@given(shape=st.sampled_from(sorted(LOADS)), data=st.data())
def test_whatever_a_plan_says_it_gives_a_load_or_one_kind_of_error(shape: str, data: st.DataObject) -> None:
    parameters = {name: data.draw(values) for name in SMALLEST[shape]}
    try:
        load: Load = build_load(shape, parameters)
    except BadInputError:
        return
    assert np.isfinite(load.rates_per_s(3, 0)).all()
