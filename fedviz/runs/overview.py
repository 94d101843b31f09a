"""What goes on in a server, for admins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from fedviz.runs.limits import Limits
    from fedviz.runs.run import Run


@dataclass(frozen=True)
class Overview:
    """What goes on, for admins."""

    queued: list[Run]  # in the order in which they will start
    computing: list[Run]  # also those that are paced or paused
    memory_free: int  # bytes
    memory_used: int  # by the server and its workers
    disk_free: int
    stored_runs: int  # references included
    stored_bytes: int  # database and checkpoints
    limits: Limits


def memory_used() -> int:
    """Of this process and those that it started, in bytes."""
    this = psutil.Process()
    used = 0
    for process in [this, *this.children(recursive=True)]:
        try:
            used += process.memory_info().rss
        except psutil.Error:  # gone meanwhile
            continue
    return used
