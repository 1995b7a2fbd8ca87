"""Loads: generated shapes and recorded traces."""

from tidewise.workload.bursts import Bursts
from tidewise.workload.combined import Noisy, Scaled, Sum
from tidewise.workload.curve import Curve
from tidewise.workload.load import Load, Rates
from tidewise.workload.random_loads import random_load
from tidewise.workload.registry import LOADS, LoadDescription, build_load, describe_loads
from tidewise.workload.seasons import Daily, Weekly
from tidewise.workload.shapes import Constant, Growth, RegimeChange, Sine, Square, Steps
from tidewise.workload.trace import Trace
from tidewise.workload.trace_file import read_trace

__all__ = [
    "LOADS",
    "Bursts",
    "Constant",
    "Curve",
    "Daily",
    "Growth",
    "Load",
    "LoadDescription",
    "Noisy",
    "Rates",
    "RegimeChange",
    "Scaled",
    "Sine",
    "Square",
    "Steps",
    "Sum",
    "Trace",
    "Weekly",
    "build_load",
    "describe_loads",
    "random_load",
    "read_trace",
]
