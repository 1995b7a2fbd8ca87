"""Tidewise keeps Spark Structured Streaming jobs at their promised latency and recovery time for the least money."""

__version__ = "0.1.0"
