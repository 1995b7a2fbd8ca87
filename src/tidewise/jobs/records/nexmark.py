"""The events of the Nexmark benchmark: people who register, auctions that they open, and the bids on these."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidewise.jobs.records.chance import Bits, among, below, mixed
from tidewise.jobs.schedule import Whole

SCHEMA = (
    "ordinal bigint, event_time timestamp, event_type string, "
    "id bigint, name string, email string, credit_card string, city string, state string, "
    "item string, description string, initial_bid bigint, reserve bigint, expires timestamp, seller bigint, "
    "category int, auction bigint, bidder bigint, price bigint, channel string, url string, extra string"
)
PARTS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "person": ("id", "name", "email", "credit_card", "city", "state"),
        "auction": ("id", "item", "description", "initial_bid", "reserve", "expires", "seller", "category"),
        "bid": ("auction", "bidder", "price", "channel", "url"),
    }
)

PEOPLE_PER_ROUND, AUCTIONS_PER_ROUND, BIDS_PER_ROUND = 1, 3, 46
"""So many events of each type follow one another, and then the next person comes."""
ROUND = PEOPLE_PER_ROUND + AUCTIONS_PER_ROUND + BIDS_PER_ROUND
FIRST_ID = 1000
"""The first person and the first auction have it; the next ones follow without gaps."""
HOT_EVERY = 100
"""One auction or person of so many is hot: the last whose number is a multiple of it."""
HOT_AUCTION_IN = 2
"""All bids but one of so many go to the hot auction."""
HOT_PERSON_IN = 4
"""All but one of so many auctions have the hot seller, and as many bids the hot bidder."""
OPEN_AUCTIONS = 100
"""Other bids go to one of the last so many auctions, or to one that is yet to come."""
ACTIVE_PEOPLE = 1000
"""Other sellers and bidders are of the last so many people, or yet to come."""
AUCTION_ID_LEAD = 10
PERSON_ID_LEAD = 10
FIRST_CATEGORY = 10
CATEGORIES = 5
LONGEST_AUCTION_S = 20
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
HOT_CHANNEL_IN = 2
CHANNELS = 10_000
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")

_TYPES = tuple(PARTS)
_CITIES = ("Astoria", "Bend", "Boise", "Casper", "Fresno", "Oakland", "Spokane", "Tacoma", "Tempe", "Yuma")
_FIRST_NAMES = ("Ada", "Bruno", "Clara", "Dario", "Edith", "Felix", "Greta", "Hugo", "Irma", "Jonas", "Karla")
_LAST_NAMES = ("Abbot", "Baker", "Carver", "Draper", "Fisher", "Glover", "Mason", "Porter", "Sawyer", "Weaver")
_DOMAINS = ("example.com", "example.net", "example.org")
_ADJECTIVES = ("blue", "broken", "carved", "fine", "large", "new", "old", "painted", "rare", "small")
_THINGS = ("bicycle", "camera", "chair", "clock", "coat", "drum", "lamp", "piano", "ring", "table", "vase", "violin")
_ITEMS = tuple(f"{adjective} {thing}" for adjective in _ADJECTIVES for thing in _THINGS)
_CHANNELS = (*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS)))
_EXTRA_LETTERS = {"person": (100, 155), "auction": (310, 470), "bid": (54, 82)}
"""So that an event without its field names has about 200, 500 or 100 bytes, its url left out."""
_TEXTS = 1024
"""How many different texts there are of each kind: making them anew for each event would take most of the time."""
_WORDS = 4
"""How many words of sixty-four bits of chance an event has."""
# A price is a hundred times ten to the power of 0 to 6. Numpy's powers may differ in their last bit by where a number
# lies in its array; of fixed tables the product is the same in whatever range an event is made.
_COARSE = 100.0 * 10.0 ** (6.0 * np.arange(2**16) / 2**16)
_FINE = 10.0 ** (6.0 * np.arange(2**16) / 2**32)


def values(ordinals: Whole, *, seed: int) -> list[pa.Array]:
    """The columns from `event_type` to `extra` of these events; `expires` as the time from the event to it."""
    places = ordinals % ROUND
    numbers = (places >= PEOPLE_PER_ROUND).astype(np.int64) + (places >= PEOPLE_PER_ROUND + AUCTIONS_PER_ROUND)
    texts = numbers * _TEXTS + below(_word(3, ordinals, seed), _TEXTS, shift=0)
    columns = {"event_type": _chosen(_TYPES, numbers), "extra": _chosen(_extras(seed), texts)}
    for number, make in enumerate((_people, _auctions, _bids)):
        has = numbers == number
        for name, column in make(ordinals[has], seed).items():
            spread = column.take(pa.array(np.cumsum(has) - 1, mask=~has))
            columns[name] = pc.coalesce(columns[name], spread) if name in columns else spread
    named = (column.split()[0] for column in SCHEMA.split(",")[2:])
    return [
        columns[name].dictionary_decode() if pa.types.is_dictionary(columns[name].type) else columns[name]
        for name in named
    ]


def _people(ordinals: Whole, seed: int) -> dict[str, pa.Array]:
    who, card, where = (_word(number, ordinals, seed) for number in range(3))
    first = _chosen(_FIRST_NAMES, below(who, len(_FIRST_NAMES), shift=0)).dictionary_decode()
    last = _chosen(_LAST_NAMES, below(who, len(_LAST_NAMES), shift=16)).dictionary_decode()
    domain = _chosen(_DOMAINS, below(who, len(_DOMAINS), shift=32)).dictionary_decode()
    account = pc.utf8_lower(pc.binary_join_element_wise(first, last, "."))
    digits = pa.array((card % np.uint64(9 * 10**15) + np.uint64(10**15)).astype(np.int64)).cast(pa.string())
    groups = [pc.utf8_slice_codeunits(digits, start, start + 4) for start in range(0, 16, 4)]
    return {
        "id": pa.array(FIRST_ID + _last_person(ordinals)),
        "name": pc.binary_join_element_wise(first, last, " "),
        "email": pc.binary_join_element_wise(account, domain, "@"),
        "credit_card": pc.binary_join_element_wise(*groups, " "),
        "city": _chosen(_CITIES, below(where, len(_CITIES), shift=0)),
        "state": _chosen(STATES, below(where, len(STATES), shift=16)),
    }


def _auctions(ordinals: Whole, seed: int) -> dict[str, pa.Array]:
    who, prices, what = (_word(number, ordinals, seed) for number in range(3))
    newest = _last_person(ordinals)
    hot = below(who, HOT_PERSON_IN, shift=32) > 0
    seller = np.where(hot, newest - newest % HOT_EVERY, _some_person(newest, who))
    initial_bid = _price(prices, shift=0)
    lasts_ms = 1 + among(what, LONGEST_AUCTION_S * 1000, shift=0)
    return {
        "id": pa.array(FIRST_ID + _last_auction(ordinals)),
        "item": _chosen(_ITEMS, below(what, len(_ITEMS), shift=32)),
        "description": _chosen(_descriptions(seed), below(what, _TEXTS, shift=48)),
        "initial_bid": pa.array(initial_bid),
        "reserve": pa.array(initial_bid + _price(prices, shift=32)),
        "expires": pa.array(lasts_ms * 1000).view(pa.duration("us")),
        "seller": pa.array(FIRST_ID + seller),
        "category": pa.array((FIRST_CATEGORY + below(who, CATEGORIES, shift=48)).astype(np.int32)),
    }


def _bids(ordinals: Whole, seed: int) -> dict[str, pa.Array]:
    where, who, rest = (_word(number, ordinals, seed) for number in range(3))
    newest = _last_auction(ordinals)
    oldest = np.maximum(newest - OPEN_AUCTIONS, 0)
    some = oldest + among(where, newest - oldest + 1 + AUCTION_ID_LEAD, shift=0)
    auction = np.where(below(where, HOT_AUCTION_IN, shift=32) > 0, newest - newest % HOT_EVERY, some)
    last = _last_person(ordinals)
    hot = below(where, HOT_PERSON_IN, shift=48) > 0
    # Not the hot seller, who would bid on his own auctions.
    bidder = np.where(hot, last - last % HOT_EVERY + 1, _some_person(last, who))
    hot_channel = below(rest, len(HOT_CHANNELS), shift=48)
    any_channel = len(HOT_CHANNELS) + among(who, CHANNELS, shift=32)
    channel = np.where(below(rest, HOT_CHANNEL_IN, shift=32) > 0, hot_channel, any_channel)
    return {
        "auction": pa.array(FIRST_ID + auction),
        "bidder": pa.array(FIRST_ID + bidder),
        "price": pa.array(_price(rest, shift=0)),
        "channel": _chosen(_CHANNELS, channel),
        "url": _chosen(_urls(seed), channel),
    }


def _last_person(ordinals: Whole) -> Whole:
    """The number, from 0, of the last person that came until then."""
    return ordinals // ROUND


def _last_auction(ordinals: Whole) -> Whole:
    """The number, from 0, of the last auction that came until then; -1 before the first."""
    rounds, place = np.divmod(ordinals, ROUND)
    of_this_round: Whole = np.clip(place - PEOPLE_PER_ROUND, -1, AUCTIONS_PER_ROUND - 1)
    return rounds * AUCTIONS_PER_ROUND + of_this_round


def _some_person(newest: Whole, chance: Bits) -> Whole:
    """The number of an active person, or of one who is yet to come."""
    active = np.minimum(newest + 1, ACTIVE_PEOPLE)
    return newest + 1 - active + among(chance, active + PERSON_ID_LEAD, shift=0)


def _price(chance: Bits, *, shift: int) -> Whole:
    coarse, fine = ((chance >> np.uint64(shift + more)) & np.uint64(0xFFFF) for more in (16, 0))
    price: Whole = np.rint(_COARSE[coarse] * _FINE[fine]).astype(np.int64)
    return price


def _word(number: int, ordinals: Whole, seed: int) -> Bits:
    return mixed(ordinals * _WORDS + number, seed=seed)


def _chosen(texts: tuple[str, ...] | pa.Array, numbers: Whole) -> pa.DictionaryArray:
    known = _as_array(texts) if isinstance(texts, tuple) else texts
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), known)


@functools.lru_cache(maxsize=16)
def _as_array(texts: tuple[str, ...]) -> pa.Array:
    # Not when this is imported: Arrow loads pandas to make its first array, which most commands never need.
    return pa.array(texts)


@functools.lru_cache(maxsize=4)
def _urls(seed: int) -> pa.Array:
    """The url of each channel; of those that are not hot, one in ten does not tell its `channel_id`."""
    words = iter(_letters("url", 3 * len(_CHANNELS), 3, 8, seed))
    bits = mixed(np.arange(len(_CHANNELS)), seed=_apart("channel", seed))
    tells = (below(bits, 10, shift=0) > 0) & (np.arange(len(_CHANNELS)) >= len(HOT_CHANNELS))
    numbers = (bits >> np.uint64(33)).tolist()
    return pa.array(
        f"https://www.nexmark.com/{next(words)}/{next(words)}/{next(words)}/item.htm?query=1"
        + (f"&channel_id={number}" if told else "")
        for number, told in zip(numbers, tells.tolist(), strict=True)
    )


@functools.lru_cache(maxsize=4)
def _extras(seed: int) -> pa.Array:
    """The texts of people, then those of auctions, then those of bids."""
    return pa.array(text for what in PARTS for text in _letters(f"extra {what}", _TEXTS, *_EXTRA_LETTERS[what], seed))


@functools.lru_cache(maxsize=4)
def _descriptions(seed: int) -> pa.Array:
    return pa.array(_letters("description", _TEXTS, 20, 100, seed))


def _letters(what: str, count: int, shortest: int, longest: int, seed: int) -> list[str]:
    """So many texts of random lengths, of the letters a to z."""
    seed = _apart(what, seed)
    ends = np.cumsum(shortest + among(mixed(np.arange(count), seed=seed), longest - shortest + 1, shift=0))
    bits: NDArray[np.uint8] = mixed(np.arange(count, count + ends[-1] // 8 + 1), seed=seed).view(np.uint8)
    whole = (bits % 26 + ord("a")).tobytes().decode("ascii")
    begins = [0, *ends[:-1].tolist()]
    return [whole[begin:end] for begin, end in zip(begins, ends.tolist(), strict=True)]


def _apart(what: str, seed: int) -> int:
    """A seed for this only, so that it says nothing about anything else."""
    return seed + int.from_bytes(what.encode())
