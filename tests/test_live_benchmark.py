"""The benchmark of live pages judges by its bars; that what it watches grows is checked where it watches."""

import pytest

from benchmarks import live


def row(what, *, latency=20.0, size=40_000, cores=0.02, rounds=100.0):
    made = live.Row(what, [latency] * 10, [size] * 10, cores, 0.0, rounds, 200.0)
    made.seconds = 7.5
    return made


def found(**changes):
    growth = [row("200 rounds"), row("2,000 rounds"), changes.get("last", row("20,000 rounds"))]
    load = [row("0 viewers"), changes.get("one", row("1 viewers")), row("5 viewers"), row("20 viewers")]
    return live.Measured(
        "process", growth, [*load, row("2 runs, 20 viewers")], frames={"frames": 700, "blank": 0, "busy": 0.2}
    )


def test_all_bars_hold_where_nothing_grows_and_nothing_slows_down():
    assert [holds for *_, holds in live.bars(found())] == ["yes"] * 7


@pytest.mark.parametrize(
    ("changes", "bar"),
    [
        ({"last": row("20,000 rounds", size=60_001)}, "bytes a tick"),
        ({"last": row("20,000 rounds", cores=0.0301)}, "server time a tick"),
        ({"one": row("1 viewers", rounds=84.0)}, "training slowed down"),
    ],
)
def test_a_bar_that_is_missed_is_said(changes, bar):
    missed = [what for what, *_, holds in live.bars(found(**changes)) if holds != "yes"]
    assert len(missed) == 1
    assert missed[0].startswith(bar)


def test_server_time_of_a_tick_is_the_share_of_a_core_over_the_ticks_of_that_time():
    assert row("").milliseconds == pytest.approx(0.02 * 7500 / 10)


def test_the_written_page_names_the_load_under_which_it_was_made():
    text = live.page([found()], load=0.3)
    assert "load 0.3 before it began" in text
    assert "## Executor `process`" in text


@pytest.mark.parametrize(("end", "word"), [(165.0, "holds"), (166.0, "does not hold")])
def test_memory_is_judged_against_that_after_two_minutes(end, word):
    memory = [(0.0, 100.0), (2.0, 150.0), (30.0, end)]
    text = live.memory_page({"thread": memory}, load=0.3)
    assert word in text
    assert ("not" in word) == ("does not hold" in text)
