"""Percentiles of many batches, against counting records one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import LatencyMethod
from tidewise.engines.spark.latency import LatencyStretch, percentiles


def _stretch(least_s: float, length_s: float, rows: int) -> LatencyStretch:
    return LatencyStretch(least_s=least_s, most_s=least_s + length_s, rows=rows, method=LatencyMethod.EVENT_TIME)


_STRETCHES = st.lists(
    st.builds(_stretch, st.floats(0.0, 1e5), st.floats(0.0, 1e5), st.integers(1, 10**7)), min_size=1, max_size=12
)


@given(batches=_STRETCHES)
def test_percentiles_ascend_and_lie_within_the_batches(batches: list[LatencyStretch]) -> None:
    found = percentiles(batches)
    assert found is not None
    assert min(batch.least_s for batch in batches) <= found.p50_s <= found.p95_s <= found.p99_s
    assert found.p99_s <= max(batch.most_s for batch in batches)


def test_percentiles_weigh_batches_by_their_rows() -> None:
    # 900 records between 0 and 1 s, 100 at exactly 10 s.
    found = percentiles([_stretch(0.0, 1.0, 900), _stretch(10.0, 0.0, 100)])
    assert found is not None
    assert found.p50_s == pytest.approx(500 / 900)
    assert found.p95_s == pytest.approx(10.0)
    assert percentiles([]) is None


@given(batches=st.lists(st.builds(_stretch, st.floats(0, 50), st.floats(0, 50), st.integers(1, 9)), min_size=1))
def test_percentiles_are_those_of_the_records(batches: list[LatencyStretch]) -> None:
    records = sorted(
        batch.least_s + (batch.most_s - batch.least_s) * (part + 0.5) / (50 * batch.rows)
        for batch in batches
        for part in range(50 * batch.rows)
    )
    found = percentiles(batches)
    assert found is not None
    for value_s, share in ((found.p50_s, 0.5), (found.p95_s, 0.95)):
        below = sum(record < value_s - 1e-9 for record in records) / len(records)
        within = sum(record <= value_s + 1e-9 for record in records) / len(records)
        assert below - 0.02 <= share <= within + 0.02
