"""The right answers of the price search machine by their definitions: DuckDB sees all events at once, and no stream."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tests.jobs.queries import rows_of_sql

WINDOW, SLIDE = 150, 20
"""Of the windows of clicks: a product of the tests has few; one of them is no multiple of the other."""

_VIEWS = """
CREATE MACRO closed(moment) AS moment <= (SELECT max(event_time) - INTERVAL 4 SECONDS FROM events);
CREATE MACRO minute_of(moment) AS time_bucket(INTERVAL 1 MINUTE, moment);
CREATE VIEW clicks AS SELECT * FROM events WHERE event_type = 'click';
CREATE VIEW impressions AS SELECT * FROM events WHERE event_type = 'impression';
CREATE VIEW searches AS SELECT * FROM events WHERE event_type = 'search';
"""


def _per_window(events: str, *, minutes: int) -> str:
    """How many of these events there were of each product, in windows of so many minutes, one every minute."""
    return f"""
        SELECT minute_of(event_time) - earlier * INTERVAL 1 MINUTE AS window_start, product, count(*) AS {events}
        FROM {events}, range({minutes}) AS windows(earlier)
        GROUP BY window_start, product
    """  # noqa: S608 - ours


ANSWERS: Mapping[str, str] = types.MappingProxyType(
    {
        "q1": """
            SELECT window_start, owner, category, clicks
            FROM (
                SELECT time_bucket(INTERVAL 10 MINUTES, event_time) AS window_start, owner, category,
                    count(*) AS clicks
                FROM clicks
                GROUP BY window_start, owner, category
            )
            WHERE closed(window_start + INTERVAL 10 MINUTES)
            QUALIFY row_number() OVER (PARTITION BY window_start, owner ORDER BY clicks DESC, category) = 1
        """,
        "q2": f"""
            SELECT product, clicks_until, median
            FROM (
                SELECT product,
                    row_number() OVER (PARTITION BY product ORDER BY event_time, ordinal) AS clicks_until,
                    quantile_cont(price, 0.5) OVER (
                        PARTITION BY product ORDER BY event_time, ordinal ROWS {WINDOW - 1} PRECEDING
                    ) AS median
                FROM clicks
                WHERE closed(event_time)
            )
            WHERE clicks_until % {SLIDE} = 0
        """,  # noqa: S608 - ours
        "q3": """
            SELECT minute_of(event_time) AS window_start, owner, quantile_cont(price, 0.5) AS median
            FROM clicks
            WHERE closed(window_start + INTERVAL 1 MINUTE)
            GROUP BY window_start, owner
        """,
        "q4": f"""
            SELECT window_start, window_start + INTERVAL 5 MINUTES AS window_end, product,
                coalesce(impressions, 0) AS impressions, clicks, coalesce(impressions, 0) / clicks AS ratio
            FROM ({_per_window("clicks", minutes=5)})
                LEFT JOIN ({_per_window("impressions", minutes=5)}) USING (window_start, product)
            WHERE closed(window_end)
        """,  # noqa: S608 - ours
        "q5": f"""
            SELECT window_start, product, coalesce(searches, 0) AS searches, clicks,
                coalesce(searches, 0) / clicks AS ratio
            FROM ({_per_window("clicks", minutes=1)})
                LEFT JOIN ({_per_window("searches", minutes=1)}) USING (window_start, product)
            WHERE closed(window_start + INTERVAL 1 MINUTE)
        """,  # noqa: S608 - ours
    }
)
"""Every answer by the name of its query."""


def answer(name: str, events: pa.Table) -> list[dict[str, Any]]:
    """The rows that a query answers about these events, in any order; times are in UTC, and do not say so."""
    return rows_of_sql(ANSWERS[name], events, views=_VIEWS)
