"""Simulator profiles: the documented parameters of a cluster and a job, read from TOML and checked once."""

from __future__ import annotations

import hashlib
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidewise.core import BadInputError, ChangeCost, Mechanism, OperatorKind
from tidewise.core.readers import did_you_mean

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]

_ROUNDING = 1e-6
_LATER = frozenset({"fixed_core_s", "fixed_warms_up", "join_s", "plans_after_s", "cold_s_per_record"})
"""What a profile need not say: left out of its digest where it says nothing, so that digests of before still hold."""

OUT_OF_MEMORY = "out-of-memory"
"""The failure kind that memory pressure sets off by itself."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class CapacityProfile(_Part):
    """How many records per second a configuration can process."""

    records_per_core_s: Positive
    """One core that runs one slot, alone."""
    cores_per_slot: Positive = 1.0
    """How many cores one slot can keep busy: 1 for a Spark task, more where a slot runs a pipeline of threads."""
    slot_contention: Annotated[float, Field(ge=0)] = 0.0
    """What each slot beyond the first costs its executor: speed / (1 + slot_contention x (slots - 1))."""
    contention: Annotated[float, Field(ge=0)] = 0.0
    """Universal Scalability Law: what waits for something shared, per further core."""
    coherence: Annotated[float, Field(ge=0)] = 0.0
    """Universal Scalability Law: what each pair of cores costs in talking to each other."""
    noise_share: Share = 0.0
    """Spread of the capacity from one second to the next."""
    idle_cpu_share: Share = 0.0
    """CPU that an executor uses without any record."""
    cpu_s_per_record: Positive
    """CPU that a record really costs; less than 1 / records_per_core_s where the job waits for something else."""


class LatencyProfile(_Part):
    """What a record waits for besides the queue."""

    at_rest_s: Seconds
    """Median from arrival to output with an empty queue, the batch itself not counted."""
    p95_over_p50: Annotated[float, Field(ge=1)] = 1.0
    p99_over_p50: Annotated[float, Field(ge=1)] = 1.0
    noise_share: Share = 0.0
    """Spread of the median from one second to the next."""
    queueing_s: Seconds = 0.0
    """Times u / (1 - u): the short queues that come and go within a second at utilisation u."""


class BatchProfile(_Part):
    """Micro-batches: what every batch costs before its first record."""

    fixed_s: Positive
    """Planning, logs and commit."""
    fixed_cpu_s: Seconds = 0.0
    noise_share: Share = 0.0
    """Spread of a batch's duration."""
    fixed_core_s: Seconds = 0.0
    """What every batch takes besides on one core of the executors; on more cores as much less."""
    fixed_warms_up: bool = False
    """Whether all of that takes longer, too, while a job that has just come up is slower."""


class MemoryProfile(_Part):
    """What fills an executor, and what happens when it is full."""

    executor_base_mib: Seconds
    """An executor without work."""
    slot_mib: Seconds = 0.0
    """Each task that runs."""
    state_base_mib: Seconds = 0.0
    """State of the whole job that does not depend on the load."""
    state_mib_per_record_per_s: Seconds = 0.0
    """State of the whole job for each record/s of load."""
    state_horizon_s: Positive = 60.0
    """How slowly the state follows the load."""
    knee_share: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Below this share of memory nothing is felt; above it collection takes time, and at 1 the executor dies."""
    slowest_share: Annotated[float, Field(gt=0, le=1)] = 0.3
    """The speed that is left just before that."""


class WarmUp(_Part):
    """A job that has just come up is slower at first."""

    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Capacity at the start, rising evenly to all of it."""
    duration_s: Seconds = 0.0
    cold_s_per_record: Seconds = 0.0
    """What each record takes besides at the start, whatever the capacity; falling evenly to nothing."""


class MechanismProfile(_Part):
    """What one mechanism of change costs."""

    gap_s: Seconds
    """Median time without processing."""
    gap_spread_share: Share = 0.0
    """Spread of the gap from one change to the next."""
    gap_s_per_state_gib: Seconds = 0.0
    preparation_s: Seconds = 0.0
    """Before the gap, while the job runs on."""
    runs_double: bool = False
    """Old and new are both paid for during the preparation."""
    replays: bool = False
    """Whether work since the last commit is done again."""
    failure_share: Share = 0.0
    """How many of such changes fail: the new configuration does not come up, and the job goes on as it was."""
    survives_with_fewer: bool = False
    """A job deployed for this mechanism need not wait for an executor that is away: it restarts by this mechanism on
    those that are left, and again when the executor is back."""
    warm_up: WarmUp = WarmUp()


class LiveProfile(_Part):
    """Executors that join and leave a running job."""

    start_s: Seconds = 15.0
    """From the request until an executor works."""
    start_spread_share: Share = 0.0
    leave_s: Seconds = 1.2
    """A graceful good-bye."""
    join_s: Seconds = 0.0
    """For how long the job stands still when an executor joins: the batch waits for what is new."""


class FailureProfile(_Part):
    """One kind of failure."""

    detection_s: Seconds = 0.0
    """Until anybody, the engine included, notices."""
    serving_share: Share = 1.0
    """Capacity that is left until then."""
    downtime_s: Seconds = 0.0
    """Median time without processing after that."""
    downtime_spread_share: Share = 0.0
    executors_lost: Annotated[int, Field(ge=0)] = 0
    """Replaced after the start-up of an executor."""
    executor_away_s: Seconds | None = None
    """The failure takes one executor away for this long from its beginning; the downtime is that of a job which has to
    wait for it. None: it takes none away."""
    replays: bool = True
    """Whether work since the last commit is done again."""
    plans_after_s: Seconds | None = None
    """How long into the downtime it is settled what the first batch holds: what comes later waits for the second. None:
    at its end."""
    warm_up: WarmUp = WarmUp()


class FixedResources(_Part):
    """Something that is paid for as long as the job is there."""

    cores: Seconds = 0.0
    memory_mib: Seconds = 0.0


class OperatorProfile(_Part):
    """One operator of the job: all of them take turns on the same slots, in the order of their records' way."""

    name: Annotated[str, Field(min_length=1)]
    kind: OperatorKind
    """Continuous: each record for itself; window or join: with state."""
    work_share: Annotated[float, Field(gt=0, le=1)]
    """Share of the work on a record of the job that is done here; those of all operators make 1."""
    records_share: Positive = 1.0
    """Records that come here for each record that the job processes."""


class ProfilingProfile(_Part):
    """Copies of the job that run beside it."""

    deploy_s: Seconds = 120.0
    """Until a copy is up."""


class SimulatorProfile(_Part):
    """All parameters of a simulated cluster with a simulated job."""

    name: Annotated[str, Field(min_length=1)]
    description: Annotated[str, Field(min_length=1)]
    mode: Literal["continuous", "micro-batch"]
    """Continuous: records flow one by one and a checkpoint is taken every commit interval (Flink, real-time mode)."""
    capacity: CapacityProfile
    latency: LatencyProfile
    batch: BatchProfile | None = None
    memory: MemoryProfile
    live: LiveProfile = LiveProfile()
    mechanisms: dict[Mechanism, MechanismProfile]
    """The mechanisms offered, the one to prefer first."""
    failures: dict[str, FailureProfile]
    driver: FixedResources = FixedResources()
    controller: FixedResources = FixedResources()
    operators: tuple[OperatorProfile, ...] = ()
    """None: the reports do not tell operators apart."""
    profiling: ProfilingProfile = ProfilingProfile()
    checkpoint_cost_s: Seconds = 0.0
    """Processing time that one checkpoint takes (continuous mode)."""
    cluster_cores: Positive | None = None
    """What the whole cluster can give; None: more than anybody asks for."""

    def model_post_init(self, _context: object, /) -> None:
        if not self.mechanisms:
            raise ValueError("the profile offers no mechanism of change")
        if OUT_OF_MEMORY not in self.failures:
            raise ValueError(f"the profile does not say what happens when memory is full: [failures.{OUT_OF_MEMORY}]")
        if (self.mode == "micro-batch") != (self.batch is not None):
            raise ValueError("a micro-batch profile, and no other, needs the table [batch]")
        if self.operators:
            shares = sum(operator.work_share for operator in self.operators)
            if abs(shares - 1.0) > _ROUNDING:
                raise ValueError(f"the work_share of all [[operators]] together must be 1, not {shares:g}")
            if len({operator.name for operator in self.operators}) < len(self.operators):
                raise ValueError("two of the [[operators]] have the same name")

    @property
    def changes(self) -> tuple[ChangeCost, ...]:
        """What the engine can say beforehand of each mechanism."""
        return tuple(
            ChangeCost(
                mechanism=mechanism,
                gap_s=cost.gap_s,
                preparation_s=self.live.start_s if mechanism is Mechanism.LIVE else cost.preparation_s,
                runs_double=cost.runs_double,
            )
            for mechanism, cost in self.mechanisms.items()
        )

    @property
    def digest(self) -> str:
        """Names these very parameters, so that two runs can be told to have used the same."""
        return hashlib.sha256(self.model_dump_json(exclude=_unsaid(self)).encode()).hexdigest()[:12]


def _unsaid(part: BaseModel) -> dict[str, Any]:
    """Where a part says nothing of what it need not say, as pydantic has it named that is to be left out."""
    found: dict[str, Any] = {}
    for name in type(part).model_fields:
        value = getattr(part, name)
        if name in _LATER and value == type(part).model_fields[name].default:
            found[name] = True
        elif isinstance(value, BaseModel):
            found[name] = _unsaid(value)
        elif isinstance(value, dict):
            found[name] = {key: _unsaid(inner) for key, inner in value.items()}
    return found


def shipped_profiles() -> list[str]:
    """The names of the profiles that come with Tidewise."""
    folder = resources.files("tidewise.engines.simulator") / "profiles"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_profile(name_or_path: str) -> SimulatorProfile:
    """A shipped profile by its name, or a profile file by its path (something that ends in .toml)."""
    if name_or_path.endswith(".toml"):
        source = str(name_or_path)
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"the profile {source} cannot be read: {error}") from error
    else:
        known = shipped_profiles()
        if name_or_path not in known:
            hint = did_you_mean(name_or_path, known)
            raise BadInputError(f"there is no profile {name_or_path!r} (a file's name would end in .toml){hint}")
        source = f"{name_or_path}.toml"
        folder = resources.files("tidewise.engines.simulator") / "profiles"
        text = (folder / source).read_text(encoding="utf-8")
    try:
        return SimulatorProfile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"the profile {source} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadInputError(f"the profile {source} is wrong at {where}: {first['msg']}") from error
