"""What a policy may decide, and why; a decision without a reason cannot be built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidewise.core.checks import require, require_finite, require_text
from tidewise.core.configuration import Configuration, Mechanism

Evidence = Mapping[str, float | int | str | bool | None]
"""The numbers a reason rests on, by name."""

_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something was decided: a code for programs, a sentence for people, the numbers for both."""

    code: str
    """Lower case, words joined by hyphens."""
    sentence: str
    evidence: Evidence = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(
            _CODE.fullmatch(self.code) is not None,
            f"a reason's code is lower-case words joined by '-', not {self.code!r}",
        )
        require_text("the sentence of a reason", self.sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Leave the job as it is."""

    reason: Reason
    kind: Literal["keep"] = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigure:
    """Move the job to another configuration."""

    target: Configuration
    reason: Reason
    mechanism: Mechanism | None = None
    """How; None leaves it to the engine's order of preference."""
    kind: Literal["reconfigure"] = "reconfigure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Run copies of the job beside it on the same input, to learn what other configurations would do."""

    candidates: tuple[Configuration, ...]
    reason: Reason
    settle_s: float = 60.0
    """Left out of the measurement after a copy has come up."""
    measure_s: float = 60.0
    inject_failure: bool = False
    """Whether to break each copy just before its next commit and to measure its recovery."""
    recovery_limit_s: float = 360.0
    """When a copy that has not recovered is given up; its recovery is censored then."""
    kind: Literal["profile"] = "profile"

    def __post_init__(self) -> None:
        require(len(self.candidates) > 0, "a profile needs at least one candidate")
        require_finite("settle_s", self.settle_s, least=0.0)
        require_finite("measure_s", self.measure_s, above=0.0)
        require_finite("recovery_limit_s", self.recovery_limit_s, above=0.0)


Decision = Keep | Reconfigure | Profile
