"""One broker for all tests, and Hypothesis without a stop-watch: a busy machine must not fail a property that holds."""

from hypothesis import HealthCheck, settings

from tests.kafka.brokers import broker

__all__ = ["broker"]

settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # a build must not fail on Tuesdays; `make soak` draws anew, and more
    max_examples=40,
)
settings.register_profile("thorough", settings.get_profile("patient"), derandomize=False, max_examples=400)
settings.load_profile("patient")
