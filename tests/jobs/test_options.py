"""The options of the programs: what contradicts itself is told in a sentence before Spark is started."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest

from tidewise.jobs.program import options_of, parsed

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
