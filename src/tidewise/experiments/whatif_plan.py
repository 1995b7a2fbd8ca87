"""The plan by which a recorded run is run again: its load and its failures, under other policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, ValidationError

from tidewise.core import BadInputError, Configuration, Prices, Promises
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.profile_file import profile_to_toml
from tidewise.experiments.experiment import Experiment
from tidewise.experiments.plan import ControlTable, PolicyTable, SpaceTable
from tidewise.experiments.policy_words import policy_of, words_of_policy
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.toml_file import duration_text, to_toml
from tidewise.experiments.whatif_recording import Recording
from tidewise.policies import Static

Values = Mapping[str, JsonValue]
"""A table as a plan writes it."""

PLAN_FILE, LOAD_FILE = "plan.toml", "load.csv"
USUAL_POLICIES = (Static.name, "reactive", "ds2", "tidewise")
_MEMORY = {"quota_memory", "profile_memory"}
_NO_DURATIONS = {"roll_back", "largest_step", "quota_cores", "profile_cores"}
"""Keys of [control] that are no durations."""
_WRONG_PREFIX = "Value error, "


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """What is asked about a run."""

    policies: tuple[PolicyTable, ...]
    space: Values
    promises: Promises
    prices: Prices
    seeds: tuple[int, ...] = (1,)


# What a run leaves open -------------------------------------------------------------------------------------------


def space_of(recording: Recording, given: Values) -> Values:
    """The recorded space, or without one what was seen to run; keys that are given go before."""
    seen = (recording.start, *recording.configurations)
    recorded = recording.plan.get("space")
    if isinstance(recorded, dict):
        space: dict[str, JsonValue] = {key: value for key, value in recorded.items() if value is not None}
        space["memory_per_executor"] = [f"{mib}MiB" for mib in _listed(space.get("memory_per_executor", [1024]))]
        space["commit_interval"] = [
            duration_text(float(str(each))) for each in _listed(space.get("commit_interval", [10.0]))
        ]
    else:
        space = {
            "executors": _plain(range(1, max(one.executors for one in seen) + 1)),
            "slots_per_executor": _plain(sorted({one.slots_per_executor for one in seen})),
            "cores_per_executor": _plain(sorted({one.cores_per_executor for one in seen})),
            "memory_per_executor": [f"{mib}MiB" for mib in sorted({one.memory_mib_per_executor for one in seen})],
            "commit_interval": [duration_text(each) for each in sorted({one.commit_interval_s for one in seen})],
        }
        partitions = sorted({one.state_partitions for one in seen if one.state_partitions is not None})
        if partitions:
            space["state_partitions"] = _plain(partitions)
    space.update(given)
    try:
        table = SpaceTable.model_validate(space)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            raise BadInputError(
                f"--space: a space has no {first['loc'][-1]}; it has {', '.join(SpaceTable.model_fields)}"
            ) from error
        raise BadInputError(f"--space {first['loc'][0]}: {first['msg'].removeprefix(_WRONG_PREFIX)}") from error
    start = recording.start
    # What the job started with is a configuration that it can have, whatever the space says.
    return {
        "executors": _plain(sorted({*table.executors, start.executors})),
        "slots_per_executor": _plain(sorted({*table.slots_per_executor, start.slots_per_executor})),
        "cores_per_executor": _plain(sorted({*table.cores_per_executor, start.cores_per_executor})),
        "memory_per_executor": [f"{m}MiB" for m in sorted({*table.memory_per_executor, start.memory_mib_per_executor})],
        "commit_interval": [duration_text(each) for each in sorted({*table.commit_interval, start.commit_interval_s})],
        **({} if table.state_partitions is None else {"state_partitions": _with(table.state_partitions, start)}),
    }


def _with(partitions: tuple[int, ...], start: Configuration) -> JsonValue:
    return _plain(sorted({*partitions, *([] if start.state_partitions is None else [start.state_partitions])}))


def _plain(values: Iterable[JsonValue]) -> list[JsonValue]:
    return list(values)


def policies_of(recording: Recording, written: Sequence[str], space: Values) -> tuple[PolicyTable, ...]:
    """The named policies, or else the usual ones; with the settings that the run's plan has for them."""
    most = max(int(str(each)) for each in _listed(space["executors"]))
    tables: list[PolicyTable] = []
    for text in written or USUAL_POLICIES:
        name, _ = words_of_policy(text)
        # Static is what is paid for the peak, where nobody says otherwise.
        usual = {"executors": most} if name == Static.name else _recorded_settings(recording, name)
        taken = {table.label for table in tables}
        label = next(each for each in (name, *(f"{name}-{number}" for number in range(2, 1000))) if each not in taken)
        tables.append(policy_of(text, usual=usual, label=label))
    return tuple(tables)


def _recorded_settings(recording: Recording, name: str) -> dict[str, JsonValue]:
    tables = recording.plan.get("policies", [recording.plan.get("policy")])
    for table in tables if isinstance(tables, list) else []:
        if isinstance(table, dict) and table.get("policy") == name:
            return {key: value for key, value in table.items() if key not in {"policy", "name"} and value is not None}
    return {}


# The plan ---------------------------------------------------------------------------------------------------------


def write_plan(folder: Path, recording: Recording, draws: Sequence[SimulatorProfile], question: Question) -> Path:
    """The plan in this folder, with a load for each of the profiles that explain the run."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{second},{rate:.9g}\n" for second, rate in enumerate(recording.rates_per_s.tolist()))
    (folder / LOAD_FILE).write_text(f"second,records_per_s\n{rows}", encoding="utf-8")
    for profile in draws:
        preface = f"One of the profiles that explain the run {recording.name}."
        (folder / f"{profile.name}.toml").write_text(profile_to_toml(profile, preface=preface), encoding="utf-8")
    start, promises, prices = recording.start, question.promises, question.prices
    tables: dict[str, Values] = {
        "space": question.space,
        "start": {
            "executors": start.executors,
            "slots_per_executor": start.slots_per_executor,
            "cores_per_executor": start.cores_per_executor,
            "memory_per_executor": f"{start.memory_mib_per_executor}MiB",
            "commit_interval": duration_text(start.commit_interval_s),
            **({} if start.state_partitions is None else {"state_partitions": start.state_partitions}),
        },
        "promises": {
            **({} if promises.latency_p95_s is None else {"latency_p95": duration_text(promises.latency_p95_s)}),
            "good_share": promises.good_share,
            **({} if promises.recovery_s is None else {"recovery": duration_text(promises.recovery_s)}),
        },
        "prices": {"core_hour": prices.core_hour, "gib_hour": prices.gib_hour, "currency": prices.currency},
        "control": _control(recording),
    }
    document: dict[str, JsonValue] = {
        "name": "whatif",
        "duration": f"{recording.duration_s}s",
        "seeds": _plain(question.seeds),
        **{name: dict(table) for name, table in tables.items()},
        "loads": [
            {
                "name": profile.name,
                "shape": "trace",
                "file": LOAD_FILE,
                "between": "hold",
                "profile": f"{profile.name}.toml",
            }
            for profile in draws
        ],
        "policies": [policy.model_dump(mode="json", exclude_none=True) for policy in question.policies],
    }
    path = folder / PLAN_FILE
    path.write_text(f"{_first_line(recording)}\n{to_toml(document)}", encoding="utf-8")
    return path


def _first_line(recording: Recording) -> str:
    return f"# The run {recording.name}, run again. Its failures are not in this file: they come when they came."


def refuse_what_is_there(folder: Path, recording: Recording) -> None:
    """BadInputError where the folder holds anything but the plan of this run, run again."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadInputError(f"{folder} is a file; name a folder, which need not exist")
    if not any(folder.iterdir()):
        return
    plan = folder / PLAN_FILE
    known = plan.is_file() and plan.read_text(encoding="utf-8", errors="replace").startswith(_first_line(recording))
    if not known:
        raise BadInputError(
            f"{folder} is not empty, and not what was made of {recording.name} earlier; name another folder"
        )


def _control(recording: Recording) -> Values:
    """As it was recorded; else the defaults, with the times that the run shows."""
    written: dict[str, JsonValue] = {}
    recorded = recording.plan.get("control")
    for key, value in (recorded if isinstance(recorded, dict) else {}).items():
        if value is None or key not in ControlTable.model_fields:
            continue
        if key in _MEMORY:
            written[key] = f"{value}MiB"
        else:
            written[key] = value if key in _NO_DURATIONS else duration_text(float(str(value)))
    written.setdefault("decide_every", duration_text(recording.decide_every_s))
    return {**written, "report_every": f"{recording.report_every_s}s"}


def _listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else [value]


class ReplayedExperiment(Experiment):
    """The plan of a recorded run: what broke breaks again when it broke, and no promise is refused beforehand."""

    def __init__(self, path: Path, *, faults: tuple[FaultRecord, ...]) -> None:
        super().__init__(path)
        self._recorded_faults = faults

    def faults(self, seed: int) -> tuple[FaultRecord, ...]:  # noqa: ARG002 - the same with every seed
        """Those that were recorded."""
        return self._recorded_faults

    def check(self, load: str, seed: int) -> None:
        """Nothing: that no configuration would have kept the promises is an answer, too."""
