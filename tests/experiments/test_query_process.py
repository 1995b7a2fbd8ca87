"""The process that measures: it answers, and whatever takes it down is an answer too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidewise.core import PermanentError
from tidewise.experiments import query_process
from tidewise.experiments.query_process import QueryProcess, conf_of
from tidewise.jobs.measure_request import RunRequest

REQUEST = RunRequest(
    query="q0",
    events=100,
    events_per_batch=50,
    events_per_s=10.0,
    state_store="rocksdb",
    state_partitions=2,
    at_most_s=30.0,
)
PROGRAM = """
import json, os, sys
print("what Spark says", file=sys.stderr)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["query"] == "q1":
        os._exit(7)
    if asked["query"] == "q2":
        os.kill(os.getpid(), 9)
    print(json.dumps({"pid": os.getpid(), "words": sys.argv[1:], **asked}), flush=True)
"""


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueryProcess:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(query_process, "_PROGRAM", (str(program),))
    return QueryProcess(
        benchmark="nexmark",
        cores=3,
        folder=tmp_path,
        log=tmp_path / "logs" / "spark.log",
        conf=conf_of(memory_mib=700, jars=("a.jar", "b.jar")),
        brokers="127.0.0.1:9092",
    )


def test_one_process_answers_all_requests(process: QueryProcess, tmp_path: Path) -> None:
    with process:
        first, second = process.ask(REQUEST), process.ask(REQUEST)
    assert first == second
    assert (first["query"], first["events_per_batch"], first["changelog"]) == ("q0", 50, True)
    assert first["words"] == [
        *("--benchmark", "nexmark", "--cores", "3", "--folder", str(tmp_path)),
        *("--conf", "spark.driver.memory=700m", "--conf", "spark.jars=a.jar,b.jar"),
        *("--brokers", "127.0.0.1:9092"),
    ]
    assert (tmp_path / "logs" / "spark.log").read_text(encoding="utf-8") == "what Spark says\n"


@pytest.mark.parametrize(("query", "ending"), [("q1", "exit code 7"), ("q2", "signal 9")])
def test_one_that_is_gone_is_told_and_started_anew(
    process: QueryProcess, tmp_path: Path, query: str, ending: str
) -> None:
    with process:
        before = process.ask(REQUEST)
        ended = process.ask(replace(REQUEST, query=query))
        after = process.ask(REQUEST)
    assert ended == {"error": f"Spark ended with {ending}; see {tmp_path / 'logs' / 'spark.log'}"}
    assert before["pid"] != after["pid"]


def test_one_that_does_not_answer_is_ended(
    process: QueryProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text("import time\nprint('{}', flush=True)\ntime.sleep(600)\n", encoding="utf-8")
    monkeypatch.setattr(query_process, "_LATE_S", 0.1)
    with process:
        assert "Spark ended with signal 9" in process.ask(replace(REQUEST, at_most_s=0.1))["error"]


def test_a_spark_that_does_not_start_is_a_sentence_with_what_it_said(process: QueryProcess, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise SystemExit('Java is too old')", encoding="utf-8")
    with process, pytest.raises(PermanentError, match=r"Spark did not start \(exit code 1\): Java is too old"):
        process.ask(REQUEST)


def test_a_log_that_cannot_be_written_is_a_sentence(process: QueryProcess, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder", encoding="utf-8")
    with pytest.raises(PermanentError, match="cannot be written"):
        process.ask(REQUEST)
