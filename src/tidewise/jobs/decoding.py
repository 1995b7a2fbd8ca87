"""Kafka's bytes as records; what is no record is kept apart, with the reason, and stops nothing."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.avro.functions import from_avro

from tidewise.jobs.records.encoding import Encoding
from tidewise.jobs.records.kinds import TYPE_COLUMN, RecordKind

TOO_LARGE_BYTES = 65_536
"""A value of this size, or more, is not even looked at."""
MOST_AHEAD_S = 86_400
"""One record from the far future would move the watermark past everybody else's."""

_MOST_MS = 253_402_300_799_999
"""The end of the year 9999: of a much larger number there is no timestamp, and Python has none after that year."""

_CORRUPT = "_corrupt"


def decoded(
    raw: DataFrame,
    kind: RecordKind,
    encoding: Encoding,
    *,
    too_large_bytes: int = TOO_LARGE_BYTES,
    observed_as: str = "dead_letters",
) -> DataFrame:
    """The good records of Kafka's frame; each batch's progress tells, under that name, how many were left out.

    Spark wants another name where a query reads a second time.
    """
    # Spark cannot move the filter below what is observed, where the decoding would be done once more for it.
    judged = _judged(raw, kind, encoding, too_large_bytes).observe(observed_as, F.count("reason").alias("records"))
    return judged.where("reason IS NULL").select("record.*")


def dead_letters(
    raw: DataFrame, kind: RecordKind, encoding: Encoding, *, too_large_bytes: int = TOO_LARGE_BYTES
) -> DataFrame:
    """What `decoded` leaves out: where it lay, the reason, and the value; of one that is too large the beginning."""
    bad = _judged(raw, kind, encoding, too_large_bytes).where("reason IS NOT NULL")
    beginning = F.substring("value", 1, too_large_bytes).alias("value")
    return bad.select("topic", "partition", "offset", "timestamp", "reason", beginning)


def _judged(raw: DataFrame, kind: RecordKind, encoding: Encoding, too_large_bytes: int) -> DataFrame:
    """Kafka's columns, the record, and the reason why it is none (null: it is one)."""
    small = F.when(F.length("value") < too_large_bytes, F.col("value"))
    fields = _from_json(small, kind) if encoding == "json" else _from_avro(small, kind)
    record = F.struct(*(_field(name, spark_type, encoding) for name, spark_type in kind.columns))
    return (
        raw.withColumn("fields", fields)
        .withColumn("reason", _reason(kind, encoding, too_large_bytes))
        .withColumn("record", record)
        .drop("fields")
    )


def _from_json(value: Column, kind: RecordKind) -> Column:
    # As a timestamp, Spark would take text of many forms, and numbers for seconds.
    columns = ((name, "bigint" if spark_type == "timestamp" else spark_type) for name, spark_type in kind.columns)
    schema = ", ".join(f"{name} {spark_type}" for name, spark_type in columns)
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        # Neither is JSON, though Spark would take it.
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    return F.from_json(value.cast("string"), f"{schema}, {_CORRUPT} string", options)


def _from_avro(value: Column, kind: RecordKind) -> Column:
    return from_avro(value, kind.avro_schema, {"mode": "PERMISSIVE"})


def _field(name: str, spark_type: str, encoding: Encoding) -> Column:
    field = F.col(f"fields.{name}")
    if spark_type != "timestamp" or encoding == "avro":
        return field
    # Of a number that is too large there is no timestamp: Spark would fail, and at the same record for ever.
    return F.when(F.col("reason").isNull(), F.timestamp_millis(field)).alias(name)


def _reason(kind: RecordKind, encoding: Encoding, too_large_bytes: int) -> Column:
    """The first thing that is wrong, from the coarsest down."""
    names = [name for name, _ in kind.columns]
    nothing = F.coalesce(*(F.col(f"fields.{name}").cast("string") for name in names)).isNull()
    size = F.length("value")
    tests = [
        (F.col("value").isNull(), F.lit("empty: it has no value")),
        (size >= too_large_bytes, F.format_string(f"oversized: %d bytes, {too_large_bytes} or more", size)),
        (nothing, F.lit(f"malformed: not {'a JSON object' if encoding == 'json' else 'Avro'} of a {kind.name} record")),
    ]
    if kind.parts:
        known = ", ".join(kind.parts)
        tests.append((~_is_one_of(kind.parts), F.lit(f"malformed: {TYPE_COLUMN} is none of {known}")))
    for name, spark_type in kind.columns:
        wanted = "a time in milliseconds since 1970" if spark_type == "timestamp" else spark_type
        missing, types = F.col(f"fields.{name}").isNull(), kind.types_with(name)
        if types:
            missing &= _is_one_of(types)
        tests.append((missing, F.lit(f"malformed: {name} is missing or is not {wanted}")))
    if encoding == "json":
        # Columns that its type does not have are not looked at above, but Spark tells that one of them is not readable.
        other = f", or a column of another {TYPE_COLUMN} is not of its type" if kind.parts else ""
        tests.append((F.col(f"fields.{_CORRUPT}").isNotNull(), F.lit(f"malformed: not wholly JSON{other}")))
    for name, spark_type in kind.columns:
        if spark_type == "timestamp":
            tests.append(_out_of_range(name, encoding))
    return F.coalesce(*(F.when(wrong, reason) for wrong, reason in tests))


def _is_one_of(types: Iterable[str]) -> Column:
    return F.col(f"fields.{TYPE_COLUMN}").isin(*types)


def _out_of_range(name: str, encoding: Encoding) -> tuple[Column, Column]:
    """Whether a moment cannot be, and the reason; when the event was is compared with Kafka's time of the record."""
    time = F.col(f"fields.{name}")
    time_ms = time if encoding == "json" else F.unix_millis(time)
    latest, words = F.lit(_MOST_MS), "after 9999"
    if name == "event_time":
        latest, words = F.unix_millis(F.col("timestamp")) + MOST_AHEAD_S * 1000, "more than a day ahead"
    return ~time_ms.between(0, latest), F.lit(f"malformed: {name} is before 1970 or {words}")
