"""Keys over HTTP: stored, tested, listed, removed, never returned; a running server uses them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agenticx.credentials.provider_keys import KeyStore
from agenticx.llms.providers.keys import store_key
from agenticx.testing import FakeOpenAIServer, status
from tests.support.server.running_studio import IN_A_FILE, RunningStudio, StudioMaker

pytestmark = [pytest.mark.anyio, pytest.mark.shares_secrets]

KEY, OTHER = "canary-of-a-key-4711", "canary-of-a-key-4712"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the home of the studio, which no variable or local server gives a model."""
    for name in [name for name in os.environ if re.search(r"_API_KEY$|_BASE_URL$|^HF_TOKEN$", name)]:
        monkeypatch.delenv(name)
    for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM"):
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("AGX_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "keyring", None)
    return tmp_path / "home"


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Return where the studio stores keys: in a file of its own, or in the database that workers share."""
    return "file" if request.node.callspec.params["make_studio"] == "sqlite" else "database"


async def put(studio: RunningStudio, provider: str, **body: object) -> tuple[int, dict[str, object]]:
    answer = await studio.client.put(f"/api/keys/{provider}", json=body)
    assert "canary" not in answer.text
    return answer.status_code, answer.json()


async def delete(studio: RunningStudio, provider: str) -> tuple[int, str]:
    answer = await studio.client.delete(f"/api/keys/{provider}")
    return answer.status_code, "" if answer.status_code == 204 else answer.json()["code"]


async def listed(studio: RunningStudio) -> list[tuple[str, str]]:
    answer = await studio.client.get("/api/keys")
    assert "canary" not in answer.text
    return [(row["provider"], row["source"]) for row in answer.json()["keys"]]


async def test_a_key_is_stored_listed_and_removed(make_studio: StudioMaker, home: Path, place: str) -> None:
    async with make_studio() as studio:
        assert await listed(studio) == []
        assert await put(studio, "groq", key=f" {KEY}\n") == (
            200,
            {"provider": "groq", "stored": place, "source": place, "tested": False},
        )
        modes = [path.stat().st_mode & 0o777 for path in home.glob("keys.json")]
        assert modes == ([0o600] if place == "file" else [])
        assert await listed(studio) == [("groq", place)]
        assert await delete(studio, "groq") == (204, "")
        assert await delete(studio, "groq") == (404, "key_not_found")
        assert await listed(studio) == []
        await put(studio, "openai-chat", key=KEY)
        shared = {"source": place, "variable": "OPENAI_API_KEY"}
        keys = (await studio.client.get("/api/keys")).json()["keys"]
        assert keys == [{"provider": name, **shared} for name in ("openai", "openai-chat")]


async def test_the_environment_takes_precedence(
    make_studio: StudioMaker, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "canary-in-the-environment")
    async with make_studio() as studio:
        code, stored = await put(studio, "groq", key=KEY)
        assert (code, stored["stored"], stored["source"]) == (200, place, "env")
        assert await listed(studio) == [("groq", "env")]
        assert [await delete(studio, "groq") for _ in range(2)] == [(204, ""), (409, "key_in_environment")]


@IN_A_FILE
async def test_mistakes_are_problems_that_say_what_is_right(make_studio: StudioMaker, home: Path) -> None:
    async with make_studio() as studio:
        for provider, body, code, problem in (
            ("nope", {"key": KEY}, 404, "provider_not_found"),
            ("ollama", {"key": KEY}, 404, "provider_not_found"),
            ("groq", {"key": f"two {KEY}"}, 422, "invalid_key"),
            ("groq", {"key": ""}, 422, "invalid_key"),
            ("groq", {"key": ["canary"]}, 422, "invalid_body"),
            ("groq", {"canary": KEY}, 422, "invalid_body"),
            ("groq", {}, 422, "invalid_body"),
        ):
            answer = await studio.client.put(f"/api/keys/{provider}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (code, problem)
            assert KEY not in answer.text
        assert await delete(studio, "nope") == (404, "provider_not_found")
        assert not home.joinpath("keys.json").exists()
        home.joinpath("keys.json").write_text("{")
        assert (await studio.client.get("/api/keys")).json()["code"] == "bad_settings"


@asynccontextmanager
async def refusing(key: str) -> AsyncIterator[str]:
    """Run a server that answers every request with 401 and the key, and yield its base URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        content = json.dumps({"error": {"message": f"Incorrect API key provided: {key}"}}).encode()
        head = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(content) + content)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_a_key_is_tested_at_its_provider_before_it_is_stored(
    make_studio: StudioMaker, monkeypatch: pytest.MonkeyPatch, home: Path, place: str
) -> None:
    home.mkdir(mode=0o700)
    rows = "".join(
        f'[providers.{name}]\nbase_url = "http://127.0.0.1:9/v1"\nkeys = ["{name.upper()}_API_KEY"]\n{more}\n'
        for name, more in (("open", ""), ("strict", 'key_check = "/key"'), ("silent", 'key_check = ""'))
    )
    (home / "models.toml").write_text(rows)
    async with FakeOpenAIServer() as provider, refusing(KEY) as refusing_url, make_studio() as studio:
        monkeypatch.setenv("OPEN_BASE_URL", provider.base_url)
        monkeypatch.setenv("STRICT_BASE_URL", refusing_url)
        code, problem = await put(studio, "strict", key=KEY, test=True)
        assert (code, problem["code"], problem["field"]) == (422, "key_refused", "key")
        assert str(problem["detail"]).startswith("The key was not stored: it is refused: strict answered with HTTP 401")
        assert await listed(studio) == []
        assert (await put(studio, "open", key=KEY, test=True))[1]["tested"] is True
        assert (await put(studio, "silent", key=KEY, test=True))[1]["tested"] is False
        assert await listed(studio) == [("open", place), ("silent", place)]
        monkeypatch.setenv("STRICT_BASE_URL", "http://127.0.0.1:9/v1")
        code, problem = await put(studio, "strict", key=KEY, test=True)
        assert (code, problem["code"]) == (503, "provider_unreachable")
        assert str(problem["detail"]).endswith("nothing listens there; is the model server running? Try again later.")
        assert await listed(studio) == [("open", place), ("silent", place)]


@pytest.mark.promise("I1")
@IN_A_FILE
async def test_the_next_turn_uses_the_key_that_was_stored_last_and_no_log_has_it(
    make_studio: StudioMaker, monkeypatch: pytest.MonkeyPatch, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        FakeOpenAIServer(["hi", "hi", status(401, f"bad key {OTHER}"), "hi"]) as provider,
        make_studio() as studio,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        session_id = await studio.session(model="openai-chat:gpt-4o")

        async def turn(end: str) -> str | None:
            cursor = (await studio.turn(session_id)).json()["cursor"]
            events = await studio.events_until(session_id, end, cursor=cursor)
            assert "canary" not in b"".join(frame.raw for frame in events).decode()
            return provider.requests[-1].headers.get("authorization")

        await put(studio, "openai", key=KEY)
        assert await turn("final") == f"Bearer {KEY}"
        assert await turn("final") == f"Bearer {KEY}"
        KeyStore(home).store("OPENAI_API_KEY", OTHER)  # as another process does
        assert await turn("error") == f"Bearer {OTHER}"
        await delete(studio, "openai")
        assert await turn("final") is None
    assert "key stored provider='openai'" in caplog.text
    assert "canary" not in caplog.text


@IN_A_FILE
async def test_the_default_model_and_the_list_of_models_follow_the_stored_keys(make_studio: StudioMaker) -> None:
    async with make_studio(model=None) as studio:

        async def models(query: str = "") -> tuple[str, dict[str, bool]]:
            answer = (await studio.client.get(f"/api/models{query}")).json()
            return answer["default"], {row["id"]: row["available"] for row in answer["models"]}

        default, available = await models("?available=true")
        assert (default, available) == ("demo", {"demo": True})
        default, known = await models()
        assert {name for name, usable in known.items() if usable} == {"demo"}
        assert {"openai:gpt-5.4", "openai-chat:gpt-4o", "groq:openai/gpt-oss-120b", "ollama:qwen3"} <= known.keys()

        await put(studio, "groq", key=KEY)
        default, available = await models("?available=true")
        assert (default, next(iter(available))) == ("groq:openai/gpt-oss-120b", "groq:openai/gpt-oss-120b")
        assert all(name == "demo" or name.startswith("groq:") for name in available)
        assert (await models())[1].keys() == known.keys()

        store_key("openai", KEY)
        assert (await models())[0] == "openai:gpt-5.4"
        refused = await studio.client.get("/api/models?available=maybe")
        assert (refused.status_code, refused.json()["detail"]) == (422, "'available' must be 'true' or 'false'.")
