"""One small Spark for the tests of this folder: what runs in the pipeline takes the Spark that is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tidewise.pipeline.context import spark_session


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]") as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session
