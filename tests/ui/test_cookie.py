"""The visitor's cookie: given with the page, once, unreadable for scripts, and good in frames of other sites."""

from __future__ import annotations

import asyncio
import re
from http.cookies import SimpleCookie

import pytest

from fedviz.ui.cookie import NAME, VisitorCookie, is_secret

SECRET = "A" * 43


def ask(scheme: str = "http", kind: str = "http", status: int = 200, **headers: str) -> list[tuple[str, str]]:
    """The headers of the answer to a request."""
    sent = []

    async def page(scope, receive, send):
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"cache-control", b"public"), (b"etag", b"x")],
            }
        )
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        sent.append(message)

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(VisitorCookie(page)({"type": kind, "scheme": scheme, "headers": given}, None, send))
    return [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]


def cookies(headers: list[tuple[str, str]]) -> list[str]:
    return [value for name, value in headers if name == "set-cookie"]


@pytest.mark.parametrize("status", [200, 304])
def test_a_page_comes_with_a_fresh_secret_that_no_cache_keeps(status):
    first, second = (ask(accept="text/html,*/*", status=status) for _ in range(2))
    (one,), (other,) = cookies(first), cookies(second)
    assert one != other
    assert re.fullmatch(NAME + r"=[A-Za-z0-9_-]{43}; Path=/; Max-Age=\d+; HttpOnly; SameSite=Lax", one)
    assert [value for name, value in first if name == "cache-control"] == ["no-store"]
    assert ("etag", "x") in first


def test_a_visitor_with_a_cookie_keeps_it():
    headers = ask(accept="text/html", cookie=f"other=1; {NAME}={SECRET}")
    assert cookies(headers) == []
    assert ("cache-control", "public") in headers


@pytest.mark.parametrize("other", ['a={"x":1,"y":2}', "a=b c", "x[1]=2", "flag", "a@b=1"])
def test_odd_cookies_of_other_programs_on_the_host_cost_nobody_their_runs(other):
    assert cookies(ask(accept="text/html", cookie=f"{other}; {NAME}={SECRET}")) == []


@pytest.mark.parametrize("value", ["", "short", "A" * 44, "<script>", "A" * 42 + "."])
def test_a_cookie_of_another_form_is_replaced(value):
    assert len(cookies(ask(accept="text/html", cookie=f"{NAME}={value}"))) == 1


def test_files_and_websockets_bring_none():
    assert cookies(ask(accept="text/css")) == []
    assert cookies(ask()) == []
    assert cookies(ask(accept="text/html", kind="websocket")) == []


def test_https_is_recognised_behind_a_proxy():
    assert "Secure" in cookies(ask(accept="text/html", x_forwarded_proto="https"))[0]
    assert "Secure" in cookies(ask("https", accept="text/html"))[0]
    assert "Secure" not in cookies(ask(accept="text/html"))[0]


def test_a_frame_in_another_site_gets_a_partitioned_cookie_over_https_only():
    frame = {"accept": "text/html", "sec_fetch_dest": "iframe", "sec_fetch_site": "cross-site"}
    assert "SameSite=None; Secure; Partitioned" in cookies(ask("https", **frame))[0]
    assert "SameSite=Lax" in cookies(ask(**frame))[0]


def test_what_the_server_gives_it_recognises():
    (given,) = cookies(ask(accept="text/html"))
    assert is_secret(SimpleCookie(given)[NAME].value)
    assert not is_secret(None)
