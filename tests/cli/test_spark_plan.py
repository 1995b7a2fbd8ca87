"""A plan for real Spark as a user meets it, without Spark: what is refused, what is shown, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.spark_plans import TINY, write_spark_plan
from tests.report.samples import a_run
from tidewise.cli import spark_plan
from tidewise.cli.spark_plan import clock_of, frame_of
from tidewise.experiments.run import RunKey
from tidewise.experiments.spark_experiment import Outcome, Turn
from tidewise.experiments.spark_plan import SparkExperiment
from tidewise.experiments.spark_run import Say


@pytest.fixture
def cli(tidewise: Tidewise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tidewise:
    monkeypatch.chdir(tmp_path)
    return tidewise


def test_without_java_it_says_so_and_leaves_nothing(
    cli: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    plan = write_spark_plan(tmp_path)
    code, out, err = cli("experiment", str(plan))
    assert (code, out) == (2, "")
    assert err == (
        f"tidewise: JAVA_HOME is {tmp_path}, but there is no program bin/java in it: correct JAVA_HOME or unset it\n"
    )
    assert list(tmp_path.iterdir()) == [plan]


def test_a_wrong_plan_is_one_sentence(cli: Tidewise, tmp_path: Path) -> None:
    plan = write_spark_plan(tmp_path, TINY.replace('"kill-driver"]', '"kill-drivers"]'))
    code, out, err = cli("experiment", str(plan))
    assert (code, out) == (2, "")
    assert err == (
        f"tidewise: {plan}, line 30: real Spark on this machine knows no failure 'kill-drivers'; "
        "did you mean 'kill-driver'?\n"
    )
    assert list(tmp_path.iterdir()) == [plan]


@pytest.mark.parametrize(
    ("stopped", "complete", "code", "sentence"),
    [
        (False, 2, 0, "2 of 2 runs are complete"),
        (True, 1, 130, "complete runs are kept, and the same experiment goes on with the others"),
        (True, 0, 130, "0 of 2 runs are complete"),
        (False, 1, 2, "tidewise: 1 of the 2 runs were cut short or failed; see"),
    ],
    ids=["whole", "stopped", "stopped at once", "one gave up"],
)
def test_how_it_ends_is_told(
    cli: Tidewise,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    stopped: bool,
    complete: int,
    code: int,
    sentence: str,
) -> None:
    def made_up(
        experiment: SparkExperiment, home: Path, *, created: str, say: Say, warn: Say, watch: object
    ) -> Outcome:
        assert callable(watch)
        say("at work")
        warn("Careful: CPU is not limited")
        names = [policy.label for policy in experiment.plan.policies][:complete]
        runs = tuple(
            a_run(
                home / f"waves-{name}-1",
                policy=name,
                load="waves",
                engine="spark",
                profile=None,
                created=created,
                plan=experiment.plan.resolved(),
            )
            for name in names
        )
        return Outcome(runs=runs, total=2, stopped=stopped)

    monkeypatch.setattr(spark_plan, "run_on_spark", made_up)
    found, out, err = cli("experiment", str(write_spark_plan(tmp_path)))
    assert found == code
    assert "at work" in err
    assert "Careful: CPU is not limited" in err
    assert sentence in err
    assert ("The report:" in out) == (complete > 0)
    assert ("careful: 1 of the 2 runs of the plan 'tiny' are here" in err) == (complete == 1)


def test_json_leaves_out_how_it_goes_but_no_warning(
    cli: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_up(_experiment: SparkExperiment, _home: Path, *, say: Say, warn: Say, **_others: object) -> Outcome:
        say("at work")
        warn("Careful: CPU is not limited")
        return Outcome(runs=(), total=2, stopped=True)

    monkeypatch.setattr(spark_plan, "run_on_spark", made_up)
    _, _, err = cli("experiment", str(write_spark_plan(tmp_path)), "--json")
    assert "at work" not in err
    assert "Careful: CPU is not limited" in err


def test_a_master_is_no_use_to_it(cli: Tidewise, tmp_path: Path) -> None:
    code, out, err = cli("experiment", str(write_spark_plan(tmp_path)), "--master", "local[2]")
    assert (code, out) == (2, "")
    assert err == "tidewise: this plan runs on a cluster of its own for each run: leave out --master\n"


def test_a_picture_shows_the_time_and_the_money_of_the_day(tmp_path: Path) -> None:
    experiment = SparkExperiment(write_spark_plan(tmp_path))
    frame = frame_of(experiment, Turn(key=RunKey(load="waves", policy="static", seed=1), number=1, total=2))
    assert frame.title == "Run 1 of 2, waves-static-1: 1 h in 75 s on Spark"
    assert frame.time_of(37.5) == "00:30:00"
    assert frame.line_every_s == 10.0
    assert clock_of(86_399.0) == "23:59:59"
