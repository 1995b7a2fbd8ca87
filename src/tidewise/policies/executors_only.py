"""What policies that change nothing but executors ask of a space."""

from __future__ import annotations

from tidewise.core import ConfigurationSpace


def needs_executors(policy: str, space: ConfigurationSpace) -> str | None:
    """A sentence where the space leaves such a policy nothing to choose; None where it does."""
    if len(space.executors) > 1:
        return None
    only = space.executors[0]
    return f'{policy} changes executors, and the space offers {only} only: give it a range like executors = "1..24"'
