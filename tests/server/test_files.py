"""A file of a session's workspace over HTTP: as it is now, never as a page of this origin, and never a secret one."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.wires.files import SMALLEST_PNG as PNG

pytestmark = [pytest.mark.anyio, pytest.mark.shares_secrets]

PAGE = "<!doctype html>\n<h1>Bäckerei</h1><script>alert(1)</script>\n"


async def fetch(studio: RunningStudio, session_id: str, path: str) -> httpx.Response:
    return await studio.client.get(f"/api/sessions/{session_id}/files/{quote(path)}")


async def refusal(studio: RunningStudio, session_id: str, path: str) -> tuple[int, str]:
    answer = await fetch(studio, session_id, path)
    return answer.status_code, answer.json()["code"]


async def test_a_file_is_sent_as_it_is_now_and_runs_nowhere(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        root, session_id = studio.workspace, await studio.session()
        (root / "docs").mkdir()
        (root / "docs" / "a b.html").write_text(PAGE)
        (root / "mark.csv").write_bytes("\ufeffa;ä\n".encode("utf-16-le"))
        (root / "image.png").write_bytes(PNG)
        (root / "latin.md").write_bytes(b"caf\xe9")
        (root / "data.md").write_bytes(b"\0\1\2")
        (root / "link.svg").symlink_to("docs/a b.html")
        (root / "line\nbreak.md").write_text("broken")
        sent = {
            "docs/a b.html": (PAGE.encode(), "text/plain; charset=utf-8"),
            "link.svg": (PAGE.encode(), "text/plain; charset=utf-8"),
            "mark.csv": ("\ufeffa;ä\n".encode(), "text/plain; charset=utf-8"),
            "image.png": (PNG, "image/png"),
            "latin.md": (b"caf\xe9", "application/octet-stream"),
            "data.md": (b"\0\1\2", "application/octet-stream"),
            "line⟨U+000A⟩break.md": (b"broken", "text/plain; charset=utf-8"),
        }
        for path, (content, media_type) in sent.items():
            answer = await fetch(studio, session_id, path)
            assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, content, media_type)
            assert answer.headers["content-disposition"].startswith("attachment; ")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert answer.headers["cache-control"] == "no-store"
        (root / "docs" / "a b.html").write_text("changed")
        assert (await fetch(studio, session_id, "docs/a b.html")).text == "changed"


async def test_a_file_whose_name_has_a_line_break_is_sent(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id = await studio.session()
        for name in ("a\nb.txt", "end.txt\n"):
            (studio.workspace / name).write_text(name)
            assert (await fetch(studio, session_id, name)).text == name


async def test_what_is_no_file_of_the_workspace_is_not_found(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        root, session_id = studio.workspace, await studio.session()
        outside = root.parent / "outside"
        outside.mkdir()
        (outside / "page.html").write_text(PAGE)
        (root / "page.html").symlink_to(outside / "page.html")
        (root / "folder").symlink_to(outside)
        (root / "none.html").symlink_to(root / "missing.html")
        (root / "docs").mkdir()
        os.mkfifo(root / "pipe.html")
        paths = ["page.html", "folder/page.html", "none.html", "missing.html", "docs", "pipe.html", "page.html/x"]
        for path in paths:
            assert await refusal(studio, session_id, path) == (404, "file_not_found"), path
        assert await refusal(studio, session_id, f"/{outside}/page.html") == (404, "file_not_found")
        assert await refusal(studio, "ses_none", "page.html") == (404, "session_not_found")
        anonymous = httpx.AsyncClient(base_url=studio.client.base_url)
        async with anonymous as client:
            answer = await client.get(f"/api/sessions/{session_id}/files/docs")
        assert answer.status_code == 401


async def test_secret_and_private_files_and_those_of_a_deny_rule_are_refused(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        root, session_id = studio.workspace, await studio.session()
        key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
        (root / ".env").write_text("A=1")
        (root / "id_rsa").write_text(key)
        (root / "page.html").symlink_to(".env")  # a link to a secret file
        (root / "target.html").write_text("A=1")
        (root / ".env.local").symlink_to("target.html")  # a secret name that leads to the file
        (root / "again.html").hardlink_to(root / ".env")
        (root / "config.json").write_text(f'{{"key": "sk-ant-api03-{"a" * 80}"}}')
        (root / ".git").mkdir()
        (root / ".git" / "config").write_text(
            '[remote "origin"]\nurl = https://user:hunter2hunter2@git.example/a.git\n'
        )
        (root / "private").mkdir()
        (root / "private" / "plan.md").write_text("plan")
        (root / "open.md").write_text("open")
        secret = [".env", "id_rsa", "page.html", "target.html", "again.html", "config.json", ".git/config"]
        for path in secret:
            assert await refusal(studio, session_id, path) == (403, "file_refused"), path
        assert (await fetch(studio, session_id, "private/plan.md")).text == "plan"
        rules: list[dict[str, Any]] = [
            {"decision": "deny", "tool": "*", "path": "private/**", "scope": "user"},
            {"decision": "deny", "tool": "edit", "path": "open.md", "scope": "user"},
            {"decision": "deny", "tool": "file_read", "path": "*.md", "scope": "workspace", "workspace": "/elsewhere"},
        ]
        assert (await studio.client.put("/api/permissions", json={"rules": rules})).status_code == 200
        refused = await fetch(studio, session_id, "private/plan.md")
        assert (refused.status_code, refused.json()["code"]) == (403, "file_refused")
        assert "deny * path=private/**" in refused.json()["detail"]
        assert (await fetch(studio, session_id, "open.md")).text == "open"

        home = studio.services.settings.home
        (home / "notes.md").write_text("own")
        inside = await studio.session(workspace=str(home.parent))
        assert await refusal(studio, inside, f"{home.name}/notes.md") == (403, "file_refused")


async def test_a_file_that_is_too_large_is_refused_with_its_size(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        session_id, limit = await studio.session(), 2 * 1024 * 1024
        (studio.workspace / "most.html").write_bytes(b"x" * limit)
        (studio.workspace / "large.html").write_bytes(b"x" * (limit + 1))
        (studio.workspace / "large.png").write_bytes(b"x" * (limit + 1))
        assert len((await fetch(studio, session_id, "most.html")).content) == limit
        assert len((await fetch(studio, session_id, "large.png")).content) == limit + 1
        answer = await fetch(studio, session_id, "large.html")
        assert (answer.status_code, answer.json()["code"]) == (413, "file_too_large")
        assert "2,097,153 bytes" in answer.json()["detail"]


async def test_files_of_a_folder_are_found_before_a_session_is_made_there(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        (studio.workspace / "src").mkdir()
        (studio.workspace / "src" / "engine.py").touch()
        (studio.workspace / ".env").touch()

        async def found(**query: str) -> Any:
            answer = await studio.client.get("/api/folders/files", params=query)
            assert answer.status_code == (200 if answer.is_success else 422), answer.text
            return answer.json()["files"] if answer.is_success else answer.json()["code"]

        assert await found(q="eng") == [{"path": "src/engine.py", "secret": False}]
        assert await found(q="env") == [{"path": ".env", "secret": True}]
        assert await found(q="eng", workspace=str(studio.workspace / "src")) == [{"path": "engine.py", "secret": False}]
        for folder in ("src", str(studio.workspace / "none"), "", str(studio.services.settings.home)):
            assert await found(workspace=folder) == "bad_workspace"
