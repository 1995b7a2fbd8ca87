"""Loads by name, as plans write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import BadInputError
from tidewise.workload import LOADS, Constant, Daily, Growth, Load, Noisy, Steps, Sum, build_load, describe_loads

SMALLEST: dict[str, dict[str, object]] = {
    "bursts": {"base_per_s": 5},
    "constant": {"rate_per_s": 5},
    "curve": {"points": [["0s", 5], ["3s", 7]]},
    "daily": {"mean_per_s": 5},
    "growth": {"start_per_s": 5, "end_per_s": 6},
    "noisy": {"load": {"shape": "constant", "rate_per_s": 5}},
    "regime-change": {"at": "5s", "mean_before_per_s": 5, "mean_after_per_s": 5},
    "scaled": {"load": {"shape": "constant", "rate_per_s": 5}, "factor": 2},
    "sine": {"mean_per_s": 5},
    "square": {"low_per_s": 5, "high_per_s": 5},
    "steps": {"levels": [["0s", 5]]},
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
    assert build_load("steps", {"levels": [["0s", 5], ["10s", 6.5]]}) == Steps(levels=((0.0, 5.0), (10.0, 6.5)))
    assert build_load("daily", {"mean_per_s": 10, "day": "10min"}) == Daily(mean_per_s=10.0, day_s=600.0)
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
        ("dayly", {}, ["no load shape 'dayly'; did you mean 'daily'?"]),
        ("?", {}, ["no load shape '?'; known: bursts, constant"]),
        ("daily", {"mean": 5}, ["no setting 'mean'; did you mean 'mean_per_s'?"]),
        ("daily", {"name": 5}, ["no setting 'name'"]),
        ("daily", {}, ["needs the setting mean_per_s: a number"]),
        ("daily", {"mean_per_s": "5"}, ["mean_per_s: '5' is not a number"]),
        ("daily", {"mean_per_s": True}, ["mean_per_s: True is not a number"]),
        ("daily", {"mean_per_s": 10**400}, ["is too large"]),
        ("daily", {"mean_per_s": 16**5000}, ["is too large"]),
        ("daily", {"mean_per_s": -5}, ["'daily'", "at least 0"]),
        ("daily", {"mean_per_s": float("nan")}, ["finite"]),
        ("daily", {"mean_per_s": 5, "day": 600}, ['day: 600 has no unit; write it like "600s"']),
        ("daily", {"mean_per_s": 5, "day_s": 600}, ["no setting 'day_s'; write it as day, with its unit"]),
        ("daily", {"mean_per_s": 5, "day": "0s"}, ["day must be at least 1"]),
        ("weekly", {"mean_per_s": 5, "start_day": 1.5}, ["start_day: 1.5 is not a whole number"]),
        (
            "growth",
            {"start_per_s": 1, "end_per_s": 2, "kind": "fast"},
            ["kind: there is no 'fast'; known: linear, exponential"],
        ),
        ("growth", {"start_per_s": 1, "end_per_s": 2, "kind": ["linear"]}, ['is not "linear" or "exponential"']),
        ("steps", {"levels": 5}, ["levels: 5 is not a list"]),
        ("steps", {"levels": [["0s", 1, 2]]}, ['is not a list of a duration such as "90s" and a number']),
        ("steps", {"levels": [[0, 1]]}, ['levels: 0 has no unit; write it like "0s"']),
        ("noisy", {"load": 5}, ["load: 5 is not a table with a shape of its own"]),
        ("noisy", {"load": {}}, ["load: {} is not a table with a shape of its own"]),
        ("noisy", {"load": {"shape": "dayly"}}, ["'noisy': load: there is no load shape 'dayly'; did you mean"]),
        ("trace", {}, ["needs the setting file: the name of a file"]),
        ("trace", {"file": 5}, ["file: 5 is not the name of a file"]),
        ("trace", {"file": "x", "factor": "5"}, ["factor: '5' is not a number"]),
        ("trace", {"file": "x", "repeat": 1}, ["repeat: 1 is not true or false"]),
        ("trace", {"file": "x", "scale_to_mean": 1}, ["did you mean 'scale_to_mean_per_s'?"]),
        ("trace", {"file": "x", "start": 5}, ["start: 5 has no unit"]),
        ("trace", {"file": "x", "gaps": "interpolat"}, ["gaps: there is no 'interpolat'; did you mean 'interpolate'?"]),
        ("trace", {"file": "no such file"}, ["does not exist"]),
    ],
)
def test_what_is_wrong_is_told_with_what_to_write(shape: str, parameters: dict[str, object], words: list[str]) -> None:
    with pytest.raises(BadInputError) as caught:
        build_load(shape, parameters)
    for word in words:
        assert word in str(caught.value)


def test_the_file_of_a_trace_stands_in_the_folder_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("0,1\n10,2\n")
    table: dict[str, object] = {"shape": "trace", "file": "trace.csv", "start": "10s"}
    assert build_load("sum", {"loads": [table]}, folder=tmp_path).rates_per_s(5, 0).tolist() == [2.0] * 5


def test_descriptions_tell_what_can_be_set() -> None:
    described = describe_loads()
    assert [load.name for load in described] == list(LOADS)
    assert all(load.summary.endswith(".") for load in described)
    assert not [(load.name, setting.name) for load in described for setting in load.settings if not setting.doc]
    trace = {setting.name: setting for setting in described[list(LOADS).index("trace")].settings}
    assert (trace["file"].allowed, trace["file"].default) == ("the name of a file", None)
    assert (trace["start"].allowed, trace["start"].default) == ('a duration such as "90s"', "0s")
    assert trace["gaps"].allowed == '"refuse" or "interpolate"'
    assert trace["between"].doc == "What the rate is between two rows: a straight line, or that of the earlier row."


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
