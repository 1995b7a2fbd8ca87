"""Small backtests, computed in the process of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tidewise.experiments.backtest_origins import Floats, Judged, Stretch


def here(
    work: Callable[[Stretch], Judged], tasks: Sequence[Stretch], *, progress: Callable[[int], None]
) -> list[Judged]:
    """What Spark does otherwise."""
    answers = []
    for done, task in enumerate(tasks, start=1):
        answers.append(work(task))
        progress(done)
    return answers


def wave(count: int, *, period: int = 120, seed: int = 0) -> Floats:
    """Samples of a load with a season and noise."""
    noise = np.random.default_rng(seed).normal(0.0, 30.0, count)
    return np.maximum(1000.0 + 500.0 * np.sin(2 * np.pi * np.arange(count) / period) + noise, 0.0)


def write_trace(file: Path, rates: Sequence[float], *, step_s: float = 60.0) -> Path:
    """A CSV file of these rates."""
    rows = "".join(f"{number * step_s:g},{rate!r}\n" for number, rate in enumerate(rates))
    file.write_text(f"second,rate\n{rows}", encoding="utf-8")
    return file
