"""What a person does to a program from outside: Ctrl-C, `kill`, a terminal that is closed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def asked_to_stop(heard: Callable[[], None]) -> Iterator[None]:
    """Inside, `heard` is called for each of these signals, in the main thread; afterwards they mean what they did."""
    before = {number: signal.signal(number, lambda _number, _frame: heard()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
