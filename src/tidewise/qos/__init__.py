"""Models of quality: what every configuration would do at a rate, with how sure that is."""

from tidewise.qos.belief import Belief
from tidewise.qos.candidates import AXES, RESOURCES, Candidates, Floats
from tidewise.qos.cost import Standing, cost_of_change
from tidewise.qos.gaps import GapModel
from tidewise.qos.gp import GaussianProcess
from tidewise.qos.model import JobModel, Outlook
from tidewise.qos.physics import CONTINUOUS, Physics, Usual
from tidewise.qos.recovery import RecoveryModel

__all__ = [
    "AXES",
    "CONTINUOUS",
    "RESOURCES",
    "Belief",
    "Candidates",
    "Floats",
    "GapModel",
    "GaussianProcess",
    "JobModel",
    "Outlook",
    "Physics",
    "RecoveryModel",
    "Standing",
    "Usual",
    "cost_of_change",
]
