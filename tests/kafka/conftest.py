"""The broker that the tests of this folder share."""

from tests.kafka.brokers import broker

__all__ = ["broker"]
