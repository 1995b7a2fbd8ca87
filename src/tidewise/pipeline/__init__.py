"""Work that is spread over Spark: sweeps of many tasks, whatever they compute."""

from tidewise.pipeline.sweep import sweep

__all__ = ["sweep"]
