"""Policies: each decides, from what is known of a job, whether to change it."""

from tidewise.policies.best_fixed import BestFixed
from tidewise.policies.demeter import Demeter
from tidewise.policies.ds2 import Ds2
from tidewise.policies.phoebe import Phoebe
from tidewise.policies.reactive import Reactive
from tidewise.policies.registry import PolicyDescription, describe, find_policy, make_policy, policy_names
from tidewise.policies.static import Static
from tidewise.policies.tidewise import Tidewise
from tidewise.policies.twres import Twres

__all__ = [
    "BestFixed",
    "Demeter",
    "Ds2",
    "Phoebe",
    "PolicyDescription",
    "Reactive",
    "Static",
    "Tidewise",
    "Twres",
    "describe",
    "find_policy",
    "make_policy",
    "policy_names",
]
