"""Settings files of workspaces: each applies to the turns of its own sessions only."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agenticx.llms import ScriptedModel
from agenticx.testing import call
from tests.support.server.running_studio import RunningStudio, StudioMaker

pytestmark = [pytest.mark.anyio, pytest.mark.promise("F6")]


def make_workspace(tmp_path: Path, name: str, settings: str | None = None) -> str:
    """Create a workspace, with a settings file unless that is empty, and return its path."""
    path = tmp_path / name
    path.mkdir()
    if settings is not None:
        (path / ".agenticx").mkdir()
        (path / ".agenticx" / "settings.toml").write_text(settings)
    return str(path)


def model_that_asks(times: int = 1) -> ScriptedModel:
    """Return a model whose first replies, in any session, are calls that need a confirmation."""
    return ScriptedModel([*[call("note", {"text": "x"})] * times, "done"])


async def start_turn_until_question(studio: RunningStudio, session_id: str) -> dict[str, Any]:
    """Start a turn and return its question."""
    assert (await studio.turn(session_id)).status_code == 202
    return (await studio.events_until(session_id, "confirm_required"))[-1].data


def seconds_to_answer(asked: dict[str, Any]) -> float:
    expires, put = (datetime.fromisoformat(text) for text in (asked["data"]["expires_at"], asked["ts"]))
    return (expires - put).total_seconds()


async def test_a_turn_uses_the_settings_of_its_own_workspace(make_studio: StudioMaker, tmp_path: Path) -> None:
    hasty = make_workspace(tmp_path, "hasty", "confirm_timeout_seconds = 0.05")
    patient = make_workspace(tmp_path, "patient", "confirm_timeout_seconds = 5000")
    silent = make_workspace(tmp_path, "silent")
    async with make_studio(model_that_asks(3)) as studio:
        for workspace, wanted in ((patient, 5000), (silent, 600)):
            asked = await start_turn_until_question(studio, await studio.session(workspace=workspace))
            assert seconds_to_answer(asked) == pytest.approx(wanted, abs=30)
        denied = await studio.session(workspace=hasty)
        await studio.turn(denied)
        (answer,) = [
            frame.data["data"]
            for frame in await studio.events_until(denied, "tool_result")
            if frame.type == "confirm_response"
        ]
        assert (answer["approved"], answer["by"]) == (False, "timeout")
        waiting = (await studio.client.get("/api/confirms")).json()["confirms"]
        assert denied not in [one["session_id"] for one in waiting]
        assert len(waiting) == 2


async def test_the_settings_file_is_read_again_for_each_turn(make_studio: StudioMaker, tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, "changing", "confirm_timeout_seconds = 5000")
    async with make_studio(model_that_asks(2)) as studio:
        first, second = [await studio.session(workspace=workspace) for _ in range(2)]
        assert seconds_to_answer(await start_turn_until_question(studio, first)) == pytest.approx(5000, abs=30)
        Path(workspace, ".agenticx", "settings.toml").unlink()
        assert seconds_to_answer(await start_turn_until_question(studio, second)) == pytest.approx(600, abs=30)


async def test_server_settings_take_precedence_over_workspace_settings(
    make_studio: StudioMaker, tmp_path: Path
) -> None:
    workspace = make_workspace(tmp_path, "loud", "confirm_timeout_seconds = 5000")
    async with make_studio(model_that_asks(), confirm_timeout_seconds=700) as studio:
        asked = await start_turn_until_question(studio, await studio.session(workspace=workspace))
        assert seconds_to_answer(asked) == pytest.approx(700, abs=30)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('permission_mode = "auto"', "'permission_mode' in {file} may not be set here; remove it"),
        ('allowed_origins = ["http://evil.example"]', "'allowed_origins' in {file} may not be set here; remove it"),
        ("confirm_timeout_seconds = 1e9", "confirm_timeout_seconds in {file} is 1000000000.0; it must be a decimal"),
        (f"confirm_timeout_seconds = '{'x' * 100_000}'", "confirm_timeout_seconds in {file} is 'xxxxx"),
        ("x" * 300_000, "{file} cannot be read: it has more than 262,144 bytes"),
        ("[", "{file} is not TOML: "),
    ],
    ids=["who is asked", "who may call", "too long a time", "no time at all", "too large", "no TOML"],
)
async def test_an_invalid_settings_file_is_reported_and_no_turn_starts(
    make_studio: StudioMaker, tmp_path: Path, text: str, sentence: str
) -> None:
    workspace = make_workspace(tmp_path, "hostile", text)
    file = Path(workspace, ".agenticx", "settings.toml")
    async with make_studio(ScriptedModel(["hello"])) as studio:
        session_id = await studio.session(workspace=workspace)
        refused = await studio.turn(session_id, client_turn_id="once")
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_settings")
        assert refused.json()["detail"].startswith(sentence.format(file=file))
        assert len(refused.content) < 2_000
        assert (await studio.client.get(f"/api/sessions/{session_id}")).json()["running_turn_id"] is None
        file.unlink()
        assert (await studio.turn(session_id, client_turn_id="once")).status_code == 202
        types = [frame.type for frame in await studio.events_until(session_id, "final")]
        assert types.count("turn_started") == 1


async def test_a_queued_message_is_handed_back_if_its_turn_cannot_start(
    make_studio: StudioMaker, tmp_path: Path
) -> None:
    workspace = make_workspace(tmp_path, "broken later", "")
    async with make_studio(model_that_asks()) as studio:
        session_id = await studio.session(workspace=workspace)
        asked = (await start_turn_until_question(studio, session_id))["data"]
        await studio.turn(session_id, "and then", when_busy="queue")
        Path(workspace, ".agenticx", "settings.toml").write_text("[")
        yes = {"approved": True, "digest": asked["digest"]}
        assert (await studio.client.post(f"/api/confirms/{asked['id']}", json=yes)).status_code == 200
        events = [frame.data for frame in await studio.events_until(session_id, "handed_back")]
        assert (events[-2]["type"], events[-1]["data"]["input"]) == ("final", "and then")
        assert (await studio.client.get(f"/api/sessions/{session_id}")).json()["running_turn_id"] is None


async def test_a_named_pipe_as_settings_file_is_refused_at_once(make_studio: StudioMaker, tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, "piped", "")
    file = Path(workspace, ".agenticx", "settings.toml")
    file.unlink()
    os.mkfifo(file)
    async with make_studio(ScriptedModel(["hello"])) as studio:
        session_id = await studio.session(workspace=workspace)
        refused = await studio.turn(session_id)
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_settings")
        assert refused.json()["detail"] == f"{file} cannot be read: it is not a regular file"
