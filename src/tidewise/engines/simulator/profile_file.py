"""Writes a profile as a TOML file that documents itself: every parameter with its meaning above it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from tidewise.engines.simulator.profile import SimulatorProfile


def profile_to_toml(profile: SimulatorProfile, *, preface: str) -> str:
    """The profile as text that `load_profile` reads back; the preface says where the numbers come from."""
    lines = [f"# {line}".rstrip() for line in preface.strip().splitlines()]
    return "\n".join([*lines, "", *_table(profile, ())]).rstrip() + "\n"


def _table(part: BaseModel, path: tuple[str, ...]) -> Iterator[str]:
    tables: list[tuple[str, BaseModel]] = []
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if value is None:
            continue
        if isinstance(value, BaseModel):
            if value != field.default:
                tables.append((name, value))
        elif isinstance(value, Mapping):
            tables.extend((f"{name}.{key}", inner) for key, inner in value.items())
        elif isinstance(value, tuple):
            tables.extend((f"[{name}]", inner) for inner in value)
        else:
            if field.description:
                yield from (f"# {line.strip()}" for line in field.description.splitlines())
            yield f"{name} = {_scalar(value)}"
    for name, inner in tables:
        where = (*path, name)
        yield ""
        if inner.__doc__ and not path:
            yield f"# {inner.__doc__.splitlines()[0]}"
        yield f"[{'.'.join(where)}]"
        yield from _table(inner, where)


def _scalar(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if "." in f"{value:.6g}" or "e" in f"{value:.6g}" else f"{value:.1f}"
    return json.dumps(value)
