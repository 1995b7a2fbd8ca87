"""A model of a streaming job in steps of one second.

Reports flow out of it as out of a real engine; a policy never sees its capacity or how long a downtime will last.
"""

from tidewise.engines.simulator.engine import SimulatedClock, Simulator
from tidewise.engines.simulator.job import SimulatedJob
from tidewise.engines.simulator.profile import SimulatorProfile, load_profile, shipped_profiles

__all__ = ["SimulatedClock", "SimulatedJob", "Simulator", "SimulatorProfile", "load_profile", "shipped_profiles"]
