"""Never more compute than there are places, whatever is paced, paused, stepped or replayed; and nobody waits for those who watch slowly."""

import threading
import time
from itertools import count

import pytest

from fedviz.runs import Limits, RunState, Visitor
from fedviz.runs.turns import Turns
from tests.runs.fakes import Held, Scripted, config, own_threads, record, until

ANNA, BEN, CLEO, DORA = Visitor("anna"), Visitor("ben"), Visitor("cleo"), Visitor("dora")


class Counted(Scripted):
    """How many compute at a time, preparations included; `most` is the largest number that was seen."""

    def __init__(self, preparation: float = 0.0, round: float = 0.001) -> None:
        super().__init__(lambda *_: None)
        self.preparation, self.round = preparation, round
        self.lock, self.now, self.most, self.prepared = threading.Lock(), 0, 0, 0

    def enter(self, by: int) -> None:
        with self.lock:
            self.now += by
            self.most = max(self.most, self.now)

    def records(self, work, supervisor):
        supervisor.begin()
        self.enter(+1)
        try:
            for _ in range(int(self.preparation / 0.005)):
                supervisor.between_steps()
                time.sleep(0.005)
        finally:
            self.enter(-1)
        self.prepared += 1
        for round in range(work.first, work.config.rounds + 1):
            if supervisor.let_in(round - 1) is None:
                return
            self.enter(+1)
            time.sleep(self.round)
            self.enter(-1)
            yield record(round)


def started(manager, count: int, visitor=ANNA, rounds: int = 100_000) -> list:
    return [manager.submit(config(rounds=rounds, seed=seed), visitor=visitor) for seed in range(count)]


@pytest.mark.parametrize("pace", [1e9, 200.0])
def test_paced_runs_take_turns_and_never_more_compute_than_there_are_places(start, pace):
    executor = Counted(round=0.002)
    manager = start(executor, limits=Limits(concurrent=1, begun=6))
    manager._pairs._turns.length = 0.03
    runs = started(manager, 6)
    for run in runs:
        manager.set_pace(run.id, pace)
    until(lambda: all(run.round >= 5 for run in runs), 10)
    assert executor.most == 1


def test_runs_that_go_on_after_a_pause_wait_for_a_place_before_new_ones_of_their_visitor(start):
    executor = Counted()
    manager = start(executor, limits=Limits(concurrent=1, begun=6))
    runs = started(manager, 3)
    for run in runs:
        until(lambda run=run: run.round >= 1)
        manager.pause(run.id)
        until(lambda run=run: run.state is RunState.PAUSED)
    new = started(manager, 2)
    until(lambda: new[0].round >= 1)
    stood = [run.round for run in runs]
    for run in runs:
        manager.resume(run.id)
    assert [run.state for run in runs] == [RunState.QUEUED] * 3
    assert new[1].queue_position == 4  # behind those three
    at = new[0].round
    until(lambda: new[0].round > at + 20)
    assert [run.round for run in runs] == stood
    manager.pause(runs[0].id)  # and those may be paused again
    assert runs[0].state is RunState.PAUSED
    manager.stop(new[0].id)
    until(lambda: sum(run.round > at for run, at in zip(runs[1:], stood[1:], strict=True)) == 1)
    assert executor.most == 1
    going, waiting = sorted(runs[1:], key=lambda run: run.queue_position or 0)
    manager.stop(going.id)
    until(lambda: waiting.state is RunState.RUNNING)
    assert new[1].state is RunState.QUEUED


def test_runs_that_are_resumed_go_on_in_the_order_in_which_they_were(start):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=6))
    runs = started(manager, 3)
    for run in runs:
        until(lambda run=run: run.round >= 0)
        manager.pause(run.id)
        until(lambda run=run: run.state is RunState.PAUSED)
    new = started(manager, 2)
    until(lambda: new[0].round >= 0)
    order = [runs[1], runs[2], runs[0]]
    for run in order:
        manager.resume(run.id)
    assert [run.queue_position for run in [*order, new[1]]] == [1, 2, 3, 4]
    going = new[0]
    for run in order:
        manager.stop(going.id)
        until(lambda run=run: run.state is RunState.RUNNING)
        going = run


def test_a_run_whose_pace_is_taken_away_needs_a_place(start):
    executor = Counted()
    manager = start(executor, limits=Limits(concurrent=1))
    slow = started(manager, 1)[0]
    manager.set_pace(slow.id, 50.0)
    quick = started(manager, 1, BEN)[0]
    until(lambda: quick.round > 5)
    manager.set_pace(slow.id, None)
    assert (slow.state, slow.queue_position) == (RunState.QUEUED, 1)
    manager.stop(quick.id)
    until(lambda: slow.state is RunState.RUNNING)
    assert executor.most == 1


def test_a_paced_run_keeps_its_pace_beside_one_that_computes_all_the_time(start):
    """And costs it little: a round now and then."""
    executor = Counted()
    manager = start(executor, limits=Limits(concurrent=1))
    slow = started(manager, 1)[0]
    manager.set_pace(slow.id, 20.0)
    quick = started(manager, 1, BEN)[0]
    until(lambda: quick.round > 5)
    at, began = (slow.round, quick.round), time.monotonic()
    until(lambda: slow.round >= at[0] + 3)
    # A turn lasts a quarter of a second at most when others wait.
    assert time.monotonic() - began < 3
    assert quick.round > at[1] + 20
    assert executor.most == 1


def test_a_paused_run_that_still_prepares_holds_its_place_until_it_is_ready(start):
    executor = Counted(preparation=0.1)
    manager = start(executor, limits=Limits(concurrent=1, begun=8))
    parent = manager.submit(config(rounds=3))
    until(lambda: not parent.live)
    forks = []
    for seed in range(3):
        forks.append(manager.fork(parent.id, 2, config(rounds=100 + seed)))
        manager.pause(forks[-1].id)
    until(lambda: executor.prepared == 4)
    assert executor.most == 1


def test_whoever_waits_for_a_worker_keeps_nobody_from_computing(start):
    class Slow(Counted):
        there = threading.Event()

        def records(self, work, supervisor):
            if work.config.algorithm.name == "fedprox":
                assert self.there.wait(10)
            yield from super().records(work, supervisor)

    executor = Slow()
    manager = start(executor, limits=Limits(concurrent=1))
    slow = started(manager, 1)[0]
    manager.set_pace(slow.id, 100.0)
    until(lambda: slow.round >= 0)
    pair = manager.submit(config(rounds=3), config("fedprox", rounds=3), visitor=BEN)
    until(lambda: pair.state is RunState.PREPARING)
    at = slow.round
    until(lambda: slow.round > at + 5)
    executor.there.set()
    until(lambda: not pair.live)
    assert (pair.state, pair.reference.state, executor.most) == (
        RunState.FINISHED,
        RunState.FINISHED,
        2,
    )  # both of one pair


def test_two_visitors_who_watch_slowly_share_one_place_alike(start):
    executor = Counted(round=0.003)
    manager = start(executor, limits=Limits(concurrent=1, begun=8))
    manager._pairs._turns.length = 0.02
    many, one = started(manager, 4, ANNA), started(manager, 1, BEN)[0]
    for run in [*many, one]:
        manager.set_pace(run.id, 1e6)
    until(lambda: one.round >= 0 and all(run.round >= 0 for run in many), 10)
    before = [run.round for run in [*many, one]]
    until(lambda: one.round > before[-1] + 40)
    gained = [run.round - at for run, at in zip([*many, one], before, strict=True)]
    assert 0.4 < gained[-1] / sum(gained[:-1]) < 2.5


def test_when_as_many_have_begun_as_may_the_one_that_was_left_alone_makes_room(start):
    executor = Counted()
    manager = start(executor, limits=Limits(concurrent=1, begun=2))
    runs = started(manager, 2)
    for run in runs:
        until(lambda run=run: run.round >= 1)
        manager.pause(run.id)
        until(lambda run=run: run.state is RunState.PAUSED)
    manager.watch(runs[0].id)
    third = started(manager, 1, BEN)[0]
    until(lambda: third.state is RunState.RUNNING)
    assert (runs[0].state, runs[1].state) == (RunState.PAUSED, RunState.INTERRUPTED)
    assert runs[1].message == (
        f"Interrupted after round {runs[1].round}: others were waiting, and it was paused. Resume continues it."
    )
    manager.stop(third.id)
    manager.resume(runs[1].id)
    again = manager.get(runs[1].id)
    until(lambda: again.round > runs[1].round)
    assert [each["round"] for each in again.records.dicts()] == list(range(again.round + 1))


@pytest.mark.parametrize("reference", [False, True])
def test_one_that_waits_has_one_paused_pair_put_away_not_all(start, reference):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=3))
    runs = []
    for seed in range(3):
        second = config("fedprox", rounds=100_000, seed=seed) if reference else None
        runs.append(manager.submit(config(rounds=100_000, seed=seed), second, visitor=ANNA))
        until(lambda: runs[-1].round >= 1)
        manager.pause(runs[-1].id)
        until(lambda: runs[-1].state is RunState.PAUSED and manager._pairs.of(runs[-1].id).gate.settled)
    new = started(manager, 1, BEN)[0]
    until(lambda: new.round >= 1)
    assert [run.state for run in runs] == [RunState.INTERRUPTED, RunState.PAUSED, RunState.PAUSED]


def test_a_pair_that_is_stopped_while_it_waits_for_a_place_waits_no_longer(start):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=2))
    pair = manager.submit(config(rounds=100_000), config("fedprox", rounds=100_000), visitor=ANNA)
    until(lambda: pair.round >= 1)
    manager.pause(pair.id)
    until(lambda: pair.state is RunState.PAUSED)
    going = started(manager, 1, BEN)[0]
    until(lambda: going.round >= 1)
    manager.resume(pair.id)
    assert manager._pairs.queued() == [pair]
    manager.stop(pair.id)
    assert manager._pairs.queued() == []


@pytest.mark.parametrize("put_away_after", [None, 600])
@pytest.mark.parametrize("limits", [{"begun": 1}, {"begun": 2, "begun_per_visitor": 1}])
def test_a_run_that_is_paused_in_the_midst_of_a_round_makes_room_once_the_round_is_done(start, limits, put_away_after):
    manager = start(Counted(round=0.05), limits=Limits(concurrent=1, put_away_after=put_away_after, **limits))
    first, second = started(manager, 2)
    until(lambda: first.round >= 1)
    manager.pause(first.id)
    until(lambda: second.round >= 0, 3)
    assert "others were waiting, and it was paused" in first.message


def test_a_paced_run_stays_where_none_is_ever_put_away(start):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=1, put_away_after=None))
    slow = started(manager, 1)[0]
    manager.set_pace(slow.id, 20.0)
    until(lambda: slow.round >= 1)
    new = started(manager, 1, BEN)[0]
    at = slow.round
    until(lambda: slow.round > at + 3)
    assert (slow.live, new.state) == (True, RunState.QUEUED)


def test_a_paced_run_is_put_away_for_others_only_after_a_while(start):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=1, put_away_after=0.4))
    slow = started(manager, 1)[0]
    manager.set_pace(slow.id, 2.0)
    until(lambda: slow.round >= 0)
    new = started(manager, 1, BEN)[0]
    assert (slow.live, new.state) == (True, RunState.QUEUED)
    until(lambda: new.state is RunState.RUNNING, 3)
    assert (slow.state, slow.can_resume) == (RunState.INTERRUPTED, True)
    assert "others were waiting, and it went slowly" in slow.message


def test_who_keeps_many_slow_runs_going_keeps_others_from_nothing(start):
    executor = Counted()
    manager = start(executor, limits=Limits(concurrent=1, begun=4, begun_per_visitor=2, put_away_after=600))
    slow = started(manager, 3)
    for run in slow:
        manager.set_pace(run.id, 5.0)
    until(lambda: slow[1].round >= 0)
    assert (slow[2].state, slow[2].queue_position) == (RunState.QUEUED, None)
    assert slow[2].message == (
        "2 runs of this visitor have begun, which is the most for one: it starts when one of them ends."
    )
    others = started(manager, 2, BEN)
    assert [run.queue_position for run in others] == [None, 1]
    until(lambda: others[0].round > 5)
    manager.set_pace(others[0].id, 5.0)
    until(lambda: others[1].round > 5)  # although it came last
    assert [run.live for run in slow] == [True] * 3
    manager.stop(slow[0].id)
    manager.stop(others[1].id)
    until(lambda: slow[2].round >= 0)
    assert executor.most == 1


def test_who_has_begun_a_share_makes_room_with_an_own_paused_run_not_with_that_of_another(start):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=2, begun_per_visitor=1))
    others, mine = started(manager, 1, BEN)[0], started(manager, 1)[0]
    for run in (others, mine):
        until(lambda run=run: run.round >= 1)
        manager.pause(run.id)
        until(lambda run=run: run.state is RunState.PAUSED)
    manager.watch(mine.id)  # the other one was left alone for longer
    new = started(manager, 1)[0]
    until(lambda: new.round >= 1)
    assert (others.state, mine.state) == (RunState.PAUSED, RunState.INTERRUPTED)


@pytest.mark.parametrize("paces", [(2.0, 2.0), (2.0, 5.0), (2.0, None)])
def test_whoever_keeps_touching_paced_runs_holds_up_nobody_for_longer(start, paces):
    """Cookies can be thrown away: two of them would be enough to hold all that may begin."""
    manager = start(Counted(), limits=Limits(concurrent=1, begun=2, begun_per_visitor=1, put_away_after=0.6))
    slow = [started(manager, 1, visitor)[0] for visitor in (ANNA, BEN)]
    for run in slow:
        manager.set_pace(run.id, 2.0)
    until(lambda: min(run.round for run in slow) >= 0)
    new, began = started(manager, 1, CLEO)[0], time.monotonic()
    assert new.message == "It starts when there is room: slow runs make some after 1 minute."
    for turn in count():
        if new.round >= 1 or time.monotonic() - began > 10:
            break
        for run in slow:
            if run.live:
                manager.watch(run.id)
                manager.set_pace(run.id, paces[turn % 2])
                manager.set_pace(run.id, 2.0)
        time.sleep(0.02)
    assert new.round >= 1
    assert time.monotonic() - began > 0.5
    assert sum(run.live for run in slow) == 1


def test_a_paced_run_has_its_while_anew_where_only_others_wait_for_runs_of_their_own_meanwhile(start):
    manager = start(Counted(), limits=Limits(concurrent=2, begun=2, begun_per_visitor=1, put_away_after=1.0))
    slow, fast = started(manager, 1)[0], started(manager, 1, BEN)[0]
    manager.set_pace(slow.id, 10.0)
    until(lambda: min(slow.round, fast.round) >= 1)
    started(manager, 1, BEN)  # behind an own one
    gone = started(manager, 1, CLEO)[0]
    time.sleep(0.1)
    manager.stop(gone.id)
    time.sleep(1.2)
    assert slow.live
    started(manager, 1, DORA)
    time.sleep(0.2)
    assert slow.live


def test_who_looks_all_the_time_is_put_away_like_everybody_else(start):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=2, begun_per_visitor=1, put_away_after=0.4))
    greedy, honest = started(manager, 1)[0], started(manager, 1, BEN)[0]
    for run in (greedy, honest):
        manager.set_pace(run.id, 10.0)
    until(lambda: min(greedy.round, honest.round) >= 0)
    manager.watch(honest.id)
    new, began = started(manager, 1, CLEO)[0], time.monotonic()
    while new.round < 0 and time.monotonic() - began < 5:
        manager.watch(greedy.id)
        time.sleep(0.01)
    assert (greedy.live, honest.live, new.round >= 0) == (False, True, True)


def test_a_paced_run_has_its_while_from_when_others_wait(start):
    manager = start(Counted(), limits=Limits(concurrent=1, begun=1, put_away_after=0.5))
    slow = started(manager, 1)[0]
    manager.set_pace(slow.id, 10.0)
    time.sleep(0.6)  # alone: that does not count
    for _ in range(2):
        gone = started(manager, 1, BEN)[0]
        time.sleep(0.35)  # nor what another waited who then left
        manager.stop(gone.id)
        assert slow.live
    assert slow.message == ""
    started(manager, 1, BEN)
    assert slow.message == "Others are waiting: a run this slow is put away after 1 minute. At max it stays."
    until(lambda: not slow.live, 3)


def test_who_is_paused_while_preparing_has_a_place_until_all_is_ready(start):
    executor = Counted(preparation=0.3)
    manager = start(executor, limits=Limits(concurrent=1))
    first = started(manager, 1)[0]
    manager.pause(first.id)
    second = started(manager, 1, BEN)[0]
    assert (first.state, second.state) == (RunState.PREPARING, RunState.QUEUED)
    until(lambda: second.state is RunState.PREPARING)
    assert executor.prepared == 1
    until(lambda: first.state is RunState.PAUSED)


def test_a_run_that_is_resumed_keeps_its_pace(start):
    manager = start(Counted(), limits=Limits(concurrent=1))
    run = started(manager, 1)[0]
    manager.set_pace(run.id, 50.0)
    until(lambda: run.round > 1)
    manager.stop(run.id)
    manager.resume(run.id)
    again = manager.get(run.id)
    assert (again.live, again.pace) == (True, 50.0)


@pytest.mark.parametrize("reference", [False, True])
def test_a_system_that_gives_no_threads_fails_the_run_and_not_the_next(start, monkeypatch, reference):
    manager = start(Counted(), limits=Limits(concurrent=1))
    begin, refused = threading.Thread.start, []

    def start_thread(thread):
        if thread.name.startswith("fedviz-run") and len(refused) < 1:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start_thread)
    run = manager.submit(config(rounds=3), config("fedprox", rounds=3) if reference else None)
    assert (run.state, run.message) == (RunState.FAILED, "The run could not be started: can't start new thread.")
    if reference:
        assert run.reference.state is RunState.FAILED
    after = manager.submit(config(rounds=3))
    until(lambda: not after.live)
    assert after.state is RunState.FINISHED
    until(lambda: not manager._pairs._begun)


def test_a_paused_run_to_which_nobody_comes_back_is_put_away_and_its_thread_ends(start):
    manager = start(Counted(), limits=Limits(concurrent=1, put_away_after=0.2))
    run = started(manager, 1)[0]
    until(lambda: run.round > 1)
    manager.pause(run.id)
    until(lambda: not run.live, 3)
    assert run.message.endswith(": it was paused, and nobody came back. Resume continues it.")
    until(lambda: not any(name.startswith("fedviz-run") for name in own_threads()))


def test_a_paused_run_on_which_somebody_presses_a_button_is_not_put_away(start):
    manager = start(Counted(), limits=Limits(concurrent=1, put_away_after=0.4))
    run = started(manager, 1)[0]
    until(lambda: run.round > 1)
    manager.pause(run.id)
    until(lambda: run.state is RunState.PAUSED)
    for _ in range(12):
        manager.step(run.id)
        time.sleep(0.1)
    assert run.live


def test_nothing_waits_for_a_check_of_data_that_takes_long(start, monkeypatch):
    """It is made again when a run's turn has come, by the run's own thread."""
    from fedviz.runs import admission

    begun, go = threading.Event(), threading.Event()
    checked = admission.check

    def slow(*configs, **options):
        if threading.current_thread().name.startswith("fedviz-run"):
            begun.set()
            assert go.wait(10)
        return checked(*configs, **options)

    monkeypatch.setattr(admission, "check", slow)
    executor = Held()
    manager = start(executor, limits=Limits(concurrent=1))
    run = manager.submit(config(rounds=3))
    assert begun.wait(5)
    done = threading.Event()

    def others() -> None:
        manager.submit(config(rounds=2))
        assert manager.get(run.id) is run
        manager.runs()
        manager.overview()
        done.set()

    threading.Thread(target=others, daemon=True).start()
    assert done.wait(2)
    go.set()


class Silent:
    """A gate that counts its turns."""

    visitor = ""

    def __init__(self):
        self.turns, self.computes = 0, False

    def begin_turn(self):
        self.turns += 1

    def end_turn(self):
        return not self.computes


@pytest.mark.parametrize("others", [0, 3])
def test_a_turn_goes_round_and_comes_back(others):
    turns, first, rest = Turns(1), Silent(), [Silent() for _ in range(others)]
    for each in (first, first, *rest):  # twice in line is once
        turns.want(each)
    assert (first.turns, [each.turns for each in rest], turns.wanted) == (1, [0] * others, others > 0)
    turns.rest(first)
    turns.want(first)
    for each in rest:
        assert each.turns == 1
        turns.leave(each)
    assert (first.turns, turns.wanted) == (2, False)


def test_who_asks_twice_for_a_turn_has_one():
    turns, first, second = Turns(1), Silent(), Silent()
    for each in (first, second, second):
        turns.want(each)
    turns.rest(first)
    turns.rest(second)
    assert (second.turns, turns.wanted) == (1, False)
    turns.want(first)
    assert first.turns == 2


def test_a_turn_is_not_taken_from_one_who_computes():
    turns, first, second = Turns(1), Silent(), Silent()
    turns.want(first)
    turns.want(second)
    first.computes = True
    turns.rest(first)
    assert (second.turns, turns.wanted) == (0, True)
    first.computes = False
    turns.rest(first)
    assert (second.turns, turns.wanted) == (1, False)
