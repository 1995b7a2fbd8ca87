"""The clock by which a stream forgets rows: this machine's, except that it never goes back, however that one is set.

Spark drops what lies behind its watermark and says nothing, and the watermark stays where a clock that was ahead has
brought it. So a query begins where the last batch stood, and goes on from there at the pace of this machine's clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tidewise.core import TemporaryError


class ClockWentBackError(TemporaryError):
    """The clock was set back so far that rows would be dropped; a query that is started again drops none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBegun:
    """What Spark noted down of a batch before it ran it, in ms since 1970; it runs it again by the same."""

    at_ms: int
    watermark_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamClock:
    """What a query adds to this machine's clock, and what it takes for now at least."""

    ahead_ms: int = 0
    least_ms: int = 0

    @classmethod
    def resumed(cls, checkpoint: Path, *, known_again_s: float, now_unix_s: float) -> StreamClock:
        """That of a query which goes on from a checkpoint, or has none yet."""
        begun = _last_begun(checkpoint)
        if begun is None:
            return cls()
        # Of the batch itself, or of the one before it, which has set the watermark.
        least_ms = max(begun.at_ms, begun.watermark_ms + round(1000 * known_again_s))
        return cls(ahead_ms=max(0, least_ms - round(1000 * now_unix_s)), least_ms=least_ms)

    @property
    def sql(self) -> str:
        """Now, the same for all rows of a batch."""
        return f"timestamp_millis(greatest(unix_millis(current_timestamp()) + {self.ahead_ms}L, {self.least_ms}L))"

    def check(self, checkpoint: Path, batch: int) -> None:
        """ClockWentBackError where all rows of a batch that is about to be written would be dropped."""
        begun = _begun(checkpoint / "offsets" / str(batch))
        if begun is None:
            return
        behind_ms = begun.watermark_ms - max(begun.at_ms + self.ahead_ms, self.least_ms)
        if behind_ms >= 0:
            raise ClockWentBackError(
                "This machine's clock was set back; the stream goes on from where it stood, and no row is lost."
            )


def _last_begun(checkpoint: Path) -> BatchBegun | None:
    offsets = checkpoint / "offsets"
    batches = [int(path.name) for path in offsets.iterdir() if path.name.isdecimal()] if offsets.is_dir() else []
    return _begun(offsets / str(max(batches))) if batches else None


def _begun(path: Path) -> BatchBegun | None:
    """None where there is none, or where Spark writes something else by now: then it tells what it drops."""
    try:
        told = json.loads(path.read_text(encoding="utf-8").splitlines()[1])
        return BatchBegun(at_ms=int(told["batchTimestampMs"]), watermark_ms=int(told["batchWatermarkMs"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
