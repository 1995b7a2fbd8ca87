"""What a run has cost so far, also where several controllers had it one after the other."""

from __future__ import annotations

import json
from pathlib import Path

from tidewise.core import Meter, Purpose, RunningJob, Usage

_SAVE_EVERY_S = 10.0


class LiveMeter:
    """Adds up what each controller metered; what nobody metered in between is reckoned at the run's rate before."""

    def __init__(self, path: Path, *, began_s: float) -> None:
        """`path` keeps the sum for the next controller; `began_s` is when the first one began."""
        self._path = path
        self._began_s = began_s
        self._saved_s = began_s
        self._before: dict[Purpose, Usage] = {}
        self._until_s: float | None = None
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            self._until_s = float(content["at_s"])
            self._before = {Purpose(name): Usage(**usage) for name, usage in content["meter"].items()}

    def read(self, job: RunningJob, *, now_s: float) -> Meter:
        """Everything up to now."""
        if self._until_s is not None:
            lived_s, gap_s = self._until_s - self._began_s, now_s - self._until_s
            if lived_s > 0.0 and gap_s > 0.0:
                more = 1.0 + gap_s / lived_s
                self._before = {
                    purpose: Usage(core_s=usage.core_s * more, memory_mib_s=usage.memory_mib_s * more)
                    for purpose, usage in self._before.items()
                }
            self._until_s = None
        meter = dict(self._before)
        for purpose, usage in job.meter().items():
            meter[purpose] = meter.get(purpose, Usage()) + usage
        if now_s - self._saved_s >= _SAVE_EVERY_S:
            self._save(meter, now_s)
        return meter

    def _save(self, meter: Meter, now_s: float) -> None:
        self._saved_s = now_s
        content = {
            "at_s": now_s,
            "meter": {
                purpose.value: {"core_s": usage.core_s, "memory_mib_s": usage.memory_mib_s}
                for purpose, usage in meter.items()
            },
        }
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(self._path)
