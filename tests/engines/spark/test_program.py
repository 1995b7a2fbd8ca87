"""The Spark settings that a configuration means, and programs that cannot be run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidewise.core import BadInputError, Configuration, InvalidValueError
from tidewise.engines.spark.program import SparkProgram, check_memory, heap_mib, overhead_mib, spark_conf

CONFIGURATION = Configuration(
    executors=3,
    slots_per_executor=2,
    memory_mib_per_executor=2048,
    state_partitions=6,
    settings=(("spark.sql.ansi.enabled", "false"), ("spark.user.b", "of the configuration")),
)


def program(folder: Path, **changes: object) -> SparkProgram:
    return SparkProgram(**{"command": (sys.executable, "job.py"), "folder": folder, **changes})  # type: ignore[arg-type]  # as named


def test_executors_are_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    conf = spark_conf(program(tmp_path, most_executors=5), CONFIGURATION)
    assert conf["spark.executor.cores"] == "2"
    heap, overhead = conf["spark.executor.memory"], conf["spark.executor.memoryOverhead"]
    assert int(heap.removesuffix("m")) + int(overhead.removesuffix("m")) == 2048
    assert conf["spark.dynamicAllocation.initialExecutors"] == "3"
    assert conf["spark.sql.shuffle.partitions"] == "6"


def test_there_is_room_for_as_many_executors_as_may_ever_be_asked_for(tmp_path: Path) -> None:
    assert spark_conf(program(tmp_path, most_executors=5), CONFIGURATION)["spark.cores.max"] == "10"
    assert spark_conf(program(tmp_path, most_executors=1), CONFIGURATION)["spark.cores.max"] == "6"


def test_what_tidewise_needs_wins_over_the_job_file_and_the_rest_of_it_is_kept(tmp_path: Path) -> None:
    given = {"spark.decommission.enabled": "false", "spark.user.a": "of the job", "spark.user.b": "of the job"}
    conf = spark_conf(program(tmp_path, conf=given), CONFIGURATION)
    assert conf["spark.decommission.enabled"] == "true"
    assert conf["spark.user.a"] == "of the job"
    assert conf["spark.user.b"] == "of the configuration"


def test_state_partitions_that_are_not_ours_are_left_to_the_program(tmp_path: Path) -> None:
    assert "spark.sql.shuffle.partitions" not in spark_conf(program(tmp_path), Configuration(executors=1))


@pytest.mark.parametrize("memory_mib", [728, 1024, 1279, 1280, 4096, 65_536])
def test_heap_and_overhead_make_up_the_memory(memory_mib: int) -> None:
    check_memory(memory_mib)
    assert heap_mib(memory_mib) + overhead_mib(memory_mib) == memory_mib
    assert overhead_mib(memory_mib) >= 256
    assert heap_mib(memory_mib) >= 472


def test_executors_that_spark_would_not_start_are_refused() -> None:
    with pytest.raises(BadInputError, match="at least 728 MiB of memory, not 727 MiB"):
        check_memory(727)


def test_a_program_that_is_missing_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"there is no program .*job\.py; correct `program` in the job file"):
        program(tmp_path).check()
    (tmp_path / "job.py").write_text("", encoding="utf-8")
    program(tmp_path).check()
    program(tmp_path, command=(sys.executable, "-m", "package.module")).check()
    with pytest.raises(InvalidValueError, match="needs a command"):
        program(tmp_path, command=())
    with pytest.raises(InvalidValueError):
        program(tmp_path, launch_deadline_s=0.0)


def test_python_workers_use_the_interpreter_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.setenv("INHERITED", "yes")
    seen = program(tmp_path, command=("/opt/python3.12", "job.py"), environment={"OWN": "1"}).process_environment()
    assert seen["PYSPARK_PYTHON"] == seen["PYSPARK_DRIVER_PYTHON"] == "/opt/python3.12"
    assert (seen["INHERITED"], seen["OWN"]) == ("yes", "1")
    assert (
        program(tmp_path, command=("spark-submit", "job.py")).process_environment()["PYSPARK_PYTHON"] == sys.executable
    )
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert program(tmp_path).process_environment()["PYSPARK_PYTHON"] == "/usr/bin/python3"
