"""A program as a user writes it, after the Yahoo streaming benchmark: views per campaign in windows of ten seconds."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.program import keep_dead_letters, options_of, parsed, records_of, session_of, wait, worked, writer_of
from tidewise.jobs.records.clicks import ADS_PER_CAMPAIGN
from tidewise.jobs.records.kinds import KINDS

KIND = KINDS["clicks"]


def views_per_campaign(records: DataFrame, *, work: int) -> DataFrame:
    """How often each campaign's ads were seen in each window of ten seconds."""
    return (
        records.where(F.col("event_type") == "view")
        .where(worked(work))
        .withColumn("campaign_id", F.expr(f"ad_id div {ADS_PER_CAMPAIGN}"))
        .withWatermark("event_time", "10 seconds")
        .groupBy(F.window("event_time", "10 seconds"), "campaign_id")
        .agg(F.count("*").alias("views"))
        .select("window.start", "window.end", "campaign_id", "views")
    )


def main(arguments: list[str] | None = None) -> None:
    """Run until stopped, or for `--seconds`."""
    parser = options_of("Counts views per campaign in windows of ten seconds.")
    options = parsed(parser, arguments)
    spark = session_of(options)
    results = views_per_campaign(records_of(spark, options, KIND), work=options.work)
    query = writer_of(results, options, output_mode="update", key="campaign_id").start()
    wait(options, query, keep_dead_letters(spark, options, KIND))


if __name__ == "__main__":
    main()
