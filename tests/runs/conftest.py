"""A store in a temporary folder, and managers over it that leave no thread behind."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedviz.runs import RunManager, RunStore
from tests.runs.fakes import Held, Local, Scripted, own_threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "runs.sqlite"


@pytest.fixture
def start(path: Path) -> Iterator[Callable[..., RunManager]]:
    """Makes managers over one store, and shuts them down; no thread may be left then."""
    managers: list[RunManager] = []
    held: list[Held] = []

    def make(executor=None, **options) -> RunManager:
        if isinstance(executor, Held):
            held.append(executor)
        managers.append(Local(RunStore(path), executor=executor or Scripted(), **options))
        return managers[-1]

    yield make
    for executor in held:
        executor.let(10**9)
    for manager in managers:
        manager.shutdown()
    assert own_threads() == []
