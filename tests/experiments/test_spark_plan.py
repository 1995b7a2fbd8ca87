"""Plans for real Spark: what they become, and everything that is wrong with them before anything is started."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.experiments.plans import GOOD, write_plan
from tests.experiments.spark_plans import TINY, write_spark_plan
from tidewise.core import BadInputError, Mechanism
from tidewise.experiments import Experiment, find_plan
from tidewise.experiments.run import run_keys
from tidewise.experiments.spark_plan import SparkExperiment


def _read(folder: Path, text: str = TINY) -> SparkExperiment:
    return SparkExperiment(write_spark_plan(folder, text))


def test_a_right_plan_becomes_what_it_says(tmp_path: Path) -> None:
    experiment = _read(tmp_path)
    assert [key.name for key in run_keys(experiment.plan)] == ["waves-static-1", "waves-reactive-1"]
    assert experiment.factor == 48.0
    assert experiment.prices.core_hour == pytest.approx(48 * 0.04)
    assert [cost.mechanism for cost in experiment.space.changes] == [
        Mechanism.LIVE,
        Mechanism.QUERY_RESTART,
        Mechanism.HANDOVER,
        Mechanism.REDEPLOY,
    ]
    program = experiment.ground("waves").program
    assert program.job == "clicks"
    assert program.options == {"--work": 300, "--state-provider": "hdfs", "--state-partitions": 1}
    assert program.handover
    assert experiment.start_of(experiment.policy("static")).executors == 3
    assert experiment.slots == 24


def test_a_load_is_written_in_the_time_that_is_shown_and_brought_to_its_peak(tmp_path: Path) -> None:
    trial = _read(tmp_path).trial("waves", 1)
    assert len(trial.rates_per_s) == 75
    assert trial.rates_per_s.max() == pytest.approx(2000.0)
    assert trial.rates_per_s.min() == pytest.approx(2000.0 / 3, rel=0.01)
    assert [(fault.at_s, fault.kind) for fault in trial.faults] == [(20.0, "kill-executor")]


def test_time_need_not_be_compressed(tmp_path: Path) -> None:
    experiment = _read(tmp_path, TINY.replace('day = "1h"\n', ""))
    assert experiment.factor == 1.0
    assert experiment.prices.core_hour == 0.04


def test_partitions_of_the_space_can_be_cut_anew(tmp_path: Path) -> None:
    text = TINY.replace('state_provider = "hdfs"\nstate_partitions = 1\n', "")
    experiment = _read(tmp_path, text.replace("[promises]", "state_partitions = [1, 2]\n\n[promises]", 1))
    assert Mechanism.REPARTITION in {cost.mechanism for cost in experiment.space.changes}
    assert "--state-partitions" not in experiment.ground("waves").program.options
    assert experiment.start.state_partitions == 2


WRONG = {
    "engine of the simulator": ('engine = "spark"', 'engine = "simulator"', "spark is for real Spark"),
    "a profile": ('engine = "spark"', 'engine = "spark"\nprofile = "spark-local"', "profile is for the simulator"),
    "a profile of a load": ('job = "clicks"', 'job = "clicks"\nprofile = "x"', "profile is for the simulator"),
    "no job": ('job = "clicks"\n', "", "job is missing: which of clicks, tsw, ysb"),
    "an unknown job": ('job = "clicks"', 'job = "click"', "there is no job 'click'; did you mean 'clicks'"),
    "an unknown option": ("work = 300", "wrok = 300", "unknown key 'wrok'"),
    "state of tsw": ('job = "clicks"', 'job = "tsw"', "tsw keeps its state in RocksDB only"),
    "an unknown failure": (
        '"kill-driver"]',
        '"driver-kill"]',
        "this machine knows no failure 'driver-kill'",
    ),
    "no failure": ('kind = ["kill-executor", "kill-driver"]', "kind = []", "names no failure; write one in quotes"),
    "a long jitter": ('jitter = "0s"', 'jitter = "1h"', "they could change places"),
    "an unknown policy": ('policy = "reactive"', 'policy = "reactiv"', "there is no policy 'reactiv'"),
    "hindsight": ('policy = "static"', 'policy = "best-fixed"', "best-fixed has to know the load to come"),
    "a mechanism that Spark lacks": (
        "target_cpu = 0.7",
        'target_cpu = 0.7\nmechanism = "operator-upgrade"',
        "names the mechanism operator-upgrade; real Spark offers only live, query-restart, handover, redeploy",
    ),
    "a mechanism that cannot scale": (
        "target_cpu = 0.7",
        'target_cpu = 0.7\nmechanism = "query-restart"',
        "changes the number of executors, which query-restart cannot; real Spark can with live, handover, redeploy",
    ),
    "nothing to choose from": (
        'policy = "static"',
        'policy = "rescaler"',
        "policy 'rescaler' cannot work here: the rescaler adds slots and executors",
    ),
    "a start outside": ("[promises]", "[start]\nexecutors = 9\n\n[promises]", "is not in the space"),
    "little memory": ('"768MiB"', '"512MiB"', "an executor needs at least 728 MiB"),
    "more memory than there is": ('"768MiB"', '"9999GiB"', "make the space smaller, or give the worker more"),
    "few slots": ('warm_up = "10s"', 'warm_up = "10s"\nslots = 3', "the largest configuration takes 6 slots"),
    "a day that is shorter": ('day = "1h"', 'day = "30s"', "day is what a run of 75 s shows"),
    "half a second": ('duration = "75s"', 'duration = "75.5s"', "duration must be a whole number of seconds"),
    "no load": ("mean_per_s = 40000.0", "mean_per_s = 0.0", "is zero in every second"),
    "an unknown key": ('warm_up = "10s"', 'warmup = "10s"', "unknown key 'warmup'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, case: str) -> None:
    before, after, sentence = WRONG[case]
    assert before in TINY
    text = TINY.replace(before, after, 1)
    if case == "nothing to choose from":
        text = text.replace('executors = "1..3"', "executors = 3")
    with pytest.raises(BadInputError) as raised:
        _read(tmp_path, text)
    assert sentence in str(raised.value)
    assert "tiny.toml" in str(raised.value)


def test_a_plan_for_spark_cannot_be_simulated_and_the_other_way_round(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="line 2: this plan is for real Spark"):
        Experiment(write_spark_plan(tmp_path))
    with pytest.raises(BadInputError, match="this plan is for the simulator"):
        SparkExperiment(write_plan(tmp_path))
    with pytest.raises(BadInputError, match="line 22: job is for real Spark"):
        Experiment(write_plan(tmp_path, GOOD.replace('name = "waves"', 'name = "waves"\njob = "ysb"')))


def test_without_cpu_limits_a_plan_that_rests_on_them_is_refused(tmp_path: Path) -> None:
    assert _read(tmp_path).cpu_note(None) is None
    assert "what is charged" in (_read(tmp_path).cpu_note("nobody may") or "")
    several = TINY.replace("cores_per_executor = 0.35", "cores_per_executor = [0.35, 0.5]")
    with pytest.raises(BadInputError, match=r"several values make no difference here \(nobody may\)"):
        _read(tmp_path, several).cpu_note("nobody may")
    slow = TINY.replace('"kill-driver"]', '"slow-cpu"]')
    with pytest.raises(BadInputError, match="slow-cpu is not possible here"):
        _read(tmp_path, slow).cpu_note("nobody may")


def test_a_released_load_takes_the_place_of_a_look_alike_for_the_same_job(tmp_path: Path) -> None:
    file = tmp_path / "waves_1h.csv"
    file.write_text("t,rate\n" + "".join(f"{second},{100 + second}\n" for second in range(0, 3601, 60)))
    experiment = SparkExperiment(write_spark_plan(tmp_path), files={"waves": file})
    assert experiment.ground("waves").program.job == "clicks"
    rates = experiment.trial("waves", 1).rates_per_s
    assert rates.max() == pytest.approx(2000.0)
    assert (rates[1:] > rates[:-1]).all()


def test_the_shipped_plan_has_both_jobs_all_policies_and_four_failures_in_each_run() -> None:
    experiment = SparkExperiment(find_plan("real-spark"))
    assert [load.job for load in experiment.plan.loads] == ["ysb", "tsw"]
    assert [policy.policy for policy in experiment.plan.policies] == [
        "static",
        "tidewise",
        "reactive",
        "ds2",
        "tidalscale",
        "phoebe",
        "demeter",
    ]
    assert 20 * 60 <= experiment.duration_s <= 30 * 60
    for load in ("ysb", "tsw"):
        kinds = [fault.kind for fault in experiment.trial(load, 1).faults]
        assert kinds == ["kill-driver", "kill-executor"] * 2
    # The job and its driver fit two cores.
    assert experiment.space.largest.total_cores + experiment.table.driver_cores <= 2.0


def test_tsw_needs_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TINY.replace('job = "clicks"', 'job = "tsw"').replace(
        'state_provider = "hdfs"', 'state_provider = "rocksdb"'
    )
    assert _read(tmp_path, text).ground("waves").program.job == "tsw"
    for missing in ("google", "google.protobuf"):
        monkeypatch.setitem(sys.modules, missing, None)
        with pytest.raises(BadInputError, match=r"tsw needs the package protobuf: pip install 'tidewise\[spark\]'"):
            _read(tmp_path, text)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("job", "options", "sentence"),
    [
        ("nexmark", "", 'nexmark needs the query that it is to answer, such as query = "q0"'),
        ("nexmark", 'query = "q55"', "nexmark has no query 'q55'"),
        (
            "psm",
            'query = "q2"\nstate_provider = "hdfs"',
            'q2 of psm cannot keep its state so: state_provider = "rocksdb"',
        ),
        ("clicks", 'query = "q5"', "clicks has no queries; leave query out"),
    ],
)
def test_a_query_is_told_to_the_jobs_that_have_some(tmp_path: Path, job: str, options: str, sentence: str) -> None:
    text = TINY.replace('job = "clicks"', f'job = "{job}"').replace('state_provider = "hdfs"', options)
    with pytest.raises(BadInputError, match=re.escape(sentence)):
        _read(tmp_path, text).ground("waves")


def test_a_query_of_nexmark_is_a_job(tmp_path: Path) -> None:
    text = TINY.replace('job = "clicks"', 'job = "nexmark"').replace('state_provider = "hdfs"', 'query = "q5"')
    program = _read(tmp_path, text).ground("waves").program
    assert (program.job, program.options["--query"]) == ("nexmark", "q5")
