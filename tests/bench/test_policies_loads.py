"""Every load of the comparison is what it says, and is brought to the same peak."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.policies_loads import DAY_S, Offered, drawn, generated, peak_of, planned, recorded, table_of
from pydantic import JsonValue

from tidewise.workload import LOADS, build_load
from tidewise.workload.random_loads import random_load

PEAK = 50_000.0
SHAPES = generated(15.0)


@pytest.mark.parametrize("load", [*SHAPES, *drawn()], ids=lambda load: load.name)
def test_every_load_is_brought_to_its_part_of_the_peak(load: Offered) -> None:
    assert load.peak_share is not None
    assert peak_of(load.scaled(PEAK)) == pytest.approx(load.peak_share * PEAK)


def test_every_shape_that_a_plan_can_name_is_offered() -> None:
    made_of_others = {"noisy", "scaled", "trace"}
    assert {load.table["shape"] for load in SHAPES} == set(LOADS) - made_of_others


@pytest.mark.parametrize("seed", range(1, 12))
def test_a_load_drawn_at_random_is_the_same_in_a_plan(seed: int) -> None:
    load = random_load(seed, mean_per_s=1000.0, day_s=3600.0)
    table = dict(table_of(load))
    again = build_load(str(table.pop("shape")), table)
    np.testing.assert_allclose(again.rates_per_s(3600, 7), load.rates_per_s(3600, 7), rtol=1e-6)


def test_the_sawtooth_has_the_period_of_the_loop() -> None:
    table = dict(next(load.table for load in generated(20.0) if load.name == "sawtooth"))
    del table["noise"]
    rates = build_load(str(table.pop("shape")), table).rates_per_s(60, 1)
    np.testing.assert_allclose(rates[:20], rates[20:40])
    assert int(rates[:20].argmax()) == 19
    assert rates.max() == pytest.approx(2 * rates.min())


def write(file: Path, rows: int, step_s: int) -> None:
    lines = [f"{step * step_s},{100 + 50 * (step % 7)}" for step in range(rows)]
    file.write_text("\n".join(["second,value", *lines]), encoding="utf-8")


def test_traces_are_the_files_that_are_no_loads_of_the_plan(tmp_path: Path) -> None:
    for name in ("ysb_18h.csv", "ysb_profiles.csv", "tsw_18h.csv", "shop.csv"):
        write(tmp_path / name, rows=3000, step_s=300)
    (found,) = recorded(tmp_path)
    assert found.name == "shop"
    assert found.table["compress"] == 3 * 86_400 / DAY_S
    assert recorded(None) == []


def test_a_released_load_takes_the_place_of_the_curve_and_keeps_its_job(tmp_path: Path) -> None:
    points: JsonValue = [["0s", 1.0], ["1h", 2.0]]
    table = {"name": "ysb", "shape": "curve", "points": points, "scale": 3.0, "profile": "other"}
    (curve,) = planned([table], tmp_path)
    assert curve.scaled(PEAK) == table
    write(tmp_path / "ysb_18h.csv", rows=DAY_S // 60, step_s=60)
    (read,) = planned([table], tmp_path)
    assert (read.table["shape"], read.table["scale"], read.table["profile"]) == ("trace", 3.0, "other")
    assert peak_of(read.scaled(PEAK)) == pytest.approx(3.0 * 400)


def test_a_trace_is_the_same_however_its_folder_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop.csv", "ysb_18h.csv"):
        write(tmp_path / name, rows=10, step_s=300)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert recorded(Path("..")) == recorded(tmp_path)
    assert planned([{"name": "ysb"}], Path("..")) == planned([{"name": "ysb"}], tmp_path)
