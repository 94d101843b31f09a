"""Whose turn it is."""

from hypothesis import given
from hypothesis import strategies as st

from fedviz.runs.queue import FairQueue


def test_visitors_take_turns_however_much_one_of_them_has_waiting():
    queue = FairQueue()
    for number in range(4):
        queue.put("greedy", f"g{number}")
    queue.put("late", "l0")
    queue.put("later", "m0")
    queue.put("later", "m1")
    assert list(queue) == ["g0", "l0", "m0", "g1", "m1", "g2", "g3"]
    assert (len(queue), queue.of("greedy"), queue.of("nobody")) == (7, 4, 0)
    assert queue.take() == "g0"
    assert list(queue)[:2] == ["l0", "m0"]
    assert queue.remove("l0")
    assert not queue.remove("l0")
    queue.put("late", "l1")
    assert [queue.take() for _ in range(len(queue))] == ["m0", "g1", "l1", "m1", "g2", "g3"]


def test_what_comes_before_some_stands_behind_the_others():
    queue = FairQueue()
    queue.put("anna", "new 1")
    queue.put("anna", "old 1", behind=lambda other: other.startswith("old"))
    queue.put("anna", "new 2")
    queue.put("anna", "old 2", behind=lambda other: other.startswith("old"))
    assert list(queue) == ["old 1", "old 2", "new 1", "new 2"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3))))
def test_the_order_shown_is_the_order_taken(steps):
    queue, number = FairQueue(), 0
    for visitor, kind in steps:
        if kind:
            queue.put(visitor, f"{visitor}{number}")
            number += 1
        elif len(queue):
            queue.take()
    shown = list(queue)
    assert [queue.take() for _ in range(len(queue))] == shown
