"""Attachments over HTTP: accepted, refused with a sentence, and not stored in the event log."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from typing import Any

import pytest

from agenticx import UserMessage
from agenticx.attachments import MAX_ATTACHMENTS, MAX_TOTAL_BYTES
from agenticx.llms import ScriptedModel
from agenticx.testing import hang, say
from tests.support.server.running_studio import RunningStudio, StudioMaker
from tests.support.wires.files import PNG, TEXT, contents

pytestmark = pytest.mark.anyio


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def attachment(name: str, content: bytes, **more: Any) -> dict[str, Any]:
    return {"name": name, "data": b64encode(content).decode(), **more}


PICTURE = attachment("a.png", contents["image/png"])
WORDS = attachment("f.csv", contents["text/plain"], media_type="text/csv")


async def test_files_reach_the_model_and_the_log_stores_only_their_names(make_studio: StudioMaker) -> None:
    model = ScriptedModel(["seen"])
    async with make_studio(model) as studio:
        session_id = await studio.session()
        answer = await studio.turn(session_id, "look", attachments=[PICTURE, WORDS])
        assert answer.status_code == 202
        frames = await studio.events_until(session_id, "final")
        listed = (await studio.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]

    summaries = [
        {"name": "a.png", "media_type": "image/png", "size": 67, "sha256": sha256(contents["image/png"])},
        {"name": "f.csv", "media_type": "text/csv", "size": 8, "sha256": sha256(contents["text/plain"])},
    ]
    assert frames[0].data["data"]["attachments"] == summaries
    assert listed[0]["attachments"] == summaries
    assert not any(PNG.data.encode() in frame.raw for frame in frames)
    message = model.requests[0].messages[-1]
    assert isinstance(message, UserMessage)
    assert message.attachments == (PNG, TEXT.model_copy(update={"name": "f.csv", "media_type": "text/csv"}))


async def test_attachments_are_read_back_by_their_digest_with_their_type(make_studio: StudioMaker) -> None:
    large = contents["image/png"] + b"\0" * 100_000  # stored apart from its message
    files = {
        large: attachment("groß.png", large),
        b"%PDF-1.7": attachment("a.pdf", b"%PDF-1.7"),
        b"plain": attachment("a.txt", b"plain"),
        b"<script>": attachment("a.html", b"<script>", media_type="text/html"),
        "\ufeffwide".encode("utf-16-le"): attachment("w.txt", "\ufeffwide".encode("utf-16-le")),
    }
    async with make_studio(ScriptedModel(["seen", [say("so"), hang()]])) as studio:
        session_id = await studio.session()
        await studio.turn(session_id, "look", attachments=list(files.values()))
        await studio.events_until(session_id, "final")
        url = f"/api/sessions/{session_id}/attachments"
        answers = [await studio.client.get(f"{url}/{sha256(content)}") for content in files]
        assert [answer.content for answer in answers] == list(files)
        assert [answer.headers["content-type"] for answer in answers] == [
            "image/png",
            "application/pdf",
            "text/plain; charset=utf-8",
            "text/html; charset=utf-8",
            "text/plain; charset=utf-16",
        ]
        shown = [answer.headers["content-disposition"].partition(";")[0] for answer in answers]
        assert shown == ["inline", "inline", "inline", "attachment", "inline"]
        assert answers[0].headers["content-disposition"] == "inline; filename*=UTF-8''gro%C3%9F.png"
        assert {answer.headers["x-content-type-options"] for answer in answers} == {"nosniff"}
        etag = answers[0].headers["etag"]
        again = await studio.client.get(f"{url}/{sha256(large)}", headers={"If-None-Match": etag})
        assert (again.status_code, again.content, etag) == (304, b"", f'"{sha256(large)}"')

        await studio.turn(session_id, "go")
        await studio.turn(session_id, "later", attachments=[attachment("q.txt", b"queued")], when_busy="queue")
        assert (await studio.client.get(f"{url}/{sha256(b'queued')}")).content == b"queued"

        other = await studio.session()
        missing = await studio.client.get(f"/api/sessions/{other}/attachments/{sha256(large)}")
        assert (missing.status_code, missing.json()["code"]) == (404, "attachment_not_found")
        assert missing.json()["hint"].startswith("GET /api/sessions/{session_id}/messages lists ")


async def refused(studio: RunningStudio, session_id: str, *attachments: Any) -> tuple[int, str, str, str]:
    answer = await studio.turn(session_id, "look", attachments=list(attachments))
    problem = answer.json()
    return answer.status_code, problem["code"], problem.get("field", ""), problem["detail"]


async def test_a_refused_file_is_a_problem_with_a_sentence_and_starts_no_turn(make_studio: StudioMaker) -> None:
    large = contents["image/png"] + b"\0" * 5 * 1024 * 1024
    half = contents["application/pdf"] + b" " * (MAX_TOTAL_BYTES // 2)
    async with make_studio(ScriptedModel()) as studio:
        session_id = await studio.session()
        first = "attachments.0.data"
        for attachments, status, code, field, words in (
            ([attachment("x.zip", b"PK\x03\x04\0")], 422, "attachment_refused", first, "'x.zip' is neither a PNG"),
            (
                [attachment("x.png", b"hi") | {"media_type": "image/png"}],
                422,
                "attachment_refused",
                first,
                "but it is text",
            ),
            ([attachment("x.png", large)], 413, "attachment_too_large", first, "an image may have 5 MiB."),
            (
                [attachment("a.pdf", half), attachment("b.pdf", half)],
                413,
                "attachment_too_large",
                "",
                "the limit is 16 MiB",
            ),
            ([{"name": "x", "data": "*"}], 422, "invalid_body", first, "'attachments.0.data' must be base64."),
            ([{"name": "x", "data": "é"}], 422, "invalid_body", first, "'attachments.0.data' must be base64."),
            ([attachment("a\nb", b"x")], 422, "invalid_body", "attachments.0.name", "printable characters"),
            ([attachment("", b"x")], 422, "invalid_body", "attachments.0.name", "must not be empty"),
            ([{"name": "x"}], 422, "invalid_body", first, "'attachments.0.data' is required."),
            ([PICTURE] * (MAX_ATTACHMENTS + 1), 422, "invalid_body", "attachments", "at most 20 items"),
        ):
            answer = await refused(studio, session_id, *attachments)
            assert answer[:3] == (status, code, field)
            assert words in answer[3]
        assert await studio.services.store.log.head(session_id) == 0


async def test_the_body_limit_permits_files_up_to_their_limit(make_studio: StudioMaker) -> None:
    model = ScriptedModel(["seen"])
    content = contents["image/png"].ljust(MAX_TOTAL_BYTES // 4, b"\0")
    async with make_studio(model) as studio:
        session_id = await studio.session()
        files = [attachment(f"{number}\u202fAM.png", content) for number in range(4)]
        assert (await studio.turn(session_id, "look", attachments=files)).status_code == 202
        await studio.events_until(session_id, "final")
    names = [file.name for file in model.requests[0].messages[-1].attachments]
    assert names == [f"{number}⟨U+202F⟩AM.png" for number in range(4)]


async def test_the_same_id_with_other_files_is_another_input(make_studio: StudioMaker) -> None:
    async with make_studio(ScriptedModel(["seen"])) as studio:
        session_id = await studio.session()
        answers = [
            await studio.turn(session_id, "look", client_turn_id="c1", attachments=files)
            for files in ([PICTURE], [PICTURE], [WORDS], [])
        ]
        await studio.events_until(session_id, "final")
    assert [answer.status_code for answer in answers] == [202, 202, 409, 409]
    assert answers[0].json()["turn_id"] == answers[1].json()["turn_id"]


async def test_the_schema_of_a_turn_describes_attachments(make_studio: StudioMaker) -> None:
    async with make_studio() as studio:
        document = (await studio.client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    attachments = schemas["StartTurnBody"]["properties"]["attachments"]
    assert attachments["items"] == {"$ref": "#/components/schemas/AttachmentBody"}
    assert sorted(schemas["AttachmentBody"]["properties"]) == ["data", "media_type", "name"]
    assert "AttachmentData" in json.dumps(schemas["Event"]) or "AttachmentData" in schemas
