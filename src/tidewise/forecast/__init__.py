"""Forecasters of the load."""
