"""`python -m bench.fleet_fit [JOBS ...]`: the models of 1,000 and 10,000 generated jobs, a week of minutes each.

The table is made and written before; measured is from reading it to the last model written. `fleet-fit` of
`python -m bench` writes the section of docs/benchmarks.md; with numbers of jobs the table is only printed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.page import table
from tidewise.core import format_duration
from tidewise.experiments.fleet_fit import JUDGED_AT, WEIGHED_AT, FleetFacts, fit_fleet, fleet_facts
from tidewise.experiments.fleet_generate import WEEK, write_fleet
from tidewise.experiments.fleet_samples import SAMPLES, WINDOWS
from tidewise.experiments.fleet_tables import MODELS
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.grouped import Worked

if TYPE_CHECKING:
    from tidewise.pipeline.grouped import Session

_JOBS = (1_000, 10_000)
_WARM_UP = 100
"""Jobs that are fitted before: Java has compiled what it uses by then."""
_GOAL_MS, _GOAL_OVERHEAD, _GOAL_GROWTH = 50.0, 0.2, 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One fleet."""

    worked: Worked
    facts: FleetFacts
    cores: int
    table_mib: float
    models_mib: float

    @property
    def ms_per_job(self) -> float:
        return 1000.0 * self.worked.wall_s / self.worked.groups

    @property
    def model_ms_per_job(self) -> float:
        return 1000.0 * self.worked.work_s / self.worked.groups

    @property
    def overhead(self) -> float:
        """Of the time of all cores, what was not spent in the models."""
        return 1.0 - self.worked.work_s / (self.cores * self.worked.wall_s)


def measure(_traces: Path | None = None, jobs: Sequence[int] = _JOBS, *, windows: int = WEEK) -> str:
    """The section, without its heading."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="fleet-fit-") as scratch:
        fleets = [Path(scratch) / str(number) for number in range(1 + len(jobs))]
        for tables, count in zip(fleets, (_WARM_UP, *jobs), strict=True):
            began_s = time.monotonic()
            write_fleet(tables, jobs=count, windows=windows, workers=cores)
            print(f"{count:,} jobs made in {format_duration(time.monotonic() - began_s)}", flush=True)
        with spark_session(f"local[{cores}]") as session:
            found = [_fit(session, tables, cores) for tables in fleets]
    return _section(found[1:], windows)


def _fit(session: Session, tables: Path, cores: int) -> Measured:
    told = [0]

    def tell(done: int, total: int) -> None:
        if 10 * done // total > told[0]:
            told[0] = 10 * done // total
            print(f"  {done:,} of {total:,} fitted", flush=True)

    worked = fit_fleet(session, tables, tables / MODELS, now_unix_s=time.time(), progress=tell)
    measured = Measured(
        worked=worked,
        facts=fleet_facts(session, tables / MODELS),
        cores=cores,
        table_mib=_mib(tables) - _mib(tables / MODELS),
        models_mib=_mib(tables / MODELS),
    )
    shutil.rmtree(tables)
    return measured


def _mib(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 2**20


def _section(found: Sequence[Measured], windows: int) -> str:
    rows = [
        [
            f"{each.worked.groups:,}",
            f"{each.worked.groups * windows:,}",
            f"{each.table_mib:,.0f}",
            format_duration(each.worked.wall_s),
            f"{each.ms_per_job:.1f}",
            f"{each.model_ms_per_job:.1f}",
            f"{each.overhead:.0%}",
            f"{each.facts.bytes_per_job / 1024:.1f} / {1024 * each.models_mib / each.worked.groups:.1f}",
            str(each.worked.failed),
        ]
        for each in found
    ]
    head = [
        "jobs",
        "rows of 60 s",
        "MiB",
        "time",
        "ms per job",
        "ms in the models, one core",
        "Spark's share",
        "KiB per job, as JSON / in Parquet",
        "failed",
    ]
    growth = found[-1].ms_per_job / found[0].ms_per_job - 1.0
    last = found[-1].facts
    errors = ""
    if last.error_10min is not None and last.naive_error_10min is not None and last.beats_naive is not None:
        errors = (
            f" Forecasts of the next 10 min were off by {last.error_10min:.1%} (median over jobs), the naive one by "
            f"{last.naive_error_10min:.1%}; {last.beats_naive:.0%} of the jobs were forecast better than that."
        )
    return (
        f"Forecaster, capacity, latency and memory of every job, on {found[0].cores} cores, Parquet to Parquet. Of "
        f"each job the newest {SAMPLES:,} minutes and about {WINDOWS} windows of the whole week are looked at; members "
        f"of the ensemble are weighed at {WEIGHED_AT} origins, and the blend is judged at {JUDGED_AT} after them.\n\n"
        f"{table(head, rows)}\n\n"
        f"Goals: {_GOAL_MS:g} ms per job ({found[-1].ms_per_job:.1f}), Spark's share at most {_GOAL_OVERHEAD:.0%} "
        f"({found[-1].overhead:.0%}), time per job the same within {_GOAL_GROWTH:.0%} for the larger fleet "
        f"({growth:+.0%}).{errors}"
    )


if __name__ == "__main__":
    print(measure(jobs=[int(count) for count in sys.argv[1:]] or _JOBS))
