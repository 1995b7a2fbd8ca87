"""What the controller tells an agent at its start: a file, named by an environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SPEC_VARIABLE = "TIDEWISE_AGENT"
"""Names the file; where it is not set, the agent does nothing."""
OWNER_VARIABLE = "TIDEWISE_AGENT_PID"
"""Set by the process that the agent works in, so that what this one starts (Python workers above all) is left alone."""


@dataclass(frozen=True)
class AgentSpec:
    """Where the controller is, and what this application is to be."""

    application: str
    """The application's name in the lease and in the controller's book; no two share one."""
    host: str
    port: int
    token: str
    state_folder: str
    """Where lease and ledger go for a checkpoint that is not on a local disk."""
    identity_file: str
    """Where the agent leaves the ids of its processes, before any query starts."""
    run: str = ""
    """The run that this application belongs to."""
    lease: bool = True
    """Whether queries need the lease of their checkpoint; not where a session is only watched."""
    standby: bool = False
    """Whether to warm up on scratch checkpoints and wait, instead of starting the program's queries."""
    commit_interval_s: float | None = None
    """The trigger interval of every query that has a processing-time trigger; None leaves the program's own."""
    conf: dict[str, str] = field(default_factory=dict)
    """Spark settings that win over the program's."""
    executors: int | None = None
    """How many executors to ask for; None leaves it to Spark."""
    gone: tuple[str, ...] = ()
    """Applications that are known to be dead, driver and executors: their leases may be taken."""
    replayable_sources: tuple[str, ...] = ()
    """Further source formats on which a copy may be warmed up, by the word of the job file."""
    copy: str | None = None
    """The name of the scratch checkpoint that a copy works on, only to be measured: the program's own queries are never
    started here. One that is there already is gone on from. None: this application is no copy."""
    ends_unix_s: float | None = None
    """When to leave by itself, should nobody end it: no copy outlives a controller that does not come back."""
    cache_folder: str | None = None
    """Where the plugin that warms executors up is kept once it is built; None: executors join cold."""

    @classmethod
    def read(cls, path: Path) -> AgentSpec:
        """The settings in this file; OSError, ValueError or TypeError where there are none."""
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not isinstance(content.get("conf", {}), dict):
            raise TypeError("not a table of settings")
        for name in ("gone", "replayable_sources"):
            content[name] = tuple(content.get(name, ()))
        return cls(**content)

    def write(self, path: Path) -> None:
        """Only the owner may read the file: it holds the token."""
        temporary = path.with_name(path.name + ".new")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(self.__dict__, file)
        temporary.replace(path)
