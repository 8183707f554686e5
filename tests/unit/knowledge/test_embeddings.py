"""Search by meaning: vectors from a server, consent, failures of the model, and what is kept."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools, open_hub
from agenticx.clocks import SystemClock
from agenticx.errors import ModelError, SettingsError
from agenticx.knowledge import NoteSearch, Vaults
from agenticx.llms import ScriptedModel
from agenticx.llms.providers.resolve import resolve_embedding_model
from agenticx.settings import load_settings, using_provider_variables
from agenticx.testing import call
from tests.support.knowledge.embedding_server import EmbeddingServer, embedding_server, vector_of

pytest.importorskip("numpy", reason="needs numpy, of the extra embeddings")
pytestmark = pytest.mark.anyio

QUERY = "what does my landlord want for the apartment"


NAME = "openai:vectors"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """Run a server at the addresses of OpenAI and Ollama."""
    with embedding_server() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.address}/v1")
        monkeypatch.setenv("OLLAMA_HOST", running.address)
        yield running


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "Notes"
    folder.mkdir()
    (folder / "Home.md").write_text("# Tenancy\n\nThe rent is 900 EUR.\n")
    (folder / "Drive.md").write_text("# Automobile\n\nThe vehicle needs oil.\n")
    (folder / "Bread.md").write_text("# Loaf #food\n\nGive the dough a day of rest.\n")
    return folder


class SkippingClock(SystemClock):
    """A clock whose sleeps end at once, and are counted as time."""

    slept = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return time.monotonic() + self.slept

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds


class Elsewhere:
    """An embedding model of an application on another host, which records the texts that it is sent."""

    name, host, is_local = "app:vectors", "vectors.example", False

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.padding: list[float] = []

    async def embed(self, texts: Sequence[str], *, timeout: float) -> list[list[float]]:
        self.texts += texts
        return [vector_of(text) + self.padding for text in texts]


@asynccontextmanager
async def opened(home: Path, notes: Path, model: Any, **options: Any) -> AsyncGenerator[tuple[Vaults, Any]]:
    vaults = Vaults(home, embedding_model=model, **options)
    try:
        yield vaults, (await vaults.add(notes))[0]
    finally:
        await vaults.close()


def paths(found: NoteSearch) -> list[str]:
    return [result.passage.path for result in found.results]


@pytest.mark.parametrize("spec", ["openai:vectors", "openai-chat:vectors", "ollama:vectors", "ollama-chat:vectors"])
async def test_notes_are_found_by_meaning(spec: str, server: EmbeddingServer, notes: Path, tmp_path: Path) -> None:
    async with opened(tmp_path / "home", notes, spec) as (_, vault):
        found = await vault.search(QUERY)
        assert (paths(found)[0], found.embedding_note) == ("Home.md", None)
        assert server.paths == {"/api/embed" if spec == "ollama:vectors" else "/v1/embeddings"}
        sent = len(server.texts)
        assert sorted(server.texts)[:3] == sorted(path.read_text().rstrip() for path in notes.iterdir())

        assert paths(await vault.search(QUERY, tags=["food"])) == ["Bread.md"]
        assert paths(await vault.search(f'{QUERY} "a day of rest"')) == ["Bread.md"]
        assert paths(await vault.search("?!")) == []
        (notes / "Clinic.md").write_text("# Physician\n\nThe clinic is open on Monday.\n")
        (notes / "Home.md").write_text("# Tenancy\n\nThe rent is 950 EUR.\n")
        assert paths(await vault.search("who looks at my illness"))[0] == "Clinic.md"
        assert len(server.texts) == sent + 2 + 2  # what is new or changed, and the new queries
    file = next((tmp_path / "home/vaults").glob("*/vectors.db"))
    assert file.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(file) as connection:
        rows = connection.execute("SELECT count(*), min(length(vector)) FROM vectors").fetchall()
    assert rows == [(4, 10)]  # five numbers of two bytes; the old text of Home.md is gone
    connection.close()


async def test_a_search_for_another_terminal_has_the_key_of_that_terminal_and_the_same_vectors(
    server: EmbeddingServer, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-first")
    second = {"OPENAI_API_KEY": "sk-of-the-second", "OPENAI_BASE_URL": f"{server.address}/v1"}
    async with opened(tmp_path / "home", notes, NAME) as (vaults, vault):
        await vault.search(QUERY)
        sent, server.keys[:] = len(server.texts), []
        for variables in (second, {}):
            with using_provider_variables(variables):
                same = await vaults.find("Notes")
                assert paths(await same.search(f"{QUERY} now"))[0] == "Home.md"
        assert server.keys == ["Bearer sk-of-the-second", "Bearer sk-of-the-first"]
        assert server.texts[sent:] == [f"{QUERY} now"] * 2  # no note is sent again


async def test_the_consent_for_a_vault_ends_with_the_vault(notes: Path, tmp_path: Path) -> None:
    model = Elsewhere()
    async with opened(tmp_path / "home", notes, model) as (vaults, vault):
        await vaults.allow_embeddings(vault, allowed=True)
        await vaults.remove(vault)
        again: Any = (await vaults.add(notes))[0]
        await again.search(QUERY)
        assert ((await again.embedding_status()).consent, model.texts) == ("needed", [])


async def test_text_leaves_the_machine_only_with_consent(notes: Path, tmp_path: Path) -> None:
    model = Elsewhere()
    async with opened(tmp_path / "home", notes, model) as (vaults, vault):
        by_words = await vault.search(QUERY)
        assert (paths(by_words), by_words.embedding_note, model.texts) == ([], None, [])
        await vault.refresh(with_embeddings=True)
        assert ((await vault.embedding_status()).consent, model.texts) == ("needed", [])
        await vaults.allow_embeddings(vault, allowed=False)
        await vault.search(QUERY)
        assert ((await vault.embedding_status()).consent, model.texts) == ("refused", [])
        await vaults.allow_embeddings(vault, allowed=True)
        assert paths(await vault.search(QUERY))[0] == "Home.md"
        assert len(model.texts) == 4
    model.host = "other.example"  # the consent was for another host
    async with opened(tmp_path / "home", notes, model) as (_, vault):
        assert paths(await vault.search(QUERY)) == []
        assert len(model.texts) == 4
        assert (await vault.embedding_status()).consent == "needed"


async def test_a_model_that_fails_leaves_the_words_and_says_so(
    server: EmbeddingServer, notes: Path, tmp_path: Path
) -> None:
    server.status, clock = 503, SkippingClock()
    async with opened(tmp_path / "home", notes, NAME, clock=clock) as (_, vault):
        found = await vault.search(QUERY)
        assert paths(found) == []
        assert "the embedding model cannot be used now (openai answered with HTTP 503" in found.embedding_note
        assert found.embedding_note.endswith("the notes are searched by words alone")
        server.status = 200
        await clock.sleep(61)
        assert await vault.embeddings.refresh(await vault.index())
        found = await vault.search(QUERY)
        assert (paths(found)[0], found.embedding_note) == ("Home.md", None)


async def test_vectors_that_cannot_be_stored_leave_the_words_and_that_is_said(
    server: EmbeddingServer, notes: Path, tmp_path: Path
) -> None:
    async with opened(tmp_path / "home", notes, NAME) as (vaults, vault):
        file = vaults.registry.vectors_file(vault.record)
        file.mkdir()
        found = await vault.search("rent")
        assert paths(found) == ["Home.md"]
        assert "vectors.db' cannot be used: Is a directory; make it a file" in found.embedding_note
        assert "vectors.db" in (await vault.embedding_status()).problem
        file.rmdir()
        found = await vault.search(QUERY)
        assert (paths(found)[0], found.embedding_note) == ("Home.md", None)
        assert (await vault.embedding_status()).problem is None


async def test_one_passage_that_the_model_refuses_keeps_no_other_from_a_vector(
    server: EmbeddingServer, notes: Path, tmp_path: Path
) -> None:
    server.refuse = "oil"
    async with opened(tmp_path / "home", notes, NAME) as (_, vault):
        assert paths(await vault.search(QUERY))[0] == "Home.md"
        assert sum("oil" in text for text in server.texts) == 0
        sent = len(server.texts)
        await vault.search(QUERY)
        assert len(server.texts) == sent
        status = await vault.embedding_status()
        assert (status.embedded, status.passages, status.problem) == (3, 3, None)


async def test_a_model_that_refuses_all_is_no_model(server: EmbeddingServer, notes: Path, tmp_path: Path) -> None:
    server.status = 400
    async with opened(tmp_path / "home", notes, NAME) as (_, vault):
        assert "not now" in (await vault.search(QUERY)).embedding_note
        assert (await vault.embedding_status()).embedded == 0


async def test_vectors_of_another_length_are_made_again(notes: Path, tmp_path: Path) -> None:
    model = Elsewhere()
    model.is_local = True
    async with opened(tmp_path / "home", notes, model) as (_, vault):
        await vault.search(QUERY)
    model.padding = [0.0] * 3
    async with opened(tmp_path / "home", notes, model) as (_, vault):
        assert paths(await vault.search(QUERY))[0] == "Home.md"
        assert (await vault.embedding_status()).embedded == 3
    assert len(model.texts) == 8


async def test_a_damaged_file_of_vectors_is_made_anew(server: EmbeddingServer, notes: Path, tmp_path: Path) -> None:
    async with opened(tmp_path / "home", notes, NAME) as (_, vault):
        await vault.search(QUERY)
    file = next((tmp_path / "home/vaults").glob("*/vectors.db"))
    file.write_bytes(b"no database" * 1_000)
    async with opened(tmp_path / "home", notes, NAME) as (_, vault):
        assert paths(await vault.search(QUERY))[0] == "Home.md"


async def test_an_unusable_name_is_said_and_words_remain(notes: Path, tmp_path: Path) -> None:
    for name, reason in {
        "anthropic:claude": "embeddings of 'anthropic' cannot be used; name a model of a server that has",
        "vectors": "is not provider:name",
    }.items():
        async with opened(tmp_path / "home", notes, name) as (_, vault):
            found = await vault.search("the vehicle")
            assert (paths(found), reason in found.embedding_note) == (["Drive.md"], True)
        with pytest.raises(SettingsError, match=reason.partition(";")[0]):
            resolve_embedding_model(name)


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b'{"data": []}',
        b'{"data": [{"embedding": ["x"]}]}',
        b'{"embeddings": [[1e999]]}',
        b'{"embeddings": [[1' + b"0" * 400 + b"]]}",
        b"[" * 100_000,
        b"",
    ],
)
async def test_an_answer_without_vectors_is_an_error(answer: bytes, server: EmbeddingServer) -> None:
    server.answer = answer
    model = resolve_embedding_model(NAME)
    with pytest.raises(ModelError, match="sent no vectors of 1 texts"):
        await model.embed(["x"], timeout=5)
    await model.aclose()


async def test_a_session_finds_notes_by_meaning_and_tells_when_it_cannot(
    server: EmbeddingServer, notes: Path, tmp_path: Path
) -> None:
    settings = load_settings({"home": tmp_path / "home", "embedding_model": NAME}, environ={})
    async with opened(tmp_path / "home", notes, None):
        pass
    model = ScriptedModel([call("note_search", {"query": QUERY}), "Ok.", "No."])
    hub = open_hub("memory://", model=model, tools=builtin_tools(), workspace=tmp_path, settings=settings)
    async with hub as running:
        session = await running.create()
        first = [event async for event in running.run_turn(session.id, "Look it up.")]
        (result,) = [event.data["result"] for event in first if event.type == "tool_result"]
        assert "[passage 1: Home.md" in result
        server.status = 500
        _ = [event async for event in running.run_turn(session.id, "What do my notes say about my illness?")]
    sent = "".join(message.content for message in model.requests[-1].messages)
    assert "The notes of 'Notes': the embedding model cannot be used now (openai answered with HTTP 500" in sent
