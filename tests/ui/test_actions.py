"""What buttons and links do where something is not as it should be."""

from types import SimpleNamespace

import pytest

from fedviz.runs.store import StoreError
from fedviz.ui import actions, share


def test_a_run_that_cannot_be_read_is_as_good_as_none(monkeypatch):
    def get(run_id):
        raise StoreError("made by another version")

    monkeypatch.setattr(actions, "run_manager", lambda: SimpleNamespace(get=get))
    assert actions.run_or_none("a-run") is None
    assert actions.run_or_none(None) is None


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("http://localhost:8501/", "http://localhost:8501/?run=abc"),
        ("http://localhost:8501/?run=old", "http://localhost:8501/?run=abc"),
        ("http://localhost:8501/simulate", "http://localhost:8501/?run=abc"),  # where a tab stands after a restart
        ("https://lab.example/fedviz/simulate", "https://lab.example/fedviz/?run=abc"),
    ],
)
def test_a_link_leads_to_the_page_itself(monkeypatch, address, link):
    monkeypatch.setattr(share.st, "context", SimpleNamespace(url=address))
    assert share.link("run=abc") == link
