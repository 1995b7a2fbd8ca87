"""Every query of the price search machine by its name: what it answers, and what it asks of Spark."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping

from tidewise.jobs.psm.medians import SLIDE, WINDOW, products_medians
from tidewise.jobs.psm.windows import impressions_per_click, owners_medians, searches_per_click, top_categories
from tidewise.jobs.query import Query

_NO_JOIN = (
    "The definition joins clicks with the other events, both counted by window and product. Here one pass counts both "
    "in the same group, which is complete for both when the watermark has passed its window; what has no click is left "
    "out then."
)


def medians_over(*, window: int, slide: int) -> Query:
    """The query q2, over windows of so many clicks."""
    return Query(
        name="q2",
        sentence=f"The median price of a product's last {window:,} clicks, each time that {slide:,} more have come.",
        make=functools.partial(products_medians, window=window, slide=slide),
        stores=("rocksdb",),
        real_time="Spark 4.3 fails to run transformWithState of a Python program there ('Failed to read the operator "
        "metadata')",
        reshaped="Spark has no windows of so many events. transformWithState keeps each click until the watermark has "
        "passed it, and then counts the clicks of a product in the order of their times and ordinals: in whatever "
        "order they come, the windows are the same.",
    )


QUERIES: Mapping[str, Query] = types.MappingProxyType(
    {
        query.name: query
        for query in (
            Query(
                name="q1",
                sentence="Of each owner in each ten minutes the category that was clicked most; of several the lowest.",
                make=top_categories,
                real_time="Spark 4.3 lets no aggregation follow another in update mode, which is the only one there "
                "('possible 'correctness' issue due to global watermark')",
            ),
            medians_over(window=WINDOW, slide=SLIDE),
            Query(
                name="q3",
                sentence="The median price of each owner's clicks in each minute.",
                make=owners_medians,
            ),
            Query(
                name="q4",
                sentence="How often a product was shown for each click on it, in five minutes, anew every minute.",
                make=impressions_per_click,
                reshaped=_NO_JOIN,
            ),
            Query(
                name="q5",
                sentence="How often a product was searched for each click on it, in each minute.",
                make=searches_per_click,
                reshaped=_NO_JOIN,
            ),
        )
    }
)
