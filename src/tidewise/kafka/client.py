"""The one place that imports the Kafka client, which is an optional extra and writes to standard error by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidewise.core import BadInputError, PermanentError, TemporaryError

if TYPE_CHECKING:
    from types import ModuleType

    from confluent_kafka.admin import AdminClient

ANSWER_S = 10.0
"""How long a broker may take to answer; a healthy one on this machine takes milliseconds."""
_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())  # without any, Python would write every retry to standard error


def kafka_client() -> ModuleType:
    """The package `confluent_kafka`; BadInputError, with the command that installs it, where it is missing."""
    try:
        import confluent_kafka  # noqa: PLC0415 - an optional extra: only those who talk to a broker need it
        import confluent_kafka.admin  # noqa: PLC0415 - the same
    except ImportError as error:
        raise BadInputError("the Kafka client is not installed: pip install 'tidewise[kafka]'") from error
    return confluent_kafka


def quiet_settings(address: str) -> dict[str, Any]:  # Any: it holds a logger, which the client's types do not know
    """What every client of this broker begins with: its log goes to Python's, for whoever wants to read it."""
    return {"bootstrap.servers": address, "logger": _logger}


@contextmanager
def admin_client(address: str) -> Iterator[AdminClient]:
    """A client that manages topics; what goes wrong with it inside is told in a sentence."""
    kafka = kafka_client()
    client: AdminClient = kafka.admin.AdminClient(quiet_settings(address))
    try:
        yield client
    except kafka.KafkaException as error:
        told = error.args[0]
        silent = {
            kafka.KafkaError._TRANSPORT,  # noqa: SLF001 - how the client spells its own, not the broker's, errors
            kafka.KafkaError._TIMED_OUT,  # noqa: SLF001 - the same
            kafka.KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the same
            kafka.KafkaError._RESOLVE,  # noqa: SLF001 - the same
            kafka.KafkaError.REQUEST_TIMED_OUT,
        }
        if told.code() in silent:
            raise TemporaryError(
                f"no Kafka broker answers at {address}: start one (tidewise kafka up) or correct the address"
            ) from error
        kind = TemporaryError if told.retriable() else PermanentError
        raise kind(f"the Kafka broker at {address} refuses: {told.str()}") from error
