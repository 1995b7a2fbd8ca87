"""The answers that Spark's are held against are right themselves: a few events, and what they mean, written by hand."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.jobs.nexmark.answers import ANSWERS, answer
from tests.jobs.nexmark.inputs import KIND, OPEN_AUCTION, PAST, TOTAL, made
from tests.jobs.queries import told

START = datetime.datetime(2023, 11, 14, 12, 0, 0, tzinfo=datetime.UTC)
SCHEMA = KIND.batch(seed=0, first=0, end=1, pieces=PAST.pieces(0, 1)).schema

Event = dict[str, Any]


def at(second: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=second)


def person(number: int, second: float, *, state: str = "OR") -> Event:
    return {"event_type": "person", "event_time": at(second), "id": number, "name": f"p{number}", "state": state}


def auction(number: int, second: float, expires: float, *, seller: int = 1, category: int = 10) -> Event:
    values = {"id": number, "expires": at(expires), "seller": seller, "category": category}
    return {"event_type": "auction", "event_time": at(second), **values}


def bid(on: int, second: float, price: int, *, bidder: int = 7, **more: str) -> Event:
    return {"event_type": "bid", "event_time": at(second), "auction": on, "bidder": bidder, "price": price, **more}


def rows(name: str, *events: Event, columns: str) -> list[tuple[Any, ...]]:
    """What a query answers about these events, which come in this order, and of that some columns, sorted.

    Moments are seconds since the start. A bid a minute after the last event closes everything.
    """
    last = max(event["event_time"] for event in events) + datetime.timedelta(seconds=60)
    closing = {"event_type": "bid", "event_time": last, "auction": 99, "bidder": 99, "price": 1}
    numbered = [{"ordinal": ordinal} | event for ordinal, event in enumerate([*events, closing])]
    found = answer(name, pa.Table.from_pylist(numbered, schema=SCHEMA))
    seconds: list[Event] = [{column: _seconds(value) for column, value in row.items()} for row in found]
    return sorted(tuple(row[column] for column in columns.split()) for row in seconds if row.get("bidder") != 99)


def _seconds(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=datetime.UTC) - START).total_seconds()
    return value


def test_q3_joins_an_auction_with_its_seller_whoever_came_first() -> None:
    events = (auction(1, 0, 9), person(1, 5), auction(2, 50, 60), auction(3, 51, 60, category=11), person(2, 52))
    assert rows("q3", *events, columns="name state id") == [("p1", "OR", 1), ("p1", "OR", 2)]
    assert rows("q3", person(1, 0, state="WA"), auction(1, 1, 2), columns="id") == []


def test_q4_averages_what_auctions_of_a_category_went_for() -> None:
    events = (
        *(auction(1, 0, 10), auction(2, 0, 20), auction(3, 0, 10), auction(4, 0, 10, category=11)),
        *(bid(1, 0, 100), bid(1, 10, 300), bid(1, 10.001, 900)),  # the first and the last moment count
        *(bid(2, 15, 501), bid(2, 16, 7)),
        bid(4, 5, 8),  # and nobody bids on the third
    )
    assert rows("q4", *events, columns="category average") == [(10, 400.5), (11, 8.0)]


def test_q5_tells_all_auctions_with_the_most_bids() -> None:
    events = (bid(1, 10, 5), bid(1, 11.5, 5), bid(2, 11.9, 5), bid(2, 12, 5), bid(3, 12, 5))
    assert rows("q5", *events, columns="window_start window_end auction bids") == [
        *((2, 12, 1, 2), (4, 14, 1, 2), (4, 14, 2, 2), (6, 16, 1, 2), (6, 16, 2, 2)),
        *((8, 18, 1, 2), (8, 18, 2, 2), (10, 20, 1, 2), (10, 20, 2, 2), (12, 22, 2, 1), (12, 22, 3, 1)),
    ]


def test_q6_averages_the_last_ten_auctions_of_a_seller_as_they_close() -> None:
    # Auction n closes at second 40 - n, so that the last to open is the first to close; the eleventh has no bid.
    opened = [auction(number, number, 40 - number, seller=5) for number in range(1, 13)]
    bids = [bid(number, 20, number) for number in range(1, 13) if number != 11]
    other = (auction(20, 0, 39, seller=6), bid(20, 1, 3), auction(21, 0, 39, seller=6), bid(21, 1, 5))
    found = rows("q6", *opened, *bids, *other, columns="seller closed_at auction average")
    assert found[:3] == [(5, 28, 12, 12.0), (5, 30, 10, 11.0), (5, 31, 9, (12 + 10 + 9) / 3)]
    # Ten have closed before the last, of which the first does not count any more.
    assert found[9:11] == [(5, 38, 2, 6.6), (5, 39, 1, 5.5)]
    assert found[11:] == [(6, 39, 20, 3.0), (6, 39, 21, 4.0)]


def test_q7_tells_all_highest_bids_of_a_window() -> None:
    events = (bid(1, 0, 5), bid(2, 9.999, 5), bid(3, 9, 4), bid(4, 10, 1))
    assert rows("q7", *events, columns="window_start auction price") == [(0, 1, 5), (0, 2, 5), (10, 4, 1)]


def test_q8_tells_a_person_once_who_sells_in_the_window_of_registering() -> None:
    events = (auction(1, 0, 5), person(1, 1), auction(2, 9.9, 15), person(2, 9), auction(3, 10, 15, seller=2))
    assert rows("q8", *events, columns="id name window_start") == [(1, "p1", 0)]


def test_q9_prefers_the_price_then_the_earlier_bid_then_the_one_that_came_first() -> None:
    events = (
        *(auction(1, 0, 10), auction(2, 0, 10), auction(3, 0, 10), auction(4, 0, 200)),
        *(bid(1, 3, 50, bidder=1), bid(1, 2, 50, bidder=2), bid(1, 1, 49, bidder=3), bid(1, 11, 99, bidder=4)),
        *(bid(2, 3, 50, bidder=9), bid(2, 3, 50, bidder=1)),
        *(bid(4, 3, 50), bid(1, 30, 1)),  # the fourth is not closed at the end
    )
    assert rows("q9", *events, columns="id auction bidder price bid_time") == [(1, 1, 2, 50, 2), (2, 2, 9, 50, 3)]


def test_q11_ends_a_session_when_nothing_came_for_longer_than_ten_seconds() -> None:
    events = (bid(1, 20, 5), bid(1, 0, 5), bid(2, 10, 5), bid(1, 30.001, 5), bid(1, 12, 5, bidder=8))
    assert rows("q11", *events, columns="bidder bids session_start session_end") == [
        *((7, 1, 30.001, 40.001), (7, 3, 0, 30), (8, 1, 12, 22)),
    ]


def test_q15_counts_bidders_and_auctions_once() -> None:
    events = (bid(1, 0, 9_999), bid(1, 1, 10_000), bid(2, 2, 999_999, bidder=8), bid(2, 3, 1_000_000, bidder=8))
    (row,) = rows("q15", *events, columns="day total_bids rank1_bids rank2_bids rank3_bids total_bidders rank2_bidders")
    assert row == ("2023-11-14", 5, 2, 2, 1, 3, 2)  # with the bid that closes everything


def test_q18_keeps_the_last_bid_in_time_whenever_it_came() -> None:
    events = (bid(1, 5, 1), bid(1, 3, 2), bid(2, 3, 3), bid(2, 3, 4), bid(1, 1, 5, bidder=8))
    assert rows("q18", *events, columns="bidder auction price") == [(7, 1, 1), (7, 2, 4), (8, 1, 5)]


def test_q19_ranks_the_ten_highest_bids() -> None:
    events = (*(bid(1, second, 100 - second) for second in range(12)), bid(1, 0.5, 99, bidder=8))
    found = rows("q19", *events, columns="auction rank price bidder")
    assert found[:3] == [(1, 1, 100, 7), (1, 2, 99, 8), (1, 3, 99, 7)]
    assert [rank for _, rank, _, _ in found] == list(range(1, 11))


def test_q21_reads_the_channel_from_the_name_or_else_from_the_url() -> None:
    events = (
        bid(1, 0, 1, channel="aPPle", url="https://x/a/b/c?channel_id=9"),
        bid(2, 0, 1, channel="channel-4", url="https://x/a/b/c?query=1&channel_id=9"),
        bid(3, 0, 1, channel="channel-4", url="https://x/a/b/c?query=1"),
    )
    assert rows("q21", *events, columns="auction channel_id") == [(1, "0"), (2, "9")]
    assert rows("q22", events[0], columns="dir1 dir2 dir3") == [("a", "b", "c?channel_id=9")]


@pytest.mark.parametrize("name", ANSWERS)
def test_every_query_has_something_to_answer_and_to_drop(name: str) -> None:
    events = made()
    right, wrong = (told(answer(name, table)) for table in (events.on_time, events.events))
    assert right
    assert right != wrong


def test_a_bid_is_too_late_though_its_auction_is_open() -> None:
    events = made()
    right, wrong = (
        row for table in (events.on_time, events.events) for row in answer("q9", table) if row["id"] == OPEN_AUCTION
    )
    assert right["price"] < wrong["price"]
    # It ends after everything but what closes all at the end.
    before = events.events.filter(pc.less(events.events["ordinal"], TOTAL))
    assert pc.max(before["event_time"]).as_py() < right["expires"].replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize("name", ["q5", "q7"])
def test_windows_with_ties_are_there(name: str) -> None:
    windows = Counter(row["window_start"] for row in answer(name, made().on_time))
    assert max(windows.values()) > 1


@pytest.mark.parametrize("name", ["q9", "q18", "q19"])
def test_there_are_bids_of_which_only_the_order_of_coming_decides(name: str) -> None:
    events = made().on_time
    backwards = events.set_column(0, "ordinal", pc.negate(events["ordinal"]))
    assert told(answer(name, events)) != told(answer(name, backwards))
