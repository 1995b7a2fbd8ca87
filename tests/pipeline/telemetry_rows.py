"""Rows of three jobs around midnight, and what their tables must be, computed without Spark.

Numbers are sums of powers of two, so that their sums do not depend on the order of adding.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidewise.core.telemetry import ChangeRow, Envelope, ForecastErrorRow, RecoveryRow, ReportRow

DAY_S = 86_400
MIDNIGHT_S = (int(time.time()) // DAY_S - 1) * DAY_S
"""Between the last two days that are over."""
Key = tuple[Any, ...]


def report(at_unix_s: float, **changes: Any) -> ReportRow:  # noqa: ANN401 - whatever fields a test is about
    row = ReportRow(
        at_unix_s=at_unix_s,
        window_s=10.0,
        status="running",
        executors=2,
        slots_per_executor=1,
        cores_per_executor=1.0,
        memory_mib_per_executor=1024,
        commit_interval_s=1.0,
        state_partitions=None,
        load_per_s=1000.0,
        input_rate_per_s=1000.0,
        processed_rate_per_s=1000.0,
        backlog_records=500.0,
        latency_p95_s=1.5,
        promised_latency_p95_s=2.0,
    )
    return replace(row, **changes)


def envelope(row: Any, *, job: str = "a", run: str | None = None, line: int = 1) -> Envelope:  # noqa: ANN401 - any row
    return Envelope(job=job, run=run or f"run-{job}", line=line, program="v1" if job == "a" else None, row=row)


def reports(count: int = 24, jobs: Sequence[str] = ("a", "b", "ümläut/=x"), seed: int = 7) -> list[Envelope]:
    """Each of its jobs around midnight; one changes its configuration on the way, some tell less than others."""
    dice = random.Random(seed)  # noqa: S311 - no secret is drawn
    found = []
    for job in jobs:
        for number in range(count):
            row = report(
                MIDNIGHT_S + 10.0 * (number - count // 2) + dice.choice([0.0, 0.0, 3.5]),
                window_s=dice.choice([10.0, 10.0, 5.0]),
                status=dice.choice(["running"] * 6 + ["changing", "down"]),
                executors=2 if number < 15 or job != "a" else 3,
                load_per_s=dice.randrange(4000) / 4,
                backlog_records=dice.randrange(800) / 4,
                latency_p95_s=dice.choice([None, dice.randrange(16) / 4]),
                busy_share=dice.choice([None, dice.randrange(9) / 8]),
                cpu_share=dice.choice([None, dice.randrange(9) / 8]),
                memory_share=dice.choice([None, 0.5, 1.0]),
                cost_per_hour=dice.choice([None, 3600.0]),
                currency="EUR",
            )
            found.append(envelope(row, job=job, line=number + 1))
    return found


def others() -> list[Envelope]:
    """One row of each other kind."""
    change = ChangeRow(
        at_unix_s=MIDNIGHT_S + 1.0,
        request_id="r1",
        origin="policy",
        mechanism="live",
        source="2 executors",
        target="3 executors",
        source_executors=2,
        target_executors=3,
        outcome="applied",
        took_s=2.5,
        gap_s=None,
        reason_code="scale-up",
        sentence='It said "more" }{ and \\ went on.',
    )
    recovery = RecoveryRow(
        at_unix_s=MIDNIGHT_S - 1.0,
        failure="executor lost",
        took_s=30.0,
        is_bound=False,
        rate_per_s=100.0,
        executors=2,
        configuration="2 executors",
    )
    error = ForecastErrorRow(
        at_unix_s=MIDNIGHT_S + 2.0,
        model="ridge",
        horizon_s=60.0,
        expected_per_s=100.0,
        low_per_s=None,
        high_per_s=None,
        came_per_s=300.0,
        error_share=0.5,
    )
    return [envelope(row, line=1000 + number) for number, row in enumerate((change, recovery, error))]


def without(line: str, name: str) -> str:
    told = json.loads(line)
    del told[name]
    return json.dumps(told)


def having(told: str, **fields: object) -> str:
    return json.dumps(json.loads(told) | fields)


def write_lines(folder: Path, name: str, lines: Iterable[str], *, ago_s: float) -> None:
    """As a shipper does; the modification time tells the order."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    then_s = time.time() - ago_s
    os.utime(hidden, (then_s, then_s))
    hidden.rename(folder / name)


# The same tables, computed plainly ----------------------------------------------------------------------------------


def observations(told: Iterable[Envelope], window_s: int) -> dict[Key, dict[str, float | None]]:
    """By job, start of the window and executors: a few of the columns."""
    groups: dict[Key, list[ReportRow]] = defaultdict(list)
    for one in told:
        assert isinstance(one.row, ReportRow)
        start = math.floor((one.row.at_unix_s - 0.001) / window_s) * window_s
        groups[one.job, start, one.row.executors].append(one.row)
    return {key: _observation(rows) for key, rows in groups.items()}


def _observation(rows: list[ReportRow]) -> dict[str, float | None]:
    kept = [
        one.window_s
        for one in rows
        if one.latency_p95_s is not None and one.latency_p95_s <= (one.promised_latency_p95_s or 0.0)
    ]
    late = [one.latency_p95_s for one in rows if one.latency_p95_s is not None]
    load = [(one.window_s, one.load_per_s) for one in rows]
    return {
        "reports": len(rows),
        "window_s": sum(one.window_s for one in rows),
        "running_s": sum(one.window_s for one in rows if one.status == "running"),
        "good_s": sum(kept),
        "load_per_s": _mean(load),
        "load_per_s_std": _std(load),
        "load_per_s_max": max(one.load_per_s for one in rows),
        "latency_p95_s": _mean([(one.window_s, one.latency_p95_s) for one in rows if one.latency_p95_s is not None]),
        "latency_p95_s_max": max(late, default=None),
        "cpu_share_std": _std([(one.window_s, one.cpu_share) for one in rows if one.cpu_share is not None]),
        "cost": sum(one.window_s for one in rows if one.cost_per_hour is not None) or None,
    }


def performance(told: Iterable[Envelope]) -> dict[Key, dict[str, float | None]]:
    """By job and executors: a few of the columns."""
    groups: dict[Key, list[ReportRow]] = defaultdict(list)
    for one in told:
        assert isinstance(one.row, ReportRow)
        if one.row.status == "running":
            groups[one.job, one.row.executors].append(one.row)
    found: dict[Key, dict[str, float | None]] = {}
    for key, rows in groups.items():
        healthy = [one for one in rows if _copes(one)]
        found[key] = {
            "reports": len(rows),
            "healthy_reports": len(healthy),
            "healthy_load_per_s_max": max((one.load_per_s for one in healthy), default=None),
            "healthy_load_per_s": _mean([(one.window_s, one.load_per_s) for one in healthy]),
            "load_per_s_std": _std([(one.window_s, one.load_per_s) for one in rows]),
            "busy_share": _mean([(one.window_s, one.busy_share) for one in rows if one.busy_share is not None]),
            "last_unix_s": max(one.at_unix_s for one in rows),
        }
    return found


def _copes(row: ReportRow) -> bool:
    memory = row.memory_share is None or row.memory_share <= 0.9
    cpu = row.cpu_share is None or 0.2 <= row.cpu_share <= 0.8
    return memory and cpu and row.backlog_records < row.load_per_s


def _mean(weighed: list[tuple[float, float]]) -> float | None:
    weight = sum(one for one, _ in weighed)
    return sum(one * value for one, value in weighed) / weight if weight else None


def _std(weighed: list[tuple[float, float]]) -> float | None:
    mean = _mean(weighed)
    if mean is None:
        return None
    squares = _mean([(one, (value - mean) ** 2) for one, value in weighed])
    return math.sqrt(squares or 0.0)
