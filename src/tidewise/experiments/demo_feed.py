"""Where the records of the demo come from: the source without a broker, or a real one with a producer."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tidewise.core import TidewiseError
from tidewise.experiments.produce import Production, produce
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import resolve, spark_connector
from tidewise.workload import Rates

JOB = "clicks"
_READ_TASKS = 4
_SENDERS = 1
_STOPS_WITHIN_S = 60.0
_LONGEST_QUIET_S = 3600


class Feed(Protocol):
    """Records for one run of the job: few until the day begins, then as the day says."""

    def options(self) -> dict[str, object]:
        """By which the program finds its records."""

    def conf(self) -> dict[str, str]:
        """Spark settings that the source needs."""

    def start(self, rate_per_s: float, *, in_s: float) -> None:
        """Bring so many records per second, beginning `in_s` from now."""

    def begin_day(self, rates: Rates, *, in_s: float) -> float:
        """Bring the day's records, beginning about `in_s` from now; the seconds it really is."""

    def end(self) -> None:
        """Bring no more; whatever was started is gone then."""


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

    def begin_day(self, rates: Rates, *, in_s: float) -> float:
        # Written behind what has passed, in whole steps: the past of a schedule stays as it is.
        passed_s = time.time() - self._quiet.began_unix_s
        before = max(1, math.ceil(passed_s + in_s))
        day = tuple(float(rate) for rate in rates)
        write_schedule(self._file, replace(self._quiet, rates_per_s=self._quiet.rates_per_s * before + day))
        return before - passed_s

    def end(self) -> None:
        pass

    @property
    def _file(self) -> Path:
        return self.folder / "schedule.json"


@dataclass(slots=True)
class KafkaFeed:
    """A producer sends the records to a topic of a broker on this machine, which the job reads."""

    folder: Path
    broker: LocalBroker
    topic: str
    _sending: list[tuple[threading.Thread, threading.Event]] = field(default_factory=list)
    _failed: list[TidewiseError] = field(default_factory=list)

    def options(self) -> dict[str, object]:
        return {"--source": "kafka", "--brokers": self.broker.address, "--topic": self.topic}

    def conf(self) -> dict[str, str]:
        return {"spark.jars": ",".join(str(jar) for jar in resolve(spark_connector()))}

    def start(self, rate_per_s: float, *, in_s: float) -> None:
        self._send("quiet", (rate_per_s,) * _LONGEST_QUIET_S, began_unix_s=time.time() + in_s)

    def begin_day(self, rates: Rates, *, in_s: float) -> float:
        day = tuple(float(rate) for rate in rates)
        began_unix_s = time.time() + in_s
        _, quiet = self._sending[-1]
        self._send("day", day, began_unix_s=began_unix_s)
        timer = threading.Timer(in_s, quiet.set)
        timer.daemon = True
        timer.start()
        return began_unix_s - time.time()

    def end(self) -> None:
        for _, stop in self._sending:
            stop.set()
        for thread, _ in self._sending:
            thread.join(_STOPS_WITHIN_S)
        if self._failed:
            raise self._failed[0]

    def _send(self, name: str, rates_per_s: tuple[float, ...], *, began_unix_s: float) -> None:
        production = Production(
            job=JOB, brokers=self.broker.address, topic=self.topic, partitions=_READ_TASKS, processes=_SENDERS
        )
        schedule = Schedule(began_unix_s=began_unix_s, rates_per_s=rates_per_s, after="stop")
        stop = threading.Event()

        def run() -> None:
            try:
                produce(production, schedule, folder=self.folder / name, began_unix_s=began_unix_s, stop=stop)
            except TidewiseError as error:
                self._failed.append(error)

        thread = threading.Thread(target=run, name=f"demo-{name}", daemon=True)
        self._sending.append((thread, stop))
        thread.start()
