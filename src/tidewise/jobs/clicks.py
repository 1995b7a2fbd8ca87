"""A program as a user writes it, after the Yahoo streaming benchmark: views per campaign in windows of ten seconds."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.program import keep_dead_letters, options_of, parsed, records_of, session_of, wait, writer_of
from tidewise.jobs.records.clicks import ADS_PER_CAMPAIGN
from tidewise.jobs.records.kinds import KINDS

KIND = KINDS["clicks"]


def views_per_campaign(records: DataFrame, *, work: int) -> DataFrame:
    """How often each campaign's ads were seen in each window of ten seconds."""
    return (
        records.where(F.col("event_type") == "view")
        .where(_worked(work))
        .withColumn("campaign_id", F.expr(f"ad_id div {ADS_PER_CAMPAIGN}"))
        .withWatermark("event_time", "10 seconds")
        .groupBy(F.window("event_time", "10 seconds"), "campaign_id")
        .agg(F.count("*").alias("views"))
        .select("window.start", "window.end", "campaign_id", "views")
    )


def _worked(rounds: int) -> Column:
    """True, after so many rounds of SHA-256 over the record, which stand for the work of a real job."""
    if rounds == 0:
        return F.lit(True)  # noqa: FBT003 - a literal of SQL
    digest = F.sha2(F.col("ordinal").cast("string"), 256)
    return F.reduce(F.sequence(F.lit(1), F.lit(rounds)), digest, lambda text, _: F.sha2(text, 256)) != ""


def main(arguments: list[str] | None = None) -> None:
    """Run until stopped, or for `--seconds`."""
    parser = options_of("Counts views per campaign in windows of ten seconds.")
    parser.add_argument("--work", type=int, default=0, help="rounds of SHA-256 over each view")
    options = parsed(parser, arguments)
    spark = session_of(options)
    results = views_per_campaign(records_of(spark, options, KIND), work=options.work)
    query = writer_of(results, options, output_mode="update", key="campaign_id").start()
    wait(options, query, keep_dead_letters(spark, options, KIND))


if __name__ == "__main__":
    main()
