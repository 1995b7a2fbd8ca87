"""`python -m bench.search_regret --results FILE`: how fast searches find the front, against BoTorch, paired by seed.

Every run is appended to FILE, and one that is there already is not run again: stop it and start it as you like.
`--page` writes the section of docs/benchmarks.md from what FILE holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from bench.page import table, update_page
from bench.search_surfaces import GENERATED, PAST_PROFILES, PRICES, Surface, generated, profile, real
from tidewise.search import Profiler, hypervolume
from tidewise.search.suggest import Method

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_EVALUATIONS, _GIVEN = 30, 2
"""Profiles at the load that is searched; the first two are random, and the same for every method."""
_CHECKPOINTS = (10, 20, 30)
_SEEDS = 5
_TIMES_LESS = 40.0
_REFERENCE = "BoTorch RGPE + qLogNEHVI"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_LONGEST_S = 6 * 3600.0
_REAL = "real profiles"

Suggest = Callable[[Rows, Floats, Floats], int]
"""From the rows profiled at this load with their latencies and recoveries to the row to profile next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One search."""

    surface: str
    seed: int
    method: str
    regret: list[float]
    """After each evaluation: the share of the hypervolume of the true front that is not yet found."""
    prepare_s: float
    """Before the first suggestion: BoTorch's base models. Ours are fitted within the first suggestion."""
    suggest_s: list[float]
    """Processor time of each suggestion, with all fitting that it takes."""

    @property
    def whole_s(self) -> float:
        return self.prepare_s + sum(self.suggest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What every method starts with."""

    surface: Surface
    seed: int
    past: list[tuple[float, Rows, Floats, Floats]]
    """Of each past load: its rate, the rows profiled, latencies and recoveries."""
    rows: Rows
    """The first rows at this load."""

    @classmethod
    def of(cls, surface: Surface, seed: int) -> Given:
        rng = np.random.default_rng([seed, 1])
        past = []
        for rate in surface.past_rates():
            rows = rng.integers(len(surface.candidates), size=PAST_PROFILES)
            past.append((float(rate), rows, *profile(surface, rows, float(rate), rng)))
        return cls(surface=surface, seed=seed, past=past, rows=rng.integers(len(surface.candidates), size=_GIVEN))


def _profiler(given: Given, *, method: Method, transfer: bool) -> Suggest:
    surface = given.surface
    profiler = Profiler(promises=surface.promises, prices=PRICES, method=method, seed=given.seed)

    def observe(rate: float, rows: Iterable[int], latencies: Iterable[float], recoveries: Iterable[float]) -> None:
        for row, latency, recovery in zip(rows, latencies, recoveries, strict=True):
            profiler.observe(
                surface.candidates[int(row)], rate_per_s=rate, latency_s=float(latency), recovery_s=float(recovery)
            )

    if transfer:
        for rate, rows, latencies, recoveries in given.past:
            observe(rate, rows, latencies, recoveries)
    seen = 0

    def suggest(rows: Rows, latencies: Floats, recoveries: Floats) -> int:
        nonlocal seen
        observe(surface.rate_per_s, rows[seen:], latencies[seen:], recoveries[seen:])
        seen = len(rows)
        return int(profiler.suggest(surface.candidates, rate_per_s=surface.rate_per_s, count=1)[0])

    return suggest


def _contextual(given: Given) -> Suggest:
    return _profiler(given, method="contextual", transfer=True)


def _ensemble(given: Given) -> Suggest:
    return _profiler(given, method="ensemble", transfer=True)


def _no_transfer(given: Given) -> Suggest:
    return _profiler(given, method="contextual", transfer=False)


def _random(given: Given) -> Suggest:
    rng = np.random.default_rng([given.seed, 3])
    return lambda rows, _latencies, _recoveries: int(
        rng.choice(np.setdiff1d(np.arange(len(given.surface.candidates)), rows))
    )


def _botorch(given: Given) -> Suggest:
    from bench.botorch_reference import BotorchProfiler  # noqa: PLC0415 -- the only method that needs BoTorch

    surface = given.surface
    limits = (surface.promises.latency_p95_s, surface.promises.recovery_s)
    assert limits[0] is not None
    assert limits[1] is not None
    reference = BotorchProfiler(
        features=surface.candidates.features,
        log_cost=np.log(surface.candidates.cost_per_hour(PRICES)),
        log_limits=(float(np.log(limits[0])), float(np.log(limits[1]))),
        past=[(rows, np.log(latencies), np.log(recoveries)) for _, rows, latencies, recoveries in given.past],
        seed=given.seed,
    )
    return lambda rows, latencies, recoveries: reference.suggest(rows, np.log(latencies), np.log(recoveries))


METHODS: dict[str, Callable[[Given], Suggest]] = {
    "ours, contextual": _contextual,
    "ours, RGPE": _ensemble,
    "no transfer": _no_transfer,
    "random": _random,
    _REFERENCE: _botorch,
}


def search(surface: Surface, *, seed: int, method: str) -> Run:
    """One method on one surface, from the same data and with the same noise as every other."""
    given = Given.of(surface, seed)
    begin = time.process_time()
    suggest = METHODS[method](given)
    prepare_s = time.process_time() - begin
    rng = np.random.default_rng([seed, 2])
    rows = given.rows
    latencies, recoveries = profile(surface, rows, surface.rate_per_s, rng)
    suggest_s = []
    while len(rows) < _EVALUATIONS:
        begin = time.process_time()
        row = suggest(rows, latencies, recoveries)
        suggest_s.append(time.process_time() - begin)
        latency, recovery = profile(surface, np.array([row]), surface.rate_per_s, rng)
        rows, latencies, recoveries = (
            np.append(rows, row),
            np.append(latencies, latency),
            np.append(recoveries, recovery),
        )
    return Run(
        surface=surface.name, seed=seed, method=method, regret=_regret(surface, rows), prepare_s=prepare_s,
        suggest_s=suggest_s,
    )  # fmt: skip


def _regret(surface: Surface, rows: Rows) -> list[float]:
    """By the truth, free of noise: only configurations that really keep both promises count."""
    latency, recovery = surface.truth(surface.rate_per_s)
    cost = np.log(surface.candidates.cost_per_hour(PRICES))
    limits = (surface.promises.latency_p95_s, surface.promises.recovery_s)
    assert limits[0] is not None
    assert limits[1] is not None
    kept = (latency <= limits[0]) & (recovery <= limits[1])

    def found(of: Rows) -> float:
        good = of[kept[of]]
        return hypervolume(
            cost[good], np.log(latency[good]), cost_limit=float(cost.max()), value_limit=float(np.log(limits[0] or 0.0))
        )

    whole = found(np.arange(len(surface.candidates)))
    return [1.0 - found(rows[:count]) / whole for count in range(1, len(rows) + 1)]


def run_missing(
    results: Path, *, traces: Path | None, seeds: int, methods: list[str], until_s: float | None = None
) -> None:
    """Run what is not in the file yet; seeds come one after the other, so that a part of them is balanced."""
    done = {(run.surface, run.seed, run.method) for run in read(results)}
    names = [*GENERATED, *([] if traces is None else [_REAL])]
    begin = time.monotonic()
    for seed in range(seeds):
        for name in names:
            surface = (
                generated(name, seed) if traces is None or name != _REAL else real(traces / "ysb_profiles.csv", seed)
            )
            for method in methods:
                if (surface.name, seed, method) in done:
                    continue
                if until_s is not None and time.monotonic() - begin > until_s:
                    return
                run = search(surface, seed=seed, method=method)
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(run)) + "\n")
                after = " / ".join(f"{run.regret[count - 1]:.3f}" for count in _CHECKPOINTS)
                print(f"{name}, seed {seed}, {method}: {after}, {np.median(run.suggest_s):.3f} s", flush=True)


def read(results: Path) -> list[Run]:
    """The runs that a file holds."""
    if not results.exists():
        return []
    return [Run(**json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]


def section(runs: list[Run]) -> str:
    """The tables of the page."""
    methods = [name for name in METHODS if any(run.method == name for run in runs)]
    surfaces = list(dict.fromkeys(run.surface for run in runs))
    reference = {(run.surface, run.seed): run for run in runs if run.method == _REFERENCE}
    rows = []
    for method in methods:
        mine = [run for run in runs if run.method == method]
        pairs = [(run, reference[run.surface, run.seed]) for run in mine if (run.surface, run.seed) in reference]
        seconds = float(np.median([value for run in mine for value in run.suggest_s]))
        row = [method, str(len(mine)), " / ".join(f"{_mean(mine, count):.3f}" for count in _CHECKPOINTS)]
        row += [_difference(pairs, count) if method != _REFERENCE else "" for count in _CHECKPOINTS]
        row += ["", _duration(seconds), "", ""]
        if pairs and method.startswith("ours"):
            ratio = float(np.median([other.whole_s / mine.whole_s for mine, other in pairs]))
            worse = any(
                _mean([a for a, _ in pairs], count) > _mean([b for _, b in pairs], count) for count in _CHECKPOINTS
            )
            row[-4:] = [
                "NO" if worse else "yes", row[-3], f"{ratio:.0f}x", "yes" if ratio >= _TIMES_LESS else "NO",
            ]  # fmt: skip
        rows.append(row)
    head = ["method", "runs", "regret after 10 / 20 / 30"]
    head += [f"less BoTorch's, after {count}" for count in _CHECKPOINTS]
    head += ["no worse in any", "a suggestion", "less time than BoTorch", f"at least {_TIMES_LESS:.0f}x"]
    per_surface = [
        [name, *(_cell([run for run in runs if run.surface == name and run.method == method]) for method in methods)]
        for name in surfaces
    ]
    return (
        "Normalised hypervolume regret (log cost against log latency, noise-free, of configurations that really keep "
        f"latency and recovery) after so many profiles at a new load, of which the first {_GIVEN} are random and the "
        "same for all; 15 past loads x 20 profiles are given to all but 'no transfer' and 'random'. Differences are "
        "paired by surface and seed, with 95 % intervals (below 0: better than BoTorch). A suggestion: median "
        "processor time, one thread, with the fitting it takes; the ratio is the median of those of whole runs, base "
        "models included. BoTorch is told the cost exactly, fits its base models once, and evaluates its acquisition "
        "(128 samples) at every configuration, as ours do.\n\n"
        + table(head, rows)
        + "\n\nRegret after 10 / 20 / 30 by surface (of 1,296 to 10,368 configurations):\n\n"
        + table(["surface", *methods], per_surface)
    )


def _mean(runs: list[Run], count: int) -> float:
    return float(np.mean([run.regret[count - 1] for run in runs]))


def _cell(runs: list[Run]) -> str:
    return " / ".join(f"{_mean(runs, count):.3f}" for count in _CHECKPOINTS) if runs else ""


def _difference(pairs: list[tuple[Run, Run]], count: int) -> str:
    """Mean paired difference and its 95 % interval (Student's)."""
    if len(pairs) < 2:
        return ""
    off = np.array([mine.regret[count - 1] - other.regret[count - 1] for mine, other in pairs])
    half = float(student.ppf(0.975, len(off) - 1) * off.std(ddof=1) / np.sqrt(len(off)))
    return f"{off.mean():+.3f} ({off.mean() - half:+.3f} to {off.mean() + half:+.3f})"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{1000 * seconds:.1f} ms"


def _available() -> list[str]:
    return [name for name in METHODS if name != _REFERENCE or find_spec("botorch") is not None]


def measure(traces: Path | None) -> str:
    """Everything, in a process of its own that has one thread; with BoTorch installed it takes about an hour."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "runs.jsonl"
        given = [] if traces is None else ["--traces", str(traces.resolve())]
        subprocess.run(  # noqa: S603 -- this module, with this interpreter
            [sys.executable, "-m", "bench.search_regret", "--results", str(results), *given],
            env={**os.environ, **_ONE_THREAD},
            cwd=Path(__file__).parent.parent,
            timeout=_LONGEST_S,
            check=True,
        )
        return section(read(results))


def main() -> None:
    """Run what is missing and print the tables of what is there."""
    parser = argparse.ArgumentParser(prog="python -m bench.search_regret", description=__doc__)
    parser.add_argument("--results", type=Path, required=True, metavar="FILE")
    parser.add_argument("--traces", type=Path, default=None, help="a folder with ysb_profiles.csv: adds its surface")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="per surface (default: 5); 0 runs nothing")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=_available())
    parser.add_argument("--until-s", type=float, default=None, help="begin no run after so many seconds")
    parser.add_argument("--page", action="store_true", help="write the section of docs/benchmarks.md")
    options = parser.parse_args()
    if options.seeds and any(os.environ.get(name) != "1" for name in _ONE_THREAD):
        parser.error(f"set {' '.join(f'{name}=1' for name in _ONE_THREAD)}: the times are those of one thread")
    run_missing(
        options.results, traces=options.traces, seeds=options.seeds, methods=options.methods, until_s=options.until_s
    )
    told = section(read(options.results))
    print(told)
    if options.page:
        page = Path(__file__).parent.parent / "docs" / "benchmarks.md"
        today = datetime.now(UTC).date().isoformat()
        update_page(page, "search-regret", told, command="python -m bench search-regret --traces FOLDER", date=today)


if __name__ == "__main__":
    main()
