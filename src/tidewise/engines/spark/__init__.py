"""The engine for real Spark: an unmodified program on a real cluster, observed and moved."""
