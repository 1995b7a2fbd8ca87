"""Which Spark is installed here."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from tidewise.core import BadInputError


def find_spark() -> Path:
    """The Spark that SPARK_HOME names, else the one that came with PySpark."""
    named = os.environ.get("SPARK_HOME")
    if named:
        home = Path(named).absolute()
        if not (home / "bin" / "spark-class").is_file():
            raise BadInputError(f"SPARK_HOME is {home}, but there is no bin/spark-class in it: correct it or unset it")
        return home
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise BadInputError("PySpark is not installed: pip install 'tidewise[spark]'")
    return Path(found.origin).parent
