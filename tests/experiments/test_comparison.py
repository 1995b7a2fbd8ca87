"""Only runs on the same load are held against each other, whatever their loads are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.experiments.plans import GOOD, write_plan
from tests.report.samples import a_run
from tidewise.core import BadInputError, Prices, Promises
from tidewise.experiments import Experiment, compare, missing_runs
from tidewise.report import build_report


def digest_of(folder: Path, text: str) -> str:
    folder.mkdir()
    experiment = Experiment(write_plan(folder, text))
    return experiment.ground(experiment.plan.loads[0].name).load_digest


def test_a_digest_tells_loads_apart_and_not_seeds(tmp_path: Path) -> None:
    here = digest_of(tmp_path / "a", GOOD)
    assert digest_of(tmp_path / "b", GOOD.replace("seeds = [1, 2]", "seeds = [7]")) == here
    assert digest_of(tmp_path / "c", GOOD.replace('name = "waves"', 'name = "sea"')) == here
    assert digest_of(tmp_path / "d", GOOD.replace("40000.0", "41000.0")) != here
    assert digest_of(tmp_path / "e", GOOD.replace("noise = 0.05", "noise = 0.06")) != here


def test_loads_of_one_name_that_differ_do_not_share_a_baseline(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", policy="static", executors=8, versions={"load": "aaa"}),
        a_run(tmp_path / "b", policy="static", executors=4, versions={"load": "bbb"}),
        a_run(tmp_path / "c", policy="mpc", executors=2, versions={"load": "bbb"}),
    ]
    aggregates = compare(runs)
    assert [(one.scenario.load, one.policy) for one in aggregates] == [
        ("ysb (setting 1)", "static"),
        ("ysb (setting 2)", "static"),
        ("ysb (setting 2)", "mpc"),
    ]
    over = aggregates[2].summaries[0].over_baseline
    assert over is not None
    assert over.core == 0.5
    page = build_report(runs)
    assert "On ysb (setting 2)," in page


def test_two_plans_on_the_same_load_are_compared(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", policy="static", executors=8, versions={"load": "aaa"}, plan={"name": "before"}),
        a_run(tmp_path / "b", policy="mpc", executors=2, versions={"load": "aaa"}, plan={"name": "after"}),
    ]
    _, mpc = compare(runs)
    assert mpc.scenario.load == "ysb"
    assert mpc.summaries[0].over_baseline is not None


def test_other_prices_promises_or_lengths_are_another_setting(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", policy="static"),
        a_run(tmp_path / "b", policy="static", prices=Prices(core_hour=4.0, currency="USD")),
        a_run(tmp_path / "c", policy="static", promises=Promises(latency_p95_s=9.0)),
        a_run(tmp_path / "d", policy="static", plan={"failures": {"every": 10.0}}),
    ]
    assert len({one.scenario for one in compare(runs)}) == 4


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", policy="static"), a_run(tmp_path / "copy", policy="static")]
    with pytest.raises(BadInputError, match="are the same run"):
        compare(runs)


def test_what_is_missing_of_a_plan_is_told(tmp_path: Path) -> None:
    plan: dict[str, JsonValue] = {
        "name": "mine",
        "loads": [{"name": "ysb"}],
        "policies": [{"policy": "static", "name": None}, {"policy": "reactive", "name": "fast"}],
        "seeds": [1],
    }
    run = a_run(tmp_path / "a", name="ysb-static-1", policy="static", plan=plan)
    assert missing_runs([run]) == ("1 of the 2 runs of the plan 'mine' are here; missing: ysb-fast-1",)
    assert "missing: ysb-fast-1" in build_report([run])
    assert missing_runs([run, a_run(tmp_path / "b", name="ysb-fast-1", policy="fast", plan=plan)]) == ()
