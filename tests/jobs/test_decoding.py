"""JSON of any shape: records become rows, everything else a dead letter with its reason."""

from __future__ import annotations

import ast
import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.letters import SCHEMA, SENT, as_kafka_has, check_stream, reasons, shown
from tests.jobs.running import write_in_order
from tidewise.jobs.decoding import TOO_LARGE_BYTES, dead_letters, decoded
from tidewise.jobs.records.kinds import KINDS

pytestmark = pytest.mark.xdist_group("jobs")

KIND = KINDS["tsw"]
GOOD = {"ordinal": 1, "event_time": 1_700_000_000_000, "car": 3, "speed": 50, "distance": 12.5}
WHOLE = json.dumps(GOOD).encode()
DAY_MS = 86_400_000
SENT_MS = round(SENT.timestamp() * 1000)

NO_OBJECT = "malformed: not a JSON object of a tsw record"
TIME = "malformed: event_time is missing or is not a time in milliseconds since 1970"
RANGE = "malformed: event_time is before 1970 or more than a day ahead"


def but(**changed: object) -> bytes:
    return json.dumps(GOOD | changed).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


CASES: list[tuple[bytes | None, str | None]] = [
    (WHOLE, None),
    (but(more="than asked for"), None),
    (but(distance=12), None),
    (WHOLE.ljust(TOO_LARGE_BYTES - 1), None),
    (but(event_time=0), None),
    (but(event_time=SENT_MS + DAY_MS), None),
    (None, "empty: it has no value"),
    (b"", NO_OBJECT),
    (b"\xff" * 20, NO_OBJECT),
    (b"nonsense", NO_OBJECT),
    (b"null", NO_OBJECT),
    (b"[" + WHOLE + b"]", NO_OBJECT),
    (WHOLE[:-1], NO_OBJECT),
    (WHOLE[:20], NO_OBJECT),
    (WHOLE.replace(b'"', b"'"), NO_OBJECT),
    (WHOLE.ljust(TOO_LARGE_BYTES), "oversized: 65536 bytes, 65536 or more"),
    (b"\xff" * 100_000, "oversized: 100000 bytes, 65536 or more"),
    *[(without(name), f"malformed: {name} is missing") for name in GOOD],
    *[(but(**{name: None}), f"malformed: {name} is missing") for name in GOOD],
    *[(but(**{name: [1]}), f"malformed: {name} is missing or is not") for name in GOOD],
    (but(ordinal="1"), "malformed: ordinal is missing or is not bigint"),
    (but(car=3.5), "malformed: car is missing or is not int"),
    (but(speed=10**12), "malformed: speed is missing or is not int"),
    (but(distance=float("nan")), "malformed: "),
    (but(event_time="2023-11-14T22:13:20Z"), TIME),
    (but(event_time=10**30), TIME),
    (but(event_time=-1), RANGE),
    (but(event_time=SENT_MS + DAY_MS + 1), RANGE),
    (but(event_time=2**62), RANGE),
]


def test_each_broken_record_is_kept_with_what_is_wrong(spark: SparkSession) -> None:
    found = reasons(spark, [value for value, _ in CASES], KIND, "json")
    for (value, expected), reason in zip(CASES, found, strict=True):
        if expected is None:
            assert reason is None, value
        else:
            assert reason is not None, value
            assert reason.startswith(expected), value


BID = {
    "ordinal": 4,
    "event_time": 1_700_000_000_000,
    "event_type": "bid",
    "auction": 1000,
    "bidder": 1001,
    "price": 500,
    "channel": "Apple",
    "url": "https://www.nexmark.com/a/b/c/item.htm?query=1",
    "extra": "abc",
}
AUCTION = {
    "ordinal": 1,
    "event_time": 1_700_000_000_000,
    "event_type": "auction",
    "id": 1000,
    "item": "old clock",
    "description": "ticks",
    "initial_bid": 100,
    "reserve": 200,
    "expires": 1_700_000_010_000,
    "seller": 1000,
    "category": 10,
    "extra": "",
}
EXPIRES = "malformed: expires is before 1970 or after 9999"
TYPED_CASES: list[tuple[dict[str, object], str | None]] = [
    (BID, None),
    (AUCTION, None),
    (BID | {"id": None, "seller": 7}, None),
    (AUCTION | {"expires": 253_402_300_799_999}, None),
    *[({**BID, name: None}, f"malformed: {name} is missing or is not") for name in BID],
    *[({**AUCTION, name: None}, f"malformed: {name} is missing or is not") for name in AUCTION],
    (BID | {"price": None}, "malformed: price is missing or is not bigint"),
    (BID | {"event_type": "Bid"}, "malformed: event_type is none of person, auction, bid"),
    (BID | {"event_type": "", "price": None}, "malformed: event_type is none of person, auction, bid"),
    (BID | {"event_type": "auction"}, "malformed: id is missing or is not bigint"),
    (BID | {"seller": "x"}, "malformed: not wholly JSON, or a column of another event_type is not of its type"),
    (AUCTION | {"expires": "soon"}, "malformed: expires is missing or is not a time in milliseconds since 1970"),
    (AUCTION | {"expires": -1}, EXPIRES),
    (AUCTION | {"expires": 253_402_300_800_000}, EXPIRES),
    (AUCTION | {"expires": 2**62}, EXPIRES),
    (AUCTION | {"event_time": SENT_MS + DAY_MS + 1}, RANGE),
]


def test_a_record_needs_the_columns_of_its_type_only(spark: SparkSession) -> None:
    values: list[bytes | None] = [json.dumps(record).encode() for record, _ in TYPED_CASES]
    found = reasons(spark, values, KINDS["nexmark"], "json")
    for (record, expected), reason in zip(TYPED_CASES, found, strict=True):
        assert (reason or "").startswith(expected or ""), record
        assert (reason is None) == (expected is None), record


def test_what_a_record_does_not_have_is_null(spark: SparkSession) -> None:
    raw = spark.createDataFrame(as_kafka_has([json.dumps(record).encode() for record in (BID, AUCTION)]))
    rows = sorted(decoded(raw, KINDS["nexmark"], "json").collect(), key=lambda row: int(row.ordinal))
    expires = datetime.datetime.fromtimestamp(1_700_000_010, datetime.UTC)
    assert (rows[0].expires.astimezone(datetime.UTC), rows[0].price) == (expires, None)
    assert (rows[1].expires, rows[1].price) == (None, 500)


def test_of_a_huge_value_only_the_beginning_is_kept(spark: SparkSession) -> None:
    raw = spark.createDataFrame(as_kafka_has([b"x" * 1000]))
    (row,) = dead_letters(raw, KIND, "json", too_large_bytes=100).collect()
    assert (row.reason, bytes(row.value)) == ("oversized: 1000 bytes, 100 or more", b"x" * 100)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "ysb" else pytest.mark.soak) for name in sorted(KINDS)]
)
def test_a_stream_goes_on_over_broken_records(spark: SparkSession, tmp_path: Path, name: str) -> None:
    check_stream(spark, tmp_path, KINDS[name], "json")


def test_a_record_is_decoded_once(spark: SparkSession, tmp_path: Path) -> None:
    write_in_order(tmp_path / "topic", as_kafka_has([WHOLE]), files=1)
    raw = spark.read.schema(SCHEMA).parquet(str(tmp_path / "topic"))
    assert shown(decoded(raw, KIND, "json")).count("from_json") == 1


class Topic:
    """Stands for the session where a program asks for a stream from Kafka: it gets this frame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    @property
    def readStream(self) -> Topic:  # noqa: N802 - Spark's name
        return self

    def format(self, name: str) -> Topic:
        assert name == "kafka"
        return self

    def option(self, name: str, value: object) -> Topic:  # noqa: ARG002 - Spark's signature
        return self

    def load(self) -> DataFrame:
        return self._frame


def test_the_example_for_users_goes_on_over_any_record(spark: SparkSession) -> None:
    page = Path(__file__).parents[2] / "docs" / "writing-jobs.md"
    example = page.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    # Its frames, without its session and without starting anything.
    wanted = (ast.ImportFrom, ast.FunctionDef, ast.Assign)
    tree = ast.parse(example)
    tree.body = [node for node in tree.body if isinstance(node, wanted) and "getOrCreate" not in ast.unparse(node)]
    orders = [("shop", 0), ("shop", SENT_MS), ("shop", SENT_MS + DAY_MS)]
    refused = [("shop", -1), ("shop", -(2**63)), ("shop", 2**63 - 1), ("shop", SENT_MS + DAY_MS + 1), (None, 5)]
    values = [json.dumps({"shop": shop, "placed_ms": placed_ms}).encode() for shop, placed_ms in orders + refused]
    names: dict[str, Any] = {"spark": Topic(spark.createDataFrame(as_kafka_has([*values, b"{", b"\xff"])))}
    exec(compile(tree, page.name, "exec"), names)  # noqa: S102 - the page's own program
    assert sum(row["count"] for row in names["counts"].collect()) == len(orders)
    kept = {row.offset: row.reason for row in names["bad"].collect()}
    assert sorted(kept) == list(range(len(orders), len(values) + 2))
    time = "placed_ms is before 1970 or more than a day ahead"
    assert [kept[offset] for offset in range(len(orders), len(values))] == [time] * 4 + ["shop is missing"]
