"""The records of a run in memory: append-only columns with one writer and any number of readers that never wait.

A record is the plain dict of `RoundRecord.to_dict`. Its numbers become float64 columns under dotted paths
("evaluation.train_loss"), NaN where a record has none; its lists ("cohort", "weights") lie end to end in one flat
array with offsets. What else a record says (which fields are None, which numbers are whole, which texts it holds)
repeats from round to round, so it is kept once as a *shape*, and a record is its shape and its numbers:
`Records.dicts` gives back exactly what was appended.

Readers need no lock because of the order in which things are published: the writer fills row n in place, or in a
larger array that replaces the old one, and only then raises the length to n + 1. A reader takes the length first and
the arrays afterwards: whichever arrays it gets, their rows below that length are complete and never change again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Record = dict[str, Any]
Shape = tuple[tuple[str, Any], ...]  # (path, what stands there), in the record's order; names hold no dots

# What may stand at a path besides None, a text or a truth value, which a shape holds itself.
NUMBER: Final = float
WHOLE: Final = int  # exact up to 2**53
LIST: Final = list
EMPTY: Final = dict  # a group without members

LISTS: Final = {"cohort": np.dtype(np.int64), "weights": np.dtype(np.float64)}
_FIRST_CAPACITY = 256


class Columns:
    """Records under construction. One thread appends; any thread may take a `view`."""

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        self._length = 0
        self._capacity = _FIRST_CAPACITY
        # Replaced, never changed, when a column is added or grows, so that a reader's dict stays as it was.
        self._numbers: dict[str, NDArray[np.float64]] = {}
        self._shape_of_row: NDArray[np.int32] = np.zeros(self._capacity, np.int32)
        self._offsets = {path: np.zeros(self._capacity + 1, np.int64) for path in LISTS}
        self._flat: dict[str, NDArray[Any]] = {path: np.zeros(_FIRST_CAPACITY, kind) for path, kind in LISTS.items()}
        self._shapes: list[tuple[int, Shape]] = []  # with the row where each was first seen; only ever appended to
        self._shape_ids: dict[Shape, int] = {}
        for record in records:
            self.append(record)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record. Raises TypeError, and changes nothing, where it holds something that has no place here."""
        shape: list[tuple[str, Any]] = []
        numbers: dict[str, float] = {}
        lists: dict[str, NDArray[Any]] = {}
        _take_apart(record, "", shape, numbers, lists)

        row = self._length
        if row == self._capacity:
            self._grow()
        if not numbers.keys() <= self._numbers.keys():
            fresh = {path: np.full(self._capacity, np.nan) for path in numbers if path not in self._numbers}
            self._numbers = {**self._numbers, **fresh}
        for path, number in numbers.items():
            self._numbers[path][row] = number
        for path, offsets in self._offsets.items():
            start, values = int(offsets[row]), lists.get(path, ())
            end = start + len(values)
            if end > len(self._flat[path]):
                self._flat = {**self._flat, path: _enlarged(self._flat[path], max(end, 2 * len(self._flat[path])))}
            self._flat[path][start:end] = values
            offsets[row + 1] = end
        key = tuple(shape)
        if key not in self._shape_ids:
            self._shapes.append((row, key))
            self._shape_ids[key] = len(self._shapes) - 1
        self._shape_of_row[row] = self._shape_ids[key]
        self._length = row + 1  # last: from here on readers see the row

    def view(self) -> Records:
        """All records so far, as an immutable snapshot that shares the memory of the columns."""
        length = self._length  # first: see the module's docstring
        return Records(length, self._numbers, self._shape_of_row, self._offsets, self._flat, self._shapes)

    def _grow(self) -> None:
        self._capacity *= 2
        self._numbers = {path: _enlarged(values, self._capacity, np.nan) for path, values in self._numbers.items()}
        self._shape_of_row = _enlarged(self._shape_of_row, self._capacity)
        self._offsets = {path: _enlarged(values, self._capacity + 1) for path, values in self._offsets.items()}


class Records:
    """An immutable snapshot of the records of a run. All arrays are read-only views."""

    __slots__ = ("_flat", "_length", "_numbers", "_offsets", "_shape_of_row", "_shapes")

    def __init__(
        self,
        length: int,
        numbers: dict[str, NDArray[np.float64]],
        shape_of_row: NDArray[np.int32],
        offsets: dict[str, NDArray[np.int64]],
        flat: dict[str, NDArray[Any]],
        shapes: list[tuple[int, Shape]],
    ) -> None:
        self._length, self._numbers, self._shape_of_row = length, numbers, shape_of_row
        self._offsets, self._flat, self._shapes = offsets, flat, shapes

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        arrays = (*self._numbers.values(), *self._offsets.values(), *self._flat.values(), self._shape_of_row)
        return sum(array.nbytes for array in arrays)

    def column(self, path: str) -> NDArray[np.float64]:
        """[n] the numbers at a dotted path; NaN where a record has none."""
        values = self._numbers.get(path)
        return _read_only(np.full(self._length, np.nan) if values is None else values[: self._length])

    @property
    def rounds(self) -> NDArray[np.int64]:
        """[n] the round of each record."""
        return _read_only(self.column("round").astype(np.int64))

    def cohort(self, index: int) -> NDArray[np.int64]:
        """[S] the ids of the clients that took part, for the record at `index` (negative from the end)."""
        return self._list("cohort", index)

    @property
    def cohorts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(clients, offsets [n + 1]): the cohort of record i is clients[offsets[i] : offsets[i + 1]]."""
        offsets = self._offsets["cohort"][: self._length + 1]
        return _read_only(self._flat["cohort"][: offsets[-1]]), _read_only(offsets)

    def last(self, path: str) -> float | None:
        """The latest number at a dotted path, None if there is none yet."""
        column = self.column(path)
        for end in range(len(column), 0, -1024):  # from the back: the answer is nearly always close
            block = column[max(0, end - 1024) : end]
            known = block[~np.isnan(block)]
            if len(known):
                return float(known[-1])
        return None

    @property
    def mode(self) -> str | None:
        """How the error decompositions were taken, "cheap" or "full"; None before the first."""
        for first_row, shape in self._shapes:
            if first_row >= self._length:  # came after this snapshot
                return None
            mode = dict(shape).get("decomposition.mode")
            if isinstance(mode, str):
                return mode
        return None

    def dicts(self) -> list[Record]:
        """The records as they were appended."""
        numbers = {path: values[: self._length].tolist() for path, values in self._numbers.items()}
        shapes = [[(path.split("."), path, what) for path, what in shape] for _, shape in self._shapes]
        return [self._dict(row, shapes[index], numbers) for row, index in enumerate(self._shape_of_row[: self._length])]

    def _list(self, path: str, index: int) -> NDArray[Any]:
        row = range(self._length)[index]
        offsets = self._offsets[path]
        return _read_only(self._flat[path][offsets[row] : offsets[row + 1]])

    def _dict(self, row: int, shape: list[tuple[list[str], str, Any]], numbers: dict[str, list[float]]) -> Record:
        record: Record = {}
        for (*groups, name), path, what in shape:
            inner = record
            for group in groups:
                inner = inner.setdefault(group, {})
            if what is NUMBER:
                inner[name] = numbers[path][row]
            elif what is WHOLE:
                inner[name] = int(numbers[path][row])
            elif what is LIST:
                inner[name] = self._list(path, row).tolist()
            elif what is EMPTY:
                inner[name] = {}
            else:
                inner[name] = what
        return record


def _take_apart(
    values: Mapping[str, Any],
    prefix: str,
    shape: list[tuple[str, Any]],
    numbers: dict[str, float],
    lists: dict[str, NDArray[Any]],
) -> None:
    for name, value in values.items():
        path = prefix + name
        if value is None or isinstance(value, str | bool):
            shape.append((path, value))
        elif isinstance(value, int | float):
            shape.append((path, WHOLE if isinstance(value, int) else NUMBER))
            numbers[path] = value
        elif isinstance(value, Mapping):
            if value:
                _take_apart(value, f"{path}.", shape, numbers, lists)
            else:
                shape.append((path, EMPTY))
        elif path in LISTS:
            shape.append((path, LIST))
            lists[path] = np.asarray(value, LISTS[path])
        else:
            raise TypeError(
                f"A record holds a {type(value).__name__} at {path}: allowed are numbers, texts, None, groups of "
                f"these, and lists at {' and '.join(LISTS)}."
            )


def _enlarged(values: NDArray[Any], capacity: int, fill: float = 0) -> NDArray[Any]:
    larger = np.full(capacity, fill, values.dtype)
    larger[: len(values)] = values
    return larger


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
