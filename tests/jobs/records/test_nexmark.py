"""What the events of Nexmark promise: the proportions, ids, favourites and prices of the benchmark's generator."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from tidewise.jobs.records import nexmark
from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.schedule import Schedule

KIND = KINDS["nexmark"]
PLAN = Schedule(began_unix_s=1_800_000_000.0, rates_per_s=(1000.0,))
FIRST, COUNT = 100_000, 100_000
"""Late enough that there are a thousand people to choose from."""


def made(first: int, end: int, *, seed: int = 1, disorder: Disorder | None = None) -> pa.RecordBatch:
    return KIND.batch(seed=seed, first=first, end=end, pieces=PLAN.pieces(first, end), disorder=disorder)


@pytest.fixture(scope="module")
def events() -> pa.RecordBatch:
    return made(FIRST, FIRST + COUNT)


def of_type(events: pa.RecordBatch, event_type: str) -> pa.RecordBatch:
    return events.filter(pc.equal(events.column("event_type"), event_type))


def numbers(events: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = events.column(name).to_numpy()
    return found


def people_before(ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many people came until then, counted from the events themselves."""
    return np.searchsorted(np.arange(0, FIRST + COUNT, 50), ordinals, side="right")


def auctions_before(ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
    everything = np.arange(FIRST + COUNT)
    return np.searchsorted(everything[np.isin(everything % 50, (1, 2, 3))], ordinals, side="right")


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    types = made(0, 150).column("event_type").to_pylist()
    assert types == (["person"] + ["auction"] * 3 + ["bid"] * 46) * 3


def test_ids_begin_at_1000_and_have_no_gaps() -> None:
    events = made(0, 5000)
    assert numbers(of_type(events, "person"), "id").tolist() == list(range(1000, 1100))
    assert numbers(of_type(events, "auction"), "id").tolist() == list(range(1000, 1300))


@pytest.mark.parametrize("cut", [1, 40, 51, 99])
def test_a_batch_is_the_same_in_one_piece_or_two(cut: int) -> None:
    disorder = Disorder(share=0.3, most_s=3.5)
    parts = [made(0, cut, disorder=disorder), made(cut, 100, disorder=disorder)]
    assert pa.Table.from_batches(parts).equals(
        pa.Table.from_batches([made(0, 100, disorder=disorder)]).combine_chunks()
    )


def test_half_of_the_bids_go_to_the_hot_auction_and_the_others_to_open_ones(events: pa.RecordBatch) -> None:
    bids = of_type(events, "bid")
    auction, last = numbers(bids, "auction") - 1000, auctions_before(numbers(bids, "ordinal")) - 1
    hot = auction == last // 100 * 100
    assert 0.49 < hot.mean() < 0.52
    ahead = (auction - last)[~hot]
    assert (ahead.min(), ahead.max()) == (-100, 10)
    assert 0.07 < (ahead > 0).mean() < 0.11


@pytest.mark.parametrize(("event_type", "name", "place"), [("bid", "bidder", 1), ("auction", "seller", 0)])
def test_three_quarters_of_the_bids_and_auctions_are_of_the_hot_person(
    events: pa.RecordBatch, event_type: str, name: str, place: int
) -> None:
    found = of_type(events, event_type)
    person, last = numbers(found, name) - 1000, people_before(numbers(found, "ordinal")) - 1
    hot = person == last // 100 * 100 + place
    assert 0.73 < hot.mean() < 0.77
    ahead = (person - last)[~hot]
    assert -999 <= ahead.min() < -990
    assert 5 < ahead.max() <= 10
    assert -530 < ahead.mean() < -460


def test_the_first_events_refer_to_nobody_who_is_more_than_ten_ahead() -> None:
    for row in made(0, 400).to_pylist():
        people, auctions = row["ordinal"] // 50, row["ordinal"] // 50 * 3 + 2
        if row["event_type"] == "bid":
            assert 1000 <= row["auction"] <= 1000 + auctions + 10
            assert 1000 <= row["bidder"] <= 1000 + people + 10
        elif row["event_type"] == "auction":
            assert 1000 <= row["seller"] <= 1000 + people + 10


def test_prices_have_every_size_from_a_hundred_to_a_hundred_million_alike(events: pa.RecordBatch) -> None:
    price = numbers(of_type(events, "bid"), "price")
    assert (price.min() >= 100, price.max() <= 10**8) == (True, True)
    sizes, _ = np.histogram(np.log10(price), bins=np.arange(2.0, 8.5, 0.5))
    assert np.abs(sizes / len(price) - 1 / 12).max() < 0.005
    # One of many, and not of a few: ties are rare.
    high = price[price > 10**7]
    assert len(np.unique(high)) > 0.999 * len(high)


def test_an_auction_lasts_up_to_twenty_seconds_from_when_its_event_happened() -> None:
    events = of_type(made(0, COUNT, disorder=Disorder(share=0.3, most_s=3.5)), "auction")
    lasts_us = pc.subtract(events.column("expires"), events.column("event_time")).cast("int64").to_numpy()
    assert not (lasts_us % 1000).any()
    assert 1_000 <= lasts_us.min() < 50_000
    assert 19_950_000 < lasts_us.max() <= nexmark.LONGEST_AUCTION_S * 1_000_000
    assert 9_700_000 < lasts_us.mean() < 10_300_000


def test_an_auction_has_a_category_and_a_reserve_above_its_first_bid(events: pa.RecordBatch) -> None:
    auctions = of_type(events, "auction")
    shares = np.bincount(numbers(auctions, "category"), minlength=15)[10:] / auctions.num_rows
    assert len(shares) == 5
    assert np.abs(shares - 0.2).max() < 0.02
    more = numbers(auctions, "reserve") - numbers(auctions, "initial_bid")
    assert (more.min() >= 100, more.max() <= 10**8) == (True, True)


def test_people_live_in_six_states(events: pa.RecordBatch) -> None:
    people = of_type(events, "person").to_pylist()
    states = [person["state"] for person in people]
    assert set(states) == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    assert 0.45 < sum(state in {"OR", "ID", "CA"} for state in states) / len(states) < 0.55
    for person in people[:50]:
        first, last = person["name"].split()
        assert person["email"].startswith(f"{first}.{last}@".lower())
        assert re.fullmatch(r"\d{4} \d{4} \d{4} \d{4}", person["credit_card"])


URL = re.compile(r"https://www\.nexmark\.com/[a-z]+/[a-z]+/[a-z]+/item\.htm\?query=1(&channel_id=\d+)?")


def test_half_of_the_bids_come_by_a_large_channel_and_most_others_tell_their_number(events: pa.RecordBatch) -> None:
    bids = of_type(events, "bid")
    channels = bids.column("channel").to_pylist()
    pairs = set(zip(channels, bids.column("url").to_pylist(), strict=True))
    urls = dict(pairs)
    assert len(urls) == len(pairs), "each channel has one url"
    large = {"Google", "Facebook", "Baidu", "Apple"}
    assert 0.49 < sum(channel in large for channel in channels) / len(channels) < 0.51
    assert set(channels) - large <= {f"channel-{number}" for number in range(10_000)}
    matches = {channel: URL.fullmatch(url) for channel, url in urls.items()}
    assert all(matches.values())
    telling = {channel for channel, match in matches.items() if match and match[1]}
    assert 0.88 < len(telling) / (len(urls) - 4) < 0.92
    assert not telling & large
    assert len({urls[channel] for channel in large}) == 4


def test_what_is_beside_the_point_has_all_letters_and_many_lengths(events: pa.RecordBatch) -> None:
    extras = events.column("extra").to_pylist()[:5000]
    assert set("".join(extras)) == set("abcdefghijklmnopqrstuvwxyz")
    assert len({len(extra) for extra in extras}) > 50
