"""The program that measures queries: what it sees of a run, on a checkpoint that is kept, and of one that fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidewise.core import BadInputError
from tidewise.jobs.measure import Measuring, _reason, queries_of
from tidewise.jobs.measure_request import BENCHMARKS, RunRequest

pytestmark = pytest.mark.xdist_group("jobs")

COUNTS = RunRequest(
    query="q5",
    events=1_500,
    events_per_batch=1_000,
    events_per_s=100.0,
    state_store="rocksdb",
    state_partitions=2,
    at_most_s=200.0,
)


@pytest.fixture(scope="module")
def measuring(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measuring:
    folder = tmp_path_factory.mktemp("measured")
    return Measuring(spark, benchmark="nexmark", folder=folder, brokers=None, readers=2)


def test_a_run_tells_its_batches_and_what_its_stages_do(measuring: Measuring) -> None:
    seen = measuring.answer(COUNTS)
    assert "error" not in seen
    batches, stages = seen["batches"], seen["stages"]
    assert isinstance(batches, list)
    assert isinstance(stages, list)
    assert [batch["numInputRows"] for batch in batches[:2]] == [1_000, 500]
    assert batches[0]["stateOperators"][0]["numShufflePartitions"] == 2
    operators = [operator for stage in stages if stage["batch"] == 0 for operator in stage["operators"]]
    assert "MicroBatchScan" in operators
    assert "StateStoreSave" in operators
    assert float(str(seen["seconds"])) > 0.0
    assert float(str(seen["cpu_s"])) > 0.0
    assert int(str(seen["checkpoint_bytes"])) > 0


@pytest.mark.soak
def test_a_checkpoint_that_is_kept_goes_on_and_can_be_cut_anew(measuring: Measuring, tmp_path: Path) -> None:
    kept = replace(COUNTS, events=1_000, changelog=False, checkpoint=str(tmp_path / "kept"))
    assert "error" not in measuring.answer(kept)
    cut = measuring.answer(replace(kept, repartition=3))
    assert "error" not in cut
    assert float(str(cut["seconds"])) > 0.0
    more = measuring.answer(replace(kept, events=1_400))
    batches = more["batches"]
    assert isinstance(batches, list)
    assert sum(batch["numInputRows"] for batch in batches) == 400
    assert batches[-1]["stateOperators"][0]["numShufflePartitions"] == 3


def test_what_fails_is_told_in_a_sentence_and_the_next_one_runs(measuring: Measuring, tmp_path: Path) -> None:
    assert measuring.answer(replace(COUNTS, query="q99"))["error"] == "KeyError: 'q99'"
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    few = replace(COUNTS, query="q0", events=100)
    wrong = str(measuring.answer(replace(few, checkpoint=str(tmp_path / "file")))["error"])
    assert "file" in wrong
    assert "\n" not in wrong
    assert "error" not in measuring.answer(few)


def test_of_a_traceback_the_last_line_is_told() -> None:
    failure = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no such price\n\n\tat org.apache'
    )
    assert _reason(RuntimeError(failure)) == "ValueError: no such price"
    other = "[STREAM_FAILED] Query [id = 1] terminated with exception: no disk SQLSTATE: 0A000 SQLSTATE: XXKST\nmore"
    assert _reason(RuntimeError(other)) == "no disk"
    assert _reason(RuntimeError()) == "RuntimeError"
    assert _reason(KeyError("price")) == "KeyError: 'price'"
    of_java = RuntimeError(
        "An error occurred while calling o12.start.\n: java.io.IOException: no disk\n\tat org.apache"
    )
    assert _reason(of_java) == "java.io.IOException: no disk"
    assert _reason(BadInputError("no such price")) == "no such price"


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_benchmark_has_its_queries(benchmark: str) -> None:
    queries = queries_of(benchmark)
    assert list(queries) == [query.name for query in queries.values()]
    assert all(query.sentence for query in queries.values())
