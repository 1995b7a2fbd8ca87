"""A real broker for tests: all that ask for it share one, as it takes seconds of CPU to come up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewise.host.processes import ProcessIdentity, find
from tidewise.kafka.broker import LocalBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker that runs; a test that stops it has to start it again. Topics are everybody's: name yours."""
    folder = tmp_path_factory.mktemp("kafka") / "broker"
    running = LocalBroker.up(folder)
    try:
        yield running
    finally:
        running.down()
    assert processes_of(folder) == []
    assert LocalBroker.find(folder) is None
    running.down()  # again, and nothing happens


def processes_of(folder: Path) -> list[ProcessIdentity]:
    return [one.identity for one in find(lambda argv: any(str(folder) in word for word in argv))]
