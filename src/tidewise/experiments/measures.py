"""The figures by which runs are compared, each with one definition; nothing but arithmetic on a record and a series.

Latency is by ARRIVAL: how long the records that arrived in a second waited for their output. ALL seconds count:
those of failures and changes included, a second whose records were never output as infinitely late, and a second in
which the job was down as bad in every figure, whatever the wait of its records. Two kinds are not like the others:

- A second in which nothing arrived has no latency: it is good while the job is up, and left out of the percentiles.
- A second whose records were still waiting when the run ended, for no longer than the limit they are judged by, is
  neither good nor bad (`undecided`): it is left out of shares and percentiles, as if the run had ended before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.core import (
    Censored,
    ChangeStatus,
    Configuration,
    Measured,
    Mechanism,
    Meter,
    Origin,
    Prices,
    Purpose,
    Usage,
    at_least_s,
    recovery_s,
    total,
)
from tidewise.core.recovery import CALM_S
from tidewise.experiments.record import ChangeRecord, FaultRecord, RunRecord
from tidewise.experiments.series import BoolArray, FloatArray, Series

GOOD_FACTOR = 2.0
"""A second is good up to this multiple of the baseline's median latency."""
SLOW_RECOVERY_S = 180.0
"""The recovery time that published results are held against."""
NEW_USUAL_S = 600
"""A job that has not recovered from a failure for this long has found another latency that is usual for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Resources over the whole run, and what they cost."""

    core_h: float
    gib_h: float
    cost: float
    """In the currency of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Parts of what something else took."""

    core: float
    gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverBaseline:
    """What was spent over what the baseline spent, like over like; None where that was nothing."""

    core: float | None
    """Executors over executors."""
    gib: float | None
    by_purpose: Mapping[Purpose, Shares]
    """What each purpose took, over the baseline's executors; without those that took nothing."""
    all_in_core: float | None
    """Everything over everything."""
    all_in_gib: float | None
    cost: float | None
    """Everything over everything, in money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Over all seconds of a run; infinite where that many seconds were never output."""

    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How long the job took to get over one failure."""

    fault: FaultRecord
    took_s: Measured
    """0: not felt. Censored: the next failure or the end of the run came first."""

    @property
    def at_least_s(self) -> float:
        return at_least_s(self.took_s)

    @property
    def until_s(self) -> float:
        return self.fault.at_s + self.at_least_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismUse:
    """All changes of a run by one mechanism."""

    mechanism: Mechanism
    count: int
    failed: int
    rollbacks: int
    gap_s: float
    """Without output because of them, altogether."""
    bad_s_per_change: float | None
    """Bad seconds from the request until calm again; None: each was made while the job recovered from a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run."""

    record: RunRecord
    seconds: int
    executors: Spent
    """The job's executors alone, as published results count."""
    all_in: Spent
    """Everything: drivers, double running, profiling and the controller as well."""
    over_baseline: OverBaseline | None
    """None: there is no static run of the same length on the same load and seed."""
    good_limit_s: float | None
    """Twice the median latency of the baseline, or of the run itself without one; None: no output at all."""
    good_share: float
    """Of all seconds but the undecided: median latency within the limit, job up; 0 where all are undecided."""
    promise_share: float | None
    """The same for 95 % of the records within the promised latency; None: no latency was promised."""
    latency_p50: Percentiles | None
    """Of the seconds' median latencies; None: nothing ever arrived."""
    latency_p95: Percentiles | None
    """Of the seconds' 95th percentiles."""
    never_output_s: int
    """Seconds whose records were not output before the run ended, the undecided left out."""
    undecided_s: int
    """Seconds whose records the end of the run left waiting, within the limit of a good second."""
    down_s: int
    """Seconds in which the job was down, for whatever reason."""
    recoveries: tuple[Recovery, ...]
    uses: tuple[MechanismUse, ...]
    """Mechanisms that were used, by name."""

    @property
    def changes(self) -> int:
        return sum(use.count for use in self.uses)

    @property
    def failed_changes(self) -> int:
        return sum(use.failed for use in self.uses)

    @property
    def rollbacks(self) -> int:
        return sum(use.rollbacks for use in self.uses)

    @property
    def change_gap_s(self) -> float:
        return sum(use.gap_s for use in self.uses)

    @property
    def recovery_mean_s(self) -> Measured | None:
        """None: nothing failed. Censored as soon as one recovery is."""
        return self._recovery(lambda values: sum(values) / len(values))

    @property
    def recovery_max_s(self) -> Measured | None:
        return self._recovery(max)

    def recoveries_over(self, limit_s: float = SLOW_RECOVERY_S) -> int:
        """Those that are known to have taken longer; cut off beyond the limit counts."""
        return sum(1 for recovery in self.recoveries if recovery.at_least_s > limit_s)

    @property
    def kept_promises(self) -> bool:
        """Whether every promise held: on latency, over all seconds, and on each recovery as far as it was seen."""
        promises = self.record.promises
        if self.promise_share is not None and self.promise_share < promises.good_share:
            return False
        return promises.recovery_s is None or self.recoveries_over(promises.recovery_s) == 0

    def _recovery(self, over: Callable[[list[float]], float]) -> Measured | None:
        if not self.recoveries:
            return None
        value = float(over([recovery.at_least_s for recovery in self.recoveries]))
        censored = any(isinstance(recovery.took_s, Censored) for recovery in self.recoveries)
        return Censored(at_least=value) if censored else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What other runs on the same load and seed are held against."""

    median_latency_s: float | None
    """Over its up seconds with output; None: it never gave any."""
    meter: Meter
    seconds: int


def baseline_of(record: RunRecord, series: Series) -> Baseline:
    """What is needed of a static run to hold others against it."""
    return Baseline(median_latency_s=_median_latency_s(series), meter=record.meter, seconds=len(series))


def summarise(record: RunRecord, series: Series, baseline: Baseline | None = None) -> Summary:
    """All figures of a run; without a baseline, good seconds are held against the run's own median latency."""
    comparable = baseline if baseline is not None and baseline.seconds == len(series) else None
    median_s = _median_latency_s(series) if baseline is None else baseline.median_latency_s
    limit_s = None if median_s is None else GOOD_FACTOR * median_s
    promised_s = record.promises.latency_p95_s
    undecided = undecided_seconds(series, series.latency_p50_s, limit_s)
    recoveries = recoveries_of(record.faults, series)
    return Summary(
        record=record,
        seconds=len(series),
        executors=_spent(record.meter, record.prices, executors_only=True),
        all_in=_spent(record.meter, record.prices),
        over_baseline=None if comparable is None else _over(record, comparable.meter),
        good_limit_s=limit_s,
        good_share=good_share(series, series.latency_p50_s, limit_s),
        promise_share=None if promised_s is None else good_share(series, series.latency_p95_s, promised_s),
        latency_p50=_percentiles(counted_latency_s(series, series.latency_p50_s, limit_s)),
        latency_p95=_percentiles(counted_latency_s(series, series.latency_p95_s, limit_s)),
        never_output_s=int((np.isinf(waited_s(series, series.latency_p50_s)) & ~undecided).sum()),
        undecided_s=int(undecided.sum()),
        down_s=int((~series.up).sum()),
        recoveries=recoveries,
        uses=_uses(record.changes, bad_seconds(series, series.latency_p50_s, limit_s), recoveries),
    )


def counted_latency_s(series: Series, latency_s: FloatArray, limit_s: float | None) -> FloatArray:
    """The latency of each second as it counts: infinite if never output, and while down above the good limit.

    Without the seconds in which nothing arrived, and without the undecided.
    """
    least_bad_s = math.inf if limit_s is None else np.nextafter(limit_s, math.inf)
    waited = waited_s(series, latency_s)
    counted = np.where(series.up, waited, np.maximum(waited, least_bad_s))
    return counted[~np.isnan(counted) & ~undecided_seconds(series, latency_s, limit_s)]


def good_share(series: Series, latency_s: FloatArray, limit_s: float | None) -> float:
    """Good seconds among all that are decided."""
    decided = len(series) - int(undecided_seconds(series, latency_s, limit_s).sum())
    return float(good_seconds(series, latency_s, limit_s).sum()) / decided if decided else 0.0


def good_seconds(series: Series, latency_s: FloatArray, limit_s: float | None) -> BoolArray:
    """In which seconds the job was up and the records that arrived were output within the limit."""
    if limit_s is None:
        return np.zeros(len(series), dtype=np.bool_)
    waited = waited_s(series, latency_s)
    return series.up & (np.isnan(waited) | (waited <= limit_s))


def undecided_seconds(series: Series, latency_s: FloatArray, limit_s: float | None) -> BoolArray:
    """In which seconds the job was up and the records that arrived had not waited too long yet when the run ended."""
    if limit_s is None:
        return np.zeros(len(series), dtype=np.bool_)
    age_s = len(series) - series.second
    return series.up & np.isinf(waited_s(series, latency_s)) & (age_s <= limit_s)


def bad_seconds(series: Series, latency_s: FloatArray, limit_s: float | None) -> BoolArray:
    """Those that are neither good nor undecided."""
    return ~(good_seconds(series, latency_s, limit_s) | undecided_seconds(series, latency_s, limit_s))


def recoveries_of(faults: Sequence[FaultRecord], series: Series) -> tuple[Recovery, ...]:
    """From each failure until the latency was back to twice what it had been, as `core.recovery_s` defines it.

    The next failure cuts a recovery off, and what it cut off does not tell what was usual: the seconds before the
    earlier failure do, unless that lies more than `NEW_USUAL_S` back.
    """
    waited = waited_s(series, series.latency_p50_s)
    recoveries: list[Recovery] = []
    undisturbed_until = 0
    for index, fault in enumerate(faults):
        recovering = bool(recoveries) and isinstance(recoveries[-1].took_s, Censored)
        if not recovering or fault.at_s - undisturbed_until > NEW_USUAL_S:
            undisturbed_until = int(fault.at_s)
        took_s = recovery_s(
            waited_s=waited,
            up=series.up,
            fault_s=fault.at_s,
            end=_next_fault(faults, index, len(series)),
            undisturbed_until=undisturbed_until,
        )
        recoveries.append(Recovery(fault=fault, took_s=took_s))
    return tuple(recoveries)


def _next_fault(faults: Sequence[FaultRecord], index: int, end: int) -> int:
    """The second in which a recovery is cut off; faults of the same second are one failure."""
    second = int(faults[index].at_s)
    return min([int(later.at_s) for later in faults[index + 1 :] if int(later.at_s) > second], default=end)


def _calm_from(bad: BoolArray, start: int) -> int | None:
    """The first second from `start` on that begins `CALM_S` seconds without a bad one; None: there is none."""
    until = np.concatenate(([0], np.cumsum(bad[start:])))
    calm = np.flatnonzero(until[CALM_S:] == until[:-CALM_S])
    return start + int(calm[0]) if calm.size else None


def _uses(changes: Sequence[ChangeRecord], bad: BoolArray, recoveries: Sequence[Recovery]) -> tuple[MechanismUse, ...]:
    outside = np.ones(bad.size, dtype=np.bool_)
    for recovery in recoveries:
        outside[int(recovery.fault.at_s) : math.ceil(recovery.until_s)] = False
    bad_outside = bad & outside
    by_mechanism: dict[Mechanism, list[ChangeRecord]] = {}
    bad_s: dict[Mechanism, list[int]] = {}
    for index, change in enumerate(changes):
        by_mechanism.setdefault(change.mechanism, []).append(change)
        start = min(int(change.requested_at_s), bad.size - 1)
        if not outside[start]:
            continue
        # Each bad second belongs to one change, the last that was asked for.
        cut = int(changes[index + 1].requested_at_s) if index + 1 < len(changes) else bad.size
        finished = cut if change.finished_at_s is None else min(int(change.finished_at_s), cut)
        calm = _calm_from(bad[:cut], finished)
        bad_s.setdefault(change.mechanism, []).append(int(bad_outside[start : cut if calm is None else calm].sum()))
    return tuple(
        MechanismUse(
            mechanism=mechanism,
            count=len(made),
            failed=sum(1 for change in made if change.status is ChangeStatus.FAILED),
            rollbacks=sum(1 for change in made if change.origin is Origin.ROLLBACK),
            gap_s=sum(change.gap_s for change in made),
            bad_s_per_change=float(np.mean(bad_s[mechanism])) if mechanism in bad_s else None,
        )
        for mechanism, made in sorted(by_mechanism.items())
    )


def waited_s(series: Series, latency_s: FloatArray) -> FloatArray:
    """Infinite where records arrived and were never output; NaN where none arrived."""
    return np.where(np.isnan(latency_s) & (series.input_rate_per_s > 0), np.inf, latency_s)


def _median_latency_s(series: Series) -> float | None:
    known = series.latency_p50_s[series.up & ~np.isnan(series.latency_p50_s)]
    return float(np.median(known)) if known.size else None


def _percentiles(latency_s: FloatArray) -> Percentiles | None:
    if not latency_s.size:
        return None
    ordered = np.sort(latency_s)

    def at(share: float) -> float:
        # A latency that occurred, not one between two: half of infinity is no number.
        return float(ordered[math.ceil(share * ordered.size) - 1])

    return Percentiles(p50_s=at(0.5), p95_s=at(0.95), p99_s=at(0.99))


def _spent(meter: Meter, prices: Prices, *, executors_only: bool = False) -> Spent:
    usage = meter.get(Purpose.EXECUTORS, Usage()) if executors_only else total(meter)
    return Spent(
        core_h=usage.core_s / 3600,
        gib_h=usage.memory_mib_s / 1024 / 3600,
        cost=prices.cost(core_s=usage.core_s, memory_mib_s=usage.memory_mib_s),
    )


def _over(record: RunRecord, base: Meter) -> OverBaseline:
    """Both at the prices of the run."""
    mine, other = (_spent(meter, record.prices, executors_only=True) for meter in (record.meter, base))
    all_mine, all_other = (_spent(meter, record.prices) for meter in (record.meter, base))
    return OverBaseline(
        core=_ratio(mine.core_h, other.core_h),
        gib=_ratio(mine.gib_h, other.gib_h),
        by_purpose=_by_purpose(record.meter, base),
        all_in_core=_ratio(all_mine.core_h, all_other.core_h),
        all_in_gib=_ratio(all_mine.gib_h, all_other.gib_h),
        cost=_ratio(all_mine.cost, all_other.cost),
    )


def _by_purpose(meter: Meter, base: Meter) -> dict[Purpose, Shares]:
    executors = base.get(Purpose.EXECUTORS, Usage())
    if not executors.core_s or not executors.memory_mib_s:
        return {}
    return {
        purpose: Shares(core=used.core_s / executors.core_s, gib=used.memory_mib_s / executors.memory_mib_s)
        for purpose, used in meter.items()
        if used.core_s or used.memory_mib_s
    }


def configurations_of(record: RunRecord) -> list[tuple[float, Configuration]]:
    """From when on the job ran with which configuration, as far as its changes tell; executors lost are not in it."""
    applied = [change for change in record.changes if change.status is ChangeStatus.APPLIED]
    finished = [(change.finished_at_s, change.target) for change in applied if change.finished_at_s is not None]
    return [(0.0, record.start), *finished]


def _ratio(value: float, base: float) -> float | None:
    return value / base if base else None
