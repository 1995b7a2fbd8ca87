"""A topic that is fed all the time at a steady rate, so that a job has something to read: ordinals, each sent once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidewise.experiments.produce import Produced, Production, produce
from tidewise.jobs.schedule import Schedule

_FLUSH_S = 120.0
_HOUR_S = 3600.0
_RETRY_S = 300.0
"""Longer than a broker is ever away: a record that was given up would look as if the job had lost it."""


class Feeding:
    """The producer of clicks, run beside the test; one process, so that ordinals have no hole where it stops."""

    def __init__(self, address: str, topic: str, *, rate_per_s: float) -> None:
        self._production = Production(
            job="clicks", brokers=address, topic=topic, processes=1, retry_s=_RETRY_S, flush_s=_FLUSH_S
        )
        # More hours than any test takes.
        self._schedule = Schedule(began_unix_s=0.0, step_s=_HOUR_S, rates_per_s=(rate_per_s,) * 24, after="stop")
        self._stop = threading.Event()
        self._produced: Produced | None = None
        self._thread = threading.Thread(target=self._run, name=f"feeding-{topic}")
        self._thread.start()

    def _run(self) -> None:
        self._produced = produce(self._production, self._schedule, stop=self._stop)

    def finish(self) -> Produced:
        """Send no more; what was sent, once the broker has it."""
        self._stop.set()
        self._thread.join(timeout=3 * _FLUSH_S)
        assert self._produced is not None, "the producer failed, or does not end"
        return self._produced


@contextmanager
def feeding(address: str, topic: str, *, rate_per_s: float) -> Iterator[Feeding]:
    """Feed the topic, which is there, until the end."""
    feed = Feeding(address, topic, rate_per_s=rate_per_s)
    try:
        yield feed
    finally:
        feed.finish()
