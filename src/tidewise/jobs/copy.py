"""A program that writes every record's ordinal to its sink, once: what is lost or doubled on the way can be counted.

The batch of a row is its folder (foreachBatch) or its entry in the sink's log (files), so it needs no column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.state import GroupState

from tidewise.jobs.program import keep_dead_letters, options_of, parsed, records_of, session_of, wait, worked, writer_of
from tidewise.jobs.records.kinds import KINDS

if TYPE_CHECKING:
    from pyspark.sql.pandas._typing import DataFrameLike

RECORDS_PER_SLOT = 1_000
"""How many records come until the next slot is filled: a state of N MiB is complete after N times as many."""
_SLOT_BYTES = 2**20


def ordinals(records: DataFrame, *, state_mib: int) -> DataFrame:
    """Every record's ordinal; on the way, a state of so many MiB is filled once and then only looked at."""
    if state_mib == 0:
        return records.select("ordinal")
    slot = F.expr(f"ordinal div {RECORDS_PER_SLOT} % {state_mib}").alias("slot")
    return (
        records.select("ordinal", slot)
        .groupBy("slot")
        .applyInPandasWithState(_kept, "ordinal bigint", "kept binary", "append", "NoTimeout")
    )


def _kept(key: tuple[int, ...], frames: Iterable[DataFrameLike], state: GroupState) -> Iterator[DataFrameLike]:
    """The records as they came; their slot keeps a MiB that does not compress."""
    if not state.exists:
        state.update((np.random.default_rng(int(key[0])).bytes(_SLOT_BYTES),))
    for frame in frames:
        yield frame[["ordinal"]]


def main(arguments: list[str] | None = None) -> None:
    """Run until stopped, or for `--seconds`."""
    parser = options_of("Writes the ordinal of every record to the sink.")
    parser.add_argument("--state-mb", type=int, default=0, help="MiB of state to carry along; needs rocksdb")
    parser.add_argument("--records", choices=list(KINDS), default="clicks", help="kind of the records")
    options = parsed(parser, arguments)
    if options.state_mb and options.state_provider != "rocksdb":
        parser.error("--state-mb needs --state-provider rocksdb")
    if options.state_mb and options.mode == "real-time":
        parser.error(
            "--state-mb is not for --mode real-time: Spark takes no applyInPandasWithState there; leave it out"
        )
    spark, kind = session_of(options), KINDS[options.records]
    records = records_of(spark, options, kind).where(worked(options.work))
    results = ordinals(records, state_mib=options.state_mb)
    query = writer_of(results, options, output_mode="append").start()
    wait(options, query, keep_dead_letters(spark, options, kind))


if __name__ == "__main__":
    main()
