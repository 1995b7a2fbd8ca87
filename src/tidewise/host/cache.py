"""Where Tidewise keeps what it fetched or built once."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder that TIDEWISE_CACHE names, else `tidewise` in the user's folder for caches."""
    named = os.environ.get("TIDEWISE_CACHE")
    if named:
        return Path(named).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return ((Path(shared) if shared else Path.home() / ".cache") / "tidewise").absolute()
