"""Follows a program that reports to Prometheus: a file says which expression tells which field of its reports."""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tidewise.core import BadInputError, Configuration, InvalidValueError, JobStatus, PermanentError, TemporaryError
from tidewise.core.telemetry import Envelope, ReportRow
from tidewise.experiments.advise_terms import Terms
from tidewise.experiments.telemetry_rows import RunFacts, driver_of_jobs, run_id
from tidewise.experiments.telemetry_sources import Told, memory_in
from tidewise.experiments.toml_file import Duration, Table, TomlFile

_ANSWER_S = 10.0
_STEPS_AT_ONCE = 1_000
"""Prometheus answers 11,000 points at most."""
_MOST_BYTES = 1 << 26

Says = Annotated[str, Field(min_length=1)] | float
"""An expression in PromQL that gives one series, or a number that holds always."""


class FieldsTable(Table):
    """What tells each field of a report; of those that may be left out, one that is left out is unknown."""

    load_per_s: Says
    processed_rate_per_s: Says
    backlog_records: Says
    executors: Says
    input_rate_per_s: Says | None = None
    latency_p50_s: Says | None = None
    latency_p95_s: Says | None = None
    latency_p99_s: Says | None = None
    busy_share: Says | None = None
    cpu_share: Says | None = None
    memory_share: Says | None = None
    state_mib: Says | None = None
    slots_per_executor: Says = 1.0
    cores_per_executor: Says = 1.0
    memory_mib_per_executor: Says = 1024.0
    commit_interval_s: Says = 0.0
    state_partitions: Says | None = None
    up: Says | None = None
    """0 where the program is down."""


_SHARES = frozenset({"busy_share", "cpu_share"})
_NEEDED = tuple(name for name, field in FieldsTable.model_fields.items() if field.is_required())


class PrometheusTable(Table):
    """What such a file may hold."""

    job: Annotated[str, Field(min_length=1)]
    server: str
    """`http://HOST:PORT`, with the path where the server has one."""
    program: str | None = None
    """The version of the program."""
    step: Annotated[Duration, Field(ge=1.0, le=3600.0)] = 10.0
    """One report in so long."""
    past: Annotated[Duration, Field(ge=0.0)] = 3600.0
    """How much of what was before the first time is told too."""
    fields: FieldsTable


class PrometheusSource:
    """One program; rows are numbered by their time, so that they are the same whenever they are asked for."""

    interval_s: float | None = None
    is_over = False
    waits_for: str | None = None

    def __init__(
        self,
        path: Path,
        *,
        memory: Path,
        terms: Terms | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`memory`: the folder for what is remembered. `terms`: those of its job file, if there is one."""
        self._file = TomlFile(path)
        self._table = self._file.read(PrometheusTable)
        if urllib.parse.urlsplit(self._table.server).scheme not in {"http", "https"}:
            raise self._file.wrong(
                ("server",), f'{self._table.server!r} is no server; write it like "http://HOST:9090"'
            )
        said = self._table.fields.model_dump()
        self._constants = {name: float(value) for name, value in said.items() if isinstance(value, int | float)}
        self._expressions = {name: value for name, value in said.items() if isinstance(value, str)}
        self._memory = memory
        self._clock = clock
        self._next = 0
        self.has_more = False
        self._facts = RunFacts(
            job=self._table.job,
            # What is asked for in another way is another run: its rows are not the same.
            run=run_id(f"{self._table.job}-prometheus", self._table.server, self._table.step, said),
            began_unix_s=0.0,
            program=self._table.program,
            promises=None if terms is None else terms.promises,
            prices=None if terms is None else terms.prices,
            driver=driver_of_jobs(),
        )

    @property
    def name(self) -> str:
        return f"{self._table.server} ({self._file.path})"

    @property
    def run(self) -> str | None:
        return self._facts.run

    def memory(self, target: str) -> Path:
        return memory_in(self._memory, target, self._facts.run)

    def recall(self, told: Told) -> None:
        if told.line:  # or nothing was told yet, and the past begins where the file says
            self._next = told.line + 1

    def read(self, most: int) -> list[Envelope]:
        step_s, now_s = self._table.step, self._clock()
        self._next = max(self._next, 1, math.ceil((now_s - self._table.past) / step_s) if self._next == 0 else 0)
        # One step behind: what was scraped just now may not be there yet.
        end = math.floor(now_s / step_s)
        count = min(most, _STEPS_AT_ONCE, end - self._next)
        if count <= 0:
            self.has_more = False
            return []
        first = self._next
        samples = {name: self._ask(name, first, first + count - 1) for name in self._expressions}
        self._next = first + count
        self.has_more = self._next < end
        rows = [(line, self._row(line, samples)) for line in range(first, first + count)]
        facts = self._facts
        return [
            Envelope(job=facts.job, run=facts.run, line=line, program=facts.program, row=row)
            for line, row in rows
            if row is not None
        ]

    def _row(self, line: int, samples: Mapping[str, Mapping[int, float]]) -> ReportRow | None:
        """None where something is unknown that no report is without."""
        seen = {name: known[line] for name, known in samples.items() if line in known} | self._constants
        if any(name not in seen for name in _NEEDED):
            return None
        load_per_s = seen["load_per_s"]
        partitions = seen.get("state_partitions")
        try:
            runs = Configuration(
                executors=round(seen["executors"]),
                slots_per_executor=round(seen.get("slots_per_executor", 1.0)),
                cores_per_executor=seen.get("cores_per_executor", 1.0),
                memory_mib_per_executor=round(seen.get("memory_mib_per_executor", 1024.0)),
                commit_interval_s=seen.get("commit_interval_s", 0.0),
                state_partitions=None if partitions is None else round(partitions),
            )
        except InvalidValueError:
            return None  # nothing runs, or what is said to run cannot
        facts = self._facts
        return ReportRow(
            at_unix_s=line * self._table.step,
            window_s=self._table.step,
            status=(JobStatus.RUNNING if seen.get("up", 1.0) > 0.0 else JobStatus.DOWN).value,
            executors=runs.executors,
            slots_per_executor=runs.slots_per_executor,
            cores_per_executor=runs.cores_per_executor,
            memory_mib_per_executor=runs.memory_mib_per_executor,
            commit_interval_s=runs.commit_interval_s,
            state_partitions=runs.state_partitions,
            load_per_s=load_per_s,
            input_rate_per_s=seen.get("input_rate_per_s", load_per_s),
            processed_rate_per_s=seen["processed_rate_per_s"],
            backlog_records=seen["backlog_records"],
            latency_p50_s=seen.get("latency_p50_s"),
            latency_p95_s=seen.get("latency_p95_s"),
            latency_p99_s=seen.get("latency_p99_s"),
            busy_share=seen.get("busy_share"),
            cpu_share=seen.get("cpu_share"),
            memory_share=seen.get("memory_share"),
            state_mib=seen.get("state_mib"),
            promised_latency_p95_s=None if facts.promises is None else facts.promises.latency_p95_s,
            promised_recovery_s=None if facts.promises is None else facts.promises.recovery_s,
            cost_per_hour=facts.cost_per_hour(runs),
            currency=None if facts.prices is None else facts.prices.currency,
        )

    def _ask(self, field: str, first: int, last: int) -> dict[int, float]:
        """The samples of an expression by their steps; those that say nothing are left out."""
        step_s = self._table.step
        asked = {
            "query": self._expressions[field],
            "start": f"{first * step_s:.3f}",
            "end": f"{last * step_s:.3f}",
            "step": f"{step_s:g}",
        }
        answer = self._fetch(
            field, f"{self._table.server.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
        )
        try:
            series = answer["data"]["result"]
            if len(series) > 1:
                sentence = f"{asked['query']!r} gives {len(series)} series; make one of them, as with sum(...)"
                raise self._file.wrong(("fields", field), sentence)
            pairs = series[0]["values"] if series else []
            found = {round(float(at_s) / step_s): float(value) for at_s, value in pairs}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PermanentError(f"{self._table.server} does not answer as Prometheus does: {error!r}") from error
        # No field of a report can be less than nothing; a share of a counter's rate may come out a little above one.
        most = 1.0 if field in _SHARES else math.inf
        return {line: min(value, most) for line, value in found.items() if math.isfinite(value) and value >= 0.0}

    def _fetch(self, field: str, url: str) -> dict[str, Any]:  # Any: what a server answers is looked at as it is used
        server = self._table.server
        try:
            # Only http and https get here; others were refused when the file was read.
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as reply:  # noqa: S310 - see the line above
                content = json.loads(reply.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(field, error) from error
        except (OSError, ValueError) as error:
            # urllib's own error is an OSError; one that is no JSON may be that of a proxy that waits for its server.
            reason = getattr(error, "reason", error)
            raise TemporaryError(f"the Prometheus server {server} does not answer: {reason}") from error
        if not isinstance(content, dict):
            raise PermanentError(f"{server} does not answer as Prometheus does")
        return content

    def _refused(self, field: str, error: urllib.error.HTTPError) -> Exception:
        server = self._table.server
        try:
            said = json.loads(error.read(_MOST_BYTES))["error"]
        except (OSError, ValueError, KeyError, TypeError):
            said = error.reason
        if error.code in {400, 422}:
            return self._file.wrong(("fields", field), f"Prometheus refuses this expression: {said}")
        if error.code in {401, 403, 404}:
            return BadInputError(
                f"{server} answers {error.code} ({said}): correct the address of the Prometheus server"
            )
        return TemporaryError(f"the Prometheus server {server} does not answer: {error.code} ({said})")
