"""The Yahoo streaming benchmark as a program: views per campaign in windows of ten seconds of event time."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.program import keep_dead_letters, options_of, parsed, records_of, session_of, wait, worked, writer_of
from tidewise.jobs.records.kinds import KINDS
from tidewise.jobs.records.ysb import campaigns

KIND = KINDS["ysb"]


def views_per_campaign(events: DataFrame, ads: DataFrame, *, sliding: bool, work: int = 0) -> DataFrame:
    """How often each campaign's ads were seen in each window, and the last event that changed it.

    As in the benchmark's definition, a view of an unknown ad counts for no campaign. Each batch's progress tells, as
    `unknown_ads`, how many there were.
    """
    window = F.window("event_time", "10 seconds", "1 second") if sliding else F.window("event_time", "10 seconds")
    return (
        events.where("event_type = 'view'")
        .where(worked(work))
        .select("ad_id", "event_time")
        .withWatermark("event_time", "10 seconds")
        .join(F.broadcast(ads), "ad_id", "left")
        .observe("unknown_ads", F.count_if(F.col("campaign_id").isNull()).alias("views"))
        .where("campaign_id IS NOT NULL")
        .groupBy(window, "campaign_id")
        .agg(F.count("*").alias("views"), F.max("event_time").alias("last_update"))
        .select("window.start", "window.end", "campaign_id", "views", "last_update")
    )


def ads_of(spark: SparkSession, *, seed: int) -> DataFrame:
    """The table of ads and their campaigns, which the benchmark keeps beside the stream."""
    ads, owners = zip(*campaigns(seed), strict=True)
    # From Arrow it is part of the plan, which real-time mode takes; from a list it would be an RDD, which it refuses.
    return spark.createDataFrame(pa.table({"ad_id": ads, "campaign_id": owners}))


def main(arguments: list[str] | None = None) -> None:
    """Run until stopped, or for `--seconds`."""
    parser = options_of("Counts views per campaign in windows of ten seconds.")
    parser.add_argument("--sliding", action="store_true", help="a window begins every second, not every ten")
    options = parsed(parser, arguments)
    spark = session_of(options)
    events, ads = records_of(spark, options, KIND), ads_of(spark, seed=options.seed)
    views = views_per_campaign(events, ads, sliding=options.sliding, work=options.work)
    query = writer_of(views, options, output_mode="update", key="campaign_id").start()
    wait(options, query, keep_dead_letters(spark, options, KIND))


if __name__ == "__main__":
    main()
