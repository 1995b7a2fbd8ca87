"""Loads: generated shapes and recorded traces."""
