"""A sweep on a real Spark: every answer in its place, a failure by its name, and nothing left behind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from tests.experiments.backtests import here, wave, write_trace
from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.experiments.backtest import BacktestSettings, backtest
from tidewise.pipeline import sweep
from tidewise.pipeline.context import cause, spark_context

pytestmark = pytest.mark.xdist_group("jobs")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkContext]:
    """One for all tests of this module: a sweep takes the Spark that is there."""
    with spark_context("local[2]") as context:
        process = SparkContext._gateway.proc  # type: ignore[union-attr]  # it is there while Spark is
        yield context
    assert process.poll() is not None, "Java is still there"


@pytest.mark.usefixtures("spark")
def test_answers_come_in_the_order_of_the_tasks() -> None:
    told: list[int] = []
    assert sweep(math.sqrt, [float(n * n) for n in range(40)], progress=told.append) == [float(n) for n in range(40)]
    assert told == sorted(told)
    assert sweep(math.sqrt, []) == []


@pytest.mark.usefixtures("spark")
def test_a_task_that_fails_is_named() -> None:
    with pytest.raises(PermanentError, match=r"the root of -4\.0 failed: ValueError: math domain error"):
        sweep(math.sqrt, [9.0, -4.0, 1.0], called=lambda number: f"the root of {number}")


def test_the_spark_that_was_there_goes_on(spark: SparkContext) -> None:
    sweep(math.sqrt, [1.0])
    assert spark.parallelize([1, 2, 3]).count() == 3


@pytest.mark.usefixtures("spark")
def test_a_backtest_on_spark_is_the_one_in_this_process(tmp_path: Path) -> None:
    trace = str(write_trace(tmp_path / "wave.csv", wave(300).tolist()))
    settings = BacktestSettings(models=("naive", "ridge"), judged_s=7200.0, noise_share=0.1, seeds=(0, 1))
    spread, alone = (backtest([trace], settings, sweeper=how) for how in (None, here))
    assert spread.judged.keys() == alone.judged.keys()
    for key, judged in alone.judged.items():
        np.testing.assert_array_equal(spread.judged[key].errors_per_s, judged.errors_per_s)
        np.testing.assert_array_equal(spread.judged[key].ahead_per_s, judged.ahead_per_s)


def test_the_cause_is_found_in_an_error_of_spark() -> None:
    text = """Job aborted due to stage failure: Task 0 failed: org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'tidewise'

\tat org.apache.spark.api.python.BasePythonRunner"""
    assert cause(text) == "ModuleNotFoundError: No module named 'tidewise'"
    assert cause("it is over\nfor good") == "it is over"


@pytest.mark.parametrize(
    ("master", "error", "sentence"),
    [
        ("spark://127.0.0.1:1", TemporaryError, "no Spark master listens at spark://127.0.0.1:1"),
        ("spark://somewhere", BadInputError, "there is no Spark master 'spark://somewhere': write local"),
        ("locl[2]", BadInputError, "there is no Spark master 'locl"),
    ],
)
def test_a_master_that_cannot_be_one_is_told_at_once(
    master: str, error: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(error) as told:
        sweep(math.sqrt, [1.0], master=master)
    assert sentence in str(told.value)
