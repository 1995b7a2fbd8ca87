"""Queries over auctions that are over: who won each of them, and what was paid on average.

An auction is a session of its number, from its opening until its end, and so is each bid, for a moment. Spark makes one
session of those that touch. So a session with an auction in it holds the bids made while that was open, and no others,
in whatever order they came, and the watermark closes it when the auction is over. Other bids stay by themselves, and
leave with the watermark too. An auction that comes when the watermark has passed its opening, but not its end, still
counts, with those of its bids that have not left. A bid that comes when the watermark has passed its moment is dropped,
even if its auction is still open: Spark looks at each session before it looks for those that touch it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from tidewise.jobs.query import Read

LAST = 10
"""q6 takes the average of so many auctions."""


def q4(read: Read) -> DataFrame:
    """What was paid on average for the auctions of a category: each time that some are over, the average until then.

    Spark lets no aggregate that goes on for ever follow another, so transformWithState keeps sum and count of each
    category. The last row of a category is its average over all auctions that are over.
    """
    paid = _prices(read).select("category", "price").groupBy("category")
    return paid.transformWithState(Average(), "category int, average double", "append", "none")


def q6(read: Read) -> DataFrame:
    """What a seller was paid on average for the last ten auctions, each time that one is over.

    Spark has no windows over rows in streams, so transformWithState keeps the last prices of each seller. The watermark
    closes auctions in the order in which they end; those of one batch are put in order.
    """
    paid = _prices(read).selectExpr("seller", "id", "unix_micros(expires) AS ends_us", "price").groupBy("seller")
    averages = paid.transformWithState(
        LastAverage(), "seller bigint, auction bigint, ends_us bigint, average double", "append", "none"
    )
    return averages.selectExpr("seller", "auction", "timestamp_micros(ends_us) AS closed_at", "average")


def q9(read: Read) -> DataFrame:
    """The bid that won each auction: the highest, of these the earliest.

    Spark has no windows over rows in streams, and would forget bids in a join whose bound is the end of each auction:
    auctions and bids that belong together are one session instead, of which the highest bid is kept.
    """
    # The highest of these is the winner: the first column in which two differ decides.
    bid = F.struct("price", (-F.unix_micros("event_time")).alias("earlier"), -F.col("ordinal"), "bidder", "extra")
    auction = F.struct(
        *("item", "description", "initial_bid", "reserve", "event_time", "expires", "seller", "category", "extra")
    )
    return (
        _sessions(read, F.max(F.when(_is_bid(), bid)).alias("bid"), F.max(F.when(~_is_bid(), auction)).alias("auction"))
        .where("auction IS NOT NULL AND bid IS NOT NULL")
        .selectExpr(
            "id",
            "auction.*",
            "id AS auction",
            "bid.bidder",
            "bid.price",
            "timestamp_micros(-bid.earlier) AS bid_time",
            "bid.extra AS bid_extra",
        )
    )


def _prices(read: Read) -> DataFrame:
    """The auctions that are over and had a bid, and the highest."""
    names = ("category", "seller", "expires", "price")
    sessions = _sessions(read, *(F.max(name).alias(name) for name in names))
    return sessions.where("expires IS NOT NULL AND price IS NOT NULL")


def _sessions(read: Read, *kept: Column) -> DataFrame:
    """What is kept of each session: of an auction with its bids, or of a bid alone."""
    events = read().where("event_type IN ('auction', 'bid')")
    session = F.session_window("event_time", F.make_interval(secs=(_span_us() / 1_000_000).cast("decimal(18, 6)")))
    return events.groupBy(F.coalesce("auction", "id").alias("id"), session).agg(*kept)


def _span_us() -> Column:
    """How long the session of an event is; sessions touch that have one moment in common, their ends included.

    A bid's must have a length, and an auction's must be as much longer than the auction, so that a bid in its last
    moment does not let it close any later. Times are whole milliseconds, so that neither touches anything more.
    """
    return F.when(_is_bid(), 1).otherwise(F.unix_micros("expires") - F.unix_micros("event_time") + 1)


def _is_bid() -> Column:
    return F.col("event_type") == "bid"


class Average(StatefulProcessor):
    """The average price of all auctions of a category so far, once for each batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._paid = handle.getValueState("paid", "total bigint, auctions bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's signature
    ) -> Iterator[Row]:
        total, auctions = self._paid.get() or (0, 0)
        prices = [row.price for row in rows]
        total, auctions = total + sum(prices), auctions + len(prices)
        self._paid.update((total, auctions))
        yield Row(category=key[0], average=total / auctions)

    def close(self) -> None:
        pass


class LastAverage(StatefulProcessor):
    """The average price of a seller's last auctions, for each that is over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "prices array<bigint>")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's signature
    ) -> Iterator[Row]:
        (last,) = self._last.get() or ([],)
        for ends_us, auction, price in sorted((row.ends_us, row.id, row.price) for row in rows):
            last = [*last, price][-LAST:]
            yield Row(seller=key[0], auction=auction, ends_us=ends_us, average=sum(last) / len(last))
        self._last.update((last,))

    def close(self) -> None:
        pass
