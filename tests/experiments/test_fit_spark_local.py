"""Fitting `spark-local`: the shipped profile comes from the measurement kept here, and known laws are found again."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tidewise.core import BadInputError, Mechanism
from tidewise.engines.simulator import load_profile
from tidewise.engines.simulator.profile_file import profile_to_toml
from tidewise.experiments import fit_spark_local as program
from tidewise.experiments.fit_spark_local import fit_spark_local, preface, table_of
from tidewise.experiments.spark_batch_fit import BatchFit, fit_batches, fit_cpu, fit_warm_up, gap_s
from tidewise.experiments.spark_fit_check import HELD_OUT, blocks
from tidewise.experiments.spark_measurement import AfterStart, Batch, SparkMeasurement, Stretch, read_measurement

MEASUREMENT = Path(__file__).parent / "data" / "spark-local-measurement.json"
KNOWN = BatchFit(fixed_s=0.5, records_per_core_s=30_000.0, contention=0.2, spread=0.0, explained=1.0, batches=0)


def _stretch(executors: int, rate_per_s: float, *, noise: float = 0.0, seed: int = 0) -> Stretch:
    """Six seconds of the known law: a batch a second, half a core each."""
    random = np.random.default_rng([seed, executors, int(rate_per_s)])
    durations = [
        KNOWN.duration_s(rate_per_s, executors * 0.5) * np.exp(noise * random.standard_normal()) for _ in range(6)
    ]
    return Stretch(
        executors=executors,
        rate_per_s=rate_per_s,
        seconds=6,
        batches=tuple(Batch(rows=int(rate_per_s), duration_s=float(took_s)) for took_s in durations if rate_per_s),
        executors_cpu_s=0.02 * executors * 0.5 * 6 + (6 * 0.3 + 6 * rate_per_s * 2e-5 if rate_per_s else 0.0),
        driver_cpu_s=1.2,
        controller_cpu_s=0.1,
        machine_cpu_s=9.0,
        latency_p50_s=1.0,
        latency_p95_s=1.5,
        latency_p99_s=1.6,
        state_mib=3.0,
    )


def _known(*, noise: float = 0.0) -> list[Stretch]:
    rates = (2_000.0, 5_000.0, 10_000.0, 20_000.0)
    return [_stretch(executors, rate, noise=noise) for executors in (4, 3, 2, 1) for rate in rates]


def test_the_shipped_profile_comes_from_the_measurement_that_is_kept() -> None:
    measured = read_measurement(MEASUREMENT)
    fit = fit_spark_local(measured)
    assert fit.profile == load_profile("spark-local")
    shipped = resources.files("tidewise.engines.simulator") / "profiles" / "spark-local.toml"
    assert shipped.read_text(encoding="utf-8") == profile_to_toml(fit.profile, preface=preface(measured))


def test_what_is_left_out_does_not_touch_the_profile_and_is_compared_with_it() -> None:
    measured = read_measurement(MEASUREMENT)
    kept = []
    for executors, row in blocks(measured).items():
        for place, stretch in enumerate(row):
            slower = tuple(Batch(rows=one.rows, duration_s=5 * one.duration_s) for one in stretch.batches)
            left_out = (executors, place) in HELD_OUT
            kept.append(stretch.model_copy(update={"batches": slower, "latency_p50_s": 99.0}) if left_out else stretch)
    fit = fit_spark_local(measured)
    changed = fit_spark_local(measured.model_copy(update={"stretches": tuple(kept)}))
    assert changed.profile.capacity == fit.profile.capacity
    assert changed.profile.batch == fit.profile.batch
    assert changed.profile.latency == fit.profile.latency
    assert len(fit.comparisons) == 4 * (len(HELD_OUT) + 1)
    assert {one.measured for one in changed.comparisons} - {one.measured for one in fit.comparisons} >= {99.0}
    assert all(one.simulated > 0.0 for one in fit.comparisons)


def test_a_known_law_of_batches_is_found_again() -> None:
    exact = fit_batches(_known(), 0.5)
    assert exact.fixed_s == pytest.approx(0.5, rel=0.01)
    assert exact.records_per_core_s == pytest.approx(30_000.0, rel=0.01)
    assert exact.contention == pytest.approx(0.2, rel=0.02)
    assert exact.explained == pytest.approx(1.0, abs=0.001)
    noisy = fit_batches(_known(noise=0.1), 0.5)
    assert noisy.records_per_core_s == pytest.approx(30_000.0, rel=0.15)
    assert noisy.spread == pytest.approx(0.1, rel=0.2)
    assert 0.8 < noisy.explained < 1.0


def test_a_batch_that_was_disturbed_weighs_little() -> None:
    first, *others = _known()
    disturbed = first.model_copy(update={"batches": (Batch(rows=2_000, duration_s=30.0), *first.batches[1:])})
    found = fit_batches([disturbed, *others], 0.5)
    assert found.fixed_s == pytest.approx(0.5, rel=0.1)
    assert found.records_per_core_s == pytest.approx(30_000.0, rel=0.1)


def test_cpu_is_told_apart_by_what_it_is_for() -> None:
    found = fit_cpu([*_known(), _stretch(4, 0.0)], 0.5)
    assert found.idle_share == pytest.approx(0.02)
    assert found.fixed_cpu_s == pytest.approx(0.3, rel=0.01)
    assert found.cpu_s_per_record == pytest.approx(2e-5, rel=0.01)
    assert found.explained == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("gap", [0.0, 1.5, 40.0])
def test_a_gap_is_what_is_left_when_its_first_batch_is_taken_off(gap: float) -> None:
    usual_s = KNOWN.duration_s(5_000.0, 1.0)
    first_s = KNOWN.duration_s(5_000.0 * (gap + usual_s), 1.0, speed=0.5)
    found = gap_s(gap + first_s, rate_per_s=5_000.0, batch_s=usual_s, fit=KNOWN, cores=1.0, speed=0.5)
    assert found == pytest.approx(gap, abs=1e-9)


def test_a_known_ramp_is_found_again() -> None:
    batches = [AfterStart(since_first_commit_s=0.0, executors=2, rows=1_000, duration_s=2.0)]
    for since_s in np.arange(1.0, 40.0, 1.5):
        speed, took_s = 1.0, 1.0
        for _ in range(50):  # how long it takes depends on when its middle is
            speed = min(1.0, 0.4 + 0.6 * (since_s + 2.0 - took_s / 2) / 20.0)
            took_s = KNOWN.duration_s(8_000.0, 1.0, speed)
        batches.append(AfterStart(since_first_commit_s=float(since_s), executors=2, rows=8_000, duration_s=took_s))
    found = fit_warm_up(batches, 0.5, KNOWN)
    assert found.share == pytest.approx(0.4)
    assert found.duration_s == 20.0


def test_the_table_says_what_was_left_out_and_how_often_things_were_seen() -> None:
    text = table_of(fit_spark_local(read_measurement(MEASUREMENT)))
    assert "explains" in text
    assert "gap of handover" in text
    assert "left out of the fit" in text


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"stretches": ()}, "0 batches with rows; a fit needs 20"),
        ({"changes": ()}, "no live was measured"),
        ({"faults": ()}, "no kill-driver was measured"),
    ],
)
def test_a_measurement_that_lacks_something_is_refused(update: dict[str, object], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        fit_spark_local(read_measurement(MEASUREMENT).model_copy(update=update))


def test_only_changes_that_were_made_count() -> None:
    measured = read_measurement(MEASUREMENT)
    failed = [one.model_copy(update={"failure": "it did not come up"}) for one in measured.changes]

    def without(mechanism: Mechanism) -> SparkMeasurement:
        kept = (bad if one.mechanism is mechanism else one for one, bad in zip(measured.changes, failed, strict=True))
        return measured.model_copy(update={"changes": tuple(kept)})

    with pytest.raises(BadInputError, match="no redeploy was measured, or none succeeded"):
        fit_spark_local(without(Mechanism.REDEPLOY))
    # Two applications at once may be more than the machine can bear: that is said, and does not end the fit.
    alone = without(Mechanism.HANDOVER)
    figures = {one.name: one.value for one in fit_spark_local(alone).figures}
    assert figures["gap of handover"] == "assumed"
    assert "the handover, which did not succeed" in preface(alone)


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot be read"), ("[]", "is not a measurement of Spark"), ('{"format": 2}', "at format")],
)
def test_a_file_that_is_no_measurement_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    said: str,
) -> None:
    path = tmp_path / "measured.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr("sys.argv", ["fit", str(path)])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_program_writes_a_profile_that_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["fit", str(MEASUREMENT), "--to", str(tmp_path / "mine.toml")])
    program.main()
    assert load_profile(str(tmp_path / "mine.toml")) == load_profile("spark-local")
    assert "left out of the fit" in capsys.readouterr().err


def test_a_measurement_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    measured: SparkMeasurement = read_measurement(MEASUREMENT)
    measured.write(tmp_path / "again.json")
    assert read_measurement(tmp_path / "again.json") == measured
