"""Bounds on the files that browsers upload, which Streamlit keeps in memory until their session has ended, and a while longer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse
from streamlit import runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send
    from streamlit.runtime.uploaded_file_manager import UploadedFile

MOST_OF_SESSION: Final = 45_000_000  # bytes: two of the largest that a page asks for, one of which is being taken up
MOST: Final = 200_000_000  # bytes of all sessions
_UPLOAD: Final = re.compile(r"/_stcore/upload_file/([^/]+)/[^/]+$")


class UploadBounds:
    """Middleware that refuses an upload for which there is no room, before its body is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._coming: dict[object, tuple[str, int]] = {}  # uploads that are being read: (session, bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on but uploads that are too much."""
        upload = _UPLOAD.search(scope.get("path", "")) if scope.get("method") == "PUT" else None
        if upload is None:
            await self._app(scope, receive, send)
            return
        session, size = upload[1], _announced(scope)
        if size is None:
            await PlainTextResponse("An upload must say its length.", 411)(scope, receive, send)
            return
        coming = list(self._coming.values())
        of_session = held(session) + sum(each for whose, each in coming if whose == session)
        if of_session + size > MOST_OF_SESSION or held() + sum(each for _, each in coming) + size > MOST:
            answer = PlainTextResponse(
                "Too much has been uploaded: reload the page, or try again in some minutes.", 413
            )
            await answer(scope, receive, send)
            return
        ticket = object()
        self._coming[ticket] = (session, size)
        try:
            await self._app(scope, receive, send)
        finally:
            del self._coming[ticket]


def held(session: str | None = None) -> int:
    """Bytes of files that are kept in memory, of a session or of all."""
    files = _files()
    if files is None:
        return 0
    kept = dict(files.file_storage)
    chosen = kept.values() if session is None else [kept.get(session, {})]
    return sum(len(file.data) for each in chosen for file in list(each.values()))


def taken_up(file: UploadedFile) -> bytes:
    """The content of a file, which is not kept any longer."""
    content, context = file.getvalue(), get_script_run_ctx(suppress_warning=True)
    if (files := _files()) is not None and context is not None:
        files.remove_file(context.session_id, file.file_id)
    return content


def _files() -> MemoryUploadedFileManager | None:
    files = runtime.get_instance().uploaded_file_mgr if runtime.exists() else None
    return files if isinstance(files, MemoryUploadedFileManager) else None


def _announced(scope: Scope) -> int | None:
    """The length that a request says it has."""
    told = dict(scope.get("headers", ())).get(b"content-length", b"")
    return int(told) if told.isdigit() else None
