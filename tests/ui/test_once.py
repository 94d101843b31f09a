"""What viewers share is made once, whoever asks first, and an error is not kept."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedviz.ui.once import Once


def test_twenty_who_ask_at_the_same_time_get_one_and_the_same_thing() -> None:
    once, made, start = Once(most=4), [], threading.Barrier(20)

    def make() -> list[int]:
        time.sleep(0.02)
        made.append(1)
        return [7]

    def ask(_: int) -> list[int]:
        start.wait()
        found: list[int] = once("a", make)
        return found

    with ThreadPoolExecutor(20) as viewers:
        found = list(viewers.map(ask, range(20)))
    assert made == [1]
    assert len({id(thing) for thing in found}) == 1


def test_the_least_recently_asked_for_is_made_again() -> None:
    once, made = Once(most=2), []
    for name in ("a", "b", "a", "c", "a", "b"):
        once(name, lambda name=name: made.append(name))
    assert made == ["a", "b", "c", "b"]


def test_an_error_reaches_who_asked_and_the_next_one_tries_again() -> None:
    once = Once(most=2)
    with pytest.raises(ZeroDivisionError):
        once("a", lambda: 1 / 0)
    assert once("a", lambda: "made") == "made"
