"""Loaded by Python at start because this folder is first on PYTHONPATH; brings the agent in and steps aside."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _is_wanted() -> bool:
    """Asked before anything is imported, in the agent's own names: Python workers are many, and must not pay for it."""
    return "TIDEWISE_AGENT" in os.environ and os.environ.get("TIDEWISE_AGENT_PID") in (None, str(os.getpid()))


def _bring_agent_in() -> None:
    """Import the agent from beside this folder, without putting anything else on the program's path."""
    name = "tidewise_agent"
    if name not in sys.modules:
        package = _HERE.parent
        spec = importlib.util.spec_from_file_location(
            name, package / "__init__.py", submodule_search_locations=[str(package)]
        )
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    from tidewise_agent.hooks import install  # noqa: PLC0415 -- importable only now

    install()


def _run_the_program_s_own() -> None:
    """The sitecustomize that Python would have loaded if this folder were not on the path."""
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    if _is_wanted():
        _bring_agent_in()
except Exception as error:  # noqa: BLE001 -- the program has to start as if Tidewise were not there
    sys.stderr.write(f"tidewise: the agent could not be loaded, the program runs without it: {error}\n")
_run_the_program_s_own()
