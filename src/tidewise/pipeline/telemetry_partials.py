"""Tables that sum reports up, as rows that can be merged: counts, sums, sums of squares, highest and lowest.

A batch folds its reports into partial rows; partial rows of one key merge into one, in any order and grouping; final
rows (means, standard deviations) are computed from merged ones. What a report tells weighs as long as its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidewise.core.telemetry import ReportRow
from tidewise.pipeline.telemetry_schema import ENVELOPE, Column, row_columns

PARTITIONS = ("day", "bucket")
"""What all tables are divided by, and so in every key: rows of one key lie in one place."""
WINDOW_START = "window_start_unix_s"
HIGHEST_HEALTHY_LOAD = "healthy_load_per_s_max"
_CONFIGURATION = (
    "executors",
    "slots_per_executor",
    "cores_per_executor",
    "memory_mib_per_executor",
    "commit_interval_s",
    "state_partitions",
)
"""What has been added since is null in older files, and so another configuration than any that is told now."""
_COPES = (
    "coalesce(memory_share, 0) <= 0.9 AND coalesce(cpu_share, 0.5) BETWEEN 0.2 AND 0.8"
    " AND backlog_records < 1.0 * load_per_s"
)
"""When TidalScale's meter takes a report of a running job: memory, CPU and lag (of one second) within bounds.

A report that does not tell memory or CPU is judged by the rest, where the meter leaves one without CPU out."""
_IS_IDLE = "status = 'running' AND input_rate_per_s <= 0 AND backlog_records <= 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """One column of a partial row."""

    name: str
    sql_type: str
    fold: str
    """From reports, in SQL."""
    merge: str
    """The aggregate by which partial rows become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A table of partial rows, and what is shown of it."""

    keys: tuple[Column, ...]
    folded: tuple[Folded, ...]
    shown: tuple[tuple[str, str], ...]
    """The columns of a final row, each with how it is computed from a merged one."""
    takes: str
    """Which reports count, in SQL."""
    shows_day: bool
    """Whether a final row is of one day; else of all days together."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of a partial row, without the partitions."""
        folded = (Column(name=one.name, sql_type=one.sql_type, is_required=False) for one in self.folded)
        return (*self.keys, *folded)

    def fold(self, reports: DataFrame) -> DataFrame:
        """Partial rows of reports, which have the key's columns already."""
        sums = [f.expr(one.fold).cast(one.sql_type).alias(one.name) for one in self.folded]
        return reports.where(self.takes).groupBy(*PARTITIONS, *self._key_names).agg(*sums)

    def merge(self, partials: DataFrame, by: Sequence[str] = PARTITIONS) -> DataFrame:
        """One row of each key, within these other columns."""
        sums = [f.expr(f"{one.merge}({one.name})").alias(one.name) for one in self.folded]
        return partials.groupBy(*by, *self._key_names).agg(*sums)

    def final(self, partials: DataFrame) -> DataFrame:
        """What people read."""
        by = PARTITIONS if self.shows_day else ("bucket",)
        shown = [f"{sql} AS {name}" for name, sql in self.shown]
        return self.merge(partials, by).selectExpr(*by, *self._key_names, *shown)

    @property
    def _key_names(self) -> list[str]:
        return [one.name for one in self.keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """A field of a report as means, and where asked for as spread and highest value."""

    name: str
    has_spread: bool = False
    has_highest: bool = False

    def parts(self) -> tuple[list[Folded], list[tuple[str, str]]]:
        name = self.name
        summed, known_s = quotient_of(name)
        mean = f"{summed} / nullif({known_s}, 0)"
        folded = [_sum(summed, f"window_s * {name}")]
        if name in _OPTIONAL:
            folded.append(_sum(known_s, f"if({name} IS NULL, 0, window_s)"))
        shown = [(name, mean)]
        if self.has_spread:
            folded.append(_sum(f"{name}__squares", f"window_s * {name} * {name}"))
            variance = f"{name}__squares / nullif({known_s}, 0) - power({mean}, 2)"
            # Rounding can leave less than nothing; and greatest() would take an unknown one for nothing.
            shown.append((f"{name}_std", f"if({mean} IS NULL, NULL, sqrt(greatest(0, {variance})))"))
        if self.has_highest:
            folded.append(Folded(name=f"{name}_max", sql_type="DOUBLE", fold=f"max({name})", merge="max"))
            shown.append((f"{name}_max", f"{name}_max"))
        return folded, shown


_REPORT = {one.name: one for one in row_columns(ReportRow)}
_OPTIONAL = {name for name, one in _REPORT.items() if not one.is_required}


def quotient_of(name: str) -> tuple[str, str]:
    """The columns of a partial row whose quotient is the mean of a field of reports."""
    return f"{name}__sum", f"{name}__known_s" if name in _OPTIONAL else "window_s"


def _sum(name: str, of: str) -> Folded:
    return Folded(name=name, sql_type="DOUBLE", fold=f"sum({of})", merge="sum")


def _count(name: str, of: str = "true") -> Folded:
    return Folded(name=name, sql_type="BIGINT", fold=f"count_if({of})", merge="sum")


def _together(
    folded: Sequence[Folded], measures: Sequence[_Measure], computed: Sequence[tuple[str, str]] = ()
) -> tuple[tuple[Folded, ...], tuple[tuple[str, str], ...]]:
    """Plain columns, which are shown as they are, then measures, then what is computed from hidden ones."""
    parts = [one.parts() for one in measures]
    hidden = {sql for _, sql in computed}
    plain = [(one.name, one.name) for one in folded if one.name not in hidden and "__" not in one.name]
    return (
        (*folded, *(column for part, _ in parts for column in part)),
        (*plain, *(column for _, part in parts for column in part), *computed),
    )


_GOOD = (
    f"if(latency_p95_s <= promised_latency_p95_s OR (latency_p95_s IS NULL AND promised_latency_p95_s IS NOT NULL"
    f" AND {_IS_IDLE}), window_s, 0)"
)
_EVERYWHERE = (
    _count("reports"),
    _sum("window_s", "window_s"),
    _sum("promised_s", "if(promised_latency_p95_s IS NULL, 0, window_s)"),
    # A job that is up and has nothing to do is good, though it has no latency.
    _sum("good_s", _GOOD),
    _sum("cost", "window_s * cost_per_hour / 3600"),
    Folded(name="currency", sql_type="STRING", fold="max(currency)", merge="max"),
)
"""How much was told, how long a promise was given and kept, and what it cost."""


def _observations() -> Summary:
    folded, shown = _together(
        (
            *_EVERYWHERE,
            *(
                _sum(f"{status}_s", f"if(status = '{status}', window_s, 0)")
                for status in ("running", "changing", "down")
            ),
            Folded(
                name="promised_latency_p95_s",
                sql_type="DOUBLE",
                fold="min(promised_latency_p95_s)",
                merge="min",
            ),
        ),
        (
            _Measure(name="load_per_s", has_spread=True, has_highest=True),
            _Measure(name="input_rate_per_s"),
            _Measure(name="processed_rate_per_s"),
            _Measure(name="backlog_records", has_highest=True),
            _Measure(name="latency_p50_s"),
            _Measure(name="latency_p95_s", has_spread=True, has_highest=True),
            _Measure(name="latency_p99_s", has_highest=True),
            _Measure(name="busy_share", has_spread=True),
            _Measure(name="cpu_share", has_spread=True),
            _Measure(name="memory_share", has_highest=True),
            _Measure(name="state_mib"),
        ),
    )
    start = Column(name=WINDOW_START, sql_type="BIGINT", is_required=True)
    return Summary(keys=_keys(start), folded=folded, shown=shown, takes="true", shows_day=True)


def _performance() -> Summary:
    healthy_s = f"if({_COPES}, window_s, 0)"
    folded, shown = _together(
        (
            *_EVERYWHERE,
            Folded(name="first_unix_s", sql_type="DOUBLE", fold="min(at_unix_s)", merge="min"),
            Folded(name="last_unix_s", sql_type="DOUBLE", fold="max(at_unix_s)", merge="max"),
            _count("healthy_reports", _COPES),
            _sum("healthy_s", healthy_s),
            Folded(
                name=HIGHEST_HEALTHY_LOAD,
                sql_type="DOUBLE",
                fold=f"max(if({_COPES}, load_per_s, NULL))",
                merge="max",
            ),
            _sum("healthy_load_per_s__sum", f"{healthy_s} * load_per_s"),
        ),
        (
            _Measure(name="load_per_s", has_spread=True, has_highest=True),
            _Measure(name="latency_p95_s", has_spread=True, has_highest=True),
            _Measure(name="busy_share", has_spread=True),
            _Measure(name="cpu_share", has_spread=True),
        ),
        (("healthy_load_per_s", "healthy_load_per_s__sum / nullif(healthy_s, 0)"),),
    )
    return Summary(keys=_keys(), folded=folded, shown=shown, takes="status = 'running'", shows_day=False)


def _keys(*more: Column) -> tuple[Column, ...]:
    named = [one for one in ENVELOPE if one.name in {"job", "program"}]
    return (*named, *more, *(_REPORT[name] for name in _CONFIGURATION))


OBSERVATIONS = _observations()
"""A window of a job in one configuration of one program."""
PERFORMANCE = _performance()
"""A job in one configuration of one program: what it carried while it was healthy, and how it ran on the whole."""
