"""Avro's binary form of the few types that records have, for whole columns at once."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from tidewise.jobs.schedule import Whole

NULL = b"\x00"
"""Nothing, where a union of null and a type stands."""
NOT_NULL = b"\x02"
"""Comes before a value of such a union."""
_MOST_BYTES = 10


def varints(values: Whole) -> list[bytes]:
    """Whole numbers: sign folded into the lowest bit, then seven bits to a byte, the lowest first."""
    folded = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    groups = folded[:, None] >> (np.arange(_MOST_BYTES, dtype=np.uint64) * np.uint64(7))
    sizes = np.maximum((groups != 0).sum(axis=1), 1)
    digits = (groups & np.uint64(0x7F)).astype(np.uint8)
    digits |= np.where(np.arange(_MOST_BYTES) < sizes[:, None] - 1, 0x80, 0).astype(np.uint8)
    found = np.empty(len(values), dtype=object)
    # Few sizes occur in a column, and rows of one size are cut by numpy at once.
    for size in np.unique(sizes).tolist():
        rows = sizes == size
        found[rows] = _rows(digits[rows, :size])
    listed: list[bytes] = found.tolist()
    return listed


def doubles(values: NDArray[np.float64]) -> list[bytes]:
    """Numbers of eight bytes, the lowest first."""
    return _rows(values.astype("<f8").view(np.uint8).reshape(-1, 8))


def text(value: str) -> bytes:
    """A text: its length in bytes, then UTF-8."""
    encoded = value.encode()
    return _length(len(encoded)) + encoded


@functools.lru_cache(maxsize=1024)
def _length(size: int) -> bytes:
    return varints(np.array([size]))[0]


def _rows(matrix: NDArray[np.uint8]) -> list[bytes]:
    width = matrix.shape[1]
    listed: list[bytes] = np.ascontiguousarray(matrix).view(f"V{width}").ravel().tolist()
    return listed
