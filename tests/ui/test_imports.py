"""Imported files, changed at random: each is refused or becomes a run whose charts can be drawn."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from fedviz import figures
from fedviz.runs import export
from fedviz.runs.admission import Refused
from fedviz.runs.visitor import LOCAL
from fedviz.ui.shown import Shown
from tests.ui.conftest import until
from tests.ui.test_page import small

odd = some.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1e308,
        10**30,
        "",
        "x" * 1000,
        "<script>",
        "NaN",
        [],
        {},
        [[]],
        {"round": 1},
        "../../etc/passwd",
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in nested values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, each in inner for place in places(each, (*path, name)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = new
    return value


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.data())
def test_a_file_changed_anywhere_is_refused_or_can_be_drawn(runs, data):
    if not hasattr(runs, "exported"):
        run = runs.submit(small(), visitor=LOCAL)
        until(lambda: not run.live)
        runs.exported = export.to_json(run)
    file = changed(runs.exported, data.draw(some.sampled_from(places(runs.exported))), data.draw(odd))
    try:
        run = runs.import_run(json.dumps(file).encode(), LOCAL)
    except Refused:
        return
    shown = Shown.of(run)
    assert len(shown.records) <= run.config.rounds + 1
    figures.loss([shown.view])
    figures.accuracy([shown.view])
    figures.decomposition(shown.view, None)
    figures.participation(shown.view)
    figures.heterogeneity(shown.view)
    json.dumps(export.to_json(run), allow_nan=False)
