"""What Tidewise puts into a driver: reports batches, moves queries between batches, and gets out of the way.

Standard library only, and nothing of `tidewise`: the user's interpreter need not have it. Everything here fails open:
where the agent is disabled, broken or without a controller, the program behaves as it would without Tidewise. The one
thing that fails closed is the lease: a query does not start on a checkpoint that another application still holds.
"""

from __future__ import annotations

VERSION = 1
"""Of the protocol between agent and controller."""
