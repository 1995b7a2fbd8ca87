"""The plans that come with Tidewise, found by their names."""

from __future__ import annotations

from pathlib import Path

from tidewise.core import BadInputError
from tidewise.core.readers import did_you_mean

_FOLDER = Path(__file__).parent / "plans"
DEMO_PLAN = _FOLDER / "demo.toml"


def shipped_plans() -> dict[str, Path]:
    """By name, in order."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def find_plan(name_or_path: str) -> Path:
    """A shipped plan by its name, or a plan file by its path: something with a folder in it, or an ending.

    A name always means the shipped plan, whatever lies in the current folder.
    """
    path = Path(name_or_path)
    if path.suffix or len(path.parts) != 1 or name_or_path.startswith("."):
        return path
    known = shipped_plans()
    if name_or_path not in known:
        raise BadInputError(
            f"there is no plan {name_or_path!r}{did_you_mean(name_or_path, known)}; a plan of your own is a file that "
            "ends in .toml"
        )
    return known[name_or_path]
