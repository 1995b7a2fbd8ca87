"""Work that is spread over Spark: sweeps of many tasks, whatever they compute."""

from tidewise.pipeline.context import spark_context
from tidewise.pipeline.sweep import sweep

__all__ = ["spark_context", "sweep"]
