"""Every query of Nexmark by its name: what it answers, and what it asks of Spark."""

from __future__ import annotations

import types
from collections.abc import Mapping

from tidewise.jobs.nexmark import closing, joins, per_day, ranking, stateless, windows
from tidewise.jobs.query import Query

# Why a query is refused in real-time mode; where Spark 4.3 itself refuses it, with what it says.
_JOIN_LIVE = (
    "Spark 4.3 joins no two streams there ('StreamingSymmetricHashJoinExec is not in the operator allowlist for "
    "Real-Time Mode')"
)
_SESSIONS_LIVE = (
    "Spark 4.3 has no sessions in update mode, which is the only one there ('This output mode is not supported for "
    "session window streaming aggregations')"
)
_CHAIN_LIVE = (
    "Spark 4.3 lets no aggregation follow another in update mode, which is the only one there ('possible 'correctness' "
    "issue due to global watermark')"
)
_UNION_LIVE = (
    "Spark 4.3 unites no streams there once state was kept ('cannot include stateful operators (e.g. aggregate, "
    "deduplicate, transformWithState) before a union')"
)
_CLOCK_LIVE = (
    "Spark 4.3 takes it, and answers wrong: its clock stands still within a batch, which lasts as long as the trigger "
    "there, so that the bids of 30 seconds would count in one window of ten"
)

# How a query is reshaped, where several are alike.
_SESSIONS = (
    "Spark forgets long auctions too early where a join is bound by the end of each. Here an auction is a session that "
    "lasts until its end, and a bid is one that lasts a moment; Spark makes one session of those that touch, which are "
    "the bids made while the auction was open, and the watermark closes it when the auction is over. Of an auction "
    "that comes too late, but before its end, only the bids count that the watermark has not passed; and a bid that "
    "the watermark has passed does not count, even if its auction is still open."
)
_NO_DISTINCT = (
    "Spark counts nothing that is distinct ('Distinct aggregations are not supported on streaming "
    "DataFrames/Datasets'). Here each bidder and each auction is let through where it is new to its day and rank "
    "(dropDuplicates), and those are counted beside all bids, for which the stream is read twice. The counts are "
    "exact, and a batch touches the state of its own bids only."
)
_NO_ROWS = (
    "Spark has no windows over rows ('Structured Streaming only supports time-window aggregation using the WINDOW "
    "function')."
)

QUERIES: Mapping[str, Query] = types.MappingProxyType(
    {
        query.name: query
        for query in (
            Query(name="q0", sentence="Every bid, as it came.", make=stateless.q0, stores=()),
            Query(name="q1", sentence="Every bid, with its price in euros.", make=stateless.q1, stores=()),
            Query(name="q2", sentence="The bids on every 123rd auction.", make=stateless.q2, stores=()),
            Query(
                name="q3",
                sentence="Who sells in category 10, of the people from Oregon, Idaho and California.",
                make=joins.q3,
                real_time=_JOIN_LIVE,
            ),
            Query(
                name="q4",
                sentence="What was paid on average for the auctions of each category that are over.",
                make=closing.q4,
                key=("category",),
                stores=("rocksdb",),
                real_time=_SESSIONS_LIVE,
                reshaped=f"{_SESSIONS} An average that goes on for ever may not follow ('possible 'correctness' issue "
                "due to global watermark'): transformWithState keeps the sum and the count of each category, and tells "
                "the average when more auctions are over.",
            ),
            Query(
                name="q5",
                sentence="The auctions that got the most bids in ten seconds, anew every two seconds.",
                make=windows.q5,
                real_time=_CHAIN_LIVE,
                reshaped="The definition joins the counts of a window with the highest of them, for which Spark counts "
                "all bids twice and keeps the counts of both. Here a second aggregation follows the first, which gives "
                "it all counts of a window at once, when the watermark closes it.",
            ),
            Query(
                name="q6",
                sentence="What a seller was paid on average for the last ten auctions, each time that one is over.",
                make=closing.q6,
                stores=("rocksdb",),
                real_time=_SESSIONS_LIVE,
                reshaped=f"{_SESSIONS} {_NO_ROWS} transformWithState keeps the last ten prices of each seller, and "
                "takes auctions in the order in which they end, as the watermark closes them. Published SQL has the "
                "current row and ten before it, in the order of the bids' times: eleven prices, not ten.",
            ),
            Query(
                name="q7",
                sentence="The highest bids of each ten seconds.",
                make=windows.q7,
                reshaped="The definition joins all bids with the highest price of their window, and so keeps all. Here "
                f"an aggregation keeps the {windows.MOST_TIES} highest of a window, and tells all of these that have "
                "the highest price; if these are as many, the query stops with a sentence rather than leave one out.",
            ),
            Query(
                name="q8",
                sentence="Who opened an auction in the ten seconds in which they registered.",
                make=joins.q8,
                real_time=_JOIN_LIVE,
                reshaped="The definition joins those who registered in a window with those who sold in it, each "
                "counted once. Here a left semi join tells who registered when the first auction is found: the same "
                "people, and each once, because nobody registers twice.",
            ),
            Query(
                name="q9",
                sentence="The bid that won each auction: the highest, and of several the earliest.",
                make=closing.q9,
                real_time=_SESSIONS_LIVE,
                reshaped=f"{_SESSIONS} {_NO_ROWS} The highest bid of the session is kept.",
            ),
            Query(
                name="q10",
                sentence="Every bid, in files that lie in a folder for each day and minute.",
                make=stateless.q10,
                partition_by=("day", "minute"),
                stores=(),
            ),
            Query(
                name="q11",
                sentence="How often each bidder bid without a pause of ten seconds.",
                make=windows.q11,
                real_time=_SESSIONS_LIVE,
            ),
            Query(
                name="q12",
                sentence="How often each bidder bid in each ten seconds of the clock, whenever the bids happened.",
                make=windows.q12,
                output_mode="update",
                key=("bidder", "window_start", "window_end"),
                real_time=_CLOCK_LIVE,
                reshaped="Spark has no clock for each row: a bid counts when its batch began, also when that is "
                "replayed. And the events have a watermark already ('Redefining watermark is disallowed'): no window "
                "of the clock is ever forgotten, and the state grows by a row for each bidder and window.",
            ),
            Query(
                name="q13",
                sentence="Every bid, with the value that a table beside the stream has for it.",
                make=joins.q13,
                stores=(),
            ),
            Query(
                name="q14",
                sentence="Bids between one and fifty million euros, with their time of day and how often their text "
                "has the letter c.",
                make=stateless.q14,
                stores=(),
            ),
            Query(
                name="q15",
                sentence="How many bids, bidders and auctions each day has, in all and for each rank of price.",
                make=per_day.q15,
                output_mode="update",
                key=("day",),
                real_time=_UNION_LIVE,
                reshaped=_NO_DISTINCT,
            ),
            Query(
                name="q16",
                sentence="The counts of q15 for each channel, and the last minute of the day in which it had a bid.",
                make=per_day.q16,
                output_mode="update",
                key=("channel", "day"),
                real_time=_UNION_LIVE,
                reshaped=_NO_DISTINCT,
            ),
            Query(
                name="q17",
                sentence="How many bids each auction has on each day, in all and for each rank of price, and the "
                "lowest, highest, average and sum of their prices.",
                make=per_day.q17,
                output_mode="update",
                key=("auction", "day"),
            ),
            Query(
                name="q18",
                sentence="The last bid of each bidder on each auction.",
                make=ranking.q18,
                output_mode="update",
                key=("bidder", "auction"),
                reshaped=f"{_NO_ROWS} Here an aggregation keeps the bid with the latest time (max_by), in whatever "
                "order they come; dropDuplicates would keep the first that came.",
            ),
            Query(
                name="q19",
                sentence="The ten highest bids of each auction.",
                make=ranking.q19,
                output_mode="update",
                key=("auction", "rank"),
                reshaped=f"{_NO_ROWS} Here an aggregation keeps the ten highest (max_by), and tells all ten again when "
                "a bid has come.",
            ),
            Query(
                name="q20",
                sentence="Every bid on an auction of category 10, with what is sold.",
                make=joins.q20,
                real_time=_JOIN_LIVE,
            ),
            Query(
                name="q21",
                sentence="Every bid that tells the number of its channel: by the name of the channel, or in its url.",
                make=stateless.q21,
                stores=(),
            ),
            Query(name="q22", sentence="Every bid, with the three folders of its url.", make=stateless.q22, stores=()),
        )
    }
)
