"""One query of the job: what its batches add up to, window by window."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tidewise.core import JobStatus
from tidewise.engines.spark.arrivals import Arrivals
from tidewise.engines.spark.batch_cost import BatchCost
from tidewise.engines.spark.latency import LatencyChoice, LatencyStretch, Percentiles, batch_latency, percentiles
from tidewise.engines.spark.partitions import PartitionBook, QueryLag
from tidewise.engines.spark.progress import BatchProgress

_LATE_S = 2.0
_LATE_BATCHES = 3.0
"""Output is late when none came for the interval and this many usual batches, or `_LATE_S` if that is longer."""
_SAYS_IDLE_EVERY_S = 10.0
"""How often a query says that it has nothing to do, unless set otherwise."""
_TRIGGER_SLACK_S = 0.5
"""What may lie between the end of a batch that took too long and the start of the next."""
_REMEMBERED_BATCHES = 200
_WARM_AFTER_S = 60.0
"""For so long after a query has come up, Java still compiles what its batches run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryWindow:
    """What a query did in one window."""

    arrived: float
    """What makes up for earlier windows included."""
    arrival_rate_per_s: float
    """How fast records came, as far as that is known by now."""
    processed: float
    """Replayed records included."""
    backlog: float
    latency: Percentiles | None
    output_missing: bool
    """Whether output was due and none came."""
    busy_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    began_s: float
    committed_s: float
    advance: float
    """Records that it was the first to commit."""
    replayed: float
    latency: LatencyStretch | None
    work_s: float

    def worked_s(self, until_s: float) -> float:
        """Its work up to a time, spread evenly over the time it ran."""
        if until_s >= self.committed_s:
            return self.work_s
        share = (until_s - self.began_s) / (self.committed_s - self.began_s) if until_s > self.began_s else 0.0
        return self.work_s * share


class QueryRecord:
    """The books of one query, in records from where its first known batch began.

    What a window reports is the difference of two readings of the books, so that a correction of what was reported
    before, or a batch that is told of late, counts in the next window and nothing is lost or counted twice:
    arrived = processed - replayed + growth of the backlog. There are two exceptions. Records that already waited when
    the query was first seen are in the backlog, but did not arrive in any window. And where arrivals were carried on at
    a rate at which they do not come any more, so that more were only imagined than come in a window or between two
    batches, these are taken out of the backlog at once (`overestimated`); fewer are made up for by what comes next.

    Input is smooth where a window is no shorter than the time between two batches: how much has arrived is only told
    when a batch commits.
    """

    def __init__(self, *, choice: LatencyChoice, window_s: float) -> None:
        self._choice = choice
        self._window_s = window_s
        self._arrivals = Arrivals()
        self._partitions = PartitionBook()
        self._cost = BatchCost()
        self._runs: dict[int, str] = {}  # by batch, the run that told of it last
        self._shift = 0.0  # from the source's positions to those of the books
        self._position = 0.0  # up to where batches have been told of
        self._run_id: str | None = None
        self._run_began_s = 0.0
        self._first: _Batch | None = None
        self._unreported: list[_Batch] = []
        self._unfinished: list[_Batch] = []  # whose work is not yet all in `_worked_s`
        self._latest: BatchProgress | None = None
        self._latest_began_s = 0.0
        self._last_work_share = 0.0
        self._last_trigger_s = 0.0
        self._found_nothing = False
        self._committed = 0.0  # as reported, and so the next four
        self._newest = 0.0
        self._worked_s = 0.0
        self._busy_s = 0.0
        self._latency: Percentiles | None = None
        self.overestimated = 0.0
        """Records that were reported to wait and never came."""
        self.dropped_records = 0
        """Records that came later than the watermark allows."""
        self.observed: Counter[str] = Counter()
        """What the query counts of its own accord, summed over its batches."""

    @property
    def latest(self) -> BatchProgress | None:
        """The last batch."""
        return self._latest

    @property
    def arrival_rate_per_s(self) -> float | None:
        return self._arrivals.rate_per_s if self._latest is not None and self._latest.backlog_known else None

    @property
    def fixed_cost_s(self) -> float | None:
        """Of the last batch."""
        return self._cost.fixed_s(outside_s=_outside_s(self._latest)) if self._latest is not None else None

    def lag(self, at_s: float) -> QueryLag | None:
        """What waits in each partition; None where the sources have none."""
        return self._partitions.lag(at_s)

    def forget_costs(self, *, same_kind: bool) -> None:
        """Batches take another time from now on; where the executors are not of the same kind, every row does."""
        if same_kind:
            self._cost.forget_durations()
        else:
            self._cost.forget_rows()

    def idle(self, at_s: float) -> None:
        """A trigger at this time found nothing to do."""
        self._last_trigger_s = max(self._last_trigger_s, at_s)
        if self._latest is None or at_s < self._latest_began_s:
            return
        self._found_nothing = True
        if self._latest.backlog_known:
            self._arrivals.tell(at_s, self._position, idle=True)
            self._partitions.idle(at_s)

    def batch(self, progress: BatchProgress, *, committed_s: float, interval_s: float, executors: int = 1) -> None:
        """A batch, once however often it is told of."""
        began_s = committed_s - progress.duration_s
        if not progress.executed:
            self.idle(began_s)
            return
        if self._runs.get(progress.batch_id) == progress.run_id:
            return
        again = progress.batch_id in self._runs
        newest_batch = max(self._runs, default=-1)
        self._runs[progress.batch_id] = progress.run_id
        if len(self._runs) > _REMEMBERED_BATCHES:
            del self._runs[min(self._runs)]
        is_newest = progress.batch_id > newest_batch
        if is_newest:
            self._shift -= self._partitions.take(progress, began_s=began_s, committed_s=committed_s)
            self.dropped_records += sum(operator.dropped_rows for operator in progress.state)
            self.observed.update({name: int(value) for name, value in progress.observed.items() if value.is_integer()})
        advance = self._advance(progress, again=again, is_newest=is_newest)
        is_warm = self._is_warm(progress.run_id, began_s)
        self._cost.learn(progress.rows, progress.duration_s, executors=executors, is_warm=is_warm)
        work_s = self._cost.work_s(
            progress.rows, progress.duration_s, executors=executors, outside_s=_outside_s(progress)
        )
        batch = _Batch(
            began_s=began_s,
            committed_s=committed_s,
            advance=advance,
            replayed=max(0.0, progress.rows - advance) if again else 0.0,
            latency=batch_latency(
                progress,
                choice=self._choice,
                wait_s=self._wait_s(progress, began_s, interval_s),
                interval_s=interval_s,
            ),
            work_s=work_s,
        )
        is_first_told = self._arrivals.position(began_s) is None
        if progress.backlog_known:
            self._arrivals.tell(began_s, max(progress.latest or 0.0, progress.end or 0.0) + self._shift)
        elif progress.end is None:
            self._arrivals = Arrivals()
        # Else the source did not tell this time, as after a restart: what it told before is carried on.
        if self._first is None:
            self._first = batch
        if is_first_told:
            self._newest = max(self._newest, self._arrivals.position(began_s) or 0.0)
        self._unreported.append(batch)
        self._unfinished.append(batch)
        self._last_trigger_s = max(self._last_trigger_s, began_s)
        if self._latest is None or began_s >= self._latest_began_s:
            self._latest, self._latest_began_s = progress, began_s
            self._last_work_share = work_s / progress.duration_s if progress.duration_s > 0.0 else 0.0
            self._found_nothing = False

    def window(self, begin_s: float, end_s: float, *, status: JobStatus, interval_s: float) -> QueryWindow | None:
        """What happened since the last window; None before the first batch. To be called once for each, in order."""
        if self._first is None or self._first.began_s > end_s:
            return None
        ended = [batch for batch in self._unreported if batch.committed_s <= end_s]
        self._unreported = [batch for batch in self._unreported if batch.committed_s > end_s]
        self._committed += sum(batch.advance for batch in ended)
        arrived = self._arrived(begin_s, end_s, interval_s)
        missing = status is JobStatus.DOWN or (not ended and self._is_late(end_s, interval_s))
        fresh = [batch.latency for batch in ended if batch.latency is not None]
        self._latency = percentiles(fresh) or self._latency
        return QueryWindow(
            arrived=arrived,
            arrival_rate_per_s=self._arrival_rate_per_s(begin_s, end_s, arrived),
            processed=sum(batch.advance + batch.replayed for batch in ended),
            backlog=self._newest - self._committed,
            latency=None if missing else self._latency,
            output_missing=missing,
            busy_share=self._busy_share(begin_s, end_s, status=status, interval_s=interval_s),
        )

    def _is_warm(self, run_id: str, began_s: float) -> bool:
        """Whether the query has been up for a while."""
        if run_id != self._run_id:
            self._run_id, self._run_began_s = run_id, began_s
        return began_s - self._run_began_s >= _WARM_AFTER_S

    def _advance(self, progress: BatchProgress, *, again: bool, is_newest: bool) -> float:
        """How far the batch leads beyond all before it, lost reports in between included."""
        start, end = progress.start, progress.end
        if start is None or end is None:
            advance = 0.0 if again else float(progress.rows)
        else:
            if self._first is None or (is_newest and start + self._shift < self._position):
                # The first, or a source that began to count anew.
                self._shift = self._position - start
            advance = max(0.0, end + self._shift - self._position)
        self._position += advance
        return advance

    def _wait_s(self, progress: BatchProgress, began_s: float, interval_s: float) -> float:
        """How long the oldest record of the batch can have waited for the trigger."""
        if self._latest is None or began_s < self._latest_began_s:
            return interval_s or progress.duration_s
        between_s = began_s - self._latest_began_s
        if self._latest.run_id != progress.run_id:
            return between_s
        # Had there been anything to do, the batch would have come no later than this: what is longer was idle.
        return min(between_s, max(interval_s, self._latest.duration_s) + _TRIGGER_SLACK_S)

    def _arrived(self, begin_s: float, end_s: float, interval_s: float) -> float:
        """Bring the newest position up to the end of the window; the records that it passes have arrived in it."""
        rate_per_s = self._arrivals.rate_per_s
        newest = max(self._committed, self._arrivals.position(end_s) or 0.0)
        if end_s - begin_s < self._window_s / 2:
            # A correction would make a large rate of a short window: it is left for the next full one.
            newest = max(self._committed, self._newest + rate_per_s * (end_s - begin_s))
        elif newest < self._newest:
            cycle_s = max(self._window_s, interval_s, self._cost.usual_duration_s)
            if self._newest - newest > rate_per_s * cycle_s:
                self.overestimated += self._newest - newest
                self._newest = newest
            newest = self._newest
        arrived = newest - self._newest
        self._newest = newest
        return arrived

    def _arrival_rate_per_s(self, begin_s: float, end_s: float, arrived: float) -> float:
        at_begin, at_end = self._arrivals.position(begin_s), self._arrivals.position(end_s)
        if at_begin is None or at_end is None:
            return arrived / (end_s - begin_s)
        return max(0.0, at_end - at_begin) / (end_s - begin_s)

    def _is_waiting(self, at_s: float) -> bool:
        """Whether there is something to do; where it cannot be counted, unless the query has said otherwise."""
        newest = self._arrivals.position(at_s)
        return not self._found_nothing if newest is None else newest > self._position

    def _is_late(self, at_s: float, interval_s: float) -> bool:
        patience_s = interval_s + max(_LATE_S, _LATE_BATCHES * self._cost.usual_duration_s)
        if self._latest is not None and not self._latest.backlog_known:
            patience_s += _SAYS_IDLE_EVERY_S
        return at_s - self._last_trigger_s > patience_s and self._is_waiting(at_s)

    def _busy_share(self, begin_s: float, end_s: float, *, status: JobStatus, interval_s: float) -> float:
        """Share of the window that went into records.

        A batch that runs at the end of the window is not known yet: it is taken to have begun when it was due and to
        work as the last one did. What that is wrong by is made up for in the next window, as far as it can hold it.
        """
        worked_s = self._worked_s + sum(batch.worked_s(end_s) for batch in self._unfinished)
        self._worked_s += sum(batch.work_s for batch in self._unfinished if batch.committed_s <= end_s)
        self._unfinished = [batch for batch in self._unfinished if batch.committed_s > end_s]
        if status is JobStatus.RUNNING and not self._unfinished and self._latest is not None:
            due_s = self._latest_began_s + max(interval_s, self._latest.duration_s)
            if end_s > due_s and self._is_waiting(end_s):
                worked_s += self._last_work_share * (end_s - due_s)
        share = (worked_s - self._busy_s) / (end_s - begin_s)
        self._busy_s = worked_s
        return min(1.0, max(0.0, share))


def _outside_s(progress: BatchProgress) -> float:
    return max(0.0, progress.duration_s - progress.durations_ms.get("addBatch", 0.0) / 1000.0)
