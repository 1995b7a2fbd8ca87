"""Where the records of a job on Spark come from: the source without a broker, or a real one with a producer."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tidewise.core import PermanentError, TidewiseError
from tidewise.experiments.produce import Produced, Production, produce
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import connector_conf
from tidewise.workload import Rates

_READ_TASKS = 4
_SENDERS = 1
_FLUSH_S = 20.0
_STOPS_WITHIN_S = 60.0
"""More than the last answers, and then the topic's, take."""
_LONGEST_QUIET_S = 3600


class Feed(Protocol):
    """Records for one run of the job: few until the day begins, then as the day says."""

    def options(self) -> dict[str, object]:
        """By which the program finds its records."""

    def conf(self) -> dict[str, str]:
        """Spark settings that the source needs."""

    def start(self, rate_per_s: float, *, in_s: float) -> None:
        """Bring so many records per second, beginning `in_s` from now."""

    def begin_day(self, rates: Rates, *, in_s: float, eve: Sequence[float] = ()) -> float:
        """Bring the day's records, beginning about `in_s` from now; the seconds it really is.

        eve: the rates of the seconds right before the day, as far as these are still to come.

        PermanentError where there were none so far: a day without records shows nothing.
        """

    def end(self) -> None:
        """Bring no more; whatever was started is gone then. Whatever went wrong, what was measured stays."""

    def problem(self) -> str | None:
        """Why what is measured is worth nothing, as far as that is known: the load was another; None: all is well."""

    def told(self) -> list[str]:
        """After the end: what became of the records, in sentences."""


@dataclass(slots=True)
class EmbeddedFeed:
    """The job's source makes the records itself, by a schedule in a file."""

    folder: Path
    _quiet: Schedule = field(init=False)

    def options(self) -> dict[str, object]:
        return {"--schedule": self._file, "--partitions": _READ_TASKS}

    def conf(self) -> dict[str, str]:
        return {}

    def start(self, rate_per_s: float, *, in_s: float) -> None:
        self._quiet = Schedule(began_unix_s=time.time() + in_s, rates_per_s=(rate_per_s,))
        write_schedule(self._file, self._quiet)

    def begin_day(self, rates: Rates, *, in_s: float, eve: Sequence[float] = ()) -> float:
        # Written behind what has passed, in whole steps: the past of a schedule stays as it is.
        passed_s = time.time() - self._quiet.began_unix_s
        before = max(1, math.ceil(passed_s + in_s))
        to_come = _last(eve, min(int(in_s), before - 1))
        quiet = self._quiet.rates_per_s * (before - len(to_come))
        write_schedule(self._file, replace(self._quiet, rates_per_s=quiet + to_come + _plain(rates)))
        return before - passed_s

    def end(self) -> None:
        pass

    def problem(self) -> str | None:
        return None

    def told(self) -> list[str]:
        return []  # nothing was sent: what was read is proved by the checkpoint

    @property
    def _file(self) -> Path:
        return self.folder / "schedule.json"


@dataclass(slots=True)
class KafkaFeed:
    """A producer sends the records to a topic of a broker on this machine, which the job reads."""

    folder: Path
    broker: LocalBroker
    job: str
    """The program that reads them, which decides what they hold."""
    topic: str
    _sending: list[tuple[threading.Thread, threading.Event]] = field(default_factory=list)
    _produced: list[Produced] = field(default_factory=list)
    _failed: list[TidewiseError | OSError] = field(default_factory=list)
    _is_over: bool = False

    def options(self) -> dict[str, object]:
        return {"--source": "kafka", "--brokers": self.broker.address, "--topic": self.topic}

    def conf(self) -> dict[str, str]:
        return connector_conf()

    def start(self, rate_per_s: float, *, in_s: float) -> None:
        self._send("quiet", (rate_per_s,) * _LONGEST_QUIET_S, began_unix_s=time.time() + in_s)

    def begin_day(self, rates: Rates, *, in_s: float, eve: Sequence[float] = ()) -> float:
        if self._failed:
            raise PermanentError(f"no records were sent to {self.topic}: {self._failed[0]}") from self._failed[0]
        to_come = _last(eve, int(in_s))
        day_unix_s = time.time() + in_s
        _, quiet = self._sending[-1]
        self._send("day", to_come + _plain(rates), began_unix_s=day_unix_s - len(to_come))
        timer = threading.Timer(in_s - len(to_come), quiet.set)
        timer.daemon = True
        timer.start()
        return day_unix_s - time.time()

    def end(self) -> None:
        for _, stop in self._sending:
            stop.set()
        for thread, _ in self._sending:
            thread.join(_STOPS_WITHIN_S)
        self._is_over = True

    def problem(self) -> str | None:
        failed = sum(one.report.failed for one in self._produced)
        found = [f"{failed:,} records were NOT acknowledged by {self.topic}."] if failed else []
        return next(iter(found + self._wrong()), None)

    def told(self) -> list[str]:
        reports = [one.report for one in self._produced]
        sent, failed = sum(one.sent for one in reports), sum(one.failed for one in reports)
        said = f"Sent {sent:,} records to {self.topic}, {f'{failed:,} NOT' if failed else 'all'} acknowledged."
        return [said, *self._wrong()]

    def _wrong(self) -> list[str]:
        wrong = []
        lost = sum(one.lost or 0 for one in self._produced)
        if lost:
            wrong.append(f"LOST: {lost:,} records were acknowledged, but {self.topic} did not grow by them.")
        wrong += [f"NOT all records were sent to {self.topic}: {error}." for error in self._failed]
        running = self._is_over and any(thread.is_alive() for thread, _ in self._sending)
        if running or any(one.silent for one in self._produced):
            wrong.append(f"NOT counted: what was sent to {self.topic} by a producer that gave no report.")
        return wrong

    def _send(self, name: str, rates_per_s: tuple[float, ...], *, began_unix_s: float) -> None:
        production = Production(
            job=self.job,
            brokers=self.broker.address,
            topic=self.topic,
            partitions=_READ_TASKS,
            processes=_SENDERS,
            flush_s=_FLUSH_S,
        )
        schedule = Schedule(began_unix_s=began_unix_s, rates_per_s=rates_per_s, after="stop")
        stop = threading.Event()

        def run() -> None:
            try:
                self._produced.append(
                    produce(production, schedule, folder=self.folder / name, began_unix_s=began_unix_s, stop=stop)
                )
            except (TidewiseError, OSError) as error:
                self._failed.append(error)

        thread = threading.Thread(target=run, name=f"feed-{name}", daemon=True)
        self._sending.append((thread, stop))
        thread.start()


def _plain(rates: Rates) -> tuple[float, ...]:
    return tuple(float(rate) for rate in rates)


def _last(rates: Sequence[float], most: int) -> tuple[float, ...]:
    return tuple(rates[max(0, len(rates) - most) :])
