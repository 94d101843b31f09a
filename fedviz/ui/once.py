"""What all viewers of a run can share is made once: the first who asks makes it, the others get the same, or wait for it.

Streamlit's own caches do this as well; they take 0.4 ms to find an entry, which is too much for ten of them in every tick.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any


class Once:
    """The latest `most` things, by their names. For any number of threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, Future[Any]] = OrderedDict()  # least recently asked for first
        self._lock = threading.Lock()

    def __call__(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """What `make()` returned under this name. The name must hold all that the result depends on; nobody may change it."""
        with self._lock:
            found = self._made.get(name)
            thing = self._made[name] = found or Future()
            self._made.move_to_end(name)
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        if found is None:
            try:
                thing.set_result(make())
            except BaseException as error:  # told to all who wait; the next one to ask tries again
                with self._lock:
                    self._made.pop(name, None)
                thing.set_exception(error)
        return thing.result()
