"""Rows of made-up jobs, as the models of a fleet are handed them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidewise.experiments.fleet_samples import SAMPLE_S
from tidewise.pipeline.job_files import START
from tidewise.pipeline.job_rows import IS_WHOLE, OBSERVED

BEGIN_S = 1_767_225_600


def job_rows(
    *,
    samples: int = 3360,
    per_core_s: float = 4000.0,
    mean_per_s: float = 6000.0,
    fixed_s: float = 0.6,
    seed: int = 0,
    whole_every: int = 10,
) -> pa.Table:
    """A daily load, carried by as many executors as it needs; blocks of five windows come whole."""
    rng = np.random.default_rng(seed)
    number = np.arange(samples)
    smooth = mean_per_s * (1.0 + 0.6 * np.sin(2.0 * np.pi * number / 1440.0))
    load = smooth * (1.0 + 0.03 * rng.standard_normal(samples))
    executors = np.maximum(1, np.ceil(smooth / (0.6 * per_core_s))).astype(int)
    capacity = per_core_s * executors / (1.0 + 0.01 * (executors - 1))
    busy = np.minimum(1.0, load / capacity)
    batch_s = fixed_s + 10.0 * busy
    columns: dict[str, object] = {
        "program": ["orders 1.0"] * samples,
        START: BEGIN_S + round(SAMPLE_S) * number,
        "window_s": np.full(samples, SAMPLE_S),
        "changing_s": np.zeros(samples),
        "down_s": np.zeros(samples),
        "executors": executors,
        "slots_per_executor": np.ones(samples, dtype=int),
        "cores_per_executor": np.ones(samples),
        "memory_mib_per_executor": np.full(samples, 2048),
        "commit_interval_s": np.full(samples, 10.0),
        "load_per_s": load,
        "input_rate_per_s": load,
        "processed_rate_per_s": np.minimum(load, capacity),
        "backlog_records": np.zeros(samples),
        "latency_p95_s": batch_s + 0.95 * np.maximum(10.0, batch_s),
        "busy_share": busy,
        "cpu_share": 0.9 * busy,
        "memory_share": np.full(samples, 0.4),
        "state_mib": pa.nulls(samples, pa.float64()),
        OBSERVED: np.full(samples, SAMPLE_S),
        IS_WHOLE: (number // 5) % whole_every == 0,
    }
    return pa.table(columns)


def with_values(rows: pa.Table, **columns: object) -> pa.Table:
    """The same rows with these columns in place of their own."""
    for name, values in columns.items():
        filled = values if isinstance(values, list | np.ndarray | pa.Array) else [values] * len(rows)
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(filled))
    return rows
