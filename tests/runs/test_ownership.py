"""Who may do what with whose run, and what becomes of runs that nobody looks at."""

import re
import secrets
import time

import pytest

from fedviz.config import ConfigError
from fedviz.runs import LOCAL, Limits, NotYours, Refused, RunManager, RunState, RunStore, Visitor
from tests.runs.fakes import Held, Scripted, config, record, until

ANNA, BEN = Visitor.of_secret("anna's secret"), Visitor.of_secret("ben's secret")
ADMIN = Visitor(ANNA.id[::-1], admin=True)
CONTROLS = ("pause", "resume", "step", "stop", "set_pace", "rename", "publish", "delete")


@pytest.fixture
def hosted(path):
    with RunManager(RunStore(path), limits=Limits(hosted=True, concurrent=1), executor=Scripted()) as manager:
        yield manager


def _deleted(manager, run_id, visitor=ANNA) -> bool:
    try:
        manager.delete(run_id, visitor)
    except NotYours:
        raise
    except Refused:  # its threads are still ending
        return False
    return True


def act(manager: RunManager, what: str, run_id: str, visitor: Visitor) -> None:
    arguments = {"set_pace": (visitor, 50.0), "rename": ("A title", visitor), "publish": (True, visitor)}
    if what == "delete":
        until(lambda: _deleted(manager, run_id, visitor))
    else:
        getattr(manager, what)(run_id, *arguments.get(what, (visitor,)))


def test_a_visitor_is_known_by_the_hash_of_their_secret():
    # sha256sum of the letters abc, from FIPS 180-2.
    assert Visitor.of_secret("abc").id == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert not Visitor.of_secret("abc").admin


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("what", CONTROLS)
def test_on_a_hosted_server_only_the_owner_and_admins_control_a_run(hosted, what, live):
    run = hosted.submit(config("fedprox", rounds=100_000), config(rounds=100_000), visitor=ANNA)
    until(lambda: run.round > 2)
    if not live:
        hosted.stop(run.id, ANNA)
    before = run.state
    for stranger in (BEN, LOCAL, Visitor.of_secret(ANNA.id), Visitor(secrets.token_hex(32))):
        for run_id in (run.id, run.reference.id):
            with pytest.raises(NotYours, match="started by somebody else"):
                act(hosted, what, run_id, stranger)
    assert (run.state, run.title, run.published) == (before, "", False)
    assert hosted.get(run.id) is run  # anybody may look
    assert hosted.may_control(run, ANNA)
    assert hosted.may_control(run, ADMIN)
    assert not hosted.may_control(run, BEN)
    for somebody in (ANNA, ADMIN):
        if not (what == "delete" and (live or somebody is ADMIN)):
            act(hosted, what, run.id, somebody)


def test_on_ones_own_machine_everybody_controls_everything(start):
    manager = start()
    run = manager.submit(config(rounds=100_000), visitor=ANNA)
    manager.stop(run.id, BEN)
    assert run.state is RunState.STOPPED


def test_lists_have_ones_own_runs_and_published_ones(hosted):
    reference = config("fedprox", rounds=2)
    runs = {who: hosted.submit(config(rounds=2), reference, visitor=who) for who in (ANNA, BEN)}
    until(lambda: not any(run.live for run in runs.values()))

    def listed(visitor, **options):
        return [run.id for run in hosted.runs(visitor, **options)]

    assert listed(ANNA) == [runs[ANNA].id]
    hosted.publish(runs[BEN].id, True, BEN)
    assert listed(ANNA) == [runs[BEN].id, runs[ANNA].id]
    hosted.publish(runs[BEN].id, False, BEN)
    assert listed(ANNA) == [runs[ANNA].id]
    assert listed(ADMIN, everyone=True) == [runs[BEN].id, runs[ANNA].id]
    assert listed(ADMIN, everyone=True, limit=1) == [runs[BEN].id]
    with pytest.raises(NotYours):
        hosted.runs(BEN, everyone=True)


def test_titles_are_one_visible_line_and_stay(hosted, path):
    run = hosted.submit(config(rounds=100_000), visitor=ANNA)
    hosted.rename(run.id, "  Drift  at\nwork ", ANNA)  # while it runs
    hosted.publish(run.id, True, ANNA)
    for bad, told in (
        ("x" * 81, "has 81 characters; allowed are up to 80"),
        ("bell \a", "cannot be seen (U+0007)"),
        ("\u202eback", "cannot be seen (U+202E)"),
    ):
        with pytest.raises(Refused, match=re.escape(told)):
            hosted.rename(run.id, bad, ANNA)
    hosted.stop(run.id, ANNA)
    hosted.shutdown()
    with RunManager(RunStore(path), executor=Scripted()) as again:
        stored = again.get(run.id)
        assert (stored.title, stored.published, stored.owner) == ("Drift at work", True, ANNA.id)
        again.rename(run.id, "", LOCAL)  # when it has ended
        assert stored.title == again._store.load(run.id).title == ""


def test_the_queue_is_fair_and_nobody_fills_it_alone(path):
    executor = Held()
    limits = Limits(hosted=True, concurrent=1, queue_length=4, queued_per_visitor=3)
    with RunManager(RunStore(path), limits=limits, executor=executor) as manager:
        runs = [manager.submit(config(), visitor=ANNA) for _ in range(4)]
        with pytest.raises(Refused, match="3 of your runs are waiting"):
            manager.submit(config(), visitor=ANNA)
        other = manager.submit(config(), visitor=BEN)
        assert [run.queue_position for run in [*runs, other]] == [None, 1, 3, 4, 2]
        with pytest.raises(Refused, match="4 runs are waiting already"):
            manager.submit(config(), visitor=BEN)
        assert [run.id for run in manager.overview().queued] == [runs[1].id, other.id, runs[2].id, runs[3].id]
        assert [run.id for run in manager.overview().computing] == [runs[0].id]
        executor.let(1000)


def test_an_equal_run_is_found_while_it_runs_and_when_it_is_finished(hosted, path):
    pair = config("fedprox", rounds=300), config(rounds=300)
    assert hosted.same(*pair) is None
    run = hosted.submit(*pair, visitor=ANNA)
    assert hosted.same(*pair) is run
    assert hosted.same(pair[0]) is None  # without the reference
    assert hosted.same(config("fedprox", rounds=301), pair[1]) is None
    until(lambda: not run.live)
    assert hosted.same(*pair).id == run.id
    stopped = hosted.submit(config(rounds=100_000), visitor=ANNA)
    hosted.stop(stopped.id, ANNA)
    assert hosted.same(config(rounds=100_000)) is None
    hosted.shutdown()
    with RunManager(RunStore(path), executor=Scripted()) as again:
        assert again.same(*pair).id == run.id
        again.delete(run.id, LOCAL)
        assert again.same(*pair) is None


def test_a_deleted_run_is_gone_with_its_reference_and_its_records(hosted):
    run = hosted.submit(config("fedprox", rounds=3), config(rounds=3), visitor=ANNA)
    with pytest.raises(Refused, match="has not ended"):
        hosted.delete(run.id, ANNA)
    until(lambda: not run.live)
    until(lambda: _deleted(hosted, run.id))
    store = hosted._store
    for run_id in (run.id, run.reference.id):
        assert hosted.get(run_id) is None
        assert (store.load(run_id), len(store.records(run_id))) == (None, 0)
    with pytest.raises(KeyError):
        hosted.delete(run.id, ANNA)


def test_a_run_that_others_continue_stays_until_the_last_of_them_is_deleted(hosted):
    parent = hosted.submit(config(rounds=6), visitor=ANNA)
    until(lambda: not parent.live)
    fork = hosted.fork(parent.id, 4, config("fedprox", rounds=6), visitor=BEN)
    until(lambda: not fork.live)
    assert fork.records.dicts() == [record(round) for round in range(7)]
    until(lambda: _deleted(hosted, parent.id))
    assert hosted.runs(ANNA) == []
    assert hosted._journal.settle(fork.id)
    assert hosted._store.records(fork.id).dicts() == fork.records.dicts()
    with pytest.raises(NotYours):
        hosted.delete(parent.id, BEN)
    hosted.delete(fork.id, BEN)
    assert hosted._store.load(parent.id) is None
    assert hosted._store.size()[0] == 0


@pytest.mark.parametrize(
    ("at", "changes", "named"),
    [
        (7, {}, "round: got 7, allowed 0 to 6"),
        (-1, {}, "round: got -1"),
        (3, {"seed": 1}, "seed: must be as in the run"),
        (3, {"num_clients": 1, "problem": {"kind": "quadratics", "curvature": [[1.0]], "linear": [[0.0]]}}, "problem: must"),
        (6, {"rounds": 6}, "rounds: got 6, allowed more than 6"),
    ],
)  # fmt: skip
def test_a_fork_keeps_problem_clients_and_seed(start, at, changes, named):
    manager = start()
    parent = manager.submit(config(rounds=6))
    until(lambda: not parent.live)
    with pytest.raises(ConfigError, match=named):
        manager.fork(parent.id, at, config(**{"rounds": 9, **changes}))
    assert len(manager.runs()) == 1


def test_a_run_that_nobody_watches_is_paused_and_says_so(start):
    manager = start(limits=Limits(pause_unwatched_after=0.4, concurrent=2))
    watched, left = manager.submit(config(rounds=100_000)), manager.submit(config(rounds=100_000))
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        manager.watch(watched.id)
        manager.watch("no such run")
        time.sleep(0.02)
    assert (watched.state, left.state) == (RunState.RUNNING, RunState.PAUSED)
    assert left.message == f"Paused after round {left.round}, for nobody was watching. Resume continues it."
    manager.resume(left.id)
    assert left.state is RunState.RUNNING


def test_old_runs_expire_unless_they_are_published_or_live(start):
    manager = start(limits=Limits(concurrent=4))
    old, kept = manager.submit(config(rounds=2), config("fedprox", rounds=2)), manager.submit(config(rounds=2))
    live = manager.submit(config(rounds=100_000))
    manager.publish(kept.id, True, LOCAL)
    until(lambda: not old.live and not kept.live)
    assert all(manager._journal.settle(run.id) for run in (old, kept))
    manager._delete_expired(3600)
    assert manager._store.size()[0] == 4
    manager._delete_expired(-1)  # as if the hour were over
    assert {row.id for row in manager._store.listed(None)} == {kept.id, live.id}
    assert manager._store.load(old.reference.id) is None


def test_runs_are_continued_from_one_another_so_often_and_no_more(start, monkeypatch):
    monkeypatch.setattr("fedviz.runs.manager._MOST_FORKS", 2)
    manager = start()
    run = manager.submit(config(rounds=3))
    until(lambda: not run.live)
    for rounds in (4, 5):
        run = manager.fork(run.id, 2, config(rounds=rounds))
        until(lambda run=run: not run.live)
    with pytest.raises(Refused, match="continued 2 times"):
        manager.fork(run.id, 2, config(rounds=6))
