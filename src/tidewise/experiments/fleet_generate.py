"""Generated fleets: the table `observations_60s` of as many jobs as are asked for, the same for the same seed."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tidewise.core.checks import require
from tidewise.experiments.fleet_tables import OBSERVATIONS
from tidewise.pipeline.telemetry_claim import BUCKETS, FACTS, FORMAT, write_json

Floats = npt.NDArray[np.float64]

DAY = 24 * 60
WEEK = 7 * DAY
"""Windows of 60 s."""
FIRST_UNIX_S = 1_767_225_600
"""Where they begin: a Thursday, 2026-01-01."""
WINDOW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that are like each other: a prefix of their names, what a core of theirs does, and how their load goes."""

    prefix: str
    records_per_core_s: float
    batch_fixed_s: float
    executor_mib: float
    mean_per_s: float
    shape: Callable[[Floats, float, np.random.Generator], Floats]
    """The load over its mean, from days since the beginning, the job's own phase, and its chances."""


def _daily(days: Floats, phase: float, _rng: np.random.Generator) -> Floats:
    return 1.0 + 0.6 * np.sin(2.0 * np.pi * (days - phase))


def _with_weekends(days: Floats, phase: float, _rng: np.random.Generator) -> Floats:
    daily = 1.0 + 0.5 * np.sin(2.0 * np.pi * (days - phase))
    return np.asarray(np.where(days % 7.0 > 5.0, 0.55, 1.1) * daily, dtype=np.float64)


def _bursts(days: Floats, _phase: float, rng: np.random.Generator) -> Floats:
    """Of 25 minutes each, one in forty."""
    blocks = np.arange(len(days)) // 25
    return np.where(rng.random(len(days) // 25 + 1)[blocks] < 1.0 / 40.0, 2.4, 0.8)


def _growing(days: Floats, phase: float, _rng: np.random.Generator) -> Floats:
    grown = 0.6 + 0.8 * np.arange(len(days)) / len(days)
    return grown * (1.0 + 0.2 * np.sin(2.0 * np.pi * (days - phase)))


def _by_day_alone(days: Floats, _phase: float, _rng: np.random.Generator) -> Floats:
    return np.where((days % 1.0 >= 0.25) & (days % 1.0 <= 0.9), 1.5, 0.0)


KINDS = (
    Kind(
        prefix="orders",
        records_per_core_s=4_000.0,
        batch_fixed_s=0.6,
        executor_mib=700.0,
        mean_per_s=9_000.0,
        shape=_daily,
    ),
    Kind(
        prefix="clicks",
        records_per_core_s=24_000.0,
        batch_fixed_s=0.3,
        executor_mib=550.0,
        mean_per_s=50_000.0,
        shape=_with_weekends,
    ),
    Kind(
        prefix="alerts",
        records_per_core_s=1_200.0,
        batch_fixed_s=1.0,
        executor_mib=900.0,
        mean_per_s=1_500.0,
        shape=_bursts,
    ),
    Kind(
        prefix="sensors",
        records_per_core_s=60_000.0,
        batch_fixed_s=0.2,
        executor_mib=500.0,
        mean_per_s=80_000.0,
        shape=_growing,
    ),
    Kind(
        prefix="billing",
        records_per_core_s=2_200.0,
        batch_fixed_s=1.4,
        executor_mib=1_400.0,
        mean_per_s=4_000.0,
        shape=_by_day_alone,
    ),
)
PRICE_PER_CORE_HOUR = 0.05
_DRIVER_PER_HOUR = 0.05
_BUSY_WANTED = 0.6
_CONTENTION = 0.01
_INTERVAL_S = 10.0
_MEMORY_MIB = 2048
_TOGETHER = 100
"""So many jobs are made at a time, and lie together in a file."""
_GENERATION = 1
_LIKE_NOISE = (
    "load_per_s__sum",
    "input_rate_per_s__sum",
    "processed_rate_per_s__sum",
    "latency_p95_s__sum",
    "busy_share__sum",
    "cpu_share__sum",
    "memory_share__sum",
)
"""Columns in which hardly any value comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedJob:
    """How a job was made."""

    name: str
    kind: Kind
    records_per_core_s: float
    batch_fixed_s: float
    mean_per_s: float
    phase: float
    seeds: tuple[int, int]

    def columns(self, windows: int) -> dict[str, Floats]:
        """The columns of its windows that are not the same in all of them, as the table sums them up."""
        kind, days, rng = self.kind, np.arange(windows) / DAY, np.random.default_rng(self.seeds)
        smooth = self.mean_per_s * kind.shape(days, self.phase, rng)
        noise = rng.random(windows) + rng.random(windows) - 1.0
        # Records are whole, and other things are measured to so many digits.
        load = np.rint(WINDOW_S * smooth * (1.0 + 0.1 * noise)) / WINDOW_S
        # The size follows the load without its noise, as a good scaler's would.
        executors = np.maximum(1.0, np.ceil(smooth / (_BUSY_WANTED * self.records_per_core_s)))
        capacity = self.records_per_core_s * executors / (1.0 + _CONTENTION * (executors - 1.0))
        busy = np.round(np.minimum(1.0, load / capacity), 4)
        batch_s = self.batch_fixed_s + busy * _INTERVAL_S
        latency_s = (batch_s + 0.95 * np.maximum(_INTERVAL_S, batch_s)) * (1.0 + 0.05 * noise)
        memory = np.round((kind.executor_mib + 120.0) / _MEMORY_MIB * (1.0 + 0.02 * noise), 4)
        known_s = np.where(load > 0.0, WINDOW_S, 0.0)
        return {
            "executors": executors,
            "load_per_s__sum": WINDOW_S * load,
            "input_rate_per_s__sum": WINDOW_S * load,
            "processed_rate_per_s__sum": np.rint(WINDOW_S * np.minimum(load, capacity)),
            "latency_p95_s__sum": known_s * np.round(latency_s, 3),
            "latency_p95_s__known_s": known_s,
            "busy_share__sum": WINDOW_S * busy,
            "cpu_share__sum": WINDOW_S * np.round(0.9 * busy, 4),
            "memory_share__sum": WINDOW_S * memory,
            "cost": (PRICE_PER_CORE_HOUR * executors + _DRIVER_PER_HOUR) / 60.0,
        }


_SAME = {
    "reports": 1,
    "slots_per_executor": 1,
    "cores_per_executor": 1.0,
    "memory_mib_per_executor": _MEMORY_MIB,
    "commit_interval_s": _INTERVAL_S,
    "window_s": WINDOW_S,
    "promised_s": WINDOW_S,
    "good_s": WINDOW_S,
    "running_s": WINDOW_S,
    "changing_s": 0.0,
    "down_s": 0.0,
    "promised_latency_p95_s": 30.0,
    "backlog_records__sum": 0.0,
    "busy_share__known_s": WINDOW_S,
    "cpu_share__known_s": WINDOW_S,
    "memory_share__known_s": WINDOW_S,
    "state_mib__known_s": 0.0,
    "currency": "USD",
}
"""The columns that are the same in all windows of all jobs."""


def generated_job(number: int, *, seed: int = 0) -> GeneratedJob:
    """The job of this number, the same for the same seed."""
    kind = KINDS[number % len(KINDS)]
    load, speed, phase = np.random.default_rng((number, seed)).random(3).tolist()
    return GeneratedJob(
        name=f"{kind.prefix}-{number:06d}",
        kind=kind,
        records_per_core_s=(0.85 + 0.3 * speed) * kind.records_per_core_s,
        batch_fixed_s=(0.9 + 0.2 * load) * kind.batch_fixed_s,
        mean_per_s=kind.mean_per_s * math.exp(1.2 * (load - 0.5)),
        phase=phase,
        seeds=(seed, number),
    )


def write_fleet(tables: Path, *, jobs: int, windows: int = WEEK, seed: int = 0, workers: int = 1) -> None:
    """Write the table `observations_60s` of so many jobs with so many windows each, as compaction would leave it.

    `workers`: so many processes share the work. Columns that no model learns from are left out, and read as null.
    """
    from tidewise.pipeline.telemetry_tables import COMPACTED, commit  # noqa: PLC0415 - it needs PySpark, an extra

    require(jobs >= 1 and windows >= 1, f"a fleet needs jobs and windows, not {jobs} and {windows}")
    buckets: list[list[int]] = [[] for _ in range(BUCKETS)]
    for number in range(jobs):
        buckets[crc32(generated_job(number, seed=seed).name.encode()) % BUCKETS].append(number)
    tables.mkdir(parents=True, exist_ok=True)
    write = partial(_write_bucket, tables / OBSERVATIONS, windows=windows, seed=seed)
    if workers == 1:
        for bucket, numbers in enumerate(buckets):
            write(bucket, numbers)
    else:
        # Not forked: whoever has a Spark has threads.
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(write, range(BUCKETS), buckets))
    for day in (tables / OBSERVATIONS).iterdir():
        write_json(day / COMPACTED, {"generation": _GENERATION, "through": 0})
    commit(tables, 0)
    write_json(tables / FACTS, {"format": FORMAT, "buckets": BUCKETS})


def _write_bucket(table: Path, bucket: int, numbers: Sequence[int], *, windows: int, seed: int) -> None:
    """The files of one bucket, one for each day, sorted by job and time."""
    jobs = sorted((generated_job(number, seed=seed) for number in numbers), key=lambda job: job.name)
    days = range(math.ceil(windows / DAY))
    with ExitStack() as opened:
        writers: list[pq.ParquetWriter] = []
        for begin in range(0, len(jobs), _TOGETHER):
            together = jobs[begin : begin + _TOGETHER]
            columns = [job.columns(windows) for job in together]
            for day in days:
                rows = _rows_of_day(together, columns, day)
                if len(writers) == day:
                    writers.append(opened.enter_context(_writer(table, day, bucket, rows.schema)))
                writers[day].write_table(rows, row_group_size=len(rows))


def _writer(table: Path, day: int, bucket: int, schema: pa.Schema) -> pq.ParquetWriter:
    date = datetime.fromtimestamp(FIRST_UNIX_S + 86_400 * day, UTC).date()
    folder = table / f"day={date}" / f"bucket={bucket:02d}" / f"batch={-_GENERATION}"
    folder.mkdir(parents=True)
    alike = [name for name in schema.names if name not in _LIKE_NOISE]
    return pq.ParquetWriter(
        folder / "part-00000.parquet", schema, compression="zstd", use_dictionary=alike, store_schema=False
    )


def _rows_of_day(jobs: Sequence[GeneratedJob], columns: Sequence[Mapping[str, Floats]], day: int) -> pa.Table:
    span = slice(day * DAY, (day + 1) * DAY)
    values = {name: np.concatenate([each[name][span] for each in columns]) for name in columns[0]}
    count = len(values["cost"]) // len(jobs)
    whose = pa.array(np.repeat(np.arange(len(jobs), dtype=np.int32), count))
    starts = FIRST_UNIX_S + round(WINDOW_S) * (day * DAY + np.arange(count))
    same = {name: _repeated([value], np.zeros(len(whose), dtype=np.int32)) for name, value in _SAME.items()}
    return pa.table(
        {
            "job": _repeated([job.name for job in jobs], whose),
            "program": _repeated([f"{job.kind.prefix} 1.0" for job in jobs], whose),
            "window_start_unix_s": np.tile(starts, len(jobs)),
            "executors": values.pop("executors").astype(np.int64),
            **values,
            **same,
        }
    )


def _repeated(values: Sequence[object], places: object) -> pa.Array:
    """A column of few values, written without looking at each row."""
    return pa.DictionaryArray.from_arrays(places, pa.array(values))
