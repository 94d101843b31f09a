"""The cookie by which the server knows a visitor again: a random secret that no script in the browser can read.

A Streamlit script can read cookies but not set them, so the server does, with the page itself: the first run of the script sees it
already. Two traps shape the code. Which requests are for the page is decided by what they accept, not by what is answered, for a page
that the browser holds already is answered without a content type. And within another site's frame a cookie is kept only if it is
declared for that: SameSite=None, Secure, and Partitioned, which binds it to the site around.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from starlette.requests import cookie_parser

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAME = "fedviz_visitor"
SECONDS = 400 * 24 * 3600  # as long as browsers allow
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 bits


def is_secret(text: object) -> bool:
    """Whether it has the form of a secret made here; what has not is as good as none."""
    return isinstance(text, str) and _SECRET.fullmatch(text) is not None


class VisitorCookie:
    """Middleware that gives every browser that asks for a page, and has no cookie yet, one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; add the cookie to the answer where one is due."""
        headers = {name.lower(): value for name, value in scope.get("headers", ())}
        if scope["type"] != "http" or b"text/html" not in headers.get(b"accept", b"") or _has_secret(headers):
            await self._app(scope, receive, send)
            return
        cookie = _new_cookie(headers, scope.get("scheme", "http"))

        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                # A cache that kept this answer would make one visitor of all.
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"cache-control"]
                message["headers"] = [*kept, (b"cache-control", b"no-store"), (b"set-cookie", cookie)]
            await send(message)

        await self._app(scope, receive, with_cookie)


def _has_secret(headers: dict[bytes, bytes]) -> bool:
    # Forgiving: other programs on the same host may have set cookies of any form.
    cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
    return is_secret(cookies.get(NAME, ""))


def _new_cookie(headers: dict[bytes, bytes], scheme: str) -> bytes:
    """A fresh secret, as the Set-Cookie header's value. A proxy before this server says whether the visitor came by https."""
    secure = headers.get(b"x-forwarded-proto", scheme.encode()).split(b",")[0].strip() == b"https"
    framed = headers.get(b"sec-fetch-dest") == b"iframe" and headers.get(b"sec-fetch-site") == b"cross-site"
    place = "SameSite=None; Secure; Partitioned" if secure and framed else "SameSite=Lax" + ("; Secure" * secure)
    return f"{NAME}={secrets.token_urlsafe(32)}; Path=/; Max-Age={SECONDS}; HttpOnly; {place}".encode()
