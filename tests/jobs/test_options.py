"""The options of the programs: what contradicts itself is told in a sentence before Spark is started."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tidewise.jobs.program import options_of, parsed, session_of
from tidewise.jobs.schedule import Schedule, write_schedule

KAFKA = ["--source", "kafka", "--brokers", "127.0.0.1:9092", "--topic", "t"]
REAL_TIME = [*KAFKA, "--mode", "real-time", "--sink", "kafka", "--out-topic", "o"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--source embedded needs --schedule FILE"),
        (["--source", "kafka", "--topic", "t"], "--source kafka needs --brokers HOST:PORT"),
        (["--source", "kafka", "--brokers", "b"], "--source kafka needs --topic NAME"),
        (["--source", "kafka", "--brokers", "b:1,b", "--topic", "t"], "--brokers needs HOST:PORT"),
        (["--schedule", "s", "--sink", "files"], "--sink files needs --out FOLDER"),
        (["--schedule", "s", "--sink", "foreachbatch"], "--sink foreachbatch needs --out FOLDER"),
        ([*KAFKA, "--sink", "kafka"], "--sink kafka needs --out-topic NAME"),
        (["--schedule", "s", "--sink", "kafka", "--out-topic", "o"], "--sink kafka needs --brokers HOST:PORT"),
        (["--schedule", "s", "--dead-letters", "d"], "--dead-letters needs --source kafka"),
        (["--schedule", "s", "--mode", "real-time"], "--mode real-time needs --source kafka, not embedded"),
        ([*KAFKA, "--mode", "real-time"], "--mode real-time needs --sink kafka, not noop"),
        ([*REAL_TIME, "--state-provider", "hdfs"], "--mode real-time needs --state-provider rocksdb"),
        ([*REAL_TIME, "--max-records-per-batch", "9"], "leave out --max-records-per-batch"),
        (
            [*REAL_TIME, "--trigger", "1 second"],
            "--mode real-time needs --trigger '5 seconds' or longer, not '1 second'",
        ),
        (["--schedule", "s", "--trigger", "soon"], "--trigger must be a number and a unit, such as '2 seconds'"),
        (["--schedule", "s", "--work", "-1"], "--work must be 0 or more, not -1"),
        (["--schedule", "s", "--partitions", "0"], "--partitions must be 1 or more, not 0"),
        (["--schedule", "s", "--state-partitions", "0"], "--state-partitions must be 1 or more, not 0"),
        (["--schedule", "s", "--max-records-per-batch", "0"], "--max-records-per-batch must be 1 or more, not 0"),
        (["--schedule", "s", "--seed", "-1"], "--seed must be 0 or more, not -1"),
        (["--schedule", "s", "--late-share", "2"], "--late-share must be from 0 to 1, not 2"),
    ],
)
def test_contradictions_are_told(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parsed(options_of("a test"), ["--checkpoint", "c", *arguments])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "arguments", "sentence"),
    [
        ("3.5.6", ["--schedule", "s"], "--source embedded needs Spark 4.2 or newer, not 3.5.6"),
        ("4.1.0", ["--schedule", "s"], "--source embedded needs Spark 4.2 or newer, not 4.1.0"),
        ("4.0.2", REAL_TIME, "--mode real-time needs Spark 4.1 or newer, not 4.0.2"),
    ],
)
def test_a_spark_that_is_too_old_is_told(
    version: str,
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(SystemExit) as stopped:
        parsed(options_of("a test"), ["--checkpoint", "c", *arguments])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


def test_an_old_spark_reads_from_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.6")
    assert parsed(options_of("a test"), ["--checkpoint", "c", *KAFKA]).begin == "earliest"


@pytest.mark.parametrize("trigger", ["500 milliseconds", "2 seconds", "1 Minute", "interval 1 second", "1.5 hours"])
def test_triggers_are_times(trigger: str) -> None:
    assert parsed(options_of("a test"), ["--checkpoint", "c", *KAFKA, "--trigger", trigger]).trigger == trigger


def test_a_schedule_that_cannot_be_read_ends_the_program_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = parsed(options_of("a test"), ["--checkpoint", "c", "--schedule", str(tmp_path / "nowhere.json")])
    with pytest.raises(SystemExit) as stopped:
        session_of(given)
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert "nowhere.json does not exist; write it" in told
    assert len(told.splitlines()) == 1


def test_a_schedule_that_has_not_begun_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "later.json"
    write_schedule(file, Schedule(began_unix_s=time.time() + 1000.0, rates_per_s=(1.0,)))
    given = parsed(options_of("a test"), ["--checkpoint", "c", "--schedule", str(file)])
    monkeypatch.setattr(SparkSession, "builder", None)  # it is told before Spark is started
    with pytest.raises(AttributeError):
        session_of(given)
    assert re.search(r"later\.json begins at .* UTC: no record comes before, in (999|1000) s", capsys.readouterr().err)


def test_the_trigger_depends_on_the_mode() -> None:
    assert parsed(options_of("a test"), ["--checkpoint", "c", *KAFKA]).trigger == "1 second"
    assert parsed(options_of("a test"), ["--checkpoint", "c", *REAL_TIME]).trigger == "30 seconds"


def test_the_embedded_source_says_what_it_needs_where_spark_has_no_such_sources() -> None:
    program = "import sys; sys.modules['pyspark.sql.datasource'] = None; import tidewise.jobs.embedded"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "the embedded source needs Spark 4.2 or newer" in last
    assert "During handling" not in done.stderr


@pytest.mark.soak  # it takes a Spark of its own, without the connector that those of other tests have
def test_a_spark_without_the_connector_for_kafka_says_what_to_write(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        brokers = f"127.0.0.1:{broker.getsockname()[1]}"
        command = [sys.executable, "-m", "tidewise.jobs.nexmark", "--query", "q5", "--master", "local[1]"]
        command += ["--source", "kafka", "--brokers", brokers, "--topic", "t", "--checkpoint", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "no connector for Kafka" in last
    assert f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__} pyspark-shell" in last
