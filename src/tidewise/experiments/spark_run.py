"""One run on real Spark: a program of this package, its records, a warm-up, and then a policy in control of it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tidewise.control import SystemClock
from tidewise.core import BadInputError, Configuration, JobStatus, Meter, Purpose, Usage
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.program import SparkProgram
from tidewise.experiments.feed import EmbeddedFeed, Feed, KafkaFeed
from tidewise.experiments.live import LiveRun, LiveSetting, Observer
from tidewise.experiments.record import Run, mark_incomplete
from tidewise.host.java import find_java
from tidewise.host.spark_home import find_spark
from tidewise.kafka.broker import LocalBroker
from tidewise.workload import Rates

Say = Callable[[str], None]
"""Told each step of the set-up, in sentences."""
Watch = Callable[[], AbstractContextManager[Observer]]
"""Shows a run for as long as it is on."""

_CATCH_UP_S, _LOOK_S = 120.0, 1.0
"""How long a job that has come up may take to keep its promise, and how often that is looked at."""
_START_S = 12.0
"""No job starts faster: records that came earlier would only be a backlog to begin with."""
_EMBEDDED = "tidewise-embedded"


def check_spark() -> None:
    """BadInputError with what to install, where Java or Spark is missing."""
    if importlib.util.find_spec("pyspark") is None:  # wherever SPARK_HOME leads: the job is a program in Python
        raise BadInputError("PySpark is not installed: pip install 'tidewise[spark]'")
    find_java()
    find_spark()


def stop(started: LocalCluster | LocalBroker) -> None:
    """End what was started, also where somebody is in a hurry meanwhile."""
    try:
        started.down()
    except KeyboardInterrupt:
        started.down()  # nobody who is in a hurry wants processes left behind
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgram:
    """A program of `tidewise.jobs`, and how it is started."""

    job: str
    """Its name, which is that of its records as well."""
    options: Mapping[str, object]
    """Besides those of its records, its checkpoint and its trigger."""
    driver_cores: float
    driver_memory_mib: int
    """What a driver is charged with."""
    handover: bool = False
    """Whether it may run a second time beside itself: as a successor, or as a copy that is measured."""

    def usage(self, configuration: Configuration, seconds: float) -> Usage:
        """What it uses in this configuration in so much time, its driver included; that needs no controller."""
        return Usage(
            core_s=(configuration.total_cores + self.driver_cores) * seconds,
            memory_mib_s=(configuration.total_memory_mib + self.driver_memory_mib) * seconds,
        )

    def paid_s(self, meter: Meter) -> float:
        """For how long the job was paid for, its stop included."""
        return meter.get(Purpose.DRIVER, Usage()).core_s / self.driver_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a run."""

    run: Run
    told: tuple[str, ...]
    """What its feed has to tell."""
    problem: str | None = None
    """Why it does not count although the job may have been well: records were lost or never sent."""
    stopped: bool
    """Whether somebody ended it early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRun:
    """One load under one policy, on a cluster that is up."""

    folder: Path
    """What belongs to the job: its checkpoint, its schedule, its logs."""
    cluster: LocalCluster
    broker: LocalBroker | None
    """None: the job's source needs none."""
    program: JobProgram
    setting: LiveSetting
    rates_per_s: Rates
    warm_up_s: float
    """How long the job runs before it counts: a JVM that has just started is slow.

    Under the first rates of the day, backwards: how much of a batch is work shows only where the load changes.
    """
    report_every_s: float

    @property
    def checkpoint(self) -> Path:
        return self.folder.absolute() / "checkpoint"

    def run(self, say: Say, watch: Watch) -> Measured:
        """Start the job, warm it up, have it controlled to the end, and leave nothing of it running.

        Ctrl-C ends it early, in order: what was measured until then is in the run. Before anything was measured, and
        the second time, it comes out as KeyboardInterrupt. Where the records did not come as they were to, it ends as
        soon as that is known, and is incomplete.
        """
        self.folder.mkdir(parents=True)
        feed = self._feed()
        # The first rate holds until the run begins.
        feed.start(float(self.rates_per_s[0]), in_s=_START_S)
        try:
            run, stopped = self._run(feed, say, watch)
        finally:
            feed.end()
        problem = feed.problem()
        if problem is not None and run.record.complete:
            run = mark_incomplete(run)
        return Measured(run=run, told=tuple(feed.told()), problem=problem, stopped=stopped)

    def _feed(self) -> Feed:
        if self.broker is None:
            return EmbeddedFeed(self.folder.absolute())
        topic = f"{self.program.job}-{self.setting.label}"
        return KafkaFeed(self.folder.absolute(), self.broker, job=self.program.job, topic=topic)

    def _run(self, feed: Feed, say: Say, watch: Watch) -> tuple[Run, bool]:
        clock = SystemClock()
        say(f"Starting the job on {self.setting.start}, and waiting for its first batch ...")
        job = self._engine(feed, clock).launch(self.setting.start)
        try:
            self._warm_up(job, feed, clock, say)
            with watch() as observer:
                live = LiveRun(job, self.setting, clock=clock, observer=observer, problem=feed.problem)
                return live.run(), live.was_stopped
        except BaseException:
            job.kill()
            raise

    def _warm_up(self, job: SparkJob, feed: Feed, clock: SystemClock, say: Say) -> None:
        self._catch_up(job, clock, say)
        say(f"Warming it up for {self.warm_up_s:.0f} s ...")
        eve = [float(rate) for rate in self.rates_per_s[1 : 1 + int(self.warm_up_s)][::-1]]
        clock.wait_until(clock.now_s() + feed.begin_day(self.rates_per_s, in_s=self.warm_up_s, eve=eve))
        job.forget_spent()
        job.reports()  # A job that starts and catches up tells nothing that a policy should learn from.

    def _catch_up(self, job: SparkJob, clock: SystemClock, say: Say) -> None:
        """Until a report keeps the promised latency: what piled up while the job came up belongs to no policy."""
        promises, give_up_s = self.setting.promises, clock.now_s() + _CATCH_UP_S
        while clock.now_s() < give_up_s:
            reports = job.reports()
            if any(one.status is JobStatus.RUNNING and not promises.broken_by(one) for one in reports):
                return
            clock.wait_until(clock.now_s() + _LOOK_S)
        say(f"It has not caught up within {_CATCH_UP_S:.0f} s.")

    def _engine(self, feed: Feed, clock: SystemClock) -> SparkEngine:
        partitions = self.setting.space.state_partitions
        return SparkEngine(
            program=self._spark_program(feed),
            cluster=self.cluster,
            home=self.folder.absolute() / "engine",
            clock=clock,
            window_s=self.report_every_s,
            repartitions=len(partitions) > 1,
            seed=self.setting.seed,
        )

    def _spark_program(self, feed: Feed) -> SparkProgram:
        start = self.setting.start
        options = {
            **feed.options(),
            "--checkpoint": self.checkpoint,
            "--trigger": f"{start.commit_interval_s:g} seconds",
            **({} if start.state_partitions is None else {"--state-partitions": start.state_partitions}),
            **self.program.options,
        }
        arguments = (str(part) for option in options.items() for part in option)
        return SparkProgram(
            command=(sys.executable, "-m", f"tidewise.jobs.{self.program.job}", *arguments),
            folder=self.folder.absolute(),
            most_executors=self.setting.space.largest.executors,
            handover=self.program.handover,
            replayable_sources=(_EMBEDDED,),
            driver_cores=self.program.driver_cores,
            driver_memory_mib=self.program.driver_memory_mib,
            conf=feed.conf(),
        )
