"""Where rows are told to: a folder of line files, or a topic of a Kafka broker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidewise.core import BadInputError
from tidewise.core.telemetry import METRICS_TOPIC
from tidewise.experiments.telemetry_folder import LineFolder
from tidewise.kafka.publishing import TopicLines

if TYPE_CHECKING:
    from tidewise.pipeline.telemetry_stream import Source

KAFKA = "kafka://"
HOW_TO_WRITE = f"write a folder, or {KAFKA}HOST:PORT/TOPIC"
_HOST_PORT = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Sink(Protocol):
    """Takes lines for good."""

    @property
    def gather_s(self) -> float:
        """How long lines are worth gathering before they are sent."""

    @property
    def most_lines(self) -> int:
        """How many are sent at once at most."""

    def send(self, lines: Sequence[tuple[str, str]]) -> None:
        """Send lines, each with its job; comes back when they are durable.

        TemporaryError: the same call may succeed later. PermanentError: it never will.
        """

    def close(self) -> None:
        """Let go of what is held; all that was sent is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place that rows can be told to, by its name."""

    folder: Path | None = None
    brokers: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, text: str, *, beside: Path | None = None) -> Target:
        """BadInputError for what is no place. A folder is beside this one where its path is relative."""
        if not text.strip():
            raise BadInputError(f"rows have to be told somewhere: {HOW_TO_WRITE}")
        if not text.startswith(KAFKA):
            if "://" in text:
                raise BadInputError(f"{text!r} is no place that rows can be told to: {HOW_TO_WRITE}")
            return cls(folder=((beside or Path()) / text).absolute())
        brokers, _, topic = text.removeprefix(KAFKA).partition("/")
        topic = topic.rstrip("/") or METRICS_TOPIC
        for one in brokers.split(","):
            found = _HOST_PORT.fullmatch(one)
            if found is None or not 1 <= int(found["port"]) <= 65_535:
                raise BadInputError(f"{text!r} names no broker: {HOW_TO_WRITE}")
        if _TOPIC.fullmatch(topic) is None or topic in {".", ".."}:
            raise BadInputError(f"{topic!r} cannot be the name of a topic: {HOW_TO_WRITE}")
        return cls(brokers=brokers, topic=topic)

    def open(self) -> Sink:
        """Ready to send; a broker that is away is found out when something is sent."""
        return TopicLines(self.brokers, self.topic) if self.folder is None else LineFolder(self.folder)

    def source(self) -> Source:
        """What a stream reads there."""
        # An optional extra: only those who stream need PySpark.
        from tidewise.pipeline.telemetry_stream import FolderSource, KafkaSource  # noqa: PLC0415

        if self.folder is not None:
            return FolderSource(folder=self.folder)
        return KafkaSource(brokers=self.brokers, topic=self.topic)

    def __str__(self) -> str:
        return f"{KAFKA}{self.brokers}/{self.topic}" if self.folder is None else str(self.folder)
