"""What policies that change nothing but executors, and rest between two changes, have in common."""

from __future__ import annotations

from tidewise.core import ConfigurationSpace, Keep, Situation, format_duration
from tidewise.policies.replies import keep


def needs_executors(policy: str, space: ConfigurationSpace) -> str | None:
    """A sentence where the space leaves such a policy nothing to choose; None where it does."""
    if len(space.executors) > 1:
        return None
    only = space.executors[0]
    return f'{policy} changes executors, and the space offers {only} only: give it a range like executors = "1..24"'


def cooling_down(situation: Situation, cooldown_s: float) -> Keep | None:
    """The reply to a decision that comes too soon after the last change; None where it does not."""
    changed_s = situation.last_change_finished_at_s
    left_s = 0.0 if changed_s is None else changed_s + cooldown_s - situation.now_s
    if left_s <= 0.0:
        return None
    return keep("cooling-down", f"The last change was a short time ago: {format_duration(left_s)} to rest.")
