"""The rows in which a run is told, as a pure function of its journal: the same however often, and in what pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tidewise.control.codec import encode
from tidewise.core import (
    Censored,
    Configuration,
    ControllerStarted,
    ControllerStopped,
    Decided,
    FaultInjected,
    JournalEvent,
    Observation,
    Prices,
    Promises,
    Purpose,
    Reported,
    Usage,
    at_least_s,
)
from tidewise.core.telemetry import Envelope, RecoveryRow, ReportRow, TelemetryRow
from tidewise.engines.spark.program import SparkProgram
from tidewise.experiments.explain_run import RecordedRun
from tidewise.experiments.record import RUN_FILE, RunRecord
from tidewise.experiments.telemetry_changes import ChangesTold
from tidewise.experiments.telemetry_forecasts import ForecastErrors
from tidewise.observe.recoveries import Recovered, RecoveryWatch

_DIGITS = 12
_USUAL = SparkProgram(command=("-",), folder=Path())
"""What the driver of a job file's program is charged with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a journal does not say of its run."""

    job: str
    run: str
    """No other run has it; it is the same while the run is on and when it is over."""
    began_unix_s: float
    """Where 0 of the run's clock lies."""
    program: str | None = None
    """The version of the job's program."""
    policy: str | None = None
    """None: the one that the journal names, if it does."""
    promises: Promises | None = None
    prices: Prices | None = None
    driver: Usage = field(default_factory=Usage)
    """What a driver uses in an hour."""

    def cost_per_hour(self, runs: Configuration) -> float | None:
        """Of what ran, the driver included; None where the prices are not known."""
        if self.prices is None:
            return None
        driver = self.prices.cost(core_s=self.driver.core_s, memory_mib_s=self.driver.memory_mib_s)
        return self.prices.per_hour(runs) + driver


def facts_of_run(run: RecordedRun) -> RunFacts | None:
    """What is known of a run besides its journal; None while it is not yet.

    A run under `tidewise run` says all of it from the beginning. Runs of experiments keep a clock of their own, and say
    their prices when they are over; they are told as if they had ended when the day began on which they were made.
    """
    began_unix_s = run.began_unix_s
    if run.record is not None and began_unix_s is None:
        began_unix_s = _made_unix_s(run.record.created) - run.record.duration_s
    if began_unix_s is None or (run.record is None and run.job is None):
        return None
    with run.open_journal() as journal:
        first = next((event for event in journal.read() if isinstance(event, ControllerStarted)), None)
    if first is None:
        return None
    return RunFacts(
        job=_job_name(run),
        run=run_id(run.name, began_unix_s, encode(first), *_told_apart_by(run)),
        began_unix_s=began_unix_s,
        program=_program(run),
        promises=run.promises,
        prices=run.prices,
        driver=_driver(run),
    )


def run_id(name: str, *known: object) -> str:
    """A name for a run that no other has, from what it was and will be known by."""
    digest = hashlib.sha256(json.dumps([name, *known]).encode()).hexdigest()
    return f"{name}-{digest[:_DIGITS]}"


def driver_of_jobs() -> Usage:
    """What the driver of a program that `tidewise run` starts is charged with, for an hour."""
    return Usage(core_s=3600.0 * _USUAL.driver_cores, memory_mib_s=3600.0 * _USUAL.driver_memory_mib)


def _told_apart_by(run: RecordedRun) -> tuple[str, ...]:
    """What a run without a wall clock is known by besides: others may have its name, and begin as it does.

    Its whole record, plan included; runs that agree in all of it tell the same rows.
    """
    if run.began_unix_s is not None:
        return ()
    return (hashlib.sha256((run.folder / RUN_FILE).read_bytes()).hexdigest(),)


def _made_unix_s(created: str) -> float:
    moment = datetime.fromisoformat(created)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _is_of_a_job_file(record: RunRecord) -> bool:
    return "command" in record.plan


def _job_name(run: RecordedRun) -> str:
    """That of the job file; runs of an experiment, which happen at the same time, are jobs of their own.

    Those have the name of the experiment too: another may have a load, a policy and a seed of the same names.
    """
    if run.job is not None:
        return run.job.name
    if run.record is not None and _is_of_a_job_file(run.record):
        return run.record.load
    experiment = None if run.record is None else run.record.plan.get("name")
    return f"{experiment}-{run.name}" if isinstance(experiment, str) else run.name


def _program(run: RecordedRun) -> str | None:
    if run.job is not None:
        return None if run.job.telemetry is None else run.job.telemetry.program
    table = None if run.record is None else run.record.plan.get("telemetry")
    program = table.get("program") if isinstance(table, dict) else None
    return program if isinstance(program, str) else None


def _driver(run: RecordedRun) -> Usage:
    """Where a job file is known, what its program is charged with; else what was charged on the average."""
    if run.job is not None or run.record is None or _is_of_a_job_file(run.record):
        return driver_of_jobs()
    spent, lasted_s = run.record.meter.get(Purpose.DRIVER, Usage()), run.record.duration_s
    return Usage(core_s=3600.0 * spent.core_s / lasted_s, memory_mib_s=3600.0 * spent.memory_mib_s / lasted_s)


class RunTeller:
    """Is given the events of a run's journal in order, and tells its rows, numbered from 1 on.

    The same events give the same rows with the same numbers, however they are handed over. It remembers what came after
    the last change and within the last minutes, and nothing that grows with the run.
    """

    def __init__(self, facts: RunFacts) -> None:
        self.facts = facts
        self._policy = facts.policy
        self._line = 0
        self._watch = RecoveryWatch()
        self._changes = ChangesTold(prices=facts.prices, began_unix_s=facts.began_unix_s)
        self._forecasts = ForecastErrors(began_unix_s=facts.began_unix_s)
        self._reported_s: float | None = None

    def take(self, event: JournalEvent) -> list[Envelope]:
        """One event; the rows that are known with it."""
        rows: list[TelemetryRow] = []
        if isinstance(event, Reported):
            if self._reported_s is not None and event.observation.time_s <= self._reported_s:
                return []  # what a controller before had told already
            rows += self._report(event.observation)
        elif isinstance(event, Decided) and event.forecast is not None:
            self._forecasts.learn(event.forecast)
        elif isinstance(event, FaultInjected):
            rows += self._recovered(self._watch.failed(event.fault, event.at_s))
        elif isinstance(event, ControllerStarted) and self.facts.policy is None:
            self._policy = event.policy
        rows += self._changes.take(event)
        if isinstance(event, ControllerStopped):
            rows += self._changes.end()
        return self._numbered(rows)

    def end(self) -> list[Envelope]:
        """The journal has ended, and no controller will go on with it."""
        return self._numbered(self._changes.end())

    def _numbered(self, rows: Iterable[TelemetryRow]) -> list[Envelope]:
        told = []
        for row in rows:
            self._line += 1
            facts = self.facts
            told.append(Envelope(job=facts.job, run=facts.run, line=self._line, program=facts.program, row=row))
        return told

    def _report(self, seen: Observation) -> list[TelemetryRow]:
        self._reported_s = seen.time_s
        return [
            report_row(seen, self.facts, policy=self._policy),
            *self._recovered(self._watch.learn(seen)),
            *self._forecasts.report(seen),
        ]

    def _recovered(self, found: Iterable[Recovered]) -> list[RecoveryRow]:
        promises = self.facts.promises
        return [
            RecoveryRow(
                at_unix_s=self.facts.began_unix_s + one.at_s,
                failure=one.kind,
                took_s=at_least_s(one.took_s),
                is_bound=isinstance(one.took_s, Censored),
                rate_per_s=one.rate_per_s,
                executors=one.configuration.executors,
                configuration=str(one.configuration),
                promised_recovery_s=None if promises is None else promises.recovery_s,
            )
            for one in found
        ]


def report_row(seen: Observation, facts: RunFacts, *, policy: str | None) -> ReportRow:
    """A report as it is told."""
    runs, promises = seen.configuration, facts.promises
    return ReportRow(
        at_unix_s=facts.began_unix_s + seen.time_s,
        window_s=seen.window_s,
        status=seen.status.value,
        executors=runs.executors,
        slots_per_executor=runs.slots_per_executor,
        cores_per_executor=runs.cores_per_executor,
        memory_mib_per_executor=runs.memory_mib_per_executor,
        commit_interval_s=runs.commit_interval_s,
        state_partitions=runs.state_partitions,
        load_per_s=seen.load_per_s,
        input_rate_per_s=seen.input_rate_per_s,
        processed_rate_per_s=seen.processed_rate_per_s,
        backlog_records=seen.backlog_records,
        latency_p50_s=seen.latency_p50_s,
        latency_p95_s=seen.latency_p95_s,
        latency_p99_s=seen.latency_p99_s,
        busy_share=seen.busy_share,
        cpu_share=seen.cpu_share,
        memory_share=seen.memory_share,
        state_mib=seen.state_mib,
        policy=policy,
        promised_latency_p95_s=None if promises is None else promises.latency_p95_s,
        promised_recovery_s=None if promises is None else promises.recovery_s,
        cost_per_hour=facts.cost_per_hour(runs),
        currency=None if facts.prices is None else facts.prices.currency,
    )
