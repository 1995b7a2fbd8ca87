"""How a program ends: with the failure of any of its queries, or with all of them stopped when its time is over."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tidewise.jobs.clicks import main
from tidewise.jobs.program import options_of, parsed, wait

KAFKA = [
    "--source",
    "kafka",
    "--topic",
    "lost",
    "--checkpoint",
    "c",
    "--brokers",
    "127.0.0.1:9092",
    "--out-topic",
    "off",
]


@dataclass
class Query:
    """A query that ends, in whatever way, after it has been looked at so many times."""

    looks: int
    failure: Exception | None = None
    is_stopped: bool = False

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        time.sleep(min(timeout, 0.01))
        self.looks -= 1
        if self.looks <= 0 and self.failure is not None:
            raise self.failure
        return self.looks <= 0

    def stop(self) -> None:
        self.is_stopped = True


def wait_for(*queries: Query | None, seconds: float | None = None) -> None:
    given = parsed(options_of("a test"), [*KAFKA, *([] if seconds is None else ["--seconds", str(seconds)])])
    wait(given, *(cast("StreamingQuery | None", query) for query in queries))


@pytest.mark.parametrize("failing", [0, 1])
def test_the_failure_of_any_query_is_raised(failing: int) -> None:
    queries = [Query(looks=10_000), Query(looks=10_000)]
    queries[failing] = Query(looks=3, failure=StreamingQueryException("no space left"))
    with pytest.raises(StreamingQueryException, match="no space left"):
        wait_for(*queries)


def test_after_its_time_all_are_stopped() -> None:
    queries = [Query(looks=10_000), Query(looks=10_000)]
    began_s = time.monotonic()
    wait_for(*queries, seconds=0.3)
    assert 0.3 <= time.monotonic() - began_s < 30
    assert all(query.is_stopped for query in queries)


def test_when_one_is_stopped_from_outside_so_are_the_others() -> None:
    queries = [Query(looks=10_000), Query(looks=2)]
    wait_for(*queries)
    assert queries[0].is_stopped


def test_a_program_without_dead_letters_waits_for_its_one_query() -> None:
    query = Query(looks=3)
    wait_for(query, None)
    assert query.looks == 0


MISSING = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host it."
NO_SINK = "org.apache.kafka.common.errors.TimeoutException: Topic off not present in metadata after 60000 ms."


@pytest.mark.parametrize(
    ("failure", "topic", "option"),
    [(MISSING, "lost", "--topic"), (f"{NO_SINK}\nCaused by: {MISSING}", "off", "--out-topic")],
)
def test_a_topic_that_is_missing_ends_the_program_with_a_sentence(
    failure: str, topic: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        wait_for(Query(looks=2, failure=StreamingQueryException(failure)))
    assert stopped.value.code == 2
    told = f"there is no topic {topic!r} at 127.0.0.1:9092: make it, or correct {option}\n"
    assert capsys.readouterr().err == told


def test_a_broker_that_went_away_is_no_missing_topic() -> None:
    with pytest.raises(StreamingQueryException, match="not present in metadata"):
        wait_for(Query(looks=2, failure=StreamingQueryException(NO_SINK)))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_broker_that_never_comes_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with pytest.raises(SystemExit) as stopped:
        main([*KAFKA, "--brokers", brokers, "--wait-for-broker", "1"])
    assert stopped.value.code == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"no broker listens at {brokers}; waiting for it, up to 1 s"
    assert last.startswith(f"no broker listens at {brokers}, after 1 s: start it, correct --brokers,")
