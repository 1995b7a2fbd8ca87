"""Forecasters on loads of the past: samples, rolling origins, the sweep over all of them, and what came of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tidewise.core import BadInputError, format_duration
from tidewise.experiments.backtest_origins import (
    BLOCK_S,
    BLOCKS,
    HORIZON_S,
    Floats,
    Judged,
    Stretch,
    forecaster_sample_s,
    judge,
)
from tidewise.experiments.load_words import load_of
from tidewise.forecast import FORECASTERS, make_forecaster
from tidewise.pipeline import sweep
from tidewise.workload import Load, Noisy, Trace

INTERVAL_SHARE = 0.9
WARM_UP_S = 7200.0
"""So much of a load only teaches."""
LEARNT = 4320
"""So many of its samples before its first origin a forecaster learns at least, where there are as many: more than any
remembers.
"""
_ALIGNED = 960
"""Stretches begin at multiples of this: what forecasters do every so many samples falls on the same ones then."""
_MOST_JUDGED_S = 90 * 86400.0
"""Loads are made second by second: this is some 60 MB of them."""
_LEAST_TASKS = 16
"""With as many, the cores of a larger machine have something to do."""
_FEW, _MANY = 20, 150
"""Origins of a task: the first forecast of a task costs as much as some thirty origins ten samples apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestSettings:
    """What is asked of a backtest."""

    models: tuple[str, ...] = tuple(FORECASTERS)
    sample_s: int = 60
    every_s: int = 600
    """From one origin to the next."""
    judged_s: float = 25 * 3600.0
    """How much of the end of each load is judged; what lies before is learnt."""
    noise_share: float = 0.0
    """Standard deviation of the noise on each second of the load, as a share of its rate."""
    seeds: tuple[int, ...] = (0,)
    compress: bool = False
    """Whether each row of a trace whose rows lie further apart than samples becomes one sample."""

    def __post_init__(self) -> None:
        for model in self.models:
            make_forecaster(model)  # for the sentence that it has where there is none of this name
        for what, names in (("model", self.models), ("seed", tuple(map(str, self.seeds)))):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice or not names:
                wrong = f"the {what} {twice[0]} is given twice" if twice else f"no {what} is given"
                raise BadInputError(f"{wrong}: name each that is wanted, once")
        if not 10 <= self.sample_s <= BLOCK_S or BLOCK_S % self.sample_s:
            raise BadInputError(
                f"samples of {format_duration(self.sample_s)} do not fit into 10 min: take 10s, 30s, 60s, 2min or 5min"
            )
        if self.every_s < self.sample_s or self.every_s % self.sample_s:
            raise BadInputError(
                f"an origin every {format_duration(self.every_s)} does not fall between samples of "
                f"{format_duration(self.sample_s)}: take a multiple of them"
            )
        if not self.judged_s >= HORIZON_S + self.every_s:
            raise BadInputError(
                f"{format_duration(self.judged_s)} are too short to be judged: forecasts reach "
                f"{format_duration(HORIZON_S)} ahead, so take at least {format_duration(HORIZON_S + self.every_s)}"
            )
        if self.judged_s > _MOST_JUDGED_S:
            raise BadInputError(
                f"{format_duration(self.judged_s)} are more than a backtest can hold: judge at most "
                f"{_MOST_JUDGED_S / 3600.0:g} hours"
            )
        if not 0.0 <= self.noise_share <= 1.0:
            raise BadInputError(f"the noise must be a share from 0 to 1, not {self.noise_share:g}")
        if min(self.seeds) < 0:
            raise BadInputError(f"a seed must not be negative, not {min(self.seeds)}")

    @property
    def learnt_s(self) -> float:
        """How long a forecaster learns before its first origin."""
        return LEARNT * forecaster_sample_s(self.sample_s)

    @property
    def aligned_s(self) -> float:
        """Stretches begin at multiples of it."""
        return _ALIGNED * forecaster_sample_s(self.sample_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """One load as it is judged."""

    load: str
    compressed: float
    """By what factor its time was compressed for this backtest; 1: as it is."""
    samples: Mapping[int, Floats]
    """Mean rates by seed."""
    origins: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good a forecaster was on a load; shares, and seconds of CPU time."""

    origins: int
    wape: tuple[float | None, ...]
    """Sum of absolute errors over the sum of what came, by block; None where nothing came."""
    inside: tuple[float, ...]
    """Share of samples inside of the 90 % interval, by block."""
    inside_all: float
    peak_missing: float
    """By how much the median was below the highest sample of the first block, over those samples."""
    peak_missing_upper: float
    """The same for the upper end of the interval."""
    forecast_p50_s: float
    forecast_p95_s: float
    first_s: float
    """Median over the first forecasts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backtest:
    """All that came of it."""

    settings: BacktestSettings
    subjects: tuple[Subject, ...]
    judged: Mapping[tuple[str, str, int], Judged]
    """By load, model and seed."""

    def of(self, subject: Subject, model: str) -> Judged:
        """All seeds, one after the other."""
        return Judged.joined([self.judged[subject.load, model, seed] for seed in subject.samples])

    def scores(self, subject: Subject) -> dict[str, Score]:
        """By model, over all seeds."""
        return {model: score(self.of(subject, model)) for model in self.settings.models}


class Sweeper(Protocol):
    """Computes the work on all stretches, and tells how many have ended."""

    def __call__(
        self, work: Callable[[Stretch], Judged], tasks: Sequence[Stretch], *, progress: Callable[[int], None]
    ) -> list[Judged]:
        """The answers in the order of the tasks."""


def backtest(
    loads: Sequence[str],
    settings: BacktestSettings,
    *,
    master: str = "local[*]",
    progress: Callable[[int, int], None] | None = None,
    sweeper: Sweeper | None = None,
) -> Backtest:
    """Judge every model on every load, with every seed; a load is a line as `load_of` reads it.

    Whatever is wrong with loads or settings is told by BadInputError before Spark is started. `progress` is told how
    many parts of how many are done. `sweeper`: what runs them; None: Spark, on this master.
    """
    subjects = tuple(subject_of(label, load, settings) for label, load in _labelled(loads))
    pairs = len(settings.models) * sum(len(subject.samples) for subject in subjects)
    most = max(len(subject.origins) for subject in subjects)
    at_most = min(max(most * pairs // _LEAST_TASKS, _FEW), _MANY)
    stretches = [
        stretch
        # The last models of the registry take longest: begun first, none of them is waited for alone at the end.
        for model in reversed(settings.models)
        for subject in subjects
        for seed, rates in subject.samples.items()
        for stretch in stretches_of(subject, model, seed, rates, settings, at_most=at_most)
    ]

    def tell(done: int) -> None:
        if progress is not None:
            progress(done, len(stretches))

    tell(0)
    if sweeper is None:
        answers = sweep(judge, stretches, master=master, progress=tell)
    else:
        answers = sweeper(judge, stretches, progress=tell)
    tell(len(stretches))
    parts: dict[tuple[str, str, int], list[Judged]] = {}
    for stretch, part in zip(stretches, answers, strict=True):
        parts.setdefault((stretch.load, stretch.model, stretch.seed), []).append(part)
    return Backtest(
        settings=settings,
        subjects=subjects,
        judged={key: Judged.joined(found) for key, found in parts.items()},
    )


def subject_of(label: str, load: Load, settings: BacktestSettings) -> Subject:
    """The samples of a load and the origins among them; BadInputError where nothing can be judged."""
    compressed = 1.0
    if isinstance(load, Trace):
        apart_s = load.step_s / load.compress
        if apart_s > 1.001 * settings.sample_s:
            if not settings.compress:
                raise BadInputError(
                    f"{label} has a row every {format_duration(apart_s)}, and samples of "
                    f"{format_duration(settings.sample_s)} in between would be made up: give --compress to take every "
                    "row as one sample"
                )
            compressed = apart_s / settings.sample_s
            load = _row_by_row(load, settings.sample_s)
        # On a line between two rows half of the next one would be known.
        load = replace(load, between="hold")
    # Without noise a trace is the same for every seed.
    seeds = settings.seeds if settings.noise_share or not isinstance(load, Trace) else settings.seeds[:1]
    samples = {seed: _samples(label, load, seed, settings) for seed in seeds}
    count = len(next(iter(samples.values())))
    first = max(round(WARM_UP_S / settings.sample_s), count - round(settings.judged_s / settings.sample_s))
    every = settings.every_s // settings.sample_s
    origins = tuple(range(-(-first // every) * every, count - round(HORIZON_S / settings.sample_s) + 1, every))
    if not origins:
        needed_s = math.ceil(WARM_UP_S / settings.every_s) * settings.every_s + HORIZON_S
        raise BadInputError(
            f"{label} lasts {format_duration(count * settings.sample_s)}: a backtest needs "
            f"{format_duration(needed_s)}, {format_duration(WARM_UP_S)} to learn and the rest to compare"
        )
    for rates in samples.values():
        if not rates[origins[0] :].any():
            raise BadInputError(
                f"{label} is 0 wherever it would be judged, where errors have no share of the load: judge more of it "
                "(--hours), or another load"
            )
    return Subject(load=label, compressed=compressed, samples=samples, origins=origins)


def stretches_of(
    subject: Subject,
    model: str,
    seed: int,
    rates: Floats,
    settings: BacktestSettings,
    *,
    at_most: int,
) -> list[Stretch]:
    """The origins in parts that can be judged apart: each begins with all that its forecaster can remember."""
    aligned = round(settings.aligned_s / settings.sample_s)
    learnt = round(settings.learnt_s / settings.sample_s)
    ahead = round(HORIZON_S / settings.sample_s)
    found = []
    for part in np.array_split(np.array(subject.origins), -(-len(subject.origins) // at_most)):
        begin = max(0, int(part[0]) - learnt) // aligned * aligned
        found.append(
            Stretch(
                load=subject.load,
                model=model,
                seed=seed,
                sample_s=float(settings.sample_s),
                begin=begin,
                rates_per_s=rates[begin : int(part[-1]) + ahead],
                origins=tuple(part.tolist()),
            )
        )
    return found


def score(judged: Judged) -> Score:
    """The figures of a table."""
    came = judged.came_per_s.sum(axis=0)
    errors = judged.errors_per_s.sum(axis=0)
    inside = judged.inside.mean(axis=0)
    peak, median, upper = judged.peaks_per_s.T
    highest = max(float(peak.sum()), 1e-300)  # where no peak came, nothing is missing to it
    return Score(
        origins=len(judged.origins),
        wape=tuple(float(errors[block] / came[block]) if came[block] > 0.0 else None for block in range(BLOCKS)),
        inside=tuple(inside.tolist()),
        inside_all=float(inside.mean()),
        peak_missing=float(np.maximum(peak - median, 0.0).sum()) / highest,
        peak_missing_upper=float(np.maximum(peak - upper, 0.0).sum()) / highest,
        forecast_p50_s=float(np.median(judged.forecast_s)),
        forecast_p95_s=float(np.quantile(judged.forecast_s, 0.95)),
        first_s=float(np.median(judged.first_s)),
    )


def _labelled(texts: Sequence[str]) -> list[tuple[str, Load]]:
    """Each load with a name of its own: that of its file or shape, or all of its line where that is not enough."""
    if not texts:
        raise BadInputError('no load is given: name a CSV file, or a shape such as "daily mean_per_s=1000"')
    loads = [load_of(text) for text in texts]
    names = Counter(load.name for load in loads)
    labels = [load.name if names[load.name] == 1 else text for text, load in zip(texts, loads, strict=True)]
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        raise BadInputError(f"the load {twice[0]} is given twice: name it once")
    return list(zip(labels, loads, strict=True))


def _row_by_row(trace: Trace, sample_s: int) -> Trace:
    """The same rows, each one sample after the one before."""
    values = trace.values_per_s[trace.times_s - trace.times_s[0] >= trace.start_s]
    times_s = sample_s * np.arange(len(values), dtype=np.float64)
    return replace(trace, times_s=times_s, values_per_s=values, compress=1.0, start_s=0.0)


def _samples(label: str, load: Load, seed: int, settings: BacktestSettings) -> Floats:
    """Mean rates of the end of the load, as much of it as is judged and learnt before."""
    count = math.ceil((settings.learnt_s + settings.aligned_s + settings.judged_s) / settings.sample_s)
    length_s = count * settings.sample_s
    if isinstance(load, Trace):
        length_s = load.run_length_s
        # Whole samples are left out: between them, the rows of two would be mixed.
        left_out = max(0, length_s // settings.sample_s - count)
        load = replace(load, start_s=load.start_s + left_out * settings.sample_s * load.compress)
        count = length_s // settings.sample_s - left_out
    if count == 0:
        raise BadInputError(f"{label} lasts {format_duration(length_s)}, less than one sample")
    noisy = Noisy(load=load, share=settings.noise_share) if settings.noise_share else load
    rates_per_s = noisy.rates_per_s(count * settings.sample_s, seed)
    return np.asarray(rates_per_s.reshape(count, settings.sample_s).mean(axis=1))
