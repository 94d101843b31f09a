"""Files that anybody may have made: taken when they are whole runs, else refused with the place and the reason."""

import copy
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedviz.runs import LOCAL, Limits, Refused, RunState, imports
from tests.runs.fakes import config, until

COSTS = {"gradient_evaluations": 0, "probe_evaluations": 0, "floats_up": 0, "floats_down": 0, "seconds": 0.0}


def exported(rounds: int = 4, **changes) -> dict:
    """As `export.to_json` gives a run."""
    records = [
        {
            "round": round, "cohort": [round % 2] if round else [], "weights": [1.0] if round else [],
            "evaluation": {"train_loss": 1.5, "test_loss": None}, "decomposition": {"drift": 0.5, "mode": "cheap", "check": None},
            "costs": COSTS, "diagnostics": {"cold": 1.0}, "window": None,
        }
        for round in range(rounds + 1)
    ]  # fmt: skip
    return {
        "schema": 1, "fedviz": "0.1.0", "created": "2025-01-31T12:00:00+00:00", "device": "CPU", "state": "finished",
        "message": "All 4 rounds are done.", "title": "A title", "config": config(rounds=rounds).to_dict(),
        "records": records, "reference": None, **changes,
    }  # fmt: skip


def as_file(values) -> bytes:
    return json.dumps(values).encode()


def test_an_exported_run_comes_in_whole_and_stays(start, path):
    manager = start()
    values = exported(reference=exported(title=None))
    run = manager.import_run(as_file(values), LOCAL)
    assert (run.state, run.message, run.device, run.title) == (RunState.FINISHED, values["message"], "CPU", "A title")
    assert run.records.dicts() == values["records"]
    assert run.reference.records.dicts() == values["reference"]["records"]
    assert manager.same(run.config, run.reference.config) is None  # nobody vouches for its records
    manager.shutdown()
    again = start()
    stored = again.get(run.id)
    assert (stored.config, stored.owner, stored.title) == (run.config, "local", "A title")
    assert stored.records.dicts() == values["records"]
    assert [each.id for each in again.runs()] == [run.id]


def test_a_run_that_was_going_on_comes_in_as_stopped(start):
    values = exported(state="running")
    values["records"] = values["records"][:3]
    run = start().import_run(as_file(values), LOCAL)
    assert (run.state, run.live, run.round) == (RunState.STOPPED, False, 2)


def changed(**changes):
    def change(values):
        for path, value in changes.items():
            *groups, last = path.split("__")
            inner = values
            for group in groups:
                inner = inner[int(group) if group.isdecimal() else group]
            inner[int(last) if last.isdecimal() else last] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(schema=2), "has schema 2, which a newer fedviz wrote; this one reads 1"),
        (changed(schema=0), "its schema is 0, this fedviz reads 1"),
        (lambda values: values.pop("records"), "settings alone"),
        (lambda values: values.pop("schema"), "the run does not say its schema, which for this fedviz must be 1"),
        (changed(schema=True), "its schema is true"),
        (changed(config__rounds=-1), "settings are not valid: rounds: got -1"),
        (changed(config=[]), "config must be a group of named values, got an empty list"),
        (changed(config__algorithm={"name": "x" * 500_000}), "its settings take more than 500,000 characters"),
        (changed(records={}), "records must be a list of at most 5, got an empty group"),
        (lambda values: values["records"].append(values["records"][-1]), "at most 5"),
        (lambda values: values["records"].pop(), "it says it is finished, but has 4 of 5 records"),
        (changed(records__2__round=3), "record 2 says it is of round 3"),
        (changed(records__1__round=True), "record 1 says it is of round true"),
        (changed(records__1__cohort=[5]), "clients from 0 to 1"),
        (changed(records__1__cohort=["<b>"]), "clients from 0 to 1, got '<b>'"),
        (changed(records__1__cohort=[0, 0], records__1__weights=[1.0, 1.0]), "names a client twice"),
        (changed(records__1__weights=[]), "lists of one length, got a list of one value and an empty list"),
        (changed(records__1__weights=["x"]), "weights must be numbers, got 'x'"),
        (
            changed(records__1__costs={}),
            "costs must have floats_down, floats_up, gradient_evaluations, probe_evaluations, seconds, got nothing",
        ),
        (changed(records__1__costs__seconds=10**400), "costs.seconds must be a number"),
        (
            changed(records__1__evaluation__train_loss="<script>"),
            "evaluation.train_loss must be a number, got '<script>'",
        ),
        (
            changed(records__1__evaluation__train_loss=[[1]]),
            "evaluation.train_loss must be a number, got a list of one value",
        ),
        (changed(records__1__diagnostics={"a b": 1.0}), "has the name 'a b'"),
        (changed(records__1__diagnostics={f"n{i}": 1.0 for i in range(50)}), "has 50 values, allowed are 40"),
        (changed(records__1__extra=1), "record 1 must have"),
        (changed(records__1=None), "record 1 must be a group"),
        (changed(state="glorious"), "no state 'glorious', only queued, preparing, running,"),
        (lambda values: values.pop("state"), "state must be a text of at most 500 characters, got nothing (null)"),
        (changed(message="x" * 501), "message must be a text of at most 500 characters, got 501 characters"),
        (changed(fedviz=None), "fedviz must be a text of at most 500 characters, got nothing (null)"),
        (changed(reference=7), "reference must be a group"),
        (changed(reference=exported(reference=exported())), "a reference has none itself"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(start, change, said):
    values = copy.deepcopy(exported())
    change(values)
    manager = start()
    with pytest.raises(Refused) as refusal:
        manager.import_run(as_file(values), LOCAL)
    assert said in str(refusal.value)
    assert manager.runs() == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *((data, "it is empty") for data in (b"", b" \n")),
        (b'{"a": 1,\n', "it is not JSON, or only a part of it: it cannot be read from line 2, column 1 on"),
        (b"[" * 9_000, "its values are nested too deeply"),
        *((data, r"it is not text \(UTF-8\)") for data in (b"\xff\xfe", b"\x80\x04cos\nsystem\n.")),
        (b"{}", "the run has no records; it is an empty group"),
        (b"[1, 2]", "it holds a list of 2 values and not a group of named values, as a run is"),
        (b'{"name": "x", "a": 1, "b": 2, "c": 3}', "the run has no records; it has only name, a, b and 1 more"),
        (b'{"rounds": 3}', "the run has no records; settings alone are opened by a link"),
        (b"[" * 100_000, "far too many lists"),
        (b"null", r"it holds nothing \(null\) and not a group of named values, as a run is"),
        (b'{"schema": NaN}', "it holds NaN, which is not a number"),
        (b'{"a": 1e999}', "the run has no records"),
        (b" " * 20_000_001, "20,000,001 bytes; allowed are 20,000,000"),
        (as_file(exported()).replace(b'"weights": [1.0]', b'"weights": [1e999]', 1), "weights must be numbers"),
    ],
)
def test_what_is_no_run_at_all_is_refused(data, said):
    with pytest.raises(Refused, match=said):
        imports.read(data)


@pytest.mark.parametrize("data", [b"", b"null", b"{}", b"[" * 100_000, as_file(exported(state=None))])
def test_every_refusal_of_a_file_says_in_plain_words_what_to_import_instead(data):
    with pytest.raises(Refused) as refusal:
        imports.read(data)
    assert str(refusal.value).endswith(
        '. Import a file that "Export as JSON" in the list of runs has made, or "Whole run as JSON" under Share, just as it is.'
    )
    assert not re.search(r"\b(None|True|False|Traceback|Error|dict|char \d)\b", str(refusal.value))


def test_texts_are_freed_of_what_cannot_be_seen():
    read = imports.read(as_file(exported(message="a\u202eb\x1b[31m\nc", device="GPU\x00")))
    assert (read.message, read.device) == ("a b [31m c", "GPU ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(exported())), JSON, st.booleans())
def test_nothing_but_a_refusal_comes_of_any_value_anywhere(name, value, inside):
    values = copy.deepcopy(exported())
    if inside:
        values["records"][1]["costs" if name == "schema" else "evaluation"] = value
    else:
        values[name] = value
    try:
        read = imports.read(as_file(values))
    except Refused:
        return
    assert len(read.records) <= read.config.rounds + 1


def test_an_imported_run_can_be_continued_only_as_it_was_recorded(start):
    """What the file says is checked by computing it again."""
    from fedviz.runs.executors import ThreadExecutor

    manager = start(ThreadExecutor())
    values = exported(state="stopped", fedviz=__import__("fedviz").__version__)
    values["records"] = values["records"][:3]
    run = manager.import_run(as_file(values), LOCAL)
    manager.resume(run.id)
    run = manager.get(run.id)
    until(lambda: not run.live, 30)
    assert run.state is RunState.FAILED
    assert "round 0, computed again, is not what was recorded" in run.message


def test_records_with_ever_new_names_are_refused(start):
    """Each name would become a column as long as the run: a small file could take all memory."""
    values = exported()
    for record in values["records"]:
        record["diagnostics"] = {f"name_{record['round']}_{number}": 1.0 for number in range(30)}
    with pytest.raises(Refused, match=r"its records have 15\d kinds of numbers, allowed are 128"):
        start().import_run(as_file(values), LOCAL)


def test_a_server_for_strangers_takes_no_run_that_it_would_not_compute(start):
    limits = Limits(hosted=True, rounds=3)
    with pytest.raises(Refused, match="4 rounds; this server allows 3"):
        start(limits=limits).import_run(as_file(exported()), LOCAL)
    assert start(limits=Limits(rounds=3)).import_run(as_file(exported()), LOCAL).round == 4


@pytest.mark.parametrize("filling", ["[],", "{},", '"a",', '[["b"]],'])
def test_a_file_that_would_take_a_hundred_times_its_size_in_memory_is_not_even_read(monkeypatch, filling):
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(Refused, match="far too many lists or texts"):
        imports.read(b'{"records":[' + 100_000 * filling.encode() + b"0]}")


def test_a_refusal_is_short_however_much_is_wrong(start):
    values = copy.deepcopy(exported())
    values["config"] |= {f"k{number}": 1 for number in range(5_000)} | {"algorithm": {"name": "x" * 100_000}}
    with pytest.raises(Refused, match=r"; and [\d,]+ more\.") as refusal:
        start().import_run(as_file(values), LOCAL)
    assert len(str(refusal.value)) < 1_500
