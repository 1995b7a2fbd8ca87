"""Top speed windowing, after Flink's example: each time a car has gone 50 m, its top speed of the last ten seconds.

Records may come in any order within the watermark: each waits until the watermark has passed it, and a car's records
are then taken in the order in which they happened. So the answer does not depend on how they arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from tidewise.jobs.program import (
    keep_dead_letters,
    missing_for_python_state,
    options_of,
    parsed,
    records_of,
    session_of,
    wait,
    worked,
    writer_of,
)
from tidewise.jobs.records.kinds import KINDS

KIND = KINDS["tsw"]
METRES = 50.0
SPAN_MS = 10_000

Waiting = tuple[int, int, int, float]
"""A record: when it happened in milliseconds, its ordinal, its speed and its distance."""
Fired = tuple[int, int, int]
"""A result: when the car had gone far enough, the top speed until then, and when it had that."""


_NEW: tuple[float | None, list[tuple[int, int]], list[Waiting]] = (None, [], [])
"""The state of a car that has not been seen before."""


class Car:
    """What is to be remembered of a car."""

    def __init__(self, mark: float | None = None, tops: Iterable[tuple[int, int]] = ()) -> None:
        self.mark = mark
        """How far it had gone when it last fired, or at its first record."""
        self.tops = [(at_ms, speed) for at_ms, speed in tops]
        """Times and speeds of the last ten seconds, without those that a later and faster one has outdone."""

    def take(self, records: list[Waiting]) -> Iterator[Fired]:
        """What these records, which happened after all before, make the car fire."""
        for at_ms, _, speed, distance in sorted(records):
            while self.tops and self.tops[-1][1] < speed:
                self.tops.pop()
            self.tops.append((at_ms, speed))
            while self.tops[0][0] <= at_ms - SPAN_MS:
                self.tops.pop(0)
            if self.mark is None:
                self.mark = distance
            elif distance - self.mark > METRES:
                self.mark = distance
                top_ms, top = self.tops[0]
                yield at_ms, top, top_ms


class TopSpeed(StatefulProcessor):
    """Keeps a car's records until the watermark has passed them, and then has the car take them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._car = handle.getValueState(
            "car",
            "mark double, tops array<struct<at_ms: bigint, speed: int>>, "
            "waiting array<struct<at_ms: bigint, ordinal: bigint, speed: int, distance: double>>",
        )

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],  # noqa: ARG002 - Spark's signature
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's signature
    ) -> Iterator[Row]:
        mark, tops, waiting = self._car.get() or _NEW
        earliest = min((record[0] for record in waiting), default=None)
        waiting = [*waiting, *((row.at_ms, row.ordinal, row.speed, row.distance) for row in rows)]
        self._car.update((mark, tops, waiting))
        now_earliest = min(record[0] for record in waiting)
        if now_earliest != earliest:
            self._handle.registerTimer(now_earliest)
        return iter([])

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803 - Spark's signature
    ) -> Iterator[Row]:
        mark, tops, waiting = self._car.get() or _NEW
        passed_ms = timerValues.getCurrentWatermarkInMs()
        car = Car(mark, tops)
        for at_ms, top, top_ms in car.take([tuple(record) for record in waiting if record[0] <= passed_ms]):
            yield Row(car=key[0], at_ms=at_ms, top_speed=top, top_ms=top_ms)
        left = [record for record in waiting if record[0] > passed_ms]
        self._car.update((car.mark, car.tops, left))
        if left:
            self._handle.registerTimer(min(record[0] for record in left))

    def close(self) -> None:
        pass


def top_speeds(records: DataFrame) -> DataFrame:
    """Every firing: the car, when, its top speed of the ten seconds before, and when it had that."""
    return (
        records.withWatermark("event_time", "5 seconds")
        .withColumn("at_ms", F.unix_millis("event_time"))
        .groupBy("car")
        .transformWithState(TopSpeed(), "car int, at_ms bigint, top_speed int, top_ms bigint", "append", "eventTime")
        .selectExpr("car", "timestamp_millis(at_ms) AS event_time", "top_speed", "timestamp_millis(top_ms) AS top_time")
    )


def main(arguments: list[str] | None = None) -> None:
    """Run until stopped, or for `--seconds`."""
    parser = options_of("Tells the top speed of the last ten seconds each time that a car has gone 50 m.")
    options = parsed(parser, arguments)
    if options.mode == "real-time":
        parser.error(
            "--mode real-time: Spark 4.3 fails to run transformWithState of a Python program there; leave it out"
        )
    if options.state_provider != "rocksdb":
        parser.error("Spark's transformWithState needs --state-provider rocksdb")
    missing = missing_for_python_state()
    if missing is not None:
        parser.error(missing)
    spark = session_of(options)
    records = records_of(spark, options, KIND).where(worked(options.work))
    query = writer_of(top_speeds(records), options, output_mode="append", key="car").start()
    wait(options, query, keep_dead_letters(spark, options, KIND))


if __name__ == "__main__":
    main()
