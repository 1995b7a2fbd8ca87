"""The benchmark of queries: in which order, what a failure does, and what is refused before anything begins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.experiments.query_answers import an_answer
from tidewise.core import BadInputError, InvalidValueError, PermanentError
from tidewise.experiments import query_bench
from tidewise.experiments.query_bench import (
    FEW_BATCHES,
    FEW_EVENTS,
    BenchSettings,
    QueryBench,
    Step,
    as_document,
    bench_queries,
    chosen_queries,
)
from tidewise.experiments.query_process import Answer
from tidewise.jobs.measure_request import RunRequest, schedule_of

SETTINGS = BenchSettings(benchmark="nexmark", queries=("q0", "q5"), events=3_000, batches=3, repeats=2)
SENTENCES = {"q0": "Every bid.", "q5": "The most."}


class Fake:
    """Instead of Spark."""

    def __init__(self, answer: Callable[[RunRequest], Answer]) -> None:
        self.asked: list[RunRequest] = []
        self._answer = answer

    def ask(self, request: RunRequest) -> Answer:
        self.asked.append(request)
        return self._answer(request)

    def stop(self, *, at_once: bool = False) -> None:
        assert at_once


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[QueryBench, Fake, list[Step]]]:
    def run(
        answer: Callable[[RunRequest], Answer] = lambda _: an_answer(), settings: BenchSettings = SETTINGS
    ) -> tuple[QueryBench, Fake, list[Step]]:
        fake = Fake(answer)
        steps: list[Step] = []

        @contextmanager
        def spark(*_: object) -> Iterator[Fake]:
            yield fake

        monkeypatch.setattr(query_bench, "_spark", spark)
        found = bench_queries(settings, SENTENCES, tmp_path / "out", say=lambda _: None, progress=steps.append)
        return found, fake, steps

    return run


def test_queries_take_turns_and_the_first_round_does_not_count(
    bench: Callable[..., tuple[QueryBench, Fake, list[Step]]], tmp_path: Path
) -> None:
    found, fake, steps = bench()
    sizes = ((3_000, 1_000), (FEW_EVENTS * FEW_BATCHES, FEW_EVENTS))
    warm_up = [(query, *sizes[0]) for query in ("q0", "q5")]
    expected = warm_up + [(query, *size) for _ in range(2) for query in ("q0", "q5") for size in sizes]
    assert [(one.query, one.events, one.events_per_batch) for one in fake.asked] == expected
    assert all((one.state_store, one.topic, one.checkpoint) == ("rocksdb", None, None) for one in fake.asked)
    assert [(step.repeat, step.query, step.done, step.total) for step in steps] == [
        (repeat, query, 2 * repeat + place, 6) for repeat in range(3) for place, query in ((1, "q0"), (2, "q5"))
    ]
    assert [(query.name, query.sentence, len(query.runs)) for query in found.queries] == [
        ("q0", "Every bid.", 2),
        ("q5", "The most.", 2),
    ]
    assert (found.failed, found.is_stopped) == ((), False)
    assert found.versions.keys() == {"Spark", "Java"}
    lines = (tmp_path / "out" / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["repeat"] for line in lines] == [0, 0, 1, 1, 2, 2]
    document = as_document(found)
    assert json.loads(json.dumps(document, allow_nan=False))["queries"][1]["state_rows"] == 300


def test_a_query_that_fails_is_told_and_the_others_go_on(
    bench: Callable[..., tuple[QueryBench, Fake, list[Step]]],
) -> None:
    def answer(request: RunRequest) -> Answer:
        return {"error": "no such column"} if request.query == "q0" else an_answer()

    found, fake, steps = bench(answer)
    assert [query.name for query in found.failed] == ["q0"]
    assert (found.queries[0].error, found.queries[0].runs) == ("no such column", ())
    assert len(found.queries[1].runs) == 2
    assert [one.query for one in fake.asked].count("q0") == 1, "it is not tried again"
    assert steps[0].error == "no such column"


def test_what_was_measured_until_it_was_stopped_is_there(
    bench: Callable[..., tuple[QueryBench, Fake, list[Step]]],
) -> None:
    asked: list[RunRequest] = []

    def answer(request: RunRequest) -> Answer:
        asked.append(request)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return an_answer()

    found, _, _ = bench(answer)
    assert found.is_stopped
    assert [len(query.runs) for query in found.queries] == [1, 0]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(PermanentError, match="nothing can be written into the folder"):
        bench_queries(SETTINGS, SENTENCES, tmp_path / "file", say=lambda _: None, progress=lambda _: None)


def test_queries_are_chosen_by_name() -> None:
    assert list(chosen_queries("nexmark", " Q5, q0,q5 ", state_store="hdfs")) == ["q5", "q0"]
    assert len(chosen_queries("psm", None, state_store="rocksdb")) == 5


@pytest.mark.parametrize(
    ("wanted", "store", "sentence"),
    [
        ("q0,q55", "rocksdb", "there is no query 'q55' in nexmark; did you mean 'q5'?"),
        (" , ", "rocksdb", "--queries names no query; write some of q0, q1"),
        ("q0", "rocksd", "there is no state store 'rocksd'; did you mean 'rocksdb'?"),
    ],
)
def test_what_cannot_be_chosen_is_told(wanted: str, store: str, sentence: str) -> None:
    with pytest.raises(BadInputError) as told:
        chosen_queries("nexmark", wanted, state_store=store)
    assert sentence in str(told.value)


def test_a_state_store_that_a_query_cannot_use_is_refused() -> None:
    with pytest.raises(BadInputError) as told:
        chosen_queries("psm", None, state_store="hdfs")
    assert str(told.value) == (
        "q2 cannot keep its state in hdfs: write --state-store rocksdb, or leave it out: --queries q1,q3,q4,q5"
    )
    with pytest.raises(BadInputError, match=r"write --state-store rocksdb$"):
        chosen_queries("psm", "q2", state_store="hdfs")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"events": 0}, "--events must be between 1 and 1,000,000,000, not 0"),
        ({"batches": 3_001}, "--batches must be between 1 and 1,000, not 3,001"),
        ({"events": 2}, "2 events are too few for 3 batches: write fewer --batches or more --events"),
        ({"repeats": 0}, "--repeats must be between 1 and 1,000, not 0"),
        ({"state_partitions": -1}, "--state-partitions must be between 1 and 1,024, not -1"),
        ({"source": "kafk"}, "there is no source 'kafk'; did you mean 'kafka'?"),
        ({"events_per_s": float("nan")}, "--rate must be between 0.1 and 1,000,000, not nan"),
        ({"memory_mib": 100}, "--memory must be 512 MiB or more, not 100 MiB"),
        ({"at_most_s": 0.5}, "--limit must be 1 s or more, not 0.5 s"),
    ],
)
def test_settings_that_cannot_be_are_told(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidValueError) as told:
        BenchSettings(**{"benchmark": "nexmark", "queries": ("q0",), "batches": 3, **wrong})  # type: ignore[arg-type]  # wrong on purpose
    assert str(told.value) == sentence


@pytest.mark.parametrize(("events", "rate"), [(1, 0.1), (7, 3.0), (600, 2_000.0), (200_000, 1_999.0), (1_000_000, 7.3)])
def test_a_schedule_brings_all_events_and_no_more(events: int, rate: float) -> None:
    schedule = schedule_of(events, rate)
    end_unix_s = schedule.began_unix_s + len(schedule.rates_per_s)
    assert schedule.available(end_unix_s) == events
    assert schedule.available(end_unix_s + 3600.0) == events


def test_how_long_it_takes_grows_with_what_is_measured() -> None:
    more = BenchSettings(benchmark="nexmark", queries=("q0", "q5"), events=30_000, batches=3, repeats=2)
    assert more.expected_s > SETTINGS.expected_s > 0.0
    assert SETTINGS.events_per_batch == 1_000
