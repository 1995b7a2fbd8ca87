"""`tidewise bench` as a user meets it: what it will take, a line per run, tables, a page; or one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.query_answers import an_answer
from tidewise.experiments import query_bench
from tidewise.experiments.query_process import Answer
from tidewise.jobs.measure_request import RunRequest


class Fake:
    """Instead of Spark: q2 fails, and whoever asks for q4 is stopped."""

    def ask(self, request: RunRequest) -> Answer:
        if request.query == "q4":
            raise KeyboardInterrupt
        return {"error": "no such column"} if request.query == "q2" else an_answer(seconds=2.0, cpu_s=3.0)

    def stop(self, *, at_once: bool = False) -> None:
        assert at_once


@pytest.fixture
def cli(tidewise: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tidewise:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    @contextmanager
    def spark(*_: object) -> Iterator[Fake]:
        yield Fake()

    monkeypatch.setattr(query_bench, "_spark", spark)
    return lambda *arguments: tidewise("bench", *arguments)


def test_tables_a_page_and_a_document(cli: Tidewise, tmp_path: Path) -> None:
    code, out, err = cli("nexmark", "--queries", "q0,q5", "--events", "3000", "--batches", "3", "--repeats", "2")
    assert code == 0
    said = err.splitlines()
    assert said[0].startswith("2 queries of 3,000 events, 2 times after a warm-up, on ")
    assert said[1:3] == ["warm-up, q0: 2 s, 1,000 events/s per core", "warm-up, q5: 2 s, 1,000 events/s per core"]
    assert len(said) == 7
    assert "StateStoreSave" in out
    assert "events/s" in out
    assert out.splitlines()[-1] == "The page: runs/bench-nexmark/bench.html; as Markdown: runs/bench-nexmark/bench.md"
    folder = tmp_path / "runs" / "bench-nexmark"
    assert {file.name for file in folder.iterdir()} == {"bench.html", "bench.md", "bench.json", "runs.jsonl"}
    assert "What a core takes" in (folder / "bench.html").read_text(encoding="utf-8")
    assert (folder / "bench.md").read_text(encoding="utf-8").startswith("# Nexmark on Spark\n3,000 events")


def test_json_is_one_document_that_is_kept_as_well(cli: Tidewise, tmp_path: Path) -> None:
    code, out, err = cli("psm", "--queries", "q1", "--repeats", "1", "--out", "mine", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told == json.loads((tmp_path / "mine" / "bench.json").read_text(encoding="utf-8"))
    assert told["settings"]["events_per_s"] == 200.0
    (query,) = told["queries"]
    assert query["events_per_s_per_core"] == pytest.approx(500_000 / 3.0)
    assert [stage["name"] for stage in query["stages"]] == ["MicroBatchScan", "StateStoreSave"]


def test_a_query_that_fails_has_its_reason_in_its_row_and_the_others_theirs(cli: Tidewise) -> None:
    code, out, err = cli("nexmark", "--queries", "q2,q0", "--repeats", "1")
    assert code == 1
    assert "warm-up, q2: failed: no such column" in err.splitlines()
    assert "repeat 1, q0: 2 s, 166,667 events/s per core" in err.splitlines()
    (row,) = (line for line in out.splitlines() if line.startswith(" q2"))
    assert row.rstrip().endswith("no such column")
    assert "q2 failed: no such column" in out.splitlines()


def test_stopped_it_shows_what_it_has(cli: Tidewise) -> None:
    code, out, _ = cli("psm", "--queries", "q1,q4", "--repeats", "1")
    assert code == 130
    assert "It was stopped: 0 of 1 repeats are whole." in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nexmrk",), "there is no benchmark 'nexmrk'; did you mean 'nexmark'?"),
        (("nexmark", "--queries", "q0,q55"), "there is no query 'q55' in nexmark; did you mean 'q5'?"),
        (("psm", "--queries", "q2", "--state-store", "hdfs"), "q2 cannot keep its state in hdfs: write --state-store"),
        (("psm", "--memory", "2"), "--memory: '2' has no unit; write it like \"4GiB\""),
        (("psm", "--limit", "soon"), "--limit: 'soon' is not a duration"),
        (("psm", "--repeats", "0"), "--repeats must be between 1 and 1,000, not 0"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_begins(
    cli: Tidewise, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"tidewise: {sentence}")
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_so(cli: Tidewise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, _, err = cli("nexmark")
    assert code == 2
    assert "there is no program bin/java in it" in err


@pytest.mark.soak
@pytest.mark.xdist_group("bench")
def test_two_queries_on_real_spark(tidewise: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--events", "2000", "--batches", "2", "--repeats", "1", "--memory", "1GiB", "--json")
    code, out, err = tidewise("bench", "nexmark", "--queries", "q0,q8", *small)
    assert (code, err) == (0, "")
    copied, joined = json.loads(out)["queries"]
    assert (copied["error"], joined["error"]) == (None, None)
    assert copied["events_per_s_per_core"] > 0.0
    assert [stage["name"] for stage in copied["stages"]] == ["MicroBatchScan"]
    assert copied["state_rows"] is None
    assert {"MicroBatchScan 1", "MicroBatchScan 2"} < {stage["name"] for stage in joined["stages"]}
    assert joined["state_rows"] > 0
    assert 0.0 < joined["fixed_s"] < 60.0
