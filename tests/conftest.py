"""Hypothesis without a stop-watch: a busy machine must not fail a property that holds."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # a build must not fail on Tuesdays; to draw anew: pytest --hypothesis-profile=default
)
settings.load_profile("patient")
