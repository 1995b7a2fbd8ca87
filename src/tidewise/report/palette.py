"""One colour per policy, the same in every figure; told apart also by colour-blind eyes, on light and on dark."""

from __future__ import annotations

from collections.abc import Iterable

from tidewise.experiments.comparison import BASELINE_POLICY

NEUTRAL = "#8a8f98"
ALARM = "#d1495b"
# After Okabe and Ito, brought to a middle lightness so that each stands out from white as well as from near-black.
_HUES = ("#2f86d0", "#dd6a17", "#12a378", "#c065a0", "#c99a00", "#4fb3e8", "#7a6ad8", "#9a7b4f")
_DASHES = ("solid", "dash", "dot", "dashdot")


def colours(policies: Iterable[str]) -> dict[str, str]:
    """By name, so that a report of other runs of the same policies looks the same."""
    others = sorted(set(policies) - {BASELINE_POLICY})
    return {BASELINE_POLICY: NEUTRAL} | {policy: _HUES[index % len(_HUES)] for index, policy in enumerate(others)}


def dashes(policies: Iterable[str]) -> dict[str, str]:
    """Line patterns: a second mark once the colours begin to repeat."""
    others = sorted(set(policies) - {BASELINE_POLICY})
    return {BASELINE_POLICY: "solid"} | {
        policy: _DASHES[index // len(_HUES) % len(_DASHES)] for index, policy in enumerate(others)
    }
