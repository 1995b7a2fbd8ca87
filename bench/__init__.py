"""Benchmarks: what the documents claim, measured by one command."""
