"""A plan on real Spark without Spark: one run after the other, what is kept, and what is done again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.experiments.spark_plans import TINY, write_spark_plan
from tests.report.samples import a_run
from tidewise import __version__
from tidewise.core import BadInputError, PermanentError
from tidewise.engines.spark.book import Book
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.experiments import find_runs, spark_experiment
from tidewise.experiments.claim import claimed
from tidewise.experiments.live import LiveView, Observer
from tidewise.experiments.spark_experiment import Outcome, Turn, run_on_spark
from tidewise.experiments.spark_plan import SparkExperiment
from tidewise.experiments.spark_run import Measured, Say
from tidewise.kafka.broker import LocalBroker

DATE = "2026-11-15"


@contextmanager
def _nobody(_turn: Turn) -> Iterator[Observer]:
    def look(_view: LiveView) -> None:
        pass

    yield look


@dataclass(slots=True)
class Cluster:
    """In place of a run on Spark: writes what the test says."""

    ran: list[str] = field(default_factory=list)
    cut: str | None = None
    """The run that does not last."""
    stopped: bool = False
    problem: str | None = None
    """Of the same run's records."""
    meanwhile: Callable[[], None] = lambda: None

    def measure(
        self,
        experiment: SparkExperiment,
        home: Path,
        turn: Turn,
        *,
        created: str,
        say: Say,
        watch: Callable[[Turn], object],
    ) -> Measured:
        assert watch is _nobody
        key = turn.key
        self.ran.append(key.name)
        (home / spark_experiment.JOBS / key.name / "job").mkdir(parents=True)
        self.meanwhile()
        say("at work")
        trial = experiment.trial(key.load, key.seed)
        run = a_run(
            home / key.name,
            policy=key.policy,
            load=key.load,
            seconds=experiment.duration_s,
            engine="spark",
            profile=None,
            faults=trial.faults,
            created=created,
            versions={"tidewise": __version__, "python": "3", "numpy": "2", **experiment.versions(key.load)},
            plan=experiment.plan.resolved(),
            complete=key.name != self.cut,
        )
        is_cut = key.name == self.cut
        return Measured(
            run=run,
            told=("all acknowledged",),
            problem=self.problem if is_cut else None,
            stopped=is_cut and self.stopped,
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made_up = Cluster()
    monkeypatch.setattr(spark_experiment, "measure_run", made_up.measure)
    monkeypatch.setattr(spark_experiment, "check_spark", lambda: None)
    monkeypatch.setattr(spark_experiment, "cpu_reason", lambda: None)
    return made_up


def _go(folder: Path, told: list[str] | None = None, text: str = TINY, *, warned: list[str] | None = None) -> Outcome:
    say, warn = (([] if heard is None else heard).append for heard in (told, warned))
    experiment = SparkExperiment(write_spark_plan(folder, text))
    return run_on_spark(experiment, folder / "runs", created=DATE, say=say, warn=warn, watch=_nobody)


def test_every_run_in_order_and_told(tmp_path: Path, cluster: Cluster) -> None:
    told: list[str] = []
    outcome = _go(tmp_path, told)
    assert cluster.ran == ["waves-static-1", "waves-reactive-1"]
    assert [run.record.name for run in outcome.runs] == cluster.ran
    assert (outcome.total, outcome.stopped) == (2, False)
    assert told == [
        "The load waves is generated (shape 'sine').",
        "Run 1 of 2: waves-static-1.",
        "at work",
        "all acknowledged",
        "Run 2 of 2: waves-reactive-1.",
        "at work",
        "all acknowledged",
    ]


def test_what_is_complete_is_kept(tmp_path: Path, cluster: Cluster) -> None:
    _go(tmp_path)
    cluster.ran.clear()
    assert len(_go(tmp_path).runs) == 2
    assert cluster.ran == []


def test_a_run_that_somebody_stops_ends_it_all_and_is_done_again(tmp_path: Path, cluster: Cluster) -> None:
    cluster.cut, cluster.stopped = "waves-static-1", True
    warned: list[str] = []
    outcome = _go(tmp_path, warned=warned)
    assert outcome.stopped
    assert outcome.runs == ()
    assert cluster.ran == ["waves-static-1"]
    assert warned == ["waves-static-1 was cut short, and does not count; the same command does it again."]
    with pytest.raises(BadInputError, match="was cut short"):
        find_runs([tmp_path / "runs"])
    cluster.cut = None
    assert [run.record.complete for run in _go(tmp_path).runs] == [True, True]
    assert cluster.ran == ["waves-static-1", "waves-static-1", "waves-reactive-1"]


def test_a_job_that_gives_up_is_not_reported_and_the_others_are_run(tmp_path: Path, cluster: Cluster) -> None:
    cluster.cut = "waves-static-1"
    outcome = _go(tmp_path)
    assert not outcome.stopped
    assert [run.record.name for run in outcome.runs] == ["waves-reactive-1"]


def test_a_run_that_was_killed_is_done_again(tmp_path: Path, cluster: Cluster) -> None:
    _go(tmp_path)
    folder = tmp_path / "runs"
    (folder / "waves-reactive-1").rename(tmp_path / "away")
    (folder / "waves-reactive-1.partial").mkdir()
    (folder / "waves-reactive-1.partial" / "journal.sqlite").write_bytes(b"half of it")
    cluster.ran.clear()
    assert len(_go(tmp_path).runs) == 2
    assert cluster.ran == ["waves-reactive-1"]
    assert not (folder / "waves-reactive-1.partial").exists()


def test_what_still_lives_of_a_killed_run_is_ended_first(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    class Left:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def down(self) -> None:
            ended.append(self.folder.name)

    class Engine:
        def __init__(self, *, home: Path, **_others: object) -> None:
            self.home = home

        def clear(self) -> None:
            ended.append(self.home.name)

    def left(folder: Path) -> Left | None:
        return Left(folder) if folder.exists() else None

    job = tmp_path / "runs" / spark_experiment.JOBS / "waves-static-1"
    for name in ("cluster", "kafka", "job/engine"):
        (job / name).mkdir(parents=True)
    monkeypatch.setattr(LocalCluster, "find", left)
    monkeypatch.setattr(LocalBroker, "find", left)
    monkeypatch.setattr(Book, "exists", lambda home: home.exists())
    monkeypatch.setattr(spark_experiment, "SparkEngine", Engine)
    _go(tmp_path)
    assert ended == ["engine", "cluster", "kafka"]
    assert len(cluster.ran) == 2


def test_another_plan_never_writes_over_this_one(tmp_path: Path, cluster: Cluster) -> None:
    _go(tmp_path)
    with pytest.raises(BadInputError, match="exists already and is not a try of this plan"):
        _go(tmp_path, text=TINY.replace("peak_per_s = 2000", "peak_per_s = 2001"))
    assert len(cluster.ran) == 2


def test_two_experiments_cannot_write_into_one_folder(tmp_path: Path, cluster: Cluster) -> None:
    with claimed(tmp_path / "runs"), pytest.raises(BadInputError, match="another experiment is writing"):
        _go(tmp_path)
    assert cluster.ran == []


def test_a_run_that_fails_is_told_and_the_others_are_run(tmp_path: Path, cluster: Cluster) -> None:
    def broken() -> None:
        if len(cluster.ran) == 1:
            raise PermanentError("no batch came")

    cluster.meanwhile = broken
    warned: list[str] = []
    outcome = _go(tmp_path, warned=warned)
    assert [run.record.name for run in outcome.runs] == ["waves-reactive-1"]
    assert (outcome.total, outcome.stopped) == (2, False)
    assert warned == [
        "waves-static-1 failed, and does not count: no batch came; the same command does it again.",
    ]


def test_a_run_whose_records_did_not_come_is_told_of(tmp_path: Path, cluster: Cluster) -> None:
    cluster.cut, cluster.problem = "waves-static-1", "LOST: 4 records"
    warned: list[str] = []
    outcome = _go(tmp_path, warned=warned)
    assert [run.record.name for run in outcome.runs] == ["waves-reactive-1"]
    assert warned == [
        "waves-static-1: LOST: 4 records",
        "waves-static-1 had another load than it was to have, and does not count; the same command does it again.",
    ]


def test_what_another_has_completed_meanwhile_is_kept(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _go(tmp_path)
    cluster.ran.clear()
    (tmp_path / "runs" / "waves-reactive-1").rename(tmp_path / "away")

    @contextmanager
    def late(home: Path) -> Iterator[str]:
        (tmp_path / "away").rename(home / "waves-reactive-1")  # until now the folder was another's
        with claimed(home) as token:
            yield token

    monkeypatch.setattr(spark_experiment, "claimed", late)
    assert len(_go(tmp_path).runs) == 2
    assert cluster.ran == []


def test_a_folder_that_holds_only_a_log_is_taken(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tidewise.log").write_text("it failed at once")
    assert len(_go(tmp_path).runs) == len(cluster.ran) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_by_a_signal_means_ctrl_c(tmp_path: Path, cluster: Cluster, number: signal.Signals) -> None:
    cluster.meanwhile = lambda: os.kill(os.getpid(), number)
    with pytest.raises(KeyboardInterrupt):
        _go(tmp_path)
    assert cluster.ran == ["waves-static-1"]


def test_without_java_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise BadInputError("there is no Java")

    monkeypatch.setattr(spark_experiment, "check_spark", missing)
    with pytest.raises(BadInputError, match="there is no Java"):
        _go(tmp_path)
    assert not (tmp_path / "runs").exists()
