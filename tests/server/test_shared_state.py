"""Two studios that share a token, tickets and keys: a client can send each request to either."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agenticx.core import memory_tools
from agenticx.credentials.secret_key import WrongSecret
from agenticx.errors import SettingsError, StoreError
from agenticx.llms import ScriptedModel
from agenticx.sessions import MemoryStore
from agenticx.settings import Settings, load_settings
from agenticx.shared_state.state import SharedState
from agenticx.shared_state.values import MemorySharedValues, SharedValues
from agenticx.testing import call
from studio.access import load_or_create_token
from tests.support.server.running_studio import RunningStudio, note, running_studio
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("G")]


def secret_file(folder: Path) -> Path:
    path = folder / f"secret-{secrets.token_hex(4)}"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return path


def settings_of(folder: Path, **given: Any) -> Settings:
    return load_settings({"home": folder, **given}, environ={})


async def redeemed(studio: RunningStudio, ticket: str) -> int:
    return (await studio.client.post("/api/ticket", json={"ticket": ticket}, headers={"Authorization": ""})).status_code


@asynccontextmanager
async def two_studios(
    folder: Path, values: SharedValues, *script: Any
) -> AsyncGenerator[tuple[RunningStudio, RunningStudio]]:
    """Yield two studios with a home each, whose model replies with the script."""
    secret, store, model = secret_file(folder), MemoryStore(), ScriptedModel(script or ["hello"] * 9, name="scripted")

    def studio(name: str, store: MemoryStore) -> AbstractAsyncContextManager[RunningStudio]:
        store.shared = SharedState(values, settings_of(folder / name / "home", secret_file=secret))
        return running_studio(folder / name, model, store=store, tools=[note, *memory_tools()])

    async with studio("a", store) as one, studio("b", store.other_worker()) as two:
        yield one, two


async def test_either_studio_accepts_the_token_and_redeems_a_ticket_of_the_other_once(tmp_path: Path) -> None:
    values = MemorySharedValues()
    async with two_studios(tmp_path, values) as (one, two):
        token = one.services.access.token
        assert [(tmp_path / name / "home/token").read_text().strip() for name in ("a", "b")] == [token, token]
        assert (await two.client.get("/api/sessions", headers=one.client.headers)).status_code == 200
        for _ in range(20):
            ticket = (await one.client.post("/api/tickets")).json()["ticket"]
            answers = await asyncio.gather(*(redeemed(studio, ticket) for studio in (one, two, one, two)))
            assert sorted(answers) == [200, 401, 401, 401]
        kept = (await two.client.post("/api/tickets")).json()["ticket"]
        stored: Mapping[str, bytes] = values.items("")
        assert {name.partition("/")[0] for name in stored} == {"secret", "token", "ticket"}
        for text in (token, kept):
            assert not any(text.encode() in value or text in name for name, value in stored.items())
        assert await redeemed(one, kept) == 200


async def test_the_memory_of_a_turn_at_one_studio_is_that_of_the_other(tmp_path: Path) -> None:
    saving = call("memory_save", {"text": "Likes tea."})
    async with two_studios(tmp_path, MemorySharedValues(), saving, "saved") as (one, two):
        session_id = await one.session()
        cursor = (await one.turn(session_id)).json()["cursor"]
        asked = (await one.events_until(session_id, "confirm_required", cursor=cursor))[-1].data["data"]
        body = {"approved": True, "digest": asked["digest"]}
        assert (await two.client.post(f"/api/confirms/{asked['id']}", json=body)).status_code == 200
        await one.events_until(session_id, "final", cursor=cursor)
        (entry,) = (await two.client.get("/api/memory")).json()["entries"]
        assert (entry["text"], entry["session_id"]) == ("Likes tea.", session_id)
        assert (await two.client.delete(f"/api/memory/{entry['id']}")).status_code == 204
        assert (await one.client.get("/api/memory")).json() == {"entries": []}
        assert (await one.client.delete(f"/api/memory/{entry['id']}")).json()["code"] == "memory_not_found"


async def test_a_rule_that_is_stored_at_one_studio_holds_at_the_other(tmp_path: Path) -> None:
    script = [call("note", {"text": "x"}), "done"] * 2
    async with two_studios(tmp_path, MemorySharedValues(), *script) as (one, two):
        first, second = await one.session(), await one.session()
        cursor = (await one.turn(first)).json()["cursor"]
        asked = (await one.events_until(first, "confirm_required", cursor=cursor))[-1].data["data"]
        body = {"approved": True, "digest": asked["digest"], "remember": "always"}
        assert (await two.client.post(f"/api/confirms/{asked['id']}", json=body)).status_code == 200
        await one.events_until(first, "final", cursor=cursor)
        cursor = (await two.turn(second)).json()["cursor"]
        unasked = await two.events_until(second, "final", cursor=cursor)
        assert "confirm_required" not in [frame.type for frame in unasked]
        (rule,) = (await two.client.get("/api/permissions")).json()["rules"]
        assert (await two.client.delete(f"/api/permissions/{rule['id']}")).json() == rule
        async with asyncio.timeout(PATIENCE):
            while (await one.client.get("/api/permissions")).json()["rules"]:
                pass


class FailingValues(MemorySharedValues):
    """Values that fail while `fails`."""

    fails = False

    def take(self, name: str) -> bytes | None:
        if self.fails:
            raise StoreError("postgresql://db.internal cannot be reached")
        return super().take(name)


async def test_a_ticket_stays_valid_while_the_database_fails_which_is_named_to_nobody(tmp_path: Path) -> None:
    values, store = FailingValues(), MemoryStore()
    store.shared = SharedState(values, settings_of(tmp_path / "home", secret_file=secret_file(tmp_path)))
    async with running_studio(tmp_path, store=store) as studio:
        ticket = (await studio.client.post("/api/tickets")).json()["ticket"]
        values.fails = True
        answer = await studio.client.post("/api/ticket", json={"ticket": ticket})
        assert (answer.status_code, answer.json()["code"], "db.internal" in answer.text) == (503, "storage", False)
        values.fails = False
        assert await redeemed(studio, ticket) == 200


def test_the_first_worker_proposes_its_token_and_the_others_replace_theirs(tmp_path: Path) -> None:
    values, secret = MemorySharedValues(), secret_file(tmp_path)
    alone = {name: load_or_create_token(settings_of(tmp_path / name)) for name in ("a", "b")}
    for name in ("a", "b", "c"):
        settings = settings_of(tmp_path / name, secret_file=secret)
        place = SharedState(values, settings)
        assert load_or_create_token(settings, place) == alone["a"]
        assert (tmp_path / name / "token").stat().st_mode & 0o777 == 0o600
        place.close()


def test_another_secret_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    values = MemorySharedValues()
    SharedState(values, settings_of(tmp_path / "a", secret_file=secret_file(tmp_path))).close()
    with pytest.raises(WrongSecret, match="give each worker the same file"):
        SharedState(values, settings_of(tmp_path / "b", secret_file=secret_file(tmp_path)))
    without = settings_of(tmp_path / "c")
    place = SharedState(values, without)
    with pytest.raises(SettingsError, match=re.escape("(umask 077 && openssl rand -hex 32 > FILE)")):
        load_or_create_token(without, place)
    place.close()


def test_a_token_file_needs_no_secret(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("T" * 40)
    (tmp_path / "mine").chmod(0o600)
    settings = settings_of(tmp_path / "home", token_file=tmp_path / "mine")
    place = SharedState(MemorySharedValues(), settings)
    assert load_or_create_token(settings, place) == "T" * 40
    place.close()
