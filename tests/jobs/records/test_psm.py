"""What the events of the price search machine promise: pairs of a search and what came of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidewise.jobs.records.kinds import KINDS
from tidewise.jobs.schedule import Schedule

PLAN = Schedule(began_unix_s=1_800_000_000.0, rates_per_s=(1000.0,))
COUNT = 100_000


@pytest.fixture(scope="module")
def events() -> pa.RecordBatch:
    return KINDS["psm"].batch(seed=1, first=0, end=COUNT, pieces=PLAN.pieces(0, COUNT))


def test_after_each_search_its_product_is_shown_or_clicked_on(events: pa.RecordBatch) -> None:
    rows = events.slice(0, 2000).to_pylist()
    for search, found in zip(rows[::2], rows[1::2], strict=True):
        assert search["event_type"] == "search"
        assert found["event_type"] in {"click", "impression"}
        assert (search["product"], search["category"]) == (found["product"], found["category"])


def test_half_of_what_follows_a_search_are_clicks(events: pa.RecordBatch) -> None:
    types = events.column("event_type").to_pylist()
    assert types.count("search") == COUNT // 2
    assert 0.24 < types.count("click") / COUNT < 0.26


def test_each_product_is_of_one_category_and_all_are_searched_for_alike(events: pa.RecordBatch) -> None:
    products, categories = events.column("product").to_numpy(), events.column("category").to_numpy()
    pairs = set(zip(products.tolist(), categories.tolist(), strict=True))
    assert sorted(product for product, _ in pairs) == list(range(1000))
    assert [sum(found == category for _, found in pairs) for category in range(10)] == [100] * 10
    counts = np.bincount(products)
    assert 40 < counts.min() < counts.max() < 180


def test_clicks_have_an_owner_and_a_price_and_searches_a_rank(events: pa.RecordBatch) -> None:
    clicks = events.filter(pc.equal(events.column("event_type"), "click"))
    owners, prices = clicks.column("owner").to_numpy(), clicks.column("price").to_numpy()
    assert sorted(set(owners.tolist())) == list(range(100))
    assert 0.2 <= prices.min() < 0.201
    assert 0.699 < prices.max() <= 0.7
    assert 0.445 < prices.mean() < 0.455
    assert sorted(set(events.column("rank").drop_null().to_pylist())) == list(range(200))
