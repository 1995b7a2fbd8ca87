"""Linear algebra on one thread: for matrices as small as those of one job, several threads take many times longer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def on_one_thread(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """The same function, during which numpy and scipy keep to one thread."""

    @wraps(function)
    def limited(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
