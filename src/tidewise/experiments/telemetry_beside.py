"""Tells the rows of a run while it is on, from a thread beside whoever keeps it: the run is never disturbed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidewise.core import TidewiseError
from tidewise.experiments.controller import Home
from tidewise.experiments.explain_run import find_recorded
from tidewise.experiments.record import JOURNAL_FILE
from tidewise.experiments.telemetry_ship import Shipper
from tidewise.experiments.telemetry_sources import RunSource
from tidewise.experiments.telemetry_target import Target

_LOG = logging.getLogger(__name__)
_POLL_S = 1.0
_LAST_S = 20.0
"""How long a place may be away when the run is over, before the rest is left for later."""
_HANGS_S = 60.0
"""How long the end of a run waits for its last rows at most."""


@contextmanager
def told_beside(home: Home, target: Target | None, *, tell: Callable[[str], None]) -> Iterator[None]:
    """Inside, what comes of the run in this home is told to the place, if there is one.

    At the end the rest is told; what could not be told is a sentence for `tell`, never an error.
    """
    if target is None:
        yield
        return
    beside = _Beside(home, target)
    beside.start()
    try:
        yield
    finally:
        beside.end(tell)


class _Beside:
    def __init__(self, home: Home, target: Target) -> None:
        self._home = home
        self._target = target
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._shipper: Shipper | None = None
        self._problem: str | None = None
        self._left = 0
        # A daemon: where a broker hangs, the end of the program does not wait for it.
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, tell: Callable[[str], None]) -> None:
        with self._lock:
            self._ending.set()
            if self._shipper is not None:
                self._shipper.finish(patience_s=_LAST_S)
        self._thread.join(timeout=_HANGS_S)
        if self._thread.is_alive():
            self._problem = f"{self._target} does not answer"
        if self._problem is not None:
            tell(
                f"not all rows of {self._home.run_folder} were told: {self._problem}; for the rest: "
                f"tidewise telemetry ship {self._home.run_folder} --to {self._target}"
            )

    def _run(self) -> None:
        try:
            while not self._is_there():
                if self._ending.wait(timeout=_POLL_S) and not self._is_there():
                    return  # nothing ever came of the run
            sink = self._target.open()
            try:
                shipper = Shipper(
                    [RunSource(find_recorded(self._home.run_folder))], sink, target=str(self._target), tell=_LOG.warning
                )
                with self._lock:
                    self._shipper = shipper
                    if self._ending.is_set():
                        shipper.finish(patience_s=_LAST_S)
                shipped = shipper.run()
            finally:
                sink.close()
            _LOG.info("%d rows were told to %s", shipped.total, self._target)
            self._problem = next(iter(shipped.problems), None)
        except TidewiseError as error:
            _LOG.warning("The rows of the run are not told any more: %s", error)
            self._problem = str(error)

    def _is_there(self) -> bool:
        folders = (self._home.partial, self._home.run_folder)
        return any((folder / JOURNAL_FILE).is_file() for folder in folders)
