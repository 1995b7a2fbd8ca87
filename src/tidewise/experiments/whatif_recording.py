"""A run as it was recorded: what arrived, what was reported, changed and broken, and what that cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from tidewise.core import (
    BadInputError,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    Decided,
    FaultInjected,
    JobStatus,
    Meter,
    Observation,
    Prices,
    Promises,
    Purpose,
    Reported,
    Usage,
    format_duration,
)
from tidewise.experiments.explain_run import RecordedRun, find_recorded
from tidewise.experiments.ledger import Ledger
from tidewise.experiments.measured import measured_series
from tidewise.experiments.record import (
    METER_FILE,
    ChangeRecord,
    FaultRecord,
    load_run,
)
from tidewise.experiments.series import BoolArray, Series
from tidewise.workload import Rates

SHORTEST_S = 120
"""Of less, each half of a run says nothing."""
FEWEST_REPORTS = 20
UNTOLD = "untold"
"""The kind of a failure that showed in the reports and that nobody had injected."""
_NOTICED_WITHIN_S = 120.0
"""A job that goes down so soon after a failure, or the end of a change, goes down because of it."""
_DECIDE_EVERY_S = 60.0
TAIL = 0.45
"""Of a period, how much longer 95 % of the records of a batch wait than half of them do."""
_BLIND = 3.0
"""Reports, or commit intervals where these are longer: for so long nobody has counted what arrives."""
_FRESH = 1.5
"""In the same measure: a count that is no older is as good as a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time in which the job was down though nobody asked for it."""

    begins_s: float
    ends_s: float
    fault: FaultRecord
    """What brought it about, as far as that is known."""

    @property
    def lasted_s(self) -> float:
        return self.ends_s - self.begins_s


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """A run on disk; all times are seconds since control began."""

    name: str
    engine: str
    profile: str | None
    """What the simulator was told to behave like; None: a real engine, or a run whose record was never written."""
    policy: str
    start: Configuration
    promises: Promises | None
    """None: the run was killed before its record was written, or is still on; the same for the prices."""
    prices: Prices | None
    rates_per_s: Rates
    """What arrived in each second; as long as the run was seen."""
    observations: tuple[Observation, ...]
    changes: tuple[ChangeRecord, ...]
    """Those that were applied, in order."""
    faults: tuple[FaultRecord, ...]
    """In order; those that only showed in the reports included."""
    outages: tuple[Outage, ...]
    meter: Meter
    """What was metered; empty where nothing was."""
    metered_s: float
    """For how long."""
    plan: Mapping[str, JsonValue]
    report_every_s: int
    decide_every_s: float
    complete: bool

    @property
    def duration_s(self) -> int:
        return len(self.rates_per_s)

    @property
    def is_simulated(self) -> bool:
        return self.engine == "simulator"

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """All that were reported, each once, in the order in which they first ran."""
        return tuple(dict.fromkeys(report.configuration for report in self.observations))

    def series(self) -> Series:
        """Second by second, by the same rule for every engine: as the reports tell it."""
        return series_of_reports(self.observations, seconds=self.duration_s)


def series_of_reports(observations: Sequence[Observation], *, seconds: int) -> Series:
    """A run second by second as its reports tell it, the clock of which begins with the run."""
    return measured_series(observations, seconds=seconds, since_s=0.0, forecast_per_s=np.full(seconds, np.nan))


def read_recording(path: Path) -> Recording:
    """The run in this folder, finished or not; BadInputError where there is none, or not enough of one."""
    return _Reading(find_recorded(path)).recording()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What came out in the time of a report."""

    time_s: float
    latency_p50_s: float
    half_s: float
    """Half of what lies between the shortest and the longest latency: records wait evenly, from 0 to one period."""

    @property
    def last_arrived_s(self) -> float:
        """When the newest of it had arrived."""
        return self.time_s - max(0.0, self.latency_p50_s - self.half_s)


def outputs(observations: Sequence[Observation]) -> list[Output | None]:
    """Of each report; None where nothing came out, or nobody told how long that had waited.

    Without output, a report repeats the latency of what was output last. Of a job that is down no latency is told: that
    of its first output stands in the report after it.
    """
    found: list[Output | None] = []
    untold: int | None = None
    for number, one in enumerate(observations):
        found.append(None)
        if one.processed_rate_per_s > 0.0:
            untold = number
        if untold is None or one.latency_p50_s is None or one.latency_p95_s is None:
            continue
        half_s = (one.latency_p95_s - one.latency_p50_s) / (2.0 * TAIL)
        found[untold] = Output(time_s=observations[untold].time_s, latency_p50_s=one.latency_p50_s, half_s=half_s)
        untold = None
    return found


class _Reading:
    """The journal of a run, read once."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._folder = run.folder
        self._began: ControllerStarted | None = None
        self._observations: list[Observation] = []
        self._faults: list[FaultInjected] = []
        self._decided_s: list[float] = []
        with run.open_journal() as journal:
            self._ledger = Ledger(journal)
            for event in journal.read():
                self._ledger.note(event)
                if isinstance(event, ControllerStarted):
                    self._began = self._began or event
                elif isinstance(event, Reported):
                    self._observations.append(event.observation)
                elif isinstance(event, FaultInjected):
                    self._faults.append(event)
                elif isinstance(event, Decided):
                    self._decided_s.append(event.at_s)

    def recording(self) -> Recording:
        began, record = self._began, self._run.record
        if began is None:
            raise BadInputError(f"the job of {self._folder} was never controlled, so there is nothing to replay")
        observations = self._since(began.at_s)
        if not observations:
            raise BadInputError(f"the journal of {self._folder} holds no report of the job, so nothing can be fitted")
        seconds = round(observations[-1].time_s)
        if record is not None:
            seconds = min(seconds, math.floor(record.duration_s))
        if seconds < SHORTEST_S or len(observations) < FEWEST_REPORTS:
            raise BadInputError(
                f"{self._folder} shows {format_duration(max(0, seconds))} in {len(observations)} reports, which is too "
                f"little: a fit needs {format_duration(SHORTEST_S)} and {FEWEST_REPORTS} reports"
            )
        is_simulated = record is not None and record.engine == "simulator"
        if not is_simulated:
            observations = counted_afterwards(observations)
        series = series_of_reports(observations, seconds=seconds)
        if is_simulated:
            series = load_run(self._folder).read_series()
        rates = series.input_rate_per_s[:seconds].copy()
        seconds = len(rates)
        if not np.any(rates > 0.0):
            raise BadInputError(f"nothing ever arrived in {self._folder}, so there is no load to replay")
        changes = self._ledger.changes(since_s=began.at_s) if record is None else record.changes
        told = tuple(FaultRecord(at_s=max(0.0, one.at_s - began.at_s), kind=one.fault) for one in self._faults)
        down = _down(observations)
        if is_simulated:
            down = _not_up(series.up[:seconds])  # its reports only tell how it was at their ends
        outages = _outages(down, told, changes)
        if not is_simulated:
            outages = (*outages, *_standstills(observations, told, changes, known=outages))
        outages = tuple(sorted(outages, key=lambda one: one.begins_s))
        untold = [outage.fault for outage in outages if outage.fault.kind == UNTOLD]
        meter, metered_s = self._metered(began.at_s) if record is None else (record.meter, float(seconds))
        return Recording(
            name=self._run.name,
            engine="spark" if record is None else record.engine,
            profile=None if record is None else record.profile,
            policy=began.policy if record is None else record.policy,
            start=began.configuration if record is None else record.start,
            promises=self._run.promises,
            prices=self._run.prices,
            rates_per_s=rates,
            observations=observations,
            changes=tuple(one for one in changes if one.status is ChangeStatus.APPLIED),
            faults=tuple(sorted([one for one in (*told, *untold) if one.at_s < seconds], key=lambda one: one.at_s)),
            outages=outages,
            meter=meter,
            metered_s=metered_s,
            plan=self._plan(),
            report_every_s=max(1, round(float(np.median([one.window_s for one in observations])))),
            decide_every_s=_usual_step(self._decided_s),
            complete=record is not None and record.complete,
        )

    def _plan(self) -> Mapping[str, JsonValue]:
        if self._run.record is not None:
            return self._run.record.plan
        return {} if self._run.job is None else self._run.job.model_dump(mode="json")

    def _since(self, began_s: float) -> tuple[Observation, ...]:
        """The reports of the time under control, in order and each once."""
        kept: list[Observation] = []
        for one in self._observations:
            at_s = one.time_s - began_s
            if at_s > 0.0 and (not kept or at_s > kept[-1].time_s):
                kept.append(replace(one, time_s=at_s))
        return tuple(kept)

    def _metered(self, began_s: float) -> tuple[Meter, float]:
        """What a run without a record had metered so far, and for how long."""
        path = self._folder / METER_FILE
        if not path.is_file():
            return {}, 0.0
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            meter = {Purpose(name): Usage(**usage) for name, usage in content["meter"].items()}
            return meter, max(0.0, float(content["at_s"]) - began_s)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{path} is damaged: {error}; take it away to go without what was metered") from error


def _usual_step(times_s: Sequence[float]) -> float:
    steps = np.diff(times_s)
    steps = steps[steps >= 1.0]
    return float(max(1, round(float(np.median(steps))))) if len(steps) else _DECIDE_EVERY_S


def _down(observations: Sequence[Observation]) -> list[tuple[float, float]]:
    """From when to when the reports say that the job was down."""
    found: list[tuple[float, float]] = []
    for one in observations:
        if one.status is not JobStatus.DOWN:
            continue
        begins_s = max(0.0, one.time_s - one.window_s)
        if found and begins_s - found[-1][1] <= one.window_s:
            found[-1] = found[-1][0], one.time_s
        else:
            found.append((begins_s, one.time_s))
    return found


def _not_up(up: BoolArray) -> list[tuple[float, float]]:
    """From when to when a job was not up, whatever the reason."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], up, [True])).astype(np.int8)))
    return [(float(begin), float(end)) for begin, end in edges.reshape(-1, 2)]


def _outages(
    down: Sequence[tuple[float, float]], faults: Sequence[FaultRecord], changes: Sequence[ChangeRecord]
) -> tuple[Outage, ...]:
    """Each time the job was down with the failure before it; the gaps and troubles of changes are left out."""
    outages = []
    for begins_s, ends_s in down:
        if any(_is_gap(change, begins_s, ends_s) for change in changes):
            continue
        before = [one for one in faults if begins_s - _NOTICED_WITHIN_S <= one.at_s < ends_s]
        if before:
            outages.append(Outage(begins_s=begins_s, ends_s=ends_s, fault=before[-1]))
        elif not any(_is_near(change, begins_s) for change in changes):
            outages.append(Outage(begins_s=begins_s, ends_s=ends_s, fault=FaultRecord(at_s=begins_s, kind=UNTOLD)))
    return tuple(outages)


def _standstills(
    observations: Sequence[Observation],
    faults: Sequence[FaultRecord],
    changes: Sequence[ChangeRecord],
    *,
    known: Sequence[Outage],
) -> tuple[Outage, ...]:
    """Failures after which a job that was said to run put nothing out for long."""
    found: list[Outage] = []
    for fault in faults:
        if any(outage.fault == fault or outage.begins_s <= fault.at_s < outage.ends_s for outage in known):
            continue
        put_out = [one for one in observations if one.processed_rate_per_s > 0.0]
        until_s = next((one.time_s for one in put_out if one.time_s - one.window_s >= fault.at_s), None)
        if until_s is None or until_s - fault.at_s <= _BLIND * _cycle_s(observations):
            continue
        if not any(_is_gap(change, fault.at_s, until_s) for change in changes):
            found.append(Outage(begins_s=fault.at_s, ends_s=until_s, fault=fault))
    return tuple(found)


# What arrived while nobody counted ------------------------------------------------------------------------------


def counted_afterwards(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """The reports with the input and the backlog of times in which nobody counted, as they turned out to be.

    A job of batches counts what has arrived when a batch begins. While none does, for a failure or because one takes
    long, reports carry the last rate on; what that was wrong by is made up for later, or never. Afterwards it is known:
    what all batches up to a time have put out is what had arrived when the last of them began.
    """
    if not observations:
        return ()
    ages = _ages_s(observations)
    cycle_s = _cycle_s(observations)
    done = np.cumsum([one.processed_rate_per_s * one.window_s for one in observations])
    known = done + np.array([one.backlog_records for one in observations])
    mended = list(observations)
    first = 0
    while first < len(ages):
        if ages[first] <= _BLIND * cycle_s:
            first += 1
            continue
        begin = max((index for index in range(first) if ages[index] <= _FRESH * cycle_s), default=0)
        end = next((index for index in range(first, len(ages)) if ages[index] <= _FRESH * cycle_s), len(ages) - 1)
        times, counts = [observations[begin].time_s], [float(known[begin])]
        for index in range(begin + 1, end + 1):
            told_s = observations[index].time_s - ages[index] if index < end else observations[end].time_s
            count = float(done[index] if index < end else known[end])
            if told_s >= times[-1] + cycle_s and counts[-1] <= count <= known[end]:
                times.append(told_s)
                counts.append(count)
        times[-1], counts[-1] = observations[end].time_s, max(counts[-1], float(known[end]))
        ends = np.array([one.time_s for one in observations[begin : end + 1]])
        arrived = np.interp(ends, times, counts)
        for index in range(begin + 1, end + 1):
            came = float(arrived[index - begin] - arrived[index - begin - 1])
            mended[index] = replace(
                observations[index],
                input_rate_per_s=max(0.0, came / observations[index].window_s),
                arrival_rate_per_s=None,
                backlog_records=max(0.0, float(arrived[index - begin] - done[index])),
            )
        first = end + 1
    return tuple(mended)


def _ages_s(observations: Sequence[Observation]) -> list[float]:
    """At the end of each report, how long ago the last batch began that is known to have counted what had arrived."""
    told_s = observations[0].time_s - observations[0].window_s
    ages = []
    for one, output in zip(observations, outputs(observations), strict=True):
        told_s = told_s if output is None else max(told_s, output.last_arrived_s)
        ages.append(one.time_s - told_s)
    return ages


def _cycle_s(observations: Sequence[Observation]) -> float:
    """How long it usually takes until something new is known."""
    return max(float(np.median([max(one.window_s, one.configuration.commit_interval_s) for one in observations])), 1.0)


def _is_gap(change: ChangeRecord, begins_s: float, ends_s: float) -> bool:
    """Whether the job was down because it was being changed."""
    finished_s = math.inf if change.finished_at_s is None else change.finished_at_s
    return change.gap_s > 0.0 and change.requested_at_s <= begins_s + 1.0 and ends_s <= finished_s + 2.0


def _is_near(change: ChangeRecord, at_s: float) -> bool:
    until_s = change.requested_at_s if change.finished_at_s is None else change.finished_at_s
    return change.requested_at_s <= at_s <= until_s + _NOTICED_WITHIN_S
