"""The right answers of Nexmark q0-q22 by their definitions in SQL: DuckDB sees all events at once, and no stream."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tests.jobs.queries import Rows, rows_of_sql

_VIEWS = """
CREATE MACRO closed(moment) AS moment <= (SELECT max(event_time) - INTERVAL 4 SECONDS FROM events);
CREATE MACRO window_of(moment) AS time_bucket(INTERVAL 10 SECONDS, moment);
CREATE MACRO day_of(moment) AS strftime(moment, '%Y-%m-%d');
CREATE MACRO minute_of(moment) AS strftime(moment, '%H:%M');
CREATE VIEW persons AS SELECT id, name, city, state, event_time FROM events WHERE event_type = 'person';
CREATE VIEW auctions AS
    SELECT id, item, description, initial_bid, reserve, event_time, expires, seller, category, extra
    FROM events WHERE event_type = 'auction';
CREATE VIEW bids AS
    SELECT ordinal, auction, bidder, price, channel, url, event_time, extra FROM events WHERE event_type = 'bid';
CREATE VIEW valid_bids AS
    SELECT auctions.* RENAME (event_time AS auction_time, extra AS auction_extra), bids.*
    FROM auctions JOIN bids ON bids.auction = auctions.id
        AND bids.event_time BETWEEN auctions.event_time AND auctions.expires
    WHERE closed(expires);
"""
"""What the queries share: the three types of events, and the bids that count for an auction that is closed."""

_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}


def _ranked(what: str, counted: str) -> str:
    """How many there are, in all and of each rank of prices: total_bids, rank1_bids, rank2_bids, rank3_bids."""
    ranks = (f"{counted} FILTER ({price}) AS {rank}_{what}" for rank, price in _RANKS.items())
    return ", ".join((f"{counted} AS total_{what}", *ranks))


_BIDS = _ranked("bids", "count(*)")
_BIDS_BIDDERS_AUCTIONS = ", ".join(
    (_BIDS, _ranked("bidders", "count(DISTINCT bidder)"), _ranked("auctions", "count(DISTINCT auction)"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a query must have answered at the end."""

    sql: str
    drops: bool = False
    """Events do not count that the watermark had passed when they came: the query forgets by event time.

    The others either keep nothing or keep it for ever, by keys that are no event time (the unbounded joins q3 and q20,
    the running counts and ranks q12 and q15-q19). There Spark has no reason to drop an event, however late.
    """


ANSWERS: Mapping[str, Answer] = types.MappingProxyType(
    {
        "q0": Answer(sql="SELECT auction, bidder, price, event_time, extra FROM bids"),
        "q1": Answer(sql="SELECT auction, bidder, 0.908::DOUBLE * price AS price, event_time, extra FROM bids"),
        "q2": Answer(sql="SELECT auction, price FROM bids WHERE auction % 123 = 0"),
        "q3": Answer(
            sql="""
                SELECT name, city, state, auctions.id
                FROM auctions JOIN persons ON persons.id = seller
                WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
            """,
        ),
        "q4": Answer(
            sql="""
                SELECT category, avg(final) AS average
                FROM (SELECT id, category, max(price) AS final FROM valid_bids GROUP BY ALL)
                GROUP BY category
            """,
            drops=True,
        ),
        "q5": Answer(
            sql="""
                SELECT window_start, window_start + INTERVAL 10 SECONDS AS window_end, auction, count(*) AS bids
                FROM (
                    SELECT time_bucket(INTERVAL 2 SECONDS, event_time) - slide * INTERVAL 2 SECONDS AS window_start,
                        auction
                    FROM bids, range(5) AS slides(slide)
                )
                WHERE closed(window_end)
                GROUP BY window_start, auction
                QUALIFY rank() OVER (PARTITION BY window_start ORDER BY count(*) DESC) = 1
            """,
            drops=True,
        ),
        "q6": Answer(
            sql="""
                SELECT seller, id AS auction, expires AS closed_at, avg(final) OVER last_ten AS average
                FROM (SELECT id, seller, expires, max(price) AS final FROM valid_bids GROUP BY ALL)
                WINDOW last_ten AS (PARTITION BY seller ORDER BY expires, id ROWS 9 PRECEDING)
            """,
            drops=True,
        ),
        "q7": Answer(
            sql="""
                SELECT window_of(event_time) AS window_start, window_start + INTERVAL 10 SECONDS AS window_end,
                    auction, bidder, price, event_time, extra
                FROM bids
                WHERE closed(window_end)
                QUALIFY rank() OVER (PARTITION BY window_start ORDER BY price DESC) = 1
            """,
            drops=True,
        ),
        "q8": Answer(
            sql="""
                SELECT DISTINCT persons.id, name, window_of(persons.event_time) AS window_start
                FROM persons JOIN auctions ON seller = persons.id
                    AND window_of(auctions.event_time) = window_of(persons.event_time)
            """,
            drops=True,
        ),
        "q9": Answer(
            sql="""
                SELECT id, item, description, initial_bid, reserve, auction_time AS event_time, expires, seller,
                    category, auction_extra AS extra, auction, bidder, price, valid_bids.event_time AS bid_time,
                    valid_bids.extra AS bid_extra
                FROM valid_bids
                QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_time, ordinal) = 1
            """,
            drops=True,
        ),
        "q10": Answer(
            sql="""
                SELECT auction, bidder, price, event_time, extra, day_of(event_time) AS day,
                    minute_of(event_time) AS minute
                FROM bids
            """
        ),
        "q11": Answer(
            sql="""
                SELECT bidder, count(*) AS bids, min(event_time) AS session_start,
                    max(event_time) + INTERVAL 10 SECONDS AS session_end
                FROM (
                    SELECT bidder, event_time, count(*) FILTER (is_first) OVER in_order AS session
                    FROM (
                        SELECT bidder, event_time,
                            event_time > lag(event_time) OVER in_order + INTERVAL 10 SECONDS AS is_first
                        FROM bids
                        WINDOW in_order AS (PARTITION BY bidder ORDER BY event_time)
                    )
                    WINDOW in_order AS (PARTITION BY bidder ORDER BY event_time)
                )
                GROUP BY bidder, session
                HAVING closed(session_end)
            """,
            drops=True,
        ),
        # In which window a bid was counted only its run can tell; over all windows each counts once.
        "q12": Answer(sql="SELECT bidder, count(*) AS bids FROM bids GROUP BY bidder"),
        "q13": Answer(
            sql="SELECT auction, bidder, price, event_time, 'value-' || (auction % 10000) AS value FROM bids"
        ),
        "q14": Answer(
            sql="""
                SELECT auction, bidder, 0.908::DOUBLE * price AS price,
                    CASE
                        WHEN hour(event_time) BETWEEN 8 AND 18 THEN 'dayTime'
                        WHEN hour(event_time) <= 6 OR hour(event_time) >= 20 THEN 'nightTime'
                        ELSE 'otherTime'
                    END AS bid_time_type,
                    event_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
                FROM bids
                WHERE 0.908::DOUBLE * bids.price > 1000000 AND 0.908::DOUBLE * bids.price < 50000000
            """
        ),
        "q15": Answer(
            sql=f"SELECT day_of(event_time) AS day, {_BIDS_BIDDERS_AUCTIONS} FROM bids GROUP BY day"  # noqa: S608 - ours
        ),
        "q16": Answer(
            sql=f"""
                SELECT channel, day_of(event_time) AS day, max(minute_of(event_time)) AS minute,
                    {_BIDS_BIDDERS_AUCTIONS}
                FROM bids
                GROUP BY channel, day
            """  # noqa: S608 - ours
        ),
        "q17": Answer(
            sql=f"""
                SELECT auction, day_of(event_time) AS day, {_BIDS},
                    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
                FROM bids
                GROUP BY auction, day
            """  # noqa: S608 - ours
        ),
        "q18": Answer(
            sql="""
                SELECT auction, bidder, price, channel, url, event_time, extra
                FROM bids
                QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY event_time DESC, ordinal DESC) = 1
            """
        ),
        "q19": Answer(
            sql="""
                SELECT auction, bidder, price, channel, url, event_time, extra, row_number() OVER highest AS rank
                FROM bids
                WINDOW highest AS (PARTITION BY auction ORDER BY price DESC, event_time, ordinal)
                QUALIFY rank <= 10
            """
        ),
        "q20": Answer(
            sql="""
                SELECT auction, bidder, price, channel, url, bids.event_time AS bid_time, bids.extra AS bid_extra,
                    item, description, initial_bid, reserve, auctions.event_time AS auction_time, expires, seller,
                    category, auctions.extra AS auction_extra
                FROM bids JOIN auctions ON auctions.id = auction
                WHERE category = 10
            """
        ),
        "q21": Answer(
            sql="""
                SELECT auction, bidder, price, channel,
                    CASE lower(channel)
                        WHEN 'apple' THEN '0'
                        WHEN 'google' THEN '1'
                        WHEN 'facebook' THEN '2'
                        WHEN 'baidu' THEN '3'
                        ELSE nullif(regexp_extract(url, '[?&]channel_id=([^&]*)', 1), '')
                    END AS channel_id
                FROM bids
                WHERE channel_id IS NOT NULL
            """
        ),
        "q22": Answer(
            sql="""
                SELECT auction, bidder, price, channel,
                    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
                FROM bids
            """
        ),
    }
)
"""Every answer by the name of its query."""


def answer(name: str, events: pa.Table) -> Rows:
    """The rows that a query answers about these events, in any order; times are in UTC, and do not say so."""
    return rows_of_sql(ANSWERS[name].sql, events, views=_VIEWS)
