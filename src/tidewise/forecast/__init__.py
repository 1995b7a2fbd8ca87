"""Forecasters: each says what load is to come, and how sure it is."""

from tidewise.forecast.naive import Naive

__all__ = ["Naive"]
