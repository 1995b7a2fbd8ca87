"""`tidewise lag` as a user meets it, with a broker that is only made up: a table, one JSON document, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.engines.spark.histories import Story, counting, entry
from tidewise.cli import lag as command
from tidewise.kafka.lag import Lag, PartitionLag


@pytest.fixture
def cli(tidewise: Tidewise) -> Tidewise:
    return lambda *arguments: tidewise("lag", *arguments, "--brokers", "127.0.0.1:9092")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Story(folder=tmp_path, offsets={0: entry(0, '{"orders":{"0":10,"1":20}}')}).write()


def _partition(number: int, committed: int | None, first: int, following: int, oldest_s: float | None) -> PartitionLag:
    return PartitionLag(
        topic="orders", partition=number, committed=committed, first=first, following=following, oldest_s=oldest_s
    )


def _answer(monkeypatch: pytest.MonkeyPatch, *partitions: PartitionLag) -> list[object]:
    asked: list[object] = []

    def find_lag(committed: Mapping[str, Mapping[int, int]], address: str) -> Lag:
        asked.append((committed, address))
        return Lag(partitions=partitions)

    monkeypatch.setattr(command, "find_lag", find_lag)
    return asked


def test_what_waits_is_told_by_partition_and_in_total(
    cli: Tidewise, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _answer(monkeypatch, _partition(1, 20, 0, 5020, 61.25), _partition(0, 10, 0, 10, None))
    code, out, err = cli(str(checkpoint))
    assert (code, err) == (0, "")
    assert asked == [({"orders": {0: 10, 1: 20}}, "127.0.0.1:9092")]
    row = next(line for line in out.splitlines() if "orders/1" in line)
    assert all(word in row for word in ("20", "5,020", "5,000", "61.2 s"))
    assert out.splitlines()[-1] == "5,000 records wait in 2 partitions; the oldest for 61.2 s."


def test_an_unknown_age_is_said_as_such(cli: Tidewise, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(monkeypatch, _partition(0, 10, 0, 17, None))
    assert cli(str(checkpoint))[1].splitlines()[-1] == "7 records wait in 1 partitions; for how long is unknown."


def test_lost_records_are_said_loudly_and_exit_with_1(
    cli: Tidewise, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answer(monkeypatch, _partition(1, 20, 23, 30, 5.0), _partition(0, 10, 0, 4, 1.0))
    code, out, _ = cli(str(checkpoint))
    assert code == 1
    assert "3 LOST" in out
    assert "LOST: 3 records were deleted before the query had read them" in out
    assert "MADE ANEW: the query has committed more than there is in orders/0" in out


def test_a_topic_made_anew_alone_is_no_loss(cli: Tidewise, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(monkeypatch, _partition(0, 10, 0, 4, 1.0))
    assert cli(str(checkpoint))[0] == 0


def test_only_the_worst_are_shown_unless_all_are_asked_for(
    cli: Tidewise, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answer(monkeypatch, *(_partition(number, None, 0, 7, 1.0) for number in range(30)))
    few, every = cli(str(checkpoint))[1], cli(str(checkpoint), "--all")[1]
    assert ("orders/19" in few, "orders/20" in few, "orders/29" in every) == (True, False, True)
    assert "... and 10 more partitions; --all shows them." in few


def test_json_is_one_document(cli: Tidewise, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(monkeypatch, _partition(1, 20, 23, 30, 5.0))
    code, out, _ = cli(str(checkpoint), "--json")
    told = json.loads(out)
    assert (code, told["records"], told["lost"], told["oldest_s"]) == (1, 7, 3, 5.0)
    assert told["partitions"][0]["made_anew"] is False


def test_a_query_that_reads_no_kafka_is_one_sentence(cli: Tidewise, tmp_path: Path) -> None:
    code, out, err = cli(str(counting(tmp_path).write()))
    assert (code, out) == (2, "")
    assert "has committed nothing from Kafka" in err
    assert len(err.splitlines()) == 1
