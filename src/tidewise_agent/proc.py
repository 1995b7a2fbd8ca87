"""What Linux tells of a process; elsewhere nothing is told."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessStat:
    """What /proc/PID/stat says, as far as it matters here."""

    state: str
    parent: int
    started_ticks: int
    """When it was started, so that a number that was given again is noticed."""
    cpu_s: float
    """CPU time of all its threads so far."""
    ended_children_cpu_s: float
    """That of its children which have ended, and of theirs."""

    @property
    def is_dead(self) -> bool:
        """A zombie runs no more, only its parent has not asked after it yet."""
        return self.state in "ZX"


def stat_of(pid: int) -> ProcessStat | None:
    """The process that has this number now; None where there is none, or nothing is told."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold anything, brackets and spaces included: read behind the last one.
    fields = text[text.rindex(")") + 1 :].split()
    return ProcessStat(
        state=fields[0],
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        ended_children_cpu_s=(int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK"),
    )
