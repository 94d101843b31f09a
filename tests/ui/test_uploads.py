"""What browsers upload is bounded: in a session, in all, and while it is coming in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFile, UploadedFileRec

from fedviz.ui import uploads
from fedviz.ui.uploads import UploadBounds, held, taken_up

MB = 1_000_000


@pytest.fixture
def files(monkeypatch):
    """Streamlit's store of uploaded files."""
    store = MemoryUploadedFileManager("/_stcore/upload_file")
    monkeypatch.setattr(uploads.runtime, "exists", lambda: True)
    monkeypatch.setattr(uploads.runtime, "get_instance", lambda: SimpleNamespace(uploaded_file_mgr=store))
    return store


class Server:
    """Keeps what it gets, as Streamlit does; `inside` is awaited while an upload is being read."""

    def __init__(self, files):
        self.files, self.bounded, self.inside = files, UploadBounds(self.page), None

    async def page(self, scope, receive, send):
        session, file_id = scope["path"].split("/")[-2:]
        size = int(dict(scope["headers"])[b"content-length"])
        if self.inside is not None:
            wait, self.inside = self.inside, None
            await wait()
        self.files.add_file(session, UploadedFileRec(file_id, "run.json", "application/json", bytes(size)))
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def put(self, session, file_id, size, *, before=""):
        sent = []

        async def send(message):
            sent.append(message)

        headers = [] if size is None else [(b"content-length", str(size).encode())]
        path = f"{before}/_stcore/upload_file/{session}/{file_id}"
        scope = {"type": "http", "method": "PUT", "path": path, "headers": headers}
        await self.bounded(scope, None, send)
        return sent[0]["status"]


def test_a_session_has_room_for_two_large_files_and_others_have_theirs(files):
    server = Server(files)
    answers = [asyncio.run(server.put("anna", f"file{i}", 20 * MB, before="/fedviz")) for i in range(4)]
    assert answers == [204, 204, 413, 413]
    assert asyncio.run(server.put("ben", "file", 20 * MB)) == 204
    assert (held("anna"), held("ben"), held("nobody"), held()) == (40 * MB, 20 * MB, 0, 60 * MB)


def test_all_sessions_together_are_bounded(files):
    server = Server(files)
    answers = [asyncio.run(server.put(f"visitor{i}", "file", 40 * MB)) for i in range(7)]
    assert answers == [204] * 5 + [413] * 2


def test_uploads_that_are_still_coming_in_count(files):
    server, answers = Server(files), []

    async def another():
        answers.append(await server.put("anna", "second", 30 * MB))

    server.inside = another
    answers.append(asyncio.run(server.put("anna", "first", 30 * MB)))
    assert answers == [413, 204]
    assert asyncio.run(server.put("anna", "third", 10 * MB)) == 204  # what has come counts once


@pytest.mark.parametrize("size", [None, "-5", "many"])
def test_an_upload_of_unknown_length_is_refused(files, size):
    assert asyncio.run(Server(files).put("anna", "file", size)) == 411
    assert held() == 0


def test_a_file_that_was_taken_up_is_not_kept(files, monkeypatch):
    record = UploadedFileRec("file", "run.json", "application/json", b"content")
    files.add_file("anna", record)
    monkeypatch.setattr(uploads, "get_script_run_ctx", lambda **_: SimpleNamespace(session_id="anna"))
    assert taken_up(UploadedFile(record, None)) == b"content"
    assert held() == 0
