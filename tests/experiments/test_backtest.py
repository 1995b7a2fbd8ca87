"""A backtest judges what it says it judges, however it is cut into parts, and says in one sentence what it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.backtests import here, wave, write_trace
from tidewise.core import BadInputError, format_duration
from tidewise.experiments.backtest import (
    LEARNT,
    Backtest,
    BacktestSettings,
    Subject,
    backtest,
    score,
    stretches_of,
    subject_of,
)
from tidewise.experiments.backtest_origins import Floats, Judged, Stretch, judge
from tidewise.experiments.load_words import load_of
from tidewise.forecast import FORECASTERS
from tidewise.workload import Daily, Trace

QUICK = BacktestSettings(models=("naive", "line"), judged_s=7200.0)


def _trace(rates: Floats, *, step_s: float = 60.0) -> Trace:
    return Trace(
        name="t.csv", times_s=step_s * np.arange(len(rates), dtype=np.float64), values_per_s=rates, between="hold"
    )


def _judged(subject: Subject, model: str, *, at_most: int) -> Judged:
    parts = stretches_of(subject, model, 0, subject.samples[0], BacktestSettings(), at_most=at_most)
    return Judged.joined([judge(part) for part in parts])


@pytest.mark.parametrize("model", FORECASTERS)
def test_in_parts_or_in_one_the_answers_are_the_same(model: str) -> None:
    samples = wave(150, period=20)
    subject = Subject(load="w", compressed=1.0, samples={0: samples}, origins=(60, 65, 70, 90, 91))
    whole, parts = (_judged(subject, model, at_most=most) for most in (100, 2))
    for name in ("origins", "errors_per_s", "came_per_s", "inside", "peaks_per_s", "ahead_per_s"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    assert (len(whole.first_s), len(parts.first_s), len(parts.forecast_s)) == (1, 3, 5)


@pytest.mark.parametrize("model", ["naive", "seasonal-naive", "holt-winters", "ridge-season", "arima", "ladder"])
def test_parts_of_a_long_load_begin_late_and_still_answer_the_same(model: str) -> None:
    origins = (LEARNT + 50, LEARNT + 60, LEARNT + 2000, LEARNT + 2010)
    subject = Subject(load="w", compressed=1.0, samples={0: wave(origins[-1] + 30)}, origins=origins)
    begins = [part.begin for part in stretches_of(subject, model, 0, subject.samples[0], QUICK, at_most=2)]
    assert begins[0] == 0 < begins[1] <= origins[2] - LEARNT
    whole, parts = (_judged(subject, model, at_most=most) for most in (100, 2))
    # Sums over a longer past are rounded differently, and nothing else differs.
    np.testing.assert_allclose(parts.ahead_per_s, whole.ahead_per_s, rtol=1e-9)
    np.testing.assert_allclose(parts.errors_per_s, whole.errors_per_s, rtol=1e-9)


def test_a_forecaster_knows_what_lies_before_its_origin_and_no_more() -> None:
    step = np.where(np.arange(260) < 200, 100.0, 300.0)
    found = judge(
        Stretch(load="s", model="naive", seed=0, sample_s=60.0, begin=0, rates_per_s=step, origins=(170, 190, 200, 210))
    )
    # 30 min ahead of sample 170 nothing changes; from 190 on, the second and third block are 200 too high.
    assert found.errors_per_s.tolist() == [[0, 0, 0], [0, 2000, 2000], [2000, 2000, 2000], [0, 0, 0]]
    assert found.came_per_s.tolist() == [[1000] * 3, [1000, 3000, 3000], [3000] * 3, [3000] * 3]
    assert found.peaks_per_s[:, :2].tolist() == [[100, 100], [100, 100], [300, 100], [300, 300]]
    assert found.inside[0].tolist() == [1.0, 1.0, 1.0]
    told = score(found)
    assert told.wape == pytest.approx((2000 / 8000, 4000 / 10000, 4000 / 10000))
    assert told.peak_missing == pytest.approx(200 / 800)
    assert told.origins == 4


def test_origins_leave_room_to_learn_and_to_compare() -> None:
    subject = subject_of("t", _trace(wave(300)), replace(QUICK, judged_s=1e6))
    assert subject.origins == tuple(range(120, 271, 10))
    assert subject_of("t", _trace(wave(300)), QUICK).origins == tuple(range(180, 271, 10))


def test_the_mean_of_a_sample_is_what_is_learnt() -> None:
    seconds = np.arange(4 * 3600, dtype=np.float64)
    subject = subject_of("t", _trace(seconds, step_s=1.0), QUICK)
    np.testing.assert_allclose(subject.samples[0], seconds.reshape(-1, 60).mean(axis=1))


def test_rows_as_long_as_samples_are_the_samples(tmp_path: Path) -> None:
    rates = wave(300)
    trace = write_trace(tmp_path / "t.csv", rates.tolist())
    np.testing.assert_allclose(subject_of("t", load_of(str(trace)), QUICK).samples[0], rates, rtol=1e-12)


@pytest.mark.parametrize("more_s", [1.0, 36.0, 59.0])
def test_hours_that_are_no_whole_samples_mix_no_rows(more_s: float) -> None:
    samples = subject_of("t", _trace(np.arange(1e4)), replace(QUICK, judged_s=7200.0 + more_s)).samples[0]
    assert samples.tolist() == np.arange(1e4)[-len(samples) :].tolist()


def test_long_samples_are_those_of_the_forecaster() -> None:
    ramp = 1000.0 + np.arange(400.0)
    subject = subject_of("t", _trace(ramp, step_s=300.0), replace(QUICK, sample_s=300, judged_s=36000.0))
    stretches = stretches_of(
        subject, "line", 0, subject.samples[0], replace(QUICK, sample_s=300), at_most=len(subject.origins)
    )
    # Cut into samples of 60 s, the last nine would be two steps of a stair.
    assert score(judge(stretches[0])).wape == pytest.approx((0.0, 0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize("sample_s", [10, 60, 300])
def test_as_many_samples_of_a_forecaster_are_learnt_whatever_their_length(sample_s: int) -> None:
    settings = replace(QUICK, sample_s=sample_s)
    subject = subject_of("d", Daily(mean_per_s=100.0), settings)
    for stretch in stretches_of(subject, "line", 0, subject.samples[0], settings, at_most=1):
        learnt_s = (stretch.origins[0] - stretch.begin) * sample_s
        assert learnt_s >= LEARNT * max(60, sample_s)


def test_coarse_rows_become_one_sample_each_where_that_is_asked_for() -> None:
    rates = wave(300)
    with pytest.raises(BadInputError, match=r"half\.csv has a row every 30 min, .* give --compress"):
        subject_of("half.csv", _trace(rates, step_s=1800.0), QUICK)
    subject = subject_of("half.csv", _trace(rates, step_s=1800.0), replace(QUICK, compress=True))
    assert subject.compressed == 30.0
    np.testing.assert_allclose(subject.samples[0], rates, rtol=1e-12)


def test_noise_is_drawn_by_seed_and_a_trace_without_it_is_judged_once() -> None:
    trace = _trace(wave(300))
    assert list(subject_of("t", trace, replace(QUICK, seeds=(3, 4))).samples) == [3]
    noisy = subject_of("t", trace, replace(QUICK, seeds=(3, 4), noise_share=0.1)).samples
    assert list(noisy) == [3, 4]
    apart = noisy[3] / noisy[4] - 1.0
    assert 0.01 < float(apart.std()) < 0.03, "10 % on every second is 1.3 % on a minute"
    assert list(subject_of("d", Daily(mean_per_s=100.0), replace(QUICK, seeds=(3, 4))).samples) == [3, 4]


def test_of_a_million_rows_only_those_that_matter_are_taken() -> None:
    subject = subject_of("t", _trace(np.arange(1e6)), QUICK)
    assert len(subject.samples[0]) < 6000
    assert subject.samples[0][-1] == 999_999.0


def test_a_constant_load_is_forecast_without_error(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "flat.csv", [5.0] * 300)
    found = backtest([str(trace)], BacktestSettings(models=("naive", "ridge", "holt"), judged_s=3600.0), sweeper=here)
    for one in found.scores(found.subjects[0]).values():
        assert one.wape == pytest.approx((0.0, 0.0, 0.0), abs=1e-6)
        assert one.peak_missing == pytest.approx(0.0, abs=1e-6)
        assert one.inside_all == 1.0


@pytest.mark.parametrize(
    ("rates", "sentence"),
    [
        ([5.0] * 149, "t.csv lasts 2 h 29 min: a backtest needs 2 h 30 min, 2 h to learn and the rest to compare"),
        ([0.0] * 300, "t.csv is 0 wherever it would be judged"),
        ([5.0] * 150 + [0.0] * 150, "t.csv is 0 wherever it would be judged"),
        ([5.0] * 200 + [float("nan")] * 100, "t.csv, row 202: the value 'nan' is no rate"),
    ],
)
def test_a_load_that_cannot_be_judged_is_told_in_a_sentence(rates: list[float], sentence: str, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.csv", rates)
    with pytest.raises(BadInputError) as told:
        backtest([str(trace)], QUICK, sweeper=_never)
    assert sentence in str(told.value)


@pytest.mark.parametrize(("every_s", "least_s"), [(600, 9000), (2700, 9900), (14400, 16200)])
def test_the_shortest_load_that_is_judged_is_as_long_as_is_told(every_s: int, least_s: int) -> None:
    settings = replace(QUICK, every_s=every_s, judged_s=36000.0)
    assert len(subject_of("t", _trace(wave(least_s // 60)), settings).origins) == 1
    with pytest.raises(BadInputError, match=f"a backtest needs {format_duration(least_s)}, "):
        subject_of("t", _trace(wave(least_s // 60 - 1)), settings)


def _never(*_: object, **__: object) -> list[Judged]:
    raise AssertionError("everything is checked before anything is computed")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"models": ("ensembel",)}, "there is no forecaster 'ensembel'; did you mean 'ensemble'?"),
        ({"models": ("naive", "naive")}, "the model naive is given twice"),
        ({"models": ()}, "no model is given"),
        ({"seeds": (1, 1)}, "the seed 1 is given twice"),
        ({"seeds": (-1,)}, "a seed must not be negative"),
        ({"sample_s": 7}, "do not fit into 10 min"),
        ({"sample_s": 1200}, "do not fit into 10 min"),
        ({"every_s": 90}, "take a multiple of them"),
        ({"judged_s": 600.0}, "are too short to be judged"),
        ({"judged_s": float("nan")}, "are too short to be judged"),
        ({"judged_s": float("inf")}, "judge at most 2160 hours"),
        ({"noise_share": 1.5}, "the noise must be a share from 0 to 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInputError) as told:
        BacktestSettings(**wrong)  # type: ignore[arg-type]  # on purpose
    assert sentence in str(told.value)


def test_loads_keep_their_names_apart(tmp_path: Path) -> None:
    one, two = (tmp_path / name for name in ("a", "b"))
    for folder in (one, two):
        folder.mkdir()
        write_trace(folder / "t.csv", wave(300).tolist())
    lines = [str(one / "t.csv"), str(two / "t.csv"), "constant rate_per_s=10"]
    found: Backtest = backtest(lines, replace(QUICK, models=("naive",), judged_s=3600.0), sweeper=here)
    assert [subject.load for subject in found.subjects] == [*lines[:2], "constant"]
    with pytest.raises(BadInputError, match="is given twice"):
        backtest([lines[0], lines[0]], QUICK, sweeper=_never)
    with pytest.raises(BadInputError, match="no load is given"):
        backtest([], QUICK, sweeper=_never)


def test_progress_counts_every_part(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    trace = write_trace(tmp_path / "t.csv", wave(300).tolist())
    backtest([str(trace)], QUICK, sweeper=here, progress=lambda done, total: told.append((done, total)))
    assert (told[0], told[-1]) == ((0, 2), (2, 2))


@pytest.mark.parametrize(("models", "parts"), [(("naive",), 8), (tuple(FORECASTERS), 2)])
def test_few_models_are_cut_into_more_parts(models: tuple[str, ...], parts: int, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.csv", wave(1620).tolist())
    told: list[int] = []

    def first_only(
        work: Callable[[Stretch], Judged], tasks: Sequence[Stretch], *, progress: Callable[[int], None]
    ) -> list[Judged]:
        progress(len(tasks))
        return [work(replace(task, model="naive", origins=task.origins[:1])) for task in tasks]

    backtest(
        [str(trace)],
        BacktestSettings(models=models),
        sweeper=first_only,
        progress=lambda _, total: told.append(total),
    )
    assert told[0] == parts * len(models)
