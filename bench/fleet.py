"""`python -m bench.fleet`: the models of 1,000 jobs fitted, and asked about 10,000 configurations, on a GPU and a core.

Needs PyTorch, numpy and scipy alone, so that it runs on a bare GPU machine. `--save FILE` keeps the figures there, and
`--of FILE` writes the section of docs/benchmarks.md from figures that were kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.page import table, update_page
from tidewise.search.fleet import Cheapest, Fleet, Measurements, import_torch

Floats = npt.NDArray[np.float64]

_OUTPUTS, _LOADS, _POINTS, _DIMS = 2, 16, 20, 5
"""Latency and recovery; 15 past loads and the one to come; profiles of each; what a configuration consists of."""
_GOAL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What every job of the fleet has measured, and what is asked of its models."""

    measurements: Measurements
    configurations: Floats
    cost: Floats
    weights: Floats
    limits: Floats

    @classmethod
    def of(cls, jobs: int, *, seed: int = 0) -> Task:
        """Jobs that differ in how each dimension, and each pair of them, matters; 10 % noise."""
        rng = np.random.default_rng(seed)
        axes = [np.linspace(0.0, 1.0, count) for count in (10, 5, 5, 8, 5)]
        configurations = np.array(list(product(*axes)))
        models = jobs * _OUTPUTS * _LOADS
        x = configurations[rng.integers(len(configurations), size=(models, _POINTS))]
        tilt = np.repeat(rng.normal(0.0, 1.0, (jobs * _OUTPUTS, _DIMS)), _LOADS, axis=0)
        turn = np.repeat(rng.normal(0.0, 2.0, (jobs * _OUTPUTS, _DIMS, 3)), _LOADS, axis=0)
        load = np.tile(np.linspace(0.5, 1.5, _LOADS), jobs * _OUTPUTS)[:, None]
        waves = np.cos(np.einsum("mpd,mdk->mpk", x, turn)).sum(axis=2)
        y = np.einsum("mpd,md->mp", x, tilt) + 0.5 * load * waves + 0.1 * rng.standard_normal((models, _POINTS))
        shaped = y.reshape(jobs, _OUTPUTS, _LOADS * _POINTS)
        return cls(
            measurements=Measurements(x=x, y=y, observed=np.ones(y.shape, dtype=np.bool_)),
            configurations=configurations,
            cost=np.asarray(0.2 + configurations @ np.array([5.0, 0.1, 2.0, 1.0, 0.0])),
            weights=rng.dirichlet(np.ones(_LOADS), size=(jobs, _OUTPUTS)),
            limits=np.quantile(shaped, 0.5, axis=2),
        )

    def first(self, jobs: int) -> Task:
        """The same for the first few jobs."""
        given, models = self.measurements, jobs * _OUTPUTS * _LOADS
        return Task(
            measurements=Measurements(x=given.x[:models], y=given.y[:models], observed=given.observed[:models]),
            configurations=self.configurations,
            cost=self.cost,
            weights=self.weights[:jobs],
            limits=self.limits[:jobs],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds of every run, and what the last one found."""

    where: str
    precision: str
    jobs: int
    starts: int
    fit_s: list[float]
    ask_s: list[float]
    memory_gib: float | None


def run(
    task: Task, *, starts: int, device: str, precision: str, runs: int, warm_ups: int
) -> tuple[Timed, Fleet, Cheapest]:
    """Fit and ask, several times; numpy goes in and the chosen rows come out, so copying is counted."""
    torch = import_torch()
    settle: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    fit_s, ask_s = [], []
    for turn in range(warm_ups + runs):
        settle()
        begin = time.perf_counter()
        fleet = Fleet.fit(task.measurements, starts=starts, device=device, precision=precision)
        settle()
        fitted = time.perf_counter()
        chosen = fleet.cheapest(task.configurations, cost=task.cost, weights=task.weights, limits=task.limits)
        settle()
        asked = time.perf_counter()
        if turn >= warm_ups:
            fit_s.append(fitted - begin)
            ask_s.append(asked - fitted)
    gpu = device == "cuda"
    timed = Timed(
        where=torch.cuda.get_device_name() if gpu else f"one core ({platform.machine()})",
        precision=precision,
        jobs=len(task.limits),
        starts=starts,
        fit_s=fit_s,
        ask_s=ask_s,
        memory_gib=torch.cuda.max_memory_allocated() / 2**30 if gpu else None,
    )
    return timed, fleet, chosen


def figures(*, jobs: int, share: int, starts: int, runs: int) -> dict[str, Any]:
    """Everything that is measured, raw."""
    torch = import_torch()
    torch.set_num_threads(1)
    task = Task.of(jobs)
    sample = task.first(share)
    found = []
    core, reference, rows = run(sample, starts=starts, device="cpu", precision="float64", runs=3, warm_ups=1)
    found.append(asdict(core))
    narrow, fleet, chosen = run(sample, starts=starts, device="cpu", precision="float32", runs=3, warm_ups=1)
    found.append({**asdict(narrow), **_differences(sample, reference, rows, fleet, chosen)})
    if torch.cuda.is_available():
        for precision in ("float32", "float64"):
            timed, _, _ = run(task, starts=starts, device="cuda", precision=precision, runs=runs, warm_ups=2)
            _, fleet, chosen = run(sample, starts=starts, device="cuda", precision=precision, runs=1, warm_ups=0)
            found.append({**asdict(timed), **_differences(sample, reference, rows, fleet, chosen)})
    return {"torch": torch.__version__, "jobs": jobs, "share": share, "measured": found}


def _differences(task: Task, reference: Fleet, rows: Cheapest, fleet: Fleet, chosen: Cheapest) -> dict[str, float]:
    """How far another device or precision is from one core in double precision, in standard deviations."""
    some = task.configurations[::37]
    mean, sd = reference.predict(some)
    other_mean, other_sd = fleet.predict(some)
    off_mean, off_sd = np.abs(other_mean - mean) / sd, np.abs(other_sd - sd) / sd
    dearer = task.cost[chosen.row] / task.cost[rows.row]
    return {
        "mean_off_p99_sd": float(np.quantile(off_mean, 0.99)),
        "mean_off_max_sd": float(off_mean.max()),
        "sd_off_p99": float(np.quantile(off_sd, 0.99)),
        "sd_off_max": float(off_sd.max()),
        "same_row": float(np.mean(chosen.row == rows.row)),
        "cost_ratio_max": float(dearer.max()),
    }


def section(found: dict[str, Any]) -> str:
    """The table of the page."""
    rows, totals = [], {}
    for measured in found["measured"]:
        scale = found["jobs"] / measured["jobs"]
        fit, ask = (scale * float(np.median(measured[name])) for name in ("fit_s", "ask_s"))
        total = scale * float(np.median(np.add(measured["fit_s"], measured["ask_s"])))
        gpu = measured["memory_gib"] is not None
        totals[measured["where"], measured["precision"]] = total
        against = "the reference"
        if "same_row" in measured:
            against = (
                f"{measured['mean_off_p99_sd']:.4f} / {measured['sd_off_p99']:.4f}; "
                f"{100 * measured['same_row']:.1f} % the same row"
            )
        rows.append(
            [
                measured["where"],
                measured["precision"],
                f"{fit:.2f} s",
                f"{ask:.2f} s",
                f"{total:.2f} s",
                f"{_GOAL_S:.0f} s" if gpu else "",
                ("yes" if total <= _GOAL_S else "NO") if gpu else "",
                f"{measured['memory_gib']:.0f} GiB" if gpu else "",
                against,
            ]
        )
    models = found["jobs"] * _OUTPUTS * _LOADS
    first = found["measured"][0]
    runs = max(len(measured["fit_s"]) for measured in found["measured"])
    head = ["where", "precision", "fit", "ask", "together", "goal", "reached", "memory", "off by (mean / spread, p99)"]
    ratio = ""
    gpus = [total for (where, _), total in totals.items() if "core" not in where]
    if gpus:
        slowest = min(total for (where, _), total in totals.items() if "core" in where)
        ratio = f" The faster GPU run takes {slowest / min(gpus):.0f}x less time than the faster run on the core."
    return (
        f"{models:,} Gaussian processes ({found['jobs']:,} jobs x {_OUTPUTS} outputs x {_LOADS} loads, {_POINTS} "
        f"measurements of {_DIMS} dimensions each, {first['starts']} starts) fitted, then asked about "
        "10,000 configurations and the cheapest that keeps both limits chosen for every job on the device; from numpy "
        f"to numpy, median of {runs} runs on the GPU after two to warm up. On the core a share of {found['share']} jobs"
        f" was measured and scaled to {found['jobs']:,}. "
        "'Off by' is the difference from one core in double precision on that share, in standard deviations of the "
        f"prediction. PyTorch {found['torch']}.{ratio}\n\n" + table(head, rows)
    )


def measure(_traces: Path | None) -> str:
    """The section, measured here: a GPU is used where PyTorch finds one."""
    return section(figures(jobs=1_000, share=20, starts=4, runs=7))


def main() -> None:
    """Measure (or read what was measured elsewhere) and print the table and the raw figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--share", type=int, default=20, help="jobs measured on the core (default: 20)")
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--save", type=Path, default=None, metavar="FILE")
    parser.add_argument("--of", type=Path, default=None, metavar="FILE")
    options = parser.parse_args()
    if options.of is not None:
        found = json.loads(options.of.read_text(encoding="utf-8"))
        today = datetime.now(UTC).date().isoformat()
        page = Path(__file__).parent.parent / "docs" / "benchmarks.md"
        update_page(page, "fleet", section(found), command="python -m bench.fleet", date=today)
    else:
        found = figures(jobs=options.jobs, share=options.share, starts=options.starts, runs=options.runs)
    if options.save is not None:
        options.save.write_text(json.dumps(found), encoding="utf-8")
    print(section(found))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
