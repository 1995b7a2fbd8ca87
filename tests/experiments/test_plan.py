"""Plans: what is wrong is told with its line and what to write instead, before anything runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.experiments.plans import GOOD, write_plan
from tidewise.core import BadInputError, Mechanism
from tidewise.experiments import DEMO_PLAN, Experiment, find_plan
from tidewise.experiments.plan import files_in, read_plan
from tidewise.experiments.toml_file import TomlFile


def test_a_right_plan_becomes_what_it_says(tmp_path: Path) -> None:
    experiment = Experiment(write_plan(tmp_path))
    assert experiment.duration_s == 3600
    assert experiment.run_count == 4
    ground = experiment.ground("waves")
    assert ground.space.executors == tuple(range(1, 25))
    assert experiment.start.executors == 24
    assert experiment.start.memory_mib_per_executor == 4096
    assert ground.space.changes[0].mechanism is Mechanism.IN_PLACE_RESCALE
    trials = [experiment.trial("waves", seed) for seed in experiment.plan.seeds]
    assert [trial.seed for trial in trials] == [1, 2]
    assert len(trials[0].faults) == 2
    assert trials[0].faults != trials[1].faults


def test_the_demo_plan_is_right() -> None:
    Experiment(DEMO_PLAN)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seeds = [1, 2]", "seds = [1, 2]", "line 4: unknown key 'seds'; did you mean 'seeds'"),
        ('duration = "1h"', "duration = 3600", 'line 3: duration: 3600 has no unit; write it like "3600s"'),
        ('duration = "1h"', 'duration = "1 fortnight"', "line 3.*unknown unit 'fortnight'"),
        ('duration = "1h"', 'duration = "10s"', "line 3: duration must be from 60s to 31d"),
        ('duration = "1h"\n', "", "duration is missing"),
        ('memory_per_executor = "4GiB"', "memory_per_executor = 4", "line 8.*4 has no unit"),
        ('executors = "1..24"', 'executors = "24..1"', "line 7.*holds nothing"),
        ('executors = "1..24"', "executors = []", "line 6: the space has no value for executors"),
        ('executors = "1..24"', 'executors = "0..4"', "line 6: executors must be at least 1"),
        ('executors = "1..24"', "executors = 1.5", "line 7.*not a whole number"),
        ("good_share = 0.9", "good_share = 1.5", "line 11: promises: good_share"),
        ('latency_p95 = "3s"', 'latency = "3s"', "line 12: unknown key 'latency'; did you mean 'latency_p95'"),
        ('kind = "network-delay"', 'kind = "network-dely"', "line 17.*did you mean 'network-delay'"),
        ('every = "30min"', 'every = "0s"', "line 18.*at least 1s"),
        (
            'every = "30min"',
            'every = "30min"\njitter = "31min"',
            "line 18: a jitter of 31 min is longer than the 30 min",
        ),
        ('shape = "sine"', 'shape = "sinus"', "line 20: there is no load shape 'sinus'; did you mean 'sine'"),
        ("mean_per_s = 40000.0", "mean = 40000.0", "line 20: .*no setting 'mean'; did you mean 'mean_per_s'"),
        ("mean_per_s = 40000.0", "mean_per_s = -1.0", "line 20: "),
        ('period = "30min"', "period = 1800", 'line 20: .*: period: 1800 has no unit; write it like "1800s"'),
        ('period = "30min"', "period_s = 1800", "line 20: .*no setting 'period_s'; write it as period"),
        ("mean_per_s = 40000.0", "mean_per_s = nan", "line 20: "),
        ("noise = 0.05", "noise = 7.0", "line 26"),
        ('policy = "reactive"', 'policy = "reactiv"', "line 31: there is no policy 'reactiv'; did you mean 'reactive'"),
        ("target_cpu = 0.5", "target_cp = 0.5", "line 31: .*no setting 'target_cp'; did you mean 'target_cpu'"),
        ("target_cpu = 0.5", "target_cpu = 5.0", "line 31: .*target_cpu must be"),
        ('mechanism = "in-place-rescale"', 'mechanism = "live"', "line 31: .*names the mechanism live; .* offers only"),
        ('policy = "reactive"', 'policy = "static"', "line 31: two of the policies are called 'static'"),
        ('name = "waves"', 'name = "../waves"', "line 21.*names a folder"),
        ('profile = "paper-cluster"', 'profile = "paper"', "line 2: there is no profile 'paper'"),
        ("[space]", "[space", "not TOML"),
        ('duration = "1h"', 'duration = "1000000d"', "line 3: duration must be from 60s to 31d"),
        ("seeds = [1, 2]", "seeds = [1, 1]", "line 4: each seed can be run once"),
        ("seeds = [1, 2]", "seeds = []", "line 4: seeds is empty; give at least one"),
        ('executors = "1..24"', 'executor = "1..24"', "line 7: unknown key 'executor'; did you mean 'executors'"),
        ('name = "waves"', 'name = "waves.partial"', "line 21.*leave '.partial' out"),
        ('name = "waves"', f'name = "{"w" * 200}"', "line 21.*at most 60 characters"),
        ("target_cpu = 0.5", 'name = "static"', "line 31: two of the policies are called 'static'"),
        ("target_cpu = 0.5", 'name = "ds2"', "line 31: 'ds2' is the name of another policy"),
        (
            'policy = "reactive"\ntarget_cpu = 0.5\nmechanism = "in-place-rescale"\n',
            'policy = "best-fixed"\nname = "ds2"\n',
            "line 31: 'ds2' is the name of another policy",
        ),
        ("[failures]", "[start]\nexecutors = 0\n\n[failures]", "line 16: executors must be at least 1, not 0"),
        ("[failures]", "[control]\nquota_cores = 2.0\n\n[failures]", "line 17: the start takes 24 cores"),
        ("[failures]", '[control]\ndecide_every = "1ms"\n\n[failures]', "line 17: decide_every must be at least 1s"),
        ("[failures]", "[prices]\ncore_hour = 1e300\n\n[failures]", "line 16: prices must be at most"),
        ('[[policies]]\npolicy = "reactive"', '[[policies]]\nname = 3\npolicy = "static"', "must be a text in quotes"),
        ("seeds = [1, 2]", f"seeds = {'1' * 5000}", "not TOML"),
        ("seeds = [1, 2]", f"seeds = {'[' * 3000}", "not TOML"),
        ('name = "small"', 'name = "small"\nengine = "flink"', "line 2: engine"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    # Only the last: "policy = static" stands there twice.
    before, _, after = GOOD.rpartition(old)
    with pytest.raises(BadInputError, match=said) as told:
        Experiment(write_plan(tmp_path, before + new + after))
    assert "\n" not in str(told.value)


def test_promises_that_nothing_can_keep_are_refused_with_the_nearest(tmp_path: Path) -> None:
    impossible = GOOD.replace('latency_p95 = "3s"', 'latency_p95 = "100ms"')
    with pytest.raises(
        BadInputError, match=r"line 20: no configuration can keep .* the nearest that was found"
    ) as told:
        Experiment(write_plan(tmp_path, impossible)).check("waves", 1)
    assert "keeps a p95 latency of 100 ms in 0.0% of the seconds instead of 90.0%;" in str(told.value)
    assert "recover" not in str(told.value)  # that promise is kept


def test_a_load_that_is_too_much_for_the_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="widen the space"):
        Experiment(write_plan(tmp_path, GOOD.replace('executors = "1..24"', 'executors = "1..2"'))).check("waves", 1)


def test_a_silent_load_is_refused(tmp_path: Path) -> None:
    silent = GOOD.replace('shape = "sine"', 'shape = "constant"').replace("mean_per_s = 40000.0", "rate_per_s = 0.0")
    silent = silent.replace('amplitude_share = 0.5\nperiod = "30min"\n', "")
    with pytest.raises(BadInputError, match="zero in every second"):
        Experiment(write_plan(tmp_path, silent)).check("waves", 1)


def test_nothing_else_may_be_called_static(tmp_path: Path) -> None:
    """Every ratio is against the run of that name."""
    other = GOOD.replace('policy = "static"', 'policy = "best-fixed"\nname = "static"')
    with pytest.raises(BadInputError, match="line 28: 'static' is the name of another policy"):
        Experiment(write_plan(tmp_path, other))


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "does not exist"), ("0,abc\n1,2\n", ""), ("0,1\n60,1\n", "")],
    ids=["missing", "no numbers", "too short"],
)
def test_a_file_in_place_of_a_load_is_blamed_itself(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "mine.csv"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadInputError) as told:
        Experiment(write_plan(tmp_path), files={"waves": file})
    assert str(told.value).startswith(f"--load waves={file}: ")
    assert said in str(told.value)
    assert "plan.toml" not in str(told.value)


def test_two_files_for_one_load_are_refused(tmp_path: Path) -> None:
    for name in ("waves.csv", "waves_1h.csv"):
        (tmp_path / name).write_text("0,30000\n3600,30000\n")
    with pytest.raises(
        BadInputError, match=r"holds both waves\.csv and waves_1h\.csv; say which with --load waves=FILE"
    ):
        files_in(tmp_path, read_plan(TomlFile(write_plan(tmp_path))))


def test_what_there_is_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"has no load 'sea'; known: waves$"):
        Experiment(write_plan(tmp_path), files={"sea": tmp_path})
    with pytest.raises(BadInputError) as told:
        find_plan("nope")
    assert str(told.value).count("real-spark") == 1


def test_a_missing_plan_and_a_missing_trace_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no file"):
        Experiment(tmp_path / "nothing.toml")
    with_trace = GOOD[: GOOD.index("[[loads]]")] + (
        '[[loads]]\nname = "waves"\nshape = "trace"\nfile = "missing.csv"\n\n[[policies]]\npolicy = "static"\n'
    )
    with pytest.raises(BadInputError, match=r"line 20: .*missing\.csv"):
        Experiment(write_plan(tmp_path, with_trace))


@given(garbage=st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_whatever_is_written_is_a_plan_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, garbage: str) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(garbage, encoding="utf-8", errors="replace")
    with pytest.raises(BadInputError):
        read_plan(TomlFile(path))


@given(line=st.integers(min_value=0, max_value=38), text=st.text(alphabet="abc=[]\"' 1.#", max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_broken_line_never_brings_a_traceback(tmp_path_factory: pytest.TempPathFactory, line: int, text: str) -> None:
    lines = GOOD.splitlines()
    lines[min(line, len(lines) - 1)] = text
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    with contextlib.suppress(BadInputError):
        Experiment(path)
