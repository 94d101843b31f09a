"""Records in memory: exact, immutable, and never seen half-written."""

import threading

import numpy as np
import pytest

from fedviz.runs import Columns
from tests.runs.fakes import record


def test_what_was_appended_comes_back_exactly():
    appended = [record(round) for round in range(600)]  # more than the first capacity
    found = Columns(appended).view().dicts()
    assert found == appended
    # Whole numbers stay whole, and the order of fields stays.
    assert [repr(each) for each in found] == [repr(each) for each in appended]


def test_columns_hold_the_numbers_and_nan_where_there_is_none():
    records = Columns(record(round) for round in range(12)).view()
    assert len(records) == 12
    assert records.rounds.dtype == np.int64
    assert records.rounds.tolist() == list(range(12))
    loss = records.column("evaluation.train_loss")
    assert loss.dtype == np.float64
    np.testing.assert_array_equal(loss, [2.0, *[np.nan] * 4, 2 / 6, *[np.nan] * 4, 2 / 11, np.nan])
    np.testing.assert_array_equal(records.column("costs.gradient_evaluations"), 480.0 * np.arange(12))
    assert np.isnan(records.column("no.such.thing")).all()
    assert len(records.column("no.such.thing")) == 12
    assert records.last("evaluation.train_loss") == 2 / 11
    assert records.last("evaluation.test_loss") is None
    assert records.last("no.such.thing") is None
    assert records.cohort(0).tolist() == []
    assert records.cohort(4).tolist() == [0, 3]
    assert records.cohort(-1).tolist() == [1, 4]
    with pytest.raises(IndexError):
        records.cohort(12)


def test_the_latest_number_is_found_far_back():
    rows = [{"round": round, "evaluation": {"train_loss": 7.0} if round == 3 else None} for round in range(5000)]
    assert Columns(rows).view().last("evaluation.train_loss") == 7.0


def test_a_snapshot_does_not_change_and_cannot_be_changed():
    columns = Columns(record(round) for round in range(1))
    before = columns.view()
    for round in range(1, 1000):
        columns.append(record(round))
    assert len(before) == 1
    assert before.mode is None
    assert columns.view().mode == "cheap"
    assert before.dicts() == [record(0)]
    for array in (before.column("evaluation.train_loss"), before.rounds, columns.view().cohort(3)):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_what_has_no_place_is_refused_and_leaves_no_trace():
    columns = Columns([record(0)])
    with pytest.raises(TypeError, match=r"set at diagnostics\.clients"):
        columns.append({"round": 1, "diagnostics": {"clients": {1, 2}}})
    columns.append(record(1))
    assert columns.view().dicts() == [record(0), record(1)]


def test_readers_racing_the_writer_see_only_complete_rows():
    columns, wrong, views, last = Columns(), [], 0, 20_000

    def write() -> None:
        for round in range(last):
            # "late" appears half-way, so that a column is added under the readers' eyes.
            late = {"late": float(round)} if round >= last // 2 else {}
            columns.append({"round": round, "cohort": [round] * (round % 3), "twice": 2.0 * round, "diagnostics": late})

    writer = threading.Thread(target=write)
    writer.start()
    while True:
        done = not writer.is_alive()
        records = columns.view()
        views += 1
        count = len(records)
        rows = np.arange(count)
        late = np.where(rows >= last // 2, rows, np.nan)
        if not (
            np.array_equal(records.rounds, rows)
            and np.array_equal(records.column("twice"), 2.0 * rows)
            and np.array_equal(records.column("diagnostics.late"), late, equal_nan=True)
            and all(records.cohort(i).tolist() == [i] * (i % 3) for i in range(max(0, count - 3), count))
        ):
            wrong.append(count)
        if done:
            break
    assert wrong == []
    assert count == last
    assert views > 20
