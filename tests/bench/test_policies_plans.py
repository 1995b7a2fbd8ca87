"""The plans of the comparison are the shipped ones with another load, and can be read."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from bench.policies_plans import (
    VARIATIONS,
    WORLDS,
    World,
    compose,
    keepable,
    make_scene,
    scene_names,
    shipped_plan,
)
from pydantic import JsonValue

from tidewise.engines.simulator import load_profile
from tidewise.experiments import Experiment
from tidewise.experiments.toml_file import to_toml

PAPER, SPARK = WORLDS


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_composed_plan_differs_in_load_length_and_policies_only(world: World) -> None:
    shipped = shipped_plan(world)
    load: dict[str, JsonValue] = {"name": "x", "shape": "sum", "loads": [{"shape": "constant", "rate_per_s": 5.0}]}
    read = tomllib.loads(to_toml(compose(shipped, load=load, hours=0.5)))
    assert (read["loads"], read["duration"]) == ([load], "1800s")
    assert sum(one["policy"] == "tidewise" for one in read["policies"]) == 1
    assert {one["policy"] for one in read["policies"]} >= {one["policy"] for one in shipped["policies"]}
    changed = {"name", "seeds", "duration", "loads", "policies"}
    assert {key: read[key] for key in read if key not in changed} == {
        key: shipped[key] for key in shipped if key not in changed
    }


def test_the_tidewise_of_the_shipped_plan_is_not_replaced() -> None:
    mine = {"policy": "tidewise", "payback": 3.0}
    shipped = {**shipped_plan(SPARK), "policies": [mine]}
    assert compose(shipped, load={"name": "x"}, hours=None)["policies"] == [mine]


def test_a_variation_changes_the_cluster_and_nothing_else() -> None:
    profile = load_profile("spark-local")
    faster = next(one for one in VARIATIONS if one.capacity > 1).of(profile, ["driver-kill"])
    assert faster.capacity.records_per_core_s == pytest.approx(1.2 * profile.capacity.records_per_core_s)
    assert faster.failures == profile.failures
    longer = next(one for one in VARIATIONS if one.downtime_s == 40.0).of(profile, ["driver-kill"])
    assert longer.failures["driver-kill"].downtime_s == 40.0
    assert longer.failures["executor-kill"] == profile.failures["executor-kill"]
    assert longer.capacity == profile.capacity


def test_the_plan_of_a_variation_names_its_own_profile(tmp_path: Path) -> None:
    scene = make_scene(SPARK, "ysb-downtime-5s", traces=None, hours=0.1, folder=tmp_path)
    assert scene.varied
    assert Experiment(scene.plan).ground(scene.load).profile.failures["driver-kill"].downtime_s == 5.0


def test_a_promise_is_lowered_to_what_static_keeps(tmp_path: Path) -> None:
    scene = make_scene(SPARK, "ysb", traces=None, hours=1.0, folder=tmp_path)
    text = scene.plan.read_text(encoding="utf-8")
    assert keepable(Experiment(scene.plan), "ysb") is None
    promised = Experiment(scene.plan).ground("ysb").promises
    strict = text.replace(f'"good_share" = {promised.good_share}', '"good_share" = 0.9999')
    scene.plan.write_text(strict, encoding="utf-8")
    lowered = keepable(Experiment(scene.plan), "ysb")
    assert lowered is not None
    share, _ = Experiment(scene.plan).trial("ysb", 1).hindsight.verdict(Experiment(scene.plan).start)
    assert 0.005 <= share - float(str(lowered["good_share"])) <= 0.01
    assert lowered["recovery"] == "180s"


def test_where_static_keeps_more_of_a_variation_more_is_promised(tmp_path: Path) -> None:
    plain, short, usual = (
        make_scene(SPARK, name, traces=None, hours=3.0, folder=tmp_path)
        for name in ("ysb", "ysb-downtime-5s", "ysb-capacity-1.2")
    )
    promised = {scene.load: Experiment(scene.plan).ground(scene.load).promises.good_share for scene in (plain, short)}
    assert promised["ysb-downtime-5s"] > promised["ysb"]
    assert "static keeps that much more" in short.words
    assert "promised" not in usual.words
    kept = {
        scene.load: Experiment(scene.plan).trial(scene.load, 1).hindsight.verdict(Experiment(scene.plan).start)[0]
        for scene in (plain, short)
    }
    room = {load: kept[load] - promised[load] for load in kept}
    assert room["ysb"] <= room["ysb-downtime-5s"] < room["ysb"] + 0.005


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_the_names_of_a_world_are_different(world: World) -> None:
    names = scene_names(world, None)
    assert names[0] == "ysb"
    assert len(names) == len(set(names)) > (25 if world.everywhere else 5)
