"""What a controller must know of its job after a crash of its own: written before it is relied upon."""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from tidewise.core import BadInputError, ChangeOutcome, Configuration, ProfileOutcome, ProfileRequest
from tidewise.host.private_files import write_private

_LOG = logging.getLogger(__name__)

_FILE = "job.json"
_OUTCOME = TypeAdapter(ChangeOutcome)
_CONFIGURATION = TypeAdapter(Configuration)
_PROFILE = TypeAdapter(ProfileRequest)
_PROFILE_OUTCOME = TypeAdapter(ProfileOutcome)


def configuration_to_dict(configuration: Configuration) -> dict[str, Any]:
    """A configuration as plain data."""
    content: dict[str, Any] = _CONFIGURATION.dump_python(configuration, mode="json")
    return content


def configuration_from_dict(content: dict[str, Any]) -> Configuration:
    """What `configuration_to_dict` wrote."""
    return _CONFIGURATION.validate_python(content)


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
    profile: dict[str, Any] | None = None
    """The profile that is on."""
    profile_outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)

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
        write_private(self.folder / _FILE, json.dumps(content))

    def having(self, **changes: Any) -> Self:  # noqa: ANN401 -- the fields of this class
        """The same with these fields, written."""
        book = replace(self, **changes)
        book.write()
        return book

    def outcome(self, request_id: str) -> ChangeOutcome | None:
        content = self.outcomes.get(request_id)
        return None if content is None else _OUTCOME.validate_python(content)

    def with_outcome(self, outcome: ChangeOutcome) -> Self:
        content = _OUTCOME.dump_python(outcome, mode="json")
        return self.having(change=None, outcomes={**self.outcomes, outcome.request_id: content})

    @property
    def profile_on(self) -> ProfileRequest | None:
        """None also where another version has written down what this one cannot read."""
        try:
            return None if self.profile is None else _PROFILE.validate_python(self.profile)
        except ValidationError as error:
            _LOG.warning("The profile that was on cannot be read, so it is forgotten: %s", error)
            return None

    def with_profile(self, request: ProfileRequest) -> Self:
        return self.having(profile=_PROFILE.dump_python(request, mode="json"))

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        content = self.profile_outcomes.get(request_id)
        return None if content is None else _PROFILE_OUTCOME.validate_python(content)

    def with_profile_outcome(self, outcome: ProfileOutcome) -> Self:
        content = _PROFILE_OUTCOME.dump_python(outcome, mode="json")
        return self.having(profile=None, profile_outcomes={**self.profile_outcomes, outcome.request_id: content})
