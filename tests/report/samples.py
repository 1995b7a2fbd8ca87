"""Runs on disk for the tests of reports: small, but with failures, changes and everything that can be missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tidewise.core import (
    ChangeStatus,
    Configuration,
    Mechanism,
    Origin,
    Prices,
    Promises,
    Purpose,
    Usage,
)
from tidewise.experiments.record import ChangeRecord, FaultRecord, Run, RunRecord, write_run
from tidewise.experiments.series import Series

SECONDS = 1800
START = Configuration(executors=8)


def a_change(at_s: float, executors: int = 4, **values: object) -> ChangeRecord:
    full: dict[str, Any] = {
        "requested_at_s": at_s,
        "finished_at_s": at_s + 5,
        "mechanism": Mechanism.LIVE,
        "origin": Origin.POLICY,
        "source": START,
        "target": START.with_executors(executors),
        "status": ChangeStatus.APPLIED,
        "reason": "the load falls",
    }
    full.update(values)
    return ChangeRecord(**full)


def a_run(
    folder: Path,
    *,
    policy: str,
    load: str = "ysb",
    seed: int = 1,
    executors: int = 8,
    seconds: int = SECONDS,
    series: dict[str, Any] | None = None,
    **values: object,
) -> Run:
    """A run with one failure at 600 s that takes 40 s to recover from."""
    latency = np.full(seconds, 1.0) + 0.01 * seed
    latency[600:640] = 20.0
    up = np.ones(seconds, dtype=np.bool_)
    up[620:630] = False
    ones = np.ones(seconds)
    columns: dict[str, Any] = {
        "second": np.arange(seconds),
        "input_rate_per_s": 1000 * ones,
        "processed_rate_per_s": 1000 * ones,
        "backlog_records": ones,
        "latency_p50_s": latency,
        "latency_p95_s": latency * 1.2,
        "latency_p99_s": latency * 1.5,
        "up": up,
        "busy_share": ones * 0.5,
        "cpu_share": ones * 0.5,
        "memory_share": ones * 0.5,
        "state_mib": ones,
        "executors": np.full(seconds, executors),
        "cores": ones * executors,
        "memory_mib": ones * executors * 1024,
        "forecast_per_s": ones * np.nan,
    }
    made = Series(**(columns | (series or {})))
    record: dict[str, Any] = {
        "name": f"{load}-{policy}-{seed}",
        "engine": "simulator",
        "profile": "paper-cluster",
        "load": load,
        "policy": policy,
        "seed": seed,
        "duration_s": float(seconds),
        "start": START,
        "promises": Promises(latency_p95_s=2.0, recovery_s=180.0),
        "prices": Prices(currency="EUR"),
        "faults": (FaultRecord(at_s=600.0, kind="kill-executor"),),
        "meter": {
            Purpose.EXECUTORS: Usage(core_s=float(seconds * executors), memory_mib_s=1024.0 * seconds * executors)
        },
        "versions": {"tidewise": "0.1.0", "profile": "abc"},
        "plan": {},
        "complete": True,
        "created": "2025-03-01",
    }
    record.update(values)
    return write_run(folder, RunRecord(**record), made)


def a_comparison(root: Path) -> list[Run]:
    """Two loads, three policies, two seeds."""
    changes = (
        a_change(100.0),
        a_change(900.0, mechanism=Mechanism.HANDOVER, gap_s=2.0, reason='<b>"memory"</b> & cores'),
        a_change(1200.0, status=ChangeStatus.FAILED),
        a_change(1790.0, status=None, finished_at_s=None),
    )
    forecast = np.full(SECONDS, np.nan)
    forecast[600:] = 990.0
    runs = []
    for load in ("ysb", "tsw"):
        for seed in (1, 2):
            for policy, executors, own in (("static", 8, ()), ("reactive", 6, changes[:1]), ("mpc", 4 + seed, changes)):
                series = {"forecast_per_s": forecast} if policy == "mpc" else {}
                folder = root / f"{load}-{policy}-{seed}"
                runs.append(
                    a_run(
                        folder,
                        policy=policy,
                        load=load,
                        seed=seed,
                        executors=executors,
                        series=series,
                        changes=tuple(replace(change) for change in own),
                    )
                )
    return runs
