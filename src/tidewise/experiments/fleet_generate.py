"""Generated fleets: as many jobs as are asked for, made by Spark where they are used, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewise.core.checks import require

if TYPE_CHECKING:
    from tidewise.pipeline.grouped import Frame, Session

WEEK = 7 * 24 * 60
"""Windows of 60 s."""
FIRST_UNIX_S = 1_767_225_600
"""Where they begin: a Thursday, 2026-01-01."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that are like each other: a prefix of their names, what a core of theirs does, and how their load goes."""

    prefix: str
    records_per_core_s: float
    batch_fixed_s: float
    executor_mib: float
    mean_per_s: float
    shape: str
    """The load over its mean, in Spark SQL: `day` and `week` are places between 0 and 1, `t` counts windows, `u(k)` is
    a number between 0 and 1 for each window."""


KINDS = (
    Kind(
        prefix="orders",
        records_per_core_s=4_000.0,
        batch_fixed_s=0.6,
        executor_mib=700.0,
        mean_per_s=9_000.0,
        shape="1 + 0.6 * sin(2 * pi() * (day - phase))",
    ),
    Kind(
        prefix="clicks",
        records_per_core_s=24_000.0,
        batch_fixed_s=0.3,
        executor_mib=550.0,
        mean_per_s=50_000.0,
        shape="(1 + 0.5 * sin(2 * pi() * (day - phase))) * if(week > 5 / 7, 0.55, 1.1)",
    ),
    Kind(
        prefix="alerts",
        records_per_core_s=1_200.0,
        batch_fixed_s=1.0,
        executor_mib=900.0,
        mean_per_s=1_500.0,
        shape="0.8 + if(pmod(xxhash64(job_no, floor(t / 25)), 40) = 0, 1.6, 0)",
    ),
    Kind(
        prefix="sensors",
        records_per_core_s=60_000.0,
        batch_fixed_s=0.2,
        executor_mib=500.0,
        mean_per_s=80_000.0,
        shape="(0.6 + 0.8 * t / windows) * (1 + 0.2 * sin(2 * pi() * (day - phase)))",
    ),
    Kind(
        prefix="billing",
        records_per_core_s=2_200.0,
        batch_fixed_s=1.4,
        executor_mib=1_400.0,
        mean_per_s=4_000.0,
        shape="if(day between 0.25 and 0.9, 1.5, 0)",
    ),
)
PRICE_PER_CORE_HOUR = 0.05
_DRIVER_PER_HOUR = 0.05
_BUSY_WANTED = 0.6
_CONTENTION = 0.01


def generated_fleet(
    session: Session, *, jobs: int, windows: int = WEEK, seed: int = 0, parts: int | None = None
) -> Frame:
    """So many jobs with so many windows of 60 s each, with the columns of the table `observations_60s`.

    Nothing is collected: rows are made where they are used. `parts`: into how many tasks they are cut. Columns that no
    engine reports say how the job was made: `true_per_core_s` and `true_batch_fixed_s`.
    """
    require(jobs >= 1 and windows >= 1, f"a fleet needs jobs and windows, not {jobs} and {windows}")
    rows = session.range(0, jobs * windows, 1, parts) if parts else session.range(0, jobs * windows)
    for step in _steps(windows, seed):
        rows = rows.selectExpr("*", *step)
    return rows.selectExpr(*_COLUMNS)


def _steps(windows: int, seed: int) -> list[list[str]]:
    """Each step may use the columns of those before it."""
    return [
        [f"id div {windows} as job_no", f"id % {windows} as t", f"{windows} as windows"],
        [
            f"cast(job_no % {len(KINDS)} as int) as kind",
            f"{_uniform('job_no', seed, 1)} as u_load",
            f"{_uniform('job_no', seed, 2)} as u_speed",
            f"{_uniform('job_no', seed, 3)} as phase",
            f"{_uniform('id', seed, 4)} + {_uniform('id', seed, 5)} - 1 as noise",
            "pmod(t / 1440, 1) as day",
            "pmod(t / 10080, 1) as week",
        ],
        [
            f"{_by_kind([repr(kind.prefix) for kind in KINDS])} as prefix",
            f"(0.85 + 0.3 * u_speed) * {_by_kind([kind.records_per_core_s for kind in KINDS])} as true_per_core_s",
            f"(0.9 + 0.2 * u_load) * {_by_kind([kind.batch_fixed_s for kind in KINDS])} as true_batch_fixed_s",
            f"{_by_kind([kind.executor_mib for kind in KINDS])} as executor_mib",
            f"{_by_kind([kind.mean_per_s for kind in KINDS])} * exp(1.2 * (u_load - 0.5)) as mean_per_s",
            f"greatest(0, {_by_kind([f'({kind.shape})' for kind in KINDS])}) as shape",
        ],
        [
            "mean_per_s * shape * (1 + 0.1 * noise) as load_per_s",
            # The size follows the load without its noise, as a good scaler's would.
            f"cast(greatest(1, ceil(mean_per_s * shape / ({_BUSY_WANTED} * true_per_core_s))) as int) as executors",
        ],
        [
            f"true_per_core_s * executors / (1 + {_CONTENTION} * (executors - 1)) as capacity_per_s",
            "10.0D as commit_interval_s",
        ],
        ["least(1, load_per_s / capacity_per_s) as busy_share"],
        ["true_batch_fixed_s + busy_share * commit_interval_s as batch_s"],
        ["(batch_s + 0.95 * greatest(commit_interval_s, batch_s)) * (1 + 0.05 * noise) as latency_p95_s"],
    ]


_COLUMNS = (
    "concat(prefix, '-', lpad(cast(job_no as string), 6, '0')) as job",
    "concat(prefix, ' 1.0') as program",
    f"{FIRST_UNIX_S} + 60 * t as window_start_unix_s",
    "60.0D as window_s",
    "executors",
    "1 as slots_per_executor",
    "1.0D as cores_per_executor",
    "2048 as memory_mib_per_executor",
    "commit_interval_s",
    "load_per_s",
    "load_per_s as input_rate_per_s",
    "least(load_per_s, capacity_per_s) as processed_rate_per_s",
    "0.0D as backlog_records",
    "if(load_per_s > 0, latency_p95_s, null) as latency_p95_s",
    "busy_share",
    "0.9D * busy_share as cpu_share",
    "(executor_mib + 120) / 2048 * (1 + 0.02 * noise) as memory_share",
    "cast(null as double) as state_mib",
    f"({PRICE_PER_CORE_HOUR}D * executors + {_DRIVER_PER_HOUR}D) / 60 as cost",
    "'USD' as currency",
    "60.0D as running_s",
    "0.0D as changing_s",
    "0.0D as down_s",
    "60.0D as promised_s",
    "60.0D as good_s",
    "30.0D as promised_latency_p95_s",
    "true_per_core_s",
    "true_batch_fixed_s",
)


def _uniform(of: str, seed: int, number: int) -> str:
    return f"pmod(xxhash64({of}, {seed}L, {number}L), 1000003) / 1000003D"


def _by_kind(values: list[str] | list[float]) -> str:
    cases = " ".join(f"when {number} then {value}" for number, value in enumerate(values))
    return f"case kind {cases} end"
