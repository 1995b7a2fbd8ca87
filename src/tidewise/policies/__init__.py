"""Policies: each decides, from what is known of a job, whether to change it."""

from tidewise.policies.best_fixed import BestFixed
from tidewise.policies.ds2 import Ds2
from tidewise.policies.reactive import Reactive
from tidewise.policies.registry import PolicyDescription, describe, find_policy, make_policy, policy_names
from tidewise.policies.static import Static

__all__ = [
    "BestFixed",
    "Ds2",
    "PolicyDescription",
    "Reactive",
    "Static",
    "describe",
    "find_policy",
    "make_policy",
    "policy_names",
]
