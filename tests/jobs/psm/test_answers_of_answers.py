"""The answers that Spark's are held against are right themselves: a few events, and what they mean, written by hand."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.jobs.psm.answers import ANSWERS, SLIDE, WINDOW, answer
from tests.jobs.psm.inputs import KIND, PAST, made
from tests.jobs.queries import told

START = datetime.datetime(2023, 11, 14, 12, 0, 0, tzinfo=datetime.UTC)
SCHEMA = KIND.batch(seed=0, first=0, end=1, pieces=PAST.pieces(0, 1)).schema
LAST = 99
"""Product and owner of a click after everything, whose windows are not over."""

Event = dict[str, Any]


def event(event_type: str, second: float, *, product: int = 1, **more: float) -> Event:
    moment = START + datetime.timedelta(seconds=second)
    return {"event_type": event_type, "event_time": moment, "product": product, "category": 0, **more}


def click(second: float, price: float = 0.5, *, product: int = 1, owner: int = 1, category: int = 0) -> Event:
    return event("click", second, product=product, price=price, owner=owner) | {"category": category}


def rows(name: str, *events: Event, columns: str) -> list[tuple[Any, ...]]:
    """What a query answers about these events, which come in this order: some columns, sorted; moments in seconds."""
    closing = click(7200, product=LAST, owner=LAST)
    numbered = [{"ordinal": ordinal} | one for ordinal, one in enumerate([*events, closing])]
    found = answer(name, pa.Table.from_pylist(numbered, schema=SCHEMA))
    return sorted(tuple(_seconds(row[column]) for column in columns.split()) for row in found)


def _seconds(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=datetime.UTC) - START).total_seconds()
    return value


def test_q1_tells_the_top_category_and_of_several_the_lowest() -> None:
    events = (
        *(click(0, category=7), click(599, category=7), click(5, category=3)),
        *(click(600, category=7), click(601, category=3)),
        click(5, owner=2, category=9),
        event("impression", 5),
    )
    assert rows("q1", *events, columns="window_start owner category clicks") == [
        *((0, 1, 7, 2), (0, 2, 9, 1), (600, 1, 3, 1))
    ]


def test_q2_takes_clicks_in_the_order_of_their_times() -> None:
    # The earliest come last, and those of one moment count in the order in which they came.
    clicks = [click(1000 - number, number) for number in range(WINDOW + SLIDE)]
    found = rows("q2", *clicks, click(2000, product=2), columns="product clicks_until median")
    last = len(clicks) - 1
    assert found[:2] == [(1, SLIDE, last - (SLIDE - 1) / 2), (1, 2 * SLIDE, last - (2 * SLIDE - 1) / 2)]
    until = len(clicks) // SLIDE * SLIDE
    assert found[-1] == (1, until, last - (2 * until - WINDOW - 1) / 2)
    same = [click(0, number) for number in range(SLIDE + 1)]
    assert rows("q2", *same, columns="median") == [((SLIDE - 1) / 2,)]


def test_q3_tells_the_median_of_a_minute() -> None:
    events = (click(0, 0.3), click(59.9, 0.2), click(30, 0.7), click(60, 0.2), click(61, 0.3), click(5, 0.4, owner=2))
    assert rows("q3", *events, columns="window_start owner median") == [(0, 1, 0.3), (0, 2, 0.4), (60, 1, 0.25)]


def test_q4_counts_impressions_in_windows_that_overlap_and_leaves_out_what_nobody_clicks() -> None:
    events = (
        *(event("impression", 240), event("impression", 299), event("impression", 299, product=2)),
        *(click(300), click(0, product=3), event("search", 300)),
    )
    found = rows("q4", *events, columns="product window_start window_end impressions clicks ratio")
    assert found[:5] == [
        *((1, 60, 360, 2, 1, 2.0), (1, 120, 420, 2, 1, 2.0), (1, 180, 480, 2, 1, 2.0), (1, 240, 540, 2, 1, 2.0)),
        (1, 300, 600, 0, 1, 0.0),
    ]
    assert found[5:] == [(3, start, start + 300, 0, 1, 0.0) for start in range(-240, 1, 60)]


def test_q5_counts_searches_of_a_minute() -> None:
    found = (event("search", 0), event("search", 59), event("search", 60), event("search", 5, product=2))
    events = (*found, click(58), click(1), event("search", 1), click(60), event("impression", 1))
    assert rows("q5", *events, columns="window_start searches clicks ratio") == [(0, 3, 2, 1.5), (60, 1, 1, 1.0)]


@pytest.mark.parametrize("name", ANSWERS)
def test_every_query_has_something_to_answer_and_to_drop(name: str) -> None:
    events = made()
    right, wrong = (told(answer(name, table)) for table in (events.on_time, events.events))
    assert right.total() > 20
    assert right != wrong
