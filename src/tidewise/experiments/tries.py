"""What an earlier try of a plan has left in its folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from tidewise.core import BadInputError
from tidewise.experiments.claim import CLAIM_FILE
from tidewise.experiments.record import PARTIAL_SUFFIX, Run, RunRecord, load_run

LOG_FILE = "tidewise.log"
"""What a try has logged."""


def earlier_runs(
    home: Path, *, plan: Mapping[str, JsonValue], is_same: Callable[[Run], bool], beside: Collection[str] = ()
) -> dict[str, Run]:
    """The runs that an earlier try has written into a folder, by name; BadInputError where it holds anything else.

    `is_same`: whether a run of this plan would come out the same today. `beside`: folders that are no runs. A plan that
    has got more policies, loads or seeds since then keeps its runs.
    """
    found: dict[str, Run] = {}
    for path in home.iterdir():
        if not path.is_dir() or path.name.endswith(PARTIAL_SUFFIX) or path.name in beside:
            continue
        try:
            run = load_run(path)
        except BadInputError as error:
            raise BadInputError(_taken(home, f"({error})")) from error
        record = run.record
        mine = _part_of(plan, record)
        if mine is None or mine != _part_of(record.plan, record) or not is_same(run):
            raise BadInputError(_taken(home))
        found[run.record.name] = run
    ours = found or any((home / name).is_dir() for name in beside)
    strangers = {path.name for path in home.iterdir() if not path.is_dir()} - {CLAIM_FILE, LOG_FILE}
    if strangers and not ours:
        raise BadInputError(_taken(home))
    return found


def _part_of(plan: Mapping[str, JsonValue], record: RunRecord) -> dict[str, JsonValue] | None:
    """All of a plan that has to do with one of its runs; None where that is no run of it."""
    seeds = plan["seeds"]
    load = _called(plan["loads"], record.load, ("name",))
    policy = _called(plan["policies"], record.policy, ("name", "policy"))
    if not isinstance(seeds, list) or record.seed not in seeds or load is None or policy is None:
        return None
    return {**plan, "loads": load, "policies": policy, "seeds": record.seed}


def _called(tables: JsonValue, name: str, keys: Sequence[str]) -> JsonValue:
    """The table of this name, which stands under the first of the keys that has a value; None where there is none."""
    for table in tables if isinstance(tables, list) else ():
        if isinstance(table, dict) and next((table[key] for key in keys if table.get(key) is not None), None) == name:
            return table
    return None


def refuse_a_file(home: Path) -> None:
    """BadInputError where a file has the name of the folder."""
    if home.exists() and not home.is_dir():
        raise BadInputError(_taken(home))


def _taken(home: Path, why: str = "") -> str:
    told = " ".join(filter(None, (f"{home} exists already and is not a try of this plan", why)))
    return f"{told}; remove it, or choose another folder with --out"
