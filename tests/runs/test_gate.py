"""The gate on its own: members are threads that count their rounds."""

import random
import threading
import time

import pytest

from fedviz.runs.gate import Gate
from fedviz.runs.turns import Turns
from tests.runs.fakes import until


class Members:
    """Threads that go through a gate; `work(member)` is a round."""

    def __init__(self, gate: Gate, count: int = 1, rounds: int = 10**9, work=lambda member: time.sleep(0.0005)) -> None:
        self.gate, self.done = gate, [-1] * count
        self.lead = 0  # the furthest that anybody was ever ahead
        self.threads = [threading.Thread(target=self._go, args=(m, rounds, work), daemon=True) for m in range(count)]
        for thread in self.threads:
            thread.start()

    def _go(self, member: int, rounds: int, work) -> None:
        for round in range(rounds + 1):
            if not self.gate.wait_for(member, round):
                break
            work(member)
            self.done[member] = round
            self.lead = max(self.lead, round - min(self.done))
        self.gate.leave(member)

    def end(self) -> None:
        self.gate.stop()
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()


def test_members_stay_together_and_pause_after_the_same_round():
    for attempt in range(10):
        gate, chance = Gate([-1] * 2), random.Random(attempt)
        members = Members(gate, 2, work=lambda member, chance=chance: time.sleep(chance.random() * 0.002))
        until(lambda members=members: min(members.done) >= 3)
        gate.pause()
        until(lambda gate=gate: gate.settled)
        at = list(members.done)
        assert at == [gate.limit] * 2
        time.sleep(0.01)
        assert members.done == at
        members.end()
        assert members.done == at
        assert members.lead <= 1


def test_a_step_is_exactly_one_round_for_everybody():
    gate = Gate([-1] * 2)
    members = Members(gate, 2, work=lambda member: time.sleep(0.002 * member))
    gate.pause()
    until(lambda: gate.settled)
    start = members.done[0]
    for step in range(1, 6):
        gate.step()
        until(lambda: gate.settled)
        assert members.done == [start + step] * 2
    members.end()


def test_many_clicks_on_step_while_a_round_is_being_computed_are_one_step():
    gate, go = Gate(), threading.Event()
    members = Members(gate, work=lambda _: go.wait(5))
    gate.pause()
    go.set()
    until(lambda: gate.settled)
    assert members.done == [0]
    go.clear()
    clicks = [threading.Thread(target=gate.step) for _ in range(20)]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    go.set()
    until(lambda: gate.settled)
    assert members.done == [1]
    members.end()


def test_a_step_of_a_run_that_moves_is_a_pause():
    gate = Gate()
    members = Members(gate)
    until(lambda: members.done[0] > 2)
    gate.step()
    until(lambda: gate.settled)
    assert members.done[0] == gate.limit
    members.end()


def test_a_pause_before_the_start_lets_the_starting_point_through():
    gate = Gate([-1] * 2)
    gate.pause()
    assert not gate.settled
    members = Members(gate, 2)
    until(lambda: gate.settled)
    assert members.done == [0, 0]
    gate.resume()
    until(lambda: min(members.done) > 5)
    members.end()


def test_who_has_left_holds_nobody_back():
    gate = Gate([-1] * 2)
    gate.leave(1)
    members = Members(gate, 1, rounds=50)
    until(lambda: members.done == [50])
    members.end()


def test_who_has_left_and_asks_late_is_told_to_stop_and_is_not_taken_for_one_who_computes():
    gate = Gate([-1] * 2)
    assert (gate.let_in(0, -1), gate.let_in(1, -1)) == (0, 0)
    gate.stop()
    gate.leave(0)
    gate.leave(1)
    assert gate.let_in(1, 0) is None
    assert gate.end_turn()


def test_a_slow_starter_holds_the_other_at_the_starting_point():
    gate, ready = Gate([-1] * 2), threading.Event()
    members = Members(gate, 2, work=lambda member: ready.wait(5) if member else None)
    until(lambda: members.done[0] == 0)
    time.sleep(0.02)
    assert members.done == [0, -1]
    ready.set()
    until(lambda: min(members.done) > 3)
    members.end()


def test_pace_is_kept_by_both_and_changes_at_once():
    gate = Gate([-1] * 2)
    gate.set_pace(50)
    members = Members(gate, 2, work=lambda member: None)
    until(lambda: min(members.done) >= 1)
    first, began = members.done[0], time.monotonic()
    until(lambda: members.done[0] >= first + 25)
    assert 0.3 < time.monotonic() - began < 0.9  # 25 rounds at 50 a second; up to 0.1 s may be caught up
    gate.set_pace(0.01)
    time.sleep(0.05)
    slow = list(members.done)
    assert slow[0] == slow[1]  # the round that one has begun is open to the other
    time.sleep(0.1)
    assert members.done == slow
    gate.set_pace(None)  # the wait of 100 s is over at once
    until(lambda: min(members.done) > slow[0] + 20, seconds=1)
    members.end()


def test_a_hitch_is_not_followed_by_a_burst():
    gate, smooth = Gate(), threading.Event()
    gate.set_pace(100)
    members = Members(gate, work=lambda _: smooth.wait(5))
    time.sleep(0.5)  # 50 rounds are missed meanwhile
    smooth.set()
    began = time.monotonic()
    until(lambda: members.done[0] >= 30)
    assert time.monotonic() - began > 0.15  # 30 rounds at 100 a second, of which 10 may be caught up
    members.end()


def test_a_step_does_not_wait_for_the_clock():
    gate = Gate()
    gate.set_pace(0.001)
    members = Members(gate)
    gate.pause()
    until(lambda: gate.settled)
    gate.step()
    until(lambda: members.done == [1], seconds=1)
    members.end()


@pytest.mark.parametrize("pace", [0, -1, float("nan"), float("inf")])
def test_a_pace_that_is_none_is_refused(pace):
    with pytest.raises(ValueError, match="above 0"):
        Gate().set_pace(pace)


def test_stop_frees_everybody_wherever_they_wait():
    for prepare in (Gate.pause, lambda gate: gate.set_pace(0.001), lambda gate: None):
        gate = Gate([-1] * 2)
        members = Members(gate, 2)
        until(lambda members=members: min(members.done) >= 0)
        prepare(gate)
        members.end()
        assert not gate.settled
        gate.stop()


def test_a_turn_is_not_given_back_while_the_other_member_may_begin():
    class Counting(Turns):
        rests = 0

        def rest(self, gate):
            self.rests += 1
            super().rest(gate)

    turns = Counting(1)
    gate = Gate([-1] * 2, turns=turns)

    def let_in(member, done):
        return gate.let_in(member, done, patience=0)

    turns.want(gate)
    assert (let_in(0, -1), let_in(1, -1)) == (0, 0)
    assert (let_in(0, 0), let_in(1, 0)) == (0, 1)
    gate.set_pace(0.001)
    assert (let_in(1, 1), turns.rests) == (1, 0)  # round 1 is open to the other, whatever the pace
    assert (let_in(0, 0), let_in(0, 1)) == (1, 1)
    assert turns.rests > 0  # now both wait for the clock
    assert not gate._turn
