"""Windows of clicks hold what looking through all clicks finds, however these come, and keep little."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as with_any
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from tidewise.jobs.psm import medians
from tidewise.jobs.psm.medians import LastClicks

SHELF = 7
PRODUCTS = (7, 135, 263)
BLOCK = 4
END_MS = 100

Click = tuple[int, int, int, float]
"""The product, when, in microseconds, the ordinal, and the price."""
Median = tuple[int, int, float]
"""The product, how many clicks it had, and the median."""
New = tuple[int, int, float]
"""A click: its product, how long after the watermark of the batch before it was, in microseconds, and its price."""

BATCHES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.lists(
            st.tuples(st.sampled_from(PRODUCTS), st.integers(1, 9_000), st.integers(1, 9).map(float)), max_size=30
        ),
    ),
    max_size=12,
)
"""How far the watermark goes before a batch, and its clicks."""


def by_looking(clicks: list[Click], *, window: int, slide: int) -> list[Median]:
    prices = {product: [click[3] for click in sorted(clicks) if click[0] == product] for product in PRODUCTS}
    return [
        (product, until, statistics.median(own[max(until - window, 0) : until]))
        for product, own in prices.items()
        for until in range(slide, len(own) + 1, slide)
    ]


def _row(product: int, at_us: int, ordinal: int, price: float) -> Row:
    return Row(shelf=SHELF, event_time=None, product=product, at_us=at_us, ordinal=ordinal, price=price)


class Stream:
    """Batches of clicks on the products of one shelf, in the way in which Spark hands them over."""

    def __init__(self, *, window: int, slide: int) -> None:
        self.clicks: list[Click] = []
        self.found: list[Median] = []
        self._window, self._slide = window, slide
        # Spark drops what was late for the batch before; what is late for this one still comes.
        never_late = END_MS + 1
        self.tester = TwsTester(
            LastClicks(window=window, slide=slide),
            timeMode="eventTime",
            eventTimeExtractor=lambda _: never_late,
        )

    def batch(self, clicks: list[Click], *, watermark_ms: int) -> None:
        self.tester._currentWatermarkMs = watermark_ms
        self.tester.handle.setWatermark(watermark_ms)
        self.clicks += clicks
        if clicks:
            self._keep(self.tester.test(SHELF, [_row(*click) for click in clicks]))
        self._keep(self.tester._handleExpiredTimers())
        self._look(watermark_ms * 1000)

    def _keep(self, rows: list[Row]) -> None:
        self.found += [(row.product, row.clicks_until, row.median) for row in rows]

    def _look(self, watermark_us: int) -> None:
        """One timer, at the earliest that waits, and no price that no window will reach, but in blocks with others."""
        waiting = [at_us for _, at_us, _, _ in self.clicks if at_us > watermark_us]
        self.tester.handle.setGroupingKey(SHELF)
        assert list(self.tester.handle.listTimers()) == ([-(-min(waiting) // 1000)] if waiting else [])
        wanted = set()
        for product in PRODUCTS:
            taken = sum(other == product and at_us <= watermark_us for other, at_us, _, _ in self.clicks)
            next_window = range(max(taken // self._slide * self._slide + self._slide - self._window, 0), taken)
            wanted |= {(product, place // BLOCK) for place in next_window if place < taken - taken % BLOCK}
        blocks = self.tester.peekMapState("blocks", SHELF)
        assert set(blocks) == wanted
        assert all(len(prices) == BLOCK * 8 for (prices,) in blocks.values())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(medians, "BLOCK", BLOCK)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@with_any(BATCHES, st.integers(1, 20), st.integers(1, 20))
def test_clicks_in_any_order_give_what_looking_through_everything_does(
    batches: list[tuple[int, list[New]]], window: int, slide: int
) -> None:
    stream, watermark_ms = Stream(window=window, slide=slide), 0
    for further_ms, new in batches:
        before_us, first = watermark_ms * 1000, len(stream.clicks)
        clicks = [
            (product, before_us + after_us, first + number, price)
            for number, (product, after_us, price) in enumerate(new)
        ]
        watermark_ms += further_ms
        stream.batch(clicks, watermark_ms=watermark_ms)
        passed = [click for click in stream.clicks if click[1] <= watermark_ms * 1000]
        assert sorted(stream.found) == by_looking(passed, window=window, slide=slide)
    stream.batch([], watermark_ms=END_MS)
    assert sorted(stream.found) == by_looking(stream.clicks, window=window, slide=slide)


def some(first: int, end: int) -> list[Click]:
    """Clicks on one product, whose prices are their numbers."""
    return [(SHELF, number, number, float(number)) for number in range(first, end)]


def test_a_larger_window_goes_on_with_what_the_smaller_one_kept() -> None:
    small, large = Stream(window=8, slide=4), LastClicks(window=12, slide=4)
    small.batch(some(1, 31), watermark_ms=1)
    large.init(small.tester.handle)
    small.tester.processor = large
    found = small.tester.test(SHELF, [_row(*click) for click in some(31, 61)])
    # What the smaller one had thrown away is missing at first.
    assert found[0].median == statistics.median(range(25, 33))
    assert (found[-1].clicks_until, found[-1].median) == (60, statistics.median(range(49, 61)))
