"""One broker for all tests, and Hypothesis without a stop-watch: a busy machine must not fail a property that holds."""

import pytest
from hypothesis import HealthCheck, settings

from tests.kafka.brokers import broker

__all__ = ["broker", "pytest_collection_modifyitems"]

settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # a build must not fail on Tuesdays; `make soak` draws anew, and more
    max_examples=40,
)
settings.register_profile("thorough", settings.get_profile("patient"), derandomize=False, max_examples=400)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole commands come first: each takes long, and begun last, the last of them would be waited for by all."""
    items.sort(key=lambda item: item.path.name != "test_documents.py")
