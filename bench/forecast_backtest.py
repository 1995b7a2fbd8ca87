"""How good every forecaster is on recorded and on generated loads, and how long one forecast takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.page import table
from tidewise.experiments.backtest import Backtest, BacktestSettings, Score, Subject, backtest, score, subject_of
from tidewise.experiments.backtest_origins import HORIZON_S, Stretch, judge
from tidewise.experiments.load_words import load_of
from tidewise.forecast import FORECASTERS
from tidewise.pipeline import sweep
from tidewise.report.backtest_table import milliseconds, percents

_YSB = "ysb_18h.csv"
_NOT_LOADS = ("ysb_profiles.csv",)
_YSB_SEEDS = (0, 1, 2, 3, 4)
_SHAPES = (
    "daily mean_per_s=20000",
    "sine mean_per_s=1000 period=2h",
    "bursts base_per_s=1000 mean_gap=1h",
    "regime-change at=100h mean_before_per_s=1000 mean_after_per_s=2500",
)
_ENSEMBLE, _NAIVE = "ensemble", "naive"
_BEST_WITHIN = 1.05
_YSB_ERROR = 0.036
_INSIDE = (0.87, 0.93)
_HISTORY = 1000
_TIMED = 100
_TIME_S = 0.020


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A load with the score of every model on it."""

    load: str
    scores: Mapping[str, Score]

    def error(self, model: str) -> float:
        found = self.scores[model].wape[0]
        assert found is not None, "every load here comes in every block"
        return found

    @property
    def best_single(self) -> str:
        return min((model for model in self.scores if model != _ENSEMBLE), key=self.error)


def measure(traces: Path | None) -> str:
    """Judge all models on all loads, and set the figures beside the goals."""
    began_s = time.monotonic()
    files = [] if traces is None else sorted(file for file in traces.glob("*.csv") if file.name not in _NOT_LOADS)
    others = [str(file) for file in files if file.name != _YSB]
    noisy = [str(file) for file in files if file.name == _YSB]
    rows: list[_Row] = []
    by_seed: list[float] = []
    if noisy:
        found = _judged(noisy, BacktestSettings(noise_share=0.1, seeds=_YSB_SEEDS))
        rows += _rows(found)
        by_seed = [_error_with(found, found.subjects[0], seed) for seed in _YSB_SEEDS]
    if others:
        rows += _rows(_judged(others, BacktestSettings(compress=True)))
    rows += _rows(_judged(list(_SHAPES), BacktestSettings(noise_share=0.1)))
    times = _times(others[-1] if others else _SHAPES[0])
    took_s = time.monotonic() - began_s
    usual = BacktestSettings()
    preface = (
        f"Rolling origins every {usual.every_s // 60} min over the last {usual.judged_s / 3600:.0f} h of each load, "
        f"samples of {usual.sample_s} s, all before an origin learnt; `{_YSB}` with 10 % noise on every second and "
        f"{len(_YSB_SEEDS)} seeds, other traces row by row as samples of 60 s; shapes with 10 % noise: "
        f"{', '.join(f'`{shape}`' for shape in _SHAPES)}. Computed on Spark, `local[*]`, in {took_s / 60:.0f} min. "
        "Naive is Tidewise's own."
    )
    timed = (
        f"CPU time per forecast at {_HISTORY:,} samples of history, one sample after the forecast before it; the first "
        "forecast, which makes those of the past as well, apart:"
    )
    return "\n\n".join(
        [
            preface,
            "Error of the median 0-10 min ahead (WAPE; **bold**: the best single model):",
            table(["load", *FORECASTERS, "ensemble / best single", "ensemble / naive"], [_errors(row) for row in rows]),
            "Share of samples inside of the 90 % interval, 0-30 min ahead:",
            table(["load", *FORECASTERS], [_inside(row) for row in rows]),
            "Peak of the next 10 min missed by the median / by the interval's upper end:",
            table(["load", *FORECASTERS], [_peaks(row) for row in rows]),
            timed,
            table(["model", "median", "p95", "first"], [_time(model, one) for model, one in times.items()]),
            "\n".join(f"- {sentence}" for sentence in _goals(rows, by_seed, times)),
        ]
    )


def _judged(loads: list[str], settings: BacktestSettings) -> Backtest:
    told: set[int] = set()

    def tell(done: int, total: int) -> None:
        tenth = 10 * done // total
        if tenth not in told:
            told.add(tenth)
            sys.stderr.write(f"{', '.join(Path(load).name for load in loads)}: {done} of {total} parts\n")

    return backtest(loads, settings, progress=tell)


def _rows(found: Backtest) -> list[_Row]:
    return [_Row(load=subject.load, scores=found.scores(subject)) for subject in found.subjects]


def _error_with(found: Backtest, subject: Subject, seed: int) -> float:
    return score(found.judged[subject.load, _ENSEMBLE, seed]).wape[0] or 0.0


def _times(load: str) -> dict[str, Score]:
    """Forecasts at every sample after the first thousand, one core."""
    settings = BacktestSettings(compress=True)
    rates = next(iter(subject_of(load, load_of(load), settings).samples.values()))
    ahead = round(HORIZON_S / settings.sample_s)
    stretches = [
        Stretch(
            load=load,
            model=model,
            seed=0,
            sample_s=float(settings.sample_s),
            begin=0,
            rates_per_s=np.array(rates[-(_HISTORY + _TIMED + ahead) :]),
            origins=tuple(range(_HISTORY + 1, _HISTORY + _TIMED)),
        )
        for model in FORECASTERS
    ]
    answers = sweep(judge, stretches, master="local[1]")
    return {stretch.model: score(answer) for stretch, answer in zip(stretches, answers, strict=True)}


def _errors(row: _Row) -> list[str]:
    best = row.best_single
    cells = [
        f"**{percents(row.error(model))}**" if model == best else percents(row.error(model)) for model in FORECASTERS
    ]
    mine = row.error(_ENSEMBLE)
    return [row.load, *cells, f"{mine / row.error(best):.2f}", f"{mine / row.error(_NAIVE):.2f}"]


def _inside(row: _Row) -> list[str]:
    return [row.load, *(f"{100 * row.scores[model].inside_all:.1f} %" for model in FORECASTERS)]


def _peaks(row: _Row) -> list[str]:
    scores = [row.scores[model] for model in FORECASTERS]
    return [row.load, *(f"{100 * one.peak_missing:.1f} / {100 * one.peak_missing_upper:.1f} %" for one in scores)]


def _time(model: str, one: Score) -> list[str]:
    return [model, *map(milliseconds, (one.forecast_p50_s, one.forecast_p95_s, one.first_s))]


def _goals(rows: list[_Row], by_seed: list[float], times: Mapping[str, Score]) -> list[str]:
    """Each goal, whether it is reached, and where it is not."""
    ratios = {row.load: row.error(_ENSEMBLE) / row.error(row.best_single) for row in rows}
    far = [f"{load} ({ratio:.2f})" for load, ratio in ratios.items() if ratio > _BEST_WITHIN]
    worse = [row.load for row in rows if row.error(_ENSEMBLE) >= row.error(_NAIVE)]
    low, high = _INSIDE
    off = [
        f"{row.load} ({100 * row.scores[_ENSEMBLE].inside_all:.1f} %)"
        for row in rows
        if not low <= row.scores[_ENSEMBLE].inside_all <= high
    ]
    pairs = [one.inside_all for row in rows for one in row.scores.values()]
    held = sum(low <= share <= high for share in pairs)
    slow = [
        f"{name} ({milliseconds(one.forecast_p50_s)})" for name, one in times.items() if one.forecast_p50_s > _TIME_S
    ]
    said = [
        _goal("the ensemble within 5 % of the best single model at 0-10 min on every load", far),
        _goal("the ensemble better than naive at 0-10 min on every load", worse),
        _goal("90 % intervals of the ensemble cover 87-93 % on every load", off)
        + f" All models: {held} of {len(pairs)} pairs of model and load lie there.",
        _goal(f"a forecast in at most {milliseconds(_TIME_S)} (median) at {_HISTORY:,} samples of history", slow),
    ]
    if by_seed:
        mean = float(np.mean(by_seed))
        each = ", ".join(percents(error) for error in by_seed)
        missed = [f"{percents(mean)} on average"] if mean > _YSB_ERROR else []
        said.insert(
            2, _goal(f"{_YSB} at 0-10 min at most {percents(_YSB_ERROR)}", missed) + f" The ensemble by seed: {each}."
        )
    return said


def _goal(what: str, missed: list[str]) -> str:
    return f"{what}: **missed**, {', '.join(missed)}." if missed else f"{what}: reached."
