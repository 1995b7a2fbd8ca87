"""What a controller must know of its job after a crash of its own: written before it is relied upon."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tidewise.core import BadInputError, ChangeOutcome, ChangeStatus, Configuration

_FILE = "job.json"


def configuration_to_dict(configuration: Configuration) -> dict[str, Any]:
    """A configuration as plain data."""
    return asdict(configuration)


def configuration_from_dict(content: dict[str, Any]) -> Configuration:
    """What `configuration_to_dict` wrote, also after JSON has made lists of its pairs."""
    settings = tuple((str(name), str(value)) for name, value in content["settings"])
    return Configuration(**{**content, "settings": settings})


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """The job as its file holds it."""

    folder: Path
    began_unix_s: float
    token: str
    port: int = 0
    proxy_port: int = 0
    configuration: dict[str, Any] = field(default_factory=dict)
    """What was last meant to run, for a driver that has to be started anew."""
    applications: tuple[dict[str, Any], ...] = ()
    """Those that may be alive."""
    configurations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each application."""
    active: str | None = None
    dead: tuple[str, ...] = ()
    """Applications that were confirmed to be dead: their leases may be taken."""
    launched: int = 0
    change: str | None = None
    """The request that is being carried out."""
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def new(cls, folder: Path) -> Self:
        """A fresh job; BadInputError where the folder has one already."""
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _FILE).exists():
            raise BadInputError(f"{folder} belongs to a job already; choose another folder, or take that job back")
        book = cls(folder=folder, began_unix_s=time.time(), token=secrets.token_hex(24))
        book.write()
        return book

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The job of this folder; BadInputError where it has none."""
        try:
            content = json.loads((folder / _FILE).read_text(encoding="utf-8"))
            content["applications"] = tuple(content["applications"])
            content["dead"] = tuple(content["dead"])
            return cls(folder=folder, **content)
        except FileNotFoundError:
            raise BadInputError(f"there is no job in {folder}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{folder / _FILE} cannot be read: {error!r}") from error

    @classmethod
    def exists(cls, folder: Path) -> bool:
        return (folder / _FILE).exists()

    def write(self) -> None:
        """Replace the file as a whole; only the owner may read it, because the token is in it."""
        content = {name: value for name, value in asdict(self).items() if name != "folder"}
        temporary = self.folder / f"{_FILE}.new"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / _FILE)

    def having(self, **changes: Any) -> Self:  # noqa: ANN401 -- the fields of this class
        """The same with these fields, written."""
        book = replace(self, **changes)
        book.write()
        return book

    def outcome(self, request_id: str) -> ChangeOutcome | None:
        content = self.outcomes.get(request_id)
        if content is None:
            return None
        return ChangeOutcome(
            request_id=request_id,
            status=ChangeStatus(content["status"]),
            finished_at_s=content["finished_at_s"],
            configuration=configuration_from_dict(content["configuration"]),
            gap_s=content["gap_s"],
            detail=content["detail"],
        )

    def with_outcome(self, outcome: ChangeOutcome) -> Self:
        content = {
            "status": outcome.status.value,
            "finished_at_s": outcome.finished_at_s,
            "configuration": configuration_to_dict(outcome.configuration),
            "gap_s": outcome.gap_s,
            "detail": outcome.detail,
        }
        return self.having(change=None, outcomes={**self.outcomes, outcome.request_id: content})
