"""A client without a server follows a turn up to its end, also where that end is not in the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agenticx import UserMessage
from agenticx.cli.client.base import SessionOptions
from agenticx.cli.client.local import LocalClient
from agenticx.llms import NamedModels, ScriptedModel
from agenticx.runtime import AsyncConfirmGate
from agenticx.sessions import MemoryStore
from agenticx.settings import load_settings
from agenticx.testing import hang, say
from tests.support.intercepted_store import FailingCommits
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_stored", [True, False])
async def test_following_ends_with_the_turn_whether_or_not_its_end_could_be_stored(
    tmp_path: Path, is_stored: bool
) -> None:
    store, model = FailingCommits(MemoryStore()), ScriptedModel([[say("Well"), hang()]])
    settings = load_settings({"home": tmp_path / "home", "model": model.name}, environ={})
    client = LocalClient(store, settings, NamedModels(settings, own={model.name: model}), AsyncConfirmGate())
    session = await client.create(SessionOptions(workspace=str(tmp_path), permission_mode="auto"))
    position = await client.start(session.id, UserMessage(content="hi"))
    types: list[str] = []
    async with asyncio.timeout(PATIENCE), client.follow(session.id, position) as events:
        async for event in events:
            types.append(event.type)
            if event.type == "token":
                store.broken = not is_stored
                await client.stop(session.id)
    assert types[:1] == ["turn_started"]
    assert types[-1] == ("error" if is_stored else "token")
    async with asyncio.timeout(PATIENCE), client.follow(session.id, position) as events:
        assert [event.type async for event in events] == types
    store.broken = False
    await client.aclose()
