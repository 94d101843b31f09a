"""A fair queue: visitors take turns, however much each of them has waiting; one visitor's own come in their order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Not safe for several threads at once: its owner locks."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()  # by visitor; whose turn it is comes first

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[T]:
        """All that wait, in the order in which they will be taken if nobody comes or leaves."""
        lines = [list(line) for line in self._waiting.values()]
        for turn in range(max(map(len, lines), default=0)):
            yield from (line[turn] for line in lines if turn < len(line))

    def of(self, visitor: str) -> int:
        """How many of a visitor wait."""
        return len(self._waiting.get(visitor, ()))

    def __contains__(self, item: T) -> bool:
        return any(item in line for line in self._waiting.values())

    def put(self, visitor: str, item: T, *, behind: Callable[[T], bool] = lambda _: True) -> None:
        """behind: which of those that the same visitor has waiting come first; it stands before the first that does not."""
        line = self._waiting.setdefault(visitor, deque())
        line.insert(next((place for place, other in enumerate(line) if not behind(other)), len(line)), item)

    def take(self, fits: Callable[[T], bool] = lambda _: True) -> T:
        """The next one; a visitor whose next one does not fit is passed over. Raises IndexError when there is none."""
        visitor = next((visitor for visitor, line in self._waiting.items() if fits(line[0])), None)
        if visitor is None:
            raise IndexError("nothing waits")
        line = self._waiting[visitor]
        item = line.popleft()
        self._waiting.move_to_end(visitor)  # the visitor has had this turn
        if not line:
            del self._waiting[visitor]
        return item

    def remove(self, item: T) -> bool:
        """Take somebody out of the queue; False where they are not in it."""
        for visitor, line in self._waiting.items():
            if item in line:
                line.remove(item)
                if not line:
                    del self._waiting[visitor]
                return True
        return False
