"""The query over windows of clicks: each time that a product got so many more, the median price of its last ones.

Clicks may come in any order within the watermark: each waits until the watermark has passed it, and a product's clicks
are then taken in the order in which they happened. So the answer does not depend on how they arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from tidewise.jobs.query import Read

WINDOW = 10_000
SLIDE = 1_000
SHELVES = 128
"""Products lie on so many shelves, the keys of the state: Spark needs as long for a key as for many clicks."""
BLOCK = 128
"""Prices are kept in blocks of so many: a batch writes those that it adds to, and never the whole window."""

Prices = NDArray[np.float64]
Clicks = NDArray[np.void]

_CLICK = np.dtype([("product", "<i4"), ("at_us", "<i8"), ("ordinal", "<i8"), ("price", "<f8")])
_TAKEN = np.dtype([("product", "<i4"), ("taken", "<i8")])
_NEW = (b"", b"", b"")
"""The state of a shelf on which nothing has been seen before."""


def products_medians(read: Read, *, window: int = WINDOW, slide: int = SLIDE) -> DataFrame:
    """Each time that `slide` more clicks on a product have come, the median price of its last `window`."""
    click = ("product", F.unix_micros("event_time").alias("at_us"), "ordinal", "price")
    return (
        read()
        .where("event_type = 'click'")
        .select(F.expr(f"pmod(product, {SHELVES})").alias("shelf"), "event_time", *click)
        .groupBy("shelf")
        .transformWithState(
            LastClicks(window=window, slide=slide),
            "product int, clicks_until bigint, median double",
            "append",
            "eventTime",
        )
    )


def medians(before: Prices, new: Prices, *, taken: int, window: int, slide: int) -> Iterator[tuple[int, float]]:
    """Each multiple of `slide` that is reached by new clicks after `taken` ones, and the median of the last `window`.

    `before`: the prices of the last clicks taken, at least `window` of them where there are so many.
    """
    prices, first = np.concatenate((before, new)), taken - len(before)
    for until in range(taken - taken % slide + slide, taken + len(new) + 1, slide):
        yield until, float(np.median(prices[max(until - window - first, 0) : until - first]))


class LastClicks(StatefulProcessor):
    """Keeps clicks until the watermark has passed them, and then counts them into their products' windows.

    The blocks of a product that are full lie each by itself; the one that is being filled lies with its shelf's others,
    and with the clicks that wait. A timer stands at the earliest of these.
    """

    def __init__(self, *, window: int, slide: int) -> None:
        self._window = window
        self._slide = slide

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._shelf = handle.getValueState("shelf", "taken binary, filling binary, waiting binary")
        self._blocks = handle.getMapState("blocks", "product int, number bigint", "prices binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],  # noqa: ARG002 - Spark's signature
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        from_product_on = slice(2, None)
        come = np.fromiter((row[from_product_on] for row in rows), _CLICK)
        yield from self._pass(come, timerValues.getCurrentWatermarkInMs(), is_expired=False)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],  # noqa: ARG002 - Spark's signature
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803 - Spark's signature
    ) -> Iterator[Row]:
        yield from self._pass(np.empty(0, _CLICK), timerValues.getCurrentWatermarkInMs(), is_expired=True)

    def close(self) -> None:
        pass

    def _pass(self, come: Clicks, passed_ms: int, *, is_expired: bool) -> Iterator[Row]:
        """Take what the watermark has passed, of those that waited and those that have come; the others wait."""
        taken, filling, packed = self._shelf.get() or _NEW
        products = _unpacked(taken, filling)
        waited = np.frombuffer(packed, _CLICK)
        waiting = np.concatenate((waited, come))
        is_passed = waiting["at_us"] <= passed_ms * 1000
        left = waiting[~is_passed]
        for product, new in _per_product(waiting[is_passed]):
            count, last = products.get(product, (0, b""))
            yield from self._medians(product, count, last, new)
            products[product] = count + len(new), self._filled(product, count, last, new)
        self._shelf.update((*_packed(products), left.tobytes()))
        # One that has expired is taken away by Spark.
        self._move_timer(None if is_expired else _timer_ms(waited), _timer_ms(left))

    def _medians(self, product: int, taken: int, filling: bytes, new: Prices) -> Iterator[Row]:
        if taken // self._slide == (taken + len(new)) // self._slide:
            return
        numbers = range(self._first_block(taken), taken // BLOCK)
        # Where the window was smaller before, its first blocks are missing.
        blocks = [block[0] for number in numbers if (block := self._blocks.getValue((product, number)))]
        before = np.frombuffer(b"".join([*blocks, filling]))
        for until, median in medians(before, new, taken=taken, window=self._window, slide=self._slide):
            yield Row(product=product, clicks_until=until, median=median)

    def _filled(self, product: int, taken: int, filling: bytes, new: Prices) -> bytes:
        """What lies in the last block after new prices; full ones are kept as long as a window can reach them."""
        prices, size = filling + new.tobytes(), BLOCK * new.itemsize
        full, first, next_first = taken // BLOCK, self._first_block(taken), self._first_block(taken + len(new))
        for number in range(first, min(next_first, full)):
            self._blocks.removeKey((product, number))
        for number in range(max(full, next_first), full + len(prices) // size):
            self._blocks.updateValue((product, number), (prices[(number - full) * size : (number - full + 1) * size],))
        return prices[len(prices) // size * size :]

    def _first_block(self, taken: int) -> int:
        """The first block that the next window reaches, or the one that is being filled."""
        begins = taken - taken % self._slide + self._slide - self._window
        return max(min(begins, taken) // BLOCK, 0)

    def _move_timer(self, stands_ms: int | None, wanted_ms: int | None) -> None:
        if stands_ms == wanted_ms:
            return
        if stands_ms is not None:
            self._handle.deleteTimer(stands_ms)
        if wanted_ms is not None:
            self._handle.registerTimer(wanted_ms)


def _per_product(clicks: Clicks) -> Iterator[tuple[int, Prices]]:
    """Each product with the prices of its clicks, in the order in which these happened."""
    ordered = clicks[np.lexsort((clicks["ordinal"], clicks["at_us"], clicks["product"]))]
    products, counts = np.unique(ordered["product"], return_counts=True)
    for product, count, end in zip(products.tolist(), counts, np.cumsum(counts), strict=True):
        yield product, ordered["price"][end - count : end]


def _unpacked(taken: bytes, filling: bytes) -> dict[int, tuple[int, bytes]]:
    """Of each product how many clicks were taken, and its block that is being filled."""
    products, start = {}, 0
    for product, count in np.frombuffer(taken, _TAKEN).tolist():
        end = start + count % BLOCK * 8
        products[product] = count, filling[start:end]
        start = end
    return products


def _packed(products: dict[int, tuple[int, bytes]]) -> tuple[bytes, bytes]:
    counts = [(product, count) for product, (count, _) in products.items()]
    return np.array(counts, _TAKEN).tobytes(), b"".join(last for _, last in products.values())


def _timer_ms(waiting: Clicks) -> int | None:
    """When the watermark has passed the earliest of them; None: there are none."""
    return -(-int(waiting["at_us"].min()) // 1000) if len(waiting) else None
