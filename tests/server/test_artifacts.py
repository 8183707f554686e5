"""The files that live in a session, over HTTP: written, fetched, rewound, forked and deleted."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import Any

import httpx
import pytest

from agenticx import builtin_tools
from agenticx.llms import ScriptedModel
from agenticx.testing import call, check_grammar, hang
from agenticx.tools.artifacts import files as artifact_files
from tests.support.server.conversations import log, messages, run_turn
from tests.support.server.running_studio import IN_A_FILE, RunningStudio, StudioMaker

pytestmark = pytest.mark.anyio

PAGE = '<!doctype html>\n<html lang="de">\n<h1>Bäckerei 🥐</h1>\n</html>\n'
AGENT = {"permission_mode": "default", "tools": builtin_tools()}


def create(content: str, path: str = "index.html", pieces: int = 9) -> Any:
    return call("create_file", {"path": path, "content": content}, pieces=pieces)


def edit(old: str, new: str) -> Any:
    return call("edit_file", {"old_text": old, "new_text": new})


async def fetch(studio: RunningStudio, session_id: str, path: str = "") -> httpx.Response:
    return await studio.client.get(f"/api/sessions/{session_id}/artifacts{path}")


async def listed(studio: RunningStudio, session_id: str) -> dict[str, int]:
    answer = await fetch(studio, session_id)
    assert answer.status_code == 200, answer.text
    return {row["path"]: row["revision"] for row in answer.json()["artifacts"]}


def applied(events: list[dict[str, Any]]) -> dict[tuple[str, int], str]:
    """Return the text of each revision as a client has it that applies all events; dropped ones are not in it."""
    texts: dict[tuple[str, int], str] = {}
    for data in (event["data"] for event in events if event["type"] == "artifact"):
        key = (data["path"], data["revision"])
        if "delta" in data:
            assert data["offset"] == len(texts.get(key, "")), data
            texts[key] = texts.get(key, "") + data["delta"]
        texts |= {key: data["content"]} if "content" in data else {}
        if data.get("dropped"):
            texts.pop(key)
        elif data["final"]:
            content = texts[key].encode()
            assert (data["size"], data["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    return texts


async def test_a_client_that_applies_the_events_has_the_stored_files(make_studio: StudioMaker) -> None:
    model = ScriptedModel([create(PAGE), edit("Bäckerei", "Konditorei"), create("a{}", "css/a.css"), "done"])
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "a page")
        events = await log(studio, session_id)
        check_grammar(events)
        assert not [event for event in events if event["type"] == "confirm_required"]
        texts = applied(events)
        changed = PAGE.replace("Bäckerei", "Konditorei")
        assert texts == {("index.html", 1): PAGE, ("index.html", 2): changed, ("css/a.css", 1): "a{}"}
        assert await listed(studio, session_id) == {"css/a.css": 1, "index.html": 2}
        for (path, revision), text in texts.items():
            answer = await fetch(studio, session_id, f"/{path}?revision={revision}")
            assert (answer.content.decode(), answer.headers["content-type"]) == (text, "text/plain; charset=utf-8")
            assert answer.headers["content-disposition"].startswith("attachment")
            assert answer.headers["x-content-type-options"] == "nosniff"
        archive = zipfile.ZipFile(io.BytesIO((await fetch(studio, session_id, "?format=zip")).content))
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            "css/a.css": "a{}",
            "index.html": changed,
        }


async def test_an_unknown_file_or_revision_is_not_found(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([create(PAGE), "done"]), **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "a page")
        for path, code in {
            "/other.html": "artifact_not_found",
            "/index.html?revision=2": "artifact_not_found",
            "/%2e%2e/index.html": "not_found",
        }.items():
            answer = await fetch(studio, session_id, path)
            assert (answer.status_code, answer.json()["code"]) == (404, code), path
        assert (await fetch(studio, session_id, "/index.html?revision=0")).status_code == 422
        assert (await fetch(studio, "ses_none")).status_code == 404


async def test_calls_that_cannot_be_made_leave_the_file_as_it_was(make_studio: StudioMaker) -> None:
    cut = [call("create_file", '{"path": "index.html", "content": "<p>half', pieces=4)]
    calls = [create("<p>up", "../up.html"), create("<p>", "a.png"), create("  "), create("x" * 2_100_000)]
    save = call("artifact_save", {"path": "../up.html", "to": "a"})
    model = ScriptedModel([create(PAGE), cut, *calls, save, create("<p>new"), "done"])
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "a page")
        events = await log(studio, session_id)
        check_grammar(events)
        results = [event["data"] for event in events if event["type"] == "tool_result"]
        outcomes = [result["outcome"] for result in results]
        assert outcomes == ["ok", *["invalid_arguments"] * 3, "error", "error", "invalid_arguments", "ok"]
        dropped = [event["data"] for event in events if event["data"].get("dropped")]
        assert [data["path"] for data in dropped] == ["index.html", "a.png", "index.html", "index.html"]
        texts = applied(events)
        assert list(texts.values()) == [PAGE, "<p>new"]
        assert len({*texts} | {(data["path"], data["revision"]) for data in dropped}) == 6


async def test_files_that_could_not_be_saved_to_one_folder_are_refused(make_studio: StudioMaker) -> None:
    paths = ["a", "a/b.html", "A", "nul.html", "b/c", "b"]
    model = ScriptedModel([*(create("<p>", path) for path in paths), "done"])
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "pages")
        events = await log(studio, session_id)
        check_grammar(events)
        applied(events)
        results = [event["data"] for event in events if event["type"] == "tool_result"]
        refused = {path: result["result"] for path, result in zip(paths, results, strict=True) if result["is_error"]}
        assert {result["outcome"] for result in results if result["is_error"]} == {"invalid_arguments"}
        assert [*refused] == ["a/b.html", "A", "nul.html", "b"]
        assert "'a' would be both a file and the folder of 'a/b.html'; give another path" in refused["a/b.html"]
        assert "write 'a' itself, or give a path that differs in more" in refused["A"]
        assert await listed(studio, session_id) == {"a": 1, "b/c": 1}


async def test_rewinds_and_forks_have_the_files_of_their_messages(make_studio: StudioMaker) -> None:
    model = ScriptedModel(
        [create(PAGE), "one done", edit("Bäckerei", "Konditorei"), create("a{}", "a.css"), "two done"]
    )
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "a page", "change it")
        history = await messages(studio, session_id)
        first = next(message["message_id"] for message in history if message["content"] == "one done")
        both = await listed(studio, session_id)
        fork = await studio.client.post(f"/api/sessions/{session_id}/fork", json={"message_id": first})
        fork_id = fork.json()["id"]
        rewind = f"/api/sessions/{session_id}/rewind"
        assert (await studio.client.post(rewind, json={"message_id": first})).status_code == 200
        assert await listed(studio, session_id) == {"index.html": 1}
        await studio.client.post(rewind, json={"message_id": history[-1]["message_id"]})
        assert await listed(studio, session_id) == both == {"a.css": 1, "index.html": 2}
        await studio.client.post(rewind, json={"message_id": None})
        assert await listed(studio, session_id) == {}
        assert (await studio.client.delete(f"/api/sessions/{session_id}")).status_code == 204
        assert await listed(studio, fork_id) == {"index.html": 1}
        assert (await fetch(studio, fork_id, "/index.html")).text == PAGE
        assert (await studio.client.delete(f"/api/sessions/{fork_id}")).status_code == 204
        home = studio.services.settings.home
        stored = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
        assert not [content for content in stored if "Bäckerei".encode() in content]


@IN_A_FILE
async def test_a_revision_that_is_not_kept_is_gone_with_its_content_and_a_reason(
    make_studio: StudioMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_files, "MAX_OLD_REVISIONS", 3)
    model = ScriptedModel([step for number in range(9) for step in (create(f"<p>{number}"), "done")])
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, *(["again"] * 9))
        dropped = await fetch(studio, session_id, "/index.html?revision=5")
        assert (dropped.status_code, dropped.json()["code"]) == (404, "artifact_not_found")
        assert (
            "'index.html' has no revision 5; it has 6, 7, 8, 9. Others were not written to their end, belong to other "
            "options, or are not kept any more: a session keeps 3 old revisions, 104,857,600 bytes of them"
            in dropped.json()["detail"]
        )
        assert (await fetch(studio, session_id, "/index.html?revision=6")).text == "<p>5"
        assert len([*studio.services.settings.home.rglob("removable/*")]) == 4
        done = [each["message_id"] for each in await messages(studio, session_id) if each["content"] == "done"]
        for number, files in {1: {}, 6: {"index.html": 7}, 8: {"index.html": 9}}.items():
            rewind = {"message_id": done[number]}
            assert (await studio.client.post(f"/api/sessions/{session_id}/rewind", json=rewind)).status_code == 200
            assert await listed(studio, session_id) == files


async def test_saving_to_the_workspace_asks_as_writing_there_does(make_studio: StudioMaker) -> None:
    save = call("artifact_save", {"path": "index.html", "to": "site/index.html"})
    async with make_studio(ScriptedModel([create(PAGE), save, "done"]), **AGENT) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page")).json()["cursor"]
        *_, asked = await studio.events_until(session_id, "confirm_required", cursor=cursor)
        question = asked.data["data"]
        assert question["context"]["tool"] == "artifact_save"
        assert "+<h1>Bäckerei" in question["context"]["diff"]
        assert not (studio.workspace / "site").exists()
        body = {"approved": True, "digest": question["digest"]}
        assert (await studio.client.post(f"/api/confirms/{question['id']}", json=body)).status_code == 200
        await studio.events_until(session_id, "final", cursor=cursor)
        assert (studio.workspace / "site/index.html").read_text() == PAGE


async def test_a_page_in_an_answer_becomes_a_file_if_there_is_none(make_studio: StudioMaker) -> None:
    model = ScriptedModel(["Hello.", f"Here it is:\n```html\n{PAGE}```\nGood luck.", f"Again: {PAGE}"])
    async with make_studio(model, **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "hi", "a page", "again")
        events = await log(studio, session_id)
        check_grammar(events)
        (found,) = [event["data"] for event in events if event["type"] == "artifact"]
        assert (found["path"], found["revision"], "tool_call_id" in found) == ("index.html", 1, False)
        assert (await fetch(studio, session_id, "/index.html")).text.strip() == found["content"].strip() == PAGE.strip()


async def test_a_wrapped_page_is_unwrapped_and_the_last_event_has_it(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([create(f"```html\n{PAGE}```"), "done"]), **AGENT) as studio:
        session_id = await studio.session()
        await run_turn(studio, session_id, "a page")
        events = await log(studio, session_id)
        assert applied(events)["index.html", 1].strip() == PAGE.strip()


async def test_a_stopped_reply_says_that_its_file_was_not_stored(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel([[create(PAGE, pieces=4), hang()], "done"]), **AGENT) as studio:
        session_id = await studio.session()
        cursor = (await studio.turn(session_id, "a page")).json()["cursor"]
        await studio.events_until(session_id, "artifact", cursor=cursor)
        await studio.client.post(f"/api/sessions/{session_id}/stop", json={})
        await studio.events_until(session_id, "error", cursor=cursor)
        events = await log(studio, session_id)
        check_grammar(events)
        artifacts = [event["data"] for event in events if event["type"] == "artifact"]
        assert artifacts[-1].get("dropped")
        assert await listed(studio, session_id) == {}
