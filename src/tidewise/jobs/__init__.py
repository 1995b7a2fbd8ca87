"""Streaming jobs that Tidewise brings along: a source that needs no broker, two programs, and a count of their output.

Python workers import this package for every query, so it imports nothing itself.
"""
