"""Measures a real Spark job on this machine for the simulator profile `spark-local`; `fit_spark_local` does the rest.

One job runs throughout. Its executors join one by one; then, warm, at four executors and fewer, it gets a row of rates
from little to more than it can do; then it is changed and broken in every way the profile knows, round by round, until
the time is over.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Literal

from tidewise.control import SystemClock
from tidewise.core import (
    BadInputError,
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    Mechanism,
    Observation,
    Origin,
    Reason,
    TemporaryError,
    TidewiseError,
)
from tidewise.engines.spark.cgroups import BOOST_S
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.program import SparkProgram
from tidewise.experiments.spark_measurement import (
    AfterStart,
    Batch,
    Change,
    Circumstances,
    Fault,
    Sizes,
    SparkMeasurement,
    Stretch,
)
from tidewise.host.processes import descendants
from tidewise.jobs.embedded import NAME
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise_agent.proc import stat_of

MOST_EXECUTORS = 4
_WORK = 400
"""Makes a record cost about what it costs a job that parses text."""
_READ_TASKS = 12
"""Can be shared out evenly among one, two, three and four executors."""
_STATE_PARTITIONS = 2
_START = Configuration(
    executors=1,
    cores_per_executor=0.5,
    memory_mib_per_executor=1024,
    commit_interval_s=1.0,
    state_partitions=_STATE_PARTITIONS,
)
_LEVELS = (0.25, 0.5, 0.8, 1.4, 0.3)
"""Of what the executors can do, by a first guess: the last but one is too much, and the last lets them catch up."""
_LOW, _HIGH = 0.3, 0.7
_GUESS_PER_CORE = 30_000.0
"""Records that a core does in a second, before anything is known."""
_MOST_OFF = 4.0
"""By how much that guess may be wrong."""
_BURST_S = 3.0
_STRETCH_S = 5
_ROUNDS = 3
_SETTLE_S = 3.0
_COLD_S = 18.0
"""How long batches after a cold start are kept."""
_WATCH_AFTER_S = 6.0
_CHANGE_WITHIN_S = 120.0
_RECOVER_WITHIN_S = 90.0
_REASON = Reason(code="measurement", sentence="A measurement finds out what a change costs.")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Committed:
    """One batch, as it was seen."""

    committed_s: float
    """On the clock of the run."""
    rows: int
    duration_s: float


@dataclass(slots=True, kw_only=True)
class _Findings:
    """What has been measured so far."""

    stretches: list[Stretch] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    after_start: list[AfterStart] = field(default_factory=list)
    load_averages: list[float] = field(default_factory=list)
    executor_jvm_mib: list[float] = field(default_factory=list)
    executor_python_mib: list[float] = field(default_factory=list)
    driver_mib: list[float] = field(default_factory=list)


class _Load:
    """The rate that is offered to the job, changed from one second to the next."""

    def __init__(self, file: Path, rate_per_s: float) -> None:
        self._file = file
        self._began_s = time.time()
        self._rates = [rate_per_s]
        self._write()

    @property
    def rate_per_s(self) -> float:
        return self._rates[-1]

    def offer(self, rate_per_s: float) -> None:
        """Bring this rate from the second after next on; returns when it holds."""
        passed = int(time.time() - self._began_s) + 2
        self._rates += [self.rate_per_s] * (passed - len(self._rates))
        self._rates.append(rate_per_s)
        self._write()
        time.sleep(max(0.0, self._began_s + len(self._rates) - 1 - time.time()))

    def _write(self) -> None:
        write_schedule(self._file, Schedule(began_unix_s=self._began_s, rates_per_s=tuple(self._rates)))


class _Measuring:
    """The job, and what is done with it."""

    def __init__(self, *, job: SparkJob, cluster: LocalCluster, clock: SystemClock, load: _Load) -> None:
        self._job = job
        self._cluster = cluster
        self._clock = clock
        self._load = load
        self._per_core = _GUESS_PER_CORE
        self._batches: list[_Committed] = []
        self._last_unix_s = 0.0
        self._reports: list[Observation] = []
        self.found = _Findings()

    # Watching

    def watch(self, seconds: float) -> None:
        """Let time pass and keep what is told."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._look()
            time.sleep(0.05)

    def _look(self) -> None:
        self._reports += self._job.reports()
        fleet = self._job.fleet
        with fleet.news:
            # In a handover the successor commits before it is the active one.
            applications = list(fleet.applications.values())
            committed = max((time for one in applications for time in one.committed_unix_s.values()), default=0.0)
            queries = self._job.detail().queries
        if queries and committed > self._last_unix_s:
            self._last_unix_s = committed
            self._batches.append(
                _Committed(
                    committed_s=fleet.run_time_s(committed),
                    rows=queries[0].rows,
                    duration_s=queries[0].durations_ms.get("triggerExecution", 0.0) / 1000,
                )
            )

    def _since(self, from_s: float) -> list[_Committed]:
        return [batch for batch in self._batches if batch.committed_s > from_s and batch.duration_s > 0.0]

    def _usual_s(self) -> float:
        """How long a batch took lately."""
        return statistics.median(batch.duration_s for batch in self._batches[-6:])

    def _catch_up(self) -> None:
        """Wait, for a while, until the job keeps up with a small load."""
        self._load.offer(self._rate(_LOW, self._job.observed().executors))
        until_s = time.monotonic() + 12.0
        while time.monotonic() < until_s:
            self.watch(_SETTLE_S)
            if all(batch.duration_s < 2.0 for batch in self._batches[-2:]):
                return

    def _rate(self, share: float, executors: int) -> float:
        return round(share * self._per_core * executors * _START.cores_per_executor, -1)

    # Capacity

    def warm_up(self, *, executors: int) -> None:
        """Let executors join one by one, then work hard for a while."""
        self.keep_cold_batches(0.0)
        for count in range(2, executors + 1):
            self._load.offer(self._rate(_HIGH, count - 1))
            self.resize(count)
        self._load.offer(self._rate(_HIGH, executors))
        # What may use a whole core while it starts must not any more.
        self.watch(BOOST_S + 2.0)

    def calibrate(self, *, executors: int) -> None:
        """Find out about how many records a core does, so that the rates to come are neither too few nor too many."""
        before = len(self._batches)
        self._load.offer(2.0 * self._rate(1.0, executors))
        self.watch(_BURST_S)
        self._catch_up()
        batches = sorted(self._batches[before:], key=lambda batch: batch.rows)
        if len(batches) < 2 or batches[-1].duration_s <= batches[0].duration_s:
            raise TemporaryError("batches with more rows did not take longer: the first guess of the rates stays")
        small, large = batches[0], batches[-1]
        cores = executors * _START.cores_per_executor
        found = (large.rows - small.rows) / (large.duration_s - small.duration_s) / cores
        self._per_core = min(_MOST_OFF * _GUESS_PER_CORE, max(_GUESS_PER_CORE / _MOST_OFF, found))

    def rates(self, *, executors: int, levels: tuple[float, ...]) -> None:
        """A row of rates on so many executors."""
        if self._job.observed().executors != executors:
            self.resize(executors)
        self._catch_up()
        for level in levels:
            if level == 0.0:
                # What is left to do, and the batch that closes windows, come first.
                self._load.offer(0.0)
                self.watch(2 * _SETTLE_S)
            self._stretch(executors, self._rate(level, executors))
        self._weigh()

    def _stretch(self, executors: int, rate_per_s: float) -> None:
        self._load.offer(rate_per_s)
        began_s, before, reports = self._clock.now_s(), self._cpu(), len(self._reports)
        self.watch(_STRETCH_S)
        spent = [after - earlier for after, earlier in zip(self._cpu(), before, strict=True)]
        told = [report for report in self._reports[reports:] if report.latency_p50_s is not None]
        state = [report.state_mib for report in told if report.state_mib is not None]
        self.found.stretches.append(
            Stretch(
                executors=executors,
                rate_per_s=rate_per_s,
                seconds=_STRETCH_S,
                batches=tuple(Batch(rows=one.rows, duration_s=one.duration_s) for one in self._since(began_s)),
                executors_cpu_s=round(spent[0], 3),
                driver_cpu_s=round(spent[1], 3),
                controller_cpu_s=round(spent[2], 3),
                machine_cpu_s=round(spent[3], 3),
                latency_p50_s=_median(report.latency_p50_s for report in told),
                latency_p95_s=_median(report.latency_p95_s for report in told),
                latency_p99_s=_median(report.latency_p99_s for report in told),
                state_mib=round(max(state), 3) if state else None,
            )
        )

    def _cpu(self) -> tuple[float, float, float, float]:
        """CPU used so far by executors, driver, controller and everybody."""
        active, limits = self._job.fleet.active, self._cluster.cpu_limits
        assert limits is not None  # noqa: S101 -- looked at before anything was started
        executors = sum(limits.cpu_s(active.spark_id or "", name) or 0.0 for name in active.executor_ids)
        driver = sum(_process_cpu_s(pid) for pid in _tree(active.process.pid))
        return executors, driver, time.process_time(), _machine_cpu_s()

    def _weigh(self) -> None:
        """How much memory everybody takes."""
        active = self._job.fleet.active
        for executor in self._cluster.executor_processes(active.spark_id or ""):
            if executor.identity is not None:
                self.found.executor_jvm_mib.append(_resident_mib(executor.identity.pid))
                below = [_resident_mib(one.pid) for one in descendants(executor.identity.pid)]
                self.found.executor_python_mib.append(round(sum(below), 1))
        self.found.driver_mib.append(round(sum(_resident_mib(pid) for pid in _tree(active.process.pid)), 1))

    # Changes and faults

    def change(self, target: Configuration, mechanism: Mechanism) -> ChangeOutcome:
        """Make a change, wait for its end and write down what it cost."""
        source, now_s = self._job.observed(), self._clock.now_s()
        request = ChangeRequest(
            request_id=uuid.uuid4().hex,
            origin=Origin.OPERATOR,
            source=source,
            target=target,
            mechanism=mechanism,
            requested_at_s=now_s,
            deadline_s=now_s + _CHANGE_WITHIN_S,
            reason=_REASON,
        )
        usual_s = self._usual_s()
        self._begin(request)
        while (outcome := self._job.change_outcome(request.request_id)) is None:
            self.watch(0.1)
        gap = (now_s, now_s) if mechanism is Mechanism.LIVE else self._longest(now_s, outcome.finished_at_s)
        self.found.changes.append(
            Change(
                mechanism=mechanism,
                executors_before=source.executors,
                executors_after=target.executors,
                rate_per_s=self._load.rate_per_s,
                took_s=round(outcome.finished_at_s - now_s, 3),
                prepared_s=round(max(0.0, gap[0] - now_s), 3),
                no_commit_s=round(gap[1] - gap[0], 3),
                batch_s=round(usual_s, 3),
                failure="" if outcome.status is ChangeStatus.APPLIED else outcome.detail,
            )
        )
        return outcome

    def resize(self, executors: int) -> None:
        """Let executors join or leave."""
        self.change(self._job.observed().with_executors(executors), Mechanism.LIVE)

    def _begin(self, request: ChangeRequest) -> None:
        until_s = time.monotonic() + _RECOVER_WITHIN_S
        while True:
            try:
                self._job.change(request)
            except TemporaryError:
                if time.monotonic() > until_s:
                    raise
                self.watch(1.0)
            else:
                return

    def _longest(self, from_s: float, to_s: float) -> tuple[float, float]:
        """The longest time without a commit around these two."""
        self.watch(0.5)
        times = [batch.committed_s for batch in self._batches if batch.committed_s <= to_s + 0.5]
        pairs = [(a, b) for a, b in pairwise(times) if b > from_s]
        return max(pairs, key=lambda pair: pair[1] - pair[0], default=(from_s, from_s))

    def alter(self, mechanism: Mechanism) -> None:
        """One change of a kind, and what comes after it."""
        self._catch_up()
        now = self._job.observed()
        if mechanism is Mechanism.REPARTITION:
            partitions = 2 * _STATE_PARTITIONS if now.state_partitions == _STATE_PARTITIONS else _STATE_PARTITIONS
            target = replace(now, state_partitions=partitions)
        elif mechanism is Mechanism.QUERY_RESTART:
            target = replace(now, commit_interval_s=1.25 if now.commit_interval_s == 1.0 else 1.0)
        else:
            target = replace(now, memory_mib_per_executor=1024 if now.memory_mib_per_executor != 1024 else 1088)
        self.change(target, mechanism)
        if mechanism is Mechanism.REDEPLOY:
            self.keep_cold_batches(self._batches[-1].committed_s - 0.01)

    def keep_cold_batches(self, from_s: float) -> None:
        """The batches of an application that has just been started, for a while."""
        self.watch(_COLD_S)
        batches, executors = self._since(from_s), self._job.observed().executors
        self.found.after_start += [
            AfterStart(
                since_first_commit_s=round(one.committed_s - batches[0].committed_s, 3),
                executors=executors,
                rows=one.rows,
                duration_s=one.duration_s,
            )
            for one in batches
        ]

    def break_something(self, kind: Literal["kill-executor", "kill-driver"]) -> None:
        """One fault, and how the job gets over it."""
        self._catch_up()
        executors, usual_s, recoveries = self._job.observed().executors, self._usual_s(), len(self._job.recoveries)
        at_s = self._clock.now_s()
        self._job.inject(kind)
        until_s = time.monotonic() + _RECOVER_WITHIN_S
        whole_s: float | None = None
        lost = False
        while time.monotonic() < until_s and whole_s is None:
            self.watch(0.2)
            count = self._executors_there()
            lost = lost or count < executors
            replaced = kind == "kill-executor" or len(self._job.recoveries) > recoveries
            if lost and count >= executors and replaced and self._since(at_s):
                whole_s = self._clock.now_s() - at_s
        self.watch(_WATCH_AFTER_S)
        commits = self._since(at_s)
        if not commits:
            raise TemporaryError(f"nothing was committed within {_RECOVER_WITHIN_S:g} s after {kind}")
        silent = self._longest(at_s, self._clock.now_s())
        noticed = [one.died_at_s - at_s for one in self._job.recoveries[recoveries:]]
        self.found.faults.append(
            Fault(
                kind=kind,
                executors=executors,
                rate_per_s=self._load.rate_per_s,
                noticed_s=round(max(0.0, noticed[0]), 3) if noticed else None,
                committed_s=round(commits[0].committed_s - at_s, 3),
                no_commit_s=round(silent[1] - silent[0], 3),
                whole_s=None if whole_s is None else round(whole_s, 3),
                batch_s=round(usual_s, 3),
            )
        )
        if kind == "kill-driver":
            self.keep_cold_batches(at_s)

    def _executors_there(self) -> int:
        fleet = self._job.fleet
        with fleet.news:
            active = fleet.applications.get(fleet.active_key or "")
            return 0 if active is None else len(active.executor_ids)


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 3) if known else None


def _tree(pid: int) -> list[int]:
    return [pid, *(one.pid for one in descendants(pid))]


def _process_cpu_s(pid: int) -> float:
    stat = stat_of(pid)
    return 0.0 if stat is None else stat.cpu_s


def _machine_cpu_s() -> float:
    user, nice, system = Path("/proc/stat").read_text(encoding="utf-8").split()[1:4]
    return (int(user) + int(nice) + int(system)) / _TICKS_PER_S


def _resident_mib(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return round(pages * resource.getpagesize() / 1024**2, 1)


@contextmanager
def _running() -> Iterator[_Measuring]:
    """A cluster and a job of its own, both gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tidewise-measure-"))
    try:
        cluster = LocalCluster.up(folder / "cluster")
        try:
            if cluster.cpu_limits is None:
                raise BadInputError(f"executors cannot be told apart by their CPU here: {cluster.cpu_reason}")
            load = _Load(folder / "schedule.json", round(_LOW * _GUESS_PER_CORE * _START.cores_per_executor))
            clock = SystemClock()
            job = _engine(folder, cluster, clock).launch(_START)
            try:
                yield _Measuring(job=job, cluster=cluster, clock=clock, load=load)
            finally:
                job.stop()
        finally:
            cluster.down()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _engine(folder: Path, cluster: LocalCluster, clock: SystemClock) -> SparkEngine:
    options = {
        "--schedule": folder / "schedule.json",
        "--checkpoint": folder / "checkpoint",
        "--partitions": _READ_TASKS,
        "--state-partitions": _STATE_PARTITIONS,
        "--work": _WORK,
    }
    arguments = (str(part) for option in options.items() for part in option)
    return SparkEngine(
        program=SparkProgram(
            command=(sys.executable, "-m", "tidewise.jobs.clicks", *arguments),
            folder=folder,
            most_executors=2 * MOST_EXECUTORS,
            handover=True,
            replayable_sources=(NAME,),
        ),
        cluster=cluster,
        home=folder / "job",
        clock=clock,
        window_s=1.0,
        repartitions=True,
    )


def measure(
    *,
    seconds: float,
    quick: bool,
    say: Callable[[str], None],
    save: Callable[[SparkMeasurement], None],
) -> None:
    """All of it in about so much time, saved again after each part; `quick` leaves out most of it, as a trial."""
    began_s = time.monotonic()
    most, levels = (2, (0.5, 1.4)) if quick else (MOST_EXECUTORS, _LEVELS)
    with _running() as measuring:

        def part(name: str, work: Callable[[], None]) -> None:
            passed_s = time.monotonic() - began_s
            say(f"{passed_s:.0f} s: {name}")
            measuring.found.load_averages.append(round(os.getloadavg()[0], 2))
            try:
                work()
            except TidewiseError as error:
                say(f"{name} failed: {error}")
            save(_measurement(measuring.found, time.monotonic() - began_s))

        part("executors join, and warm up", lambda: measuring.warm_up(executors=most))
        part("how much it can do", lambda: measuring.calibrate(executors=most))
        for executors in range(most, 0, -1):
            part(f"rates on {executors} executors", partial(measuring.rates, executors=executors, levels=levels))
            if executors == most:
                part("no load", lambda: measuring.rates(executors=most, levels=(0.0,)))
        part("an executor joins", lambda: measuring.resize(2))
        steps: list[tuple[str, float, Callable[[], None]]] = [
            ("query restart", 15.0, lambda: measuring.alter(Mechanism.QUERY_RESTART)),
            ("an executor is killed", 30.0, lambda: measuring.break_something("kill-executor")),
            ("repartition", 25.0, lambda: measuring.alter(Mechanism.REPARTITION)),
            ("handover", 50.0, lambda: measuring.alter(Mechanism.HANDOVER)),
            ("redeploy", 65.0, lambda: measuring.alter(Mechanism.REDEPLOY)),
            ("the driver is killed", 65.0, lambda: measuring.break_something("kill-driver")),
        ]
        for number in range(1 if quick else _ROUNDS):
            for name, takes_s, step in steps[:3] if quick else steps:
                if number == 0 or time.monotonic() - began_s + takes_s < seconds:
                    part(name, step)


def _measurement(found: _Findings, seconds: float) -> SparkMeasurement:
    return SparkMeasurement(
        circumstances=Circumstances(
            date=datetime.now(tz=UTC).date().isoformat(),
            python=platform.python_version(),
            pyspark=version("pyspark"),
            machine_cores=os.cpu_count() or 1,
            load_averages=tuple(found.load_averages),
            seconds=round(seconds, 1),
            work=_WORK,
            read_tasks=_READ_TASKS,
            cores_per_executor=_START.cores_per_executor,
            memory_mib_per_executor=_START.memory_mib_per_executor,
            commit_interval_s=_START.commit_interval_s,
        ),
        stretches=tuple(found.stretches),
        changes=tuple(found.changes),
        faults=tuple(found.faults),
        after_start=tuple(found.after_start),
        sizes=Sizes(
            executor_jvm_mib=tuple(found.executor_jvm_mib),
            executor_python_mib=tuple(found.executor_python_mib),
            driver_mib=tuple(found.driver_mib),
            controller_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        ),
    )


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m tidewise.experiments.measure_spark_local", description=__doc__)
    parser.add_argument("to", type=Path, help="the JSON file to write")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to begin further rounds (default: 600)")
    parser.add_argument("--quick", action="store_true", help="try it out: two executors, two rates, no new application")
    options = parser.parse_args()
    # Whoever ends it, cluster and job are ended with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(
            seconds=options.seconds,
            quick=options.quick,
            say=lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201 -- a program tells its user
            save=lambda measured: measured.write(options.to),
        )
    except TidewiseError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
