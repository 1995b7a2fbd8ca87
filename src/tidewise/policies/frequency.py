"""How often something happens to a job: what is usual, until enough has been seen."""

from __future__ import annotations

_DAY_S = 86_400.0
_PRIOR_S = 12 * 3600.0
"""For how long the usual rate is taken to have been watched."""


class Frequency:
    """Counts, and for how long it has counted."""

    def __init__(self, *, usual_per_day: float) -> None:
        self._times = usual_per_day * _PRIOR_S / _DAY_S
        self._watched_s = _PRIOR_S

    def watched(self, seconds: float) -> None:
        """So much time has passed."""
        self._watched_s += seconds

    def happened(self, times: float = 1.0) -> None:
        """So often; less than once where it is not certain."""
        self._times += times

    @property
    def per_s(self) -> float:
        """How often it is to be expected."""
        return self._times / self._watched_s
