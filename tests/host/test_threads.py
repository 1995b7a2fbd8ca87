from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info

from tidewise.host.threads import on_one_thread


def threads() -> set[int]:
    return {int(library["num_threads"]) for library in threadpool_info() if library["user_api"] == "blas"}


def test_numpy_keeps_to_one_thread_meanwhile_and_has_its_own_number_again() -> None:
    assert np.linalg.norm(np.eye(2)) > 0.0  # so that its library is loaded
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = threads()
        assert on_one_thread(threads)() == {1}
        assert threads() == before


def test_also_after_an_error() -> None:
    @on_one_thread
    def fail() -> None:
        raise ValueError("no")

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = threads()
        with pytest.raises(ValueError, match="no"):
            fail()
        assert threads() == before
