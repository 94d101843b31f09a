"""What the browser says of a zoom is taken for what it is, and nothing else is."""

from __future__ import annotations

import pytest
import streamlit as st

from fedviz.ui import charts, feed


@pytest.mark.parametrize(
    ("told", "focus"),
    [
        ({"focus": [100, 200]}, (100, 200)),
        ({"focus": [0, 1]}, (0, 1)),
        ({"focus": None}, None),
        ({}, None),
        (None, None),
        ("focus", None),
        ({"focus": [200, 100]}, None),
        ({"focus": [5, 5]}, None),
        ({"focus": [-1, 5]}, None),
        ({"focus": [1]}, None),
        ({"focus": [1, 2, 3]}, None),
        ({"focus": [1.5, 2.5]}, None),
        ({"focus": [False, True]}, None),
        ({"focus": ["1", "2"]}, None),
        ({"focus": [0, 10**30]}, None),
        ({"focus": {"0": 1, "1": 2}}, None),
    ],
)
def test_only_two_rounds_in_order_are_a_zoom(monkeypatch: pytest.MonkeyPatch, told: object, focus: object) -> None:
    monkeypatch.setattr(st, "session_state", {"loss": told})
    assert charts._focus("loss") == focus


def test_messages_of_many_charts_travel_as_one() -> None:
    messages = {"loss": b"x" * 70_000, "accuracy": b"", "decomposition": bytes(range(256))}
    assert feed.unpacked(feed.packed(messages)) == messages
    assert feed.packed({}) == b""
    # As static/live_plotly.js reads it: a byte, the key, four bytes with the lowest first, the message.
    assert feed.packed({"who": b"ab"}) == b"\x03who\x02\x00\x00\x00ab"
