"""The tools that make images: questions, what is sent, paid and stored, and what the model sees."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agenticx import AgentRuntime, ConfirmAnswer, Session, UserMessage, open_hub
from agenticx.attachments import make_attachment
from agenticx.clocks import SystemClock
from agenticx.errors import SettingsError, ToolError
from agenticx.llms import ImageResult, Price, PricedModel
from agenticx.messages import Message, files_of
from agenticx.runtime import Budget, StopSignal, TurnContext
from agenticx.settings import load_settings, using_provider_variables
from agenticx.testing import (
    ScriptedGate,
    ScriptedImages,
    ScriptedModel,
    call,
    check_grammar,
    collect,
    outline,
    say,
    usage,
)
from agenticx.tools.builtin import image_tools
from tests.support.image_server import image_server, png

pytestmark = pytest.mark.anyio

FOX, HEN, GIF = png(1024, 1024), png(1024, 1024, size=9), b"GIF89a\x02\x00\x01\x00" + bytes(4)


def path_of(name: str, content: bytes, suffix: str = "png") -> str:
    return f"images/{name}-{hashlib.sha256(content).hexdigest()[:8]}.{suffix}"


def files_seen(messages: Sequence[Message]) -> list[str]:
    """Return the names of the files in the last message."""
    return [file.name for file in files_of(messages[-1])]


def result_of(events: Sequence[Any]) -> str:
    (result,) = [event.data["result"] for event in events if event.type == "tool_result"]
    return result


async def test_images_are_made_once_asked_stored_paid_and_shown_to_the_model() -> None:
    images = ScriptedImages([FOX, "The prompt is refused.", GIF], cost_usd="0.04")
    gate, session = ScriptedGate(True), Session()
    prompts = ["A red fox", "a sin", "A red fox", "ein Huhn, 鶏"]
    model = ScriptedModel([call("generate_images", {"prompts": prompts}), say("Done.")])
    runtime = AgentRuntime(model, gate, tools=image_tools(images))
    events = await collect(runtime.run_turn("Draw.", session))

    assert outline(events) == [
        *["turn_started", "round_start", "tool_call_delta", "tool_call", "confirm_required", "confirm_response"],
        *["artifact", "artifact", "tool_result", "round_start", "token", "final"],
    ]
    (request,) = gate.requests
    assert request.question == "Send 3 prompts to scripted:images (images.example) to make 3 images?"
    assert request.context["reasons"] == [
        "By the list price it costs up to $0.12.",
        "It sends: A red fox",
        "It sends: a sin",
        "It sends: ein Huhn, 鶏",
    ]
    fox, hen = path_of("a-red-fox", FOX), path_of("ein-huhn", GIF, "gif")
    assert result_of(events) == (
        f"1. 'A red fox': {fox} (image/png, 1024 × 1024 pixels)\n"
        "2. 'a sin': Error: The prompt is refused.\n"
        f"3. 'ein Huhn, 鶏': {hen} (image/gif, 2 × 1 pixels)"
    )
    assert files_seen(model.requests[1].messages) == [fox, hen]
    assert [(each.path, each.media_type) for each in session.artifacts.listed()] == [
        (fox, "image/png"),
        (hen, "image/gif"),
    ]
    assert await session.artifacts.read(session.artifacts.find(fox)) == FOX
    assert images.prompts == ["A red fox", "a sin", "ein Huhn, 鶏"]
    paid = [event.data.get("cost_usd") for event in events if event.type == "usage"]
    assert paid == [None, "0.04", "0.04", None]  # the model, the two images, the model


async def test_a_background_is_removed_from_files_of_the_session_and_attached_ones() -> None:
    images, session = ScriptedImages([FOX, HEN]), Session()
    await session.artifacts.write("images/cat.png", png(8, 8), media_type="image/png")
    await session.artifacts.write("index.html", b"<!doctype html>")
    message = UserMessage(content="Cut.", attachments=(make_attachment("photo.png", png(16, 9)),))
    names = ["images/cat.png", "index.html", "photo.png", "images/cat.png"]
    gate, model = ScriptedGate(True), ScriptedModel([call("remove_background", {"images": names}), say("Done.")])
    events = await collect(AgentRuntime(model, gate, tools=image_tools(images)).run_turn(message, session))

    assert [(image.width, image.height) for image in images.images] == [(8, 8), (16, 9)]
    assert gate.requests[0].question == "Send 3 images to scripted:images (images.example) to remove the background?"
    cat, photo = path_of("cat-no-background", FOX), path_of("photo-no-background", HEN)
    assert result_of(events) == (
        f"1. images/cat.png: {cat} (image/png, 1024 × 1024 pixels)\n"
        "2. index.html: Error: the image cannot be used: it is no PNG, JPEG, WebP or GIF image\n"
        f"3. photo.png: {photo} (image/png, 1024 × 1024 pixels)"
    )
    assert files_seen(model.requests[1].messages) == [cat, photo]


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("remove_background", {"images": ["https://x.example/a.png"]}, "'https://x.example/a.png' is a URL, and"),
        ("remove_background", {"images": ["data:image/png;base64,AA"]}, "is a URL, and nothing is fetched"),
        ("remove_background", {"images": ["b.png"]}, "there is no file 'b.png', attached or of this session; there "),
        ("remove_background", {"images": ["a.png"] * 21}, "'images' list should have at most 20 items"),
        ("remove_background", {"images": []}, "'images' list should have at least 1 item"),
        ("generate_images", {"prompts": ["x"] * 9}, "'prompts' list should have at most 8 items"),
        ("generate_images", {"prompts": ["a fox", " \n"]}, "a prompt is blank"),
    ],
)
async def test_a_call_that_cannot_be_made_is_refused_without_a_question(
    name: str, arguments: dict[str, Any], reason: str
) -> None:
    images, gate = ScriptedImages([FOX]), ScriptedGate()
    model = ScriptedModel([call(name, arguments), say("Sorry.")])
    events = await collect(AgentRuntime(model, gate, tools=image_tools(images)).run_turn("Do it."))
    assert reason in result_of(events)
    assert (gate.requests, images.prompts, images.images) == ([], [], [])


async def test_nothing_is_sent_without_consent_or_beyond_the_budget() -> None:
    images, session = ScriptedImages([FOX] * 4, cost_usd="0.04"), Session()
    free = Price(input=Decimal(0), output=Decimal(0), read=SystemClock().now().date())
    replies = [[call("generate_images", {"prompts": [f"{n}", f"{n}!"]}), usage(9, 9)] for n in range(3)]
    model = PricedModel(ScriptedModel([*replies, [say("Done."), usage(9, 9)]]), free, SystemClock())
    runtime = AgentRuntime(model, ScriptedGate(False, True, True), tools=image_tools(images))
    budget = Budget(cost_usd="0.13")
    events = await collect(runtime.run_turn("Draw.", session, context=TurnContext(budget=budget)))
    denied, made, refused = [event.data for event in events if event.type == "tool_result"]
    assert (denied["outcome"], made["outcome"], refused["outcome"]) == ("denied", "ok", "error")
    assert refused["result"] == (
        "Error: the budget of $0.13 is exceeded: $0.12 are used and $0.04 needed for scripted:images"
    )
    assert (images.prompts, budget.spent.cost_usd) == (["1", "1!"], Decimal("0.08"))


async def test_a_call_that_makes_no_image_is_an_error_and_images_may_be_too_large_to_be_seen() -> None:
    large = png(1024, 1024, size=6 * 1024 * 1024)
    images = ScriptedImages(["Refused.", large])
    model = ScriptedModel(
        [call("generate_images", {"prompts": ["a"]}), call("generate_images", {"prompts": ["b"]}), "."]
    )
    events = await collect(AgentRuntime(model, ScriptedGate(True, True), tools=image_tools(images)).run_turn("Draw."))
    first, second = [event.data for event in events if event.type == "tool_result"]
    assert (first["outcome"], first["result"]) == ("error", "No image was made:\n1. 'a': Error: Refused.")
    assert second["result"].endswith("1024 pixels), which is too large for you to see")
    assert model.requests[2].messages[-1].role == "tool"


class SlowImages(ScriptedImages):
    """An image model that never answers; `begun` is set once it was asked."""

    begun = asyncio.Event()

    async def generate(self, prompts: Sequence[str], *_: Any, **__: Any) -> Sequence[ImageResult]:
        self.begun.set()
        return await asyncio.get_running_loop().create_future()


async def test_a_stop_ends_a_call_whose_cost_stays_reserved() -> None:
    images, stop, budget = SlowImages(cost_usd="0.04"), StopSignal(), Budget(cost_usd="1")
    images.begun = asyncio.Event()
    free = Price(input=Decimal(0), output=Decimal(0), read=SystemClock().now().date())
    script = [[call("generate_images", {"prompts": ["a", "b"]}), usage(9, 9)]]
    runtime = AgentRuntime(
        PricedModel(ScriptedModel(script), free, SystemClock()), ScriptedGate(True), tools=image_tools(images)
    )
    turn = collect(runtime.run_turn("Draw.", should_stop=stop, context=TurnContext(budget=budget)))
    running = asyncio.create_task(turn)
    await images.begun.wait()
    stop.set()
    events = await running
    check_grammar(events)
    reserved = [event.data.get("reserved_usd") for event in events if event.type == "usage"]
    assert (reserved, budget.spent.cost_usd) == ([None, "0.04", "0.04"], Decimal("0.08"))
    assert events[-1].data["code"] == "stopped"


async def test_images_of_a_server_are_still_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = png(640, 480, size=200_000)
    model = ScriptedModel([call("generate_images", {"prompts": ["a red fox"]}), "Done.", "It is red."])
    settings = load_settings({"home": tmp_path / "home", "image_model": "openai:gpt-image-1-mini"}, environ={})
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    url, path = f"sqlite:///{tmp_path / 'chat.db'}", path_of("a-red-fox", photo)
    options: dict[str, Any] = {"model": model, "workspace": tmp_path, "settings": settings}
    with image_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1")
        server.images, server.usage = {"a red fox": photo}, {"input_tokens": 10, "output_tokens": 1_000}
        async with open_hub(url, **options) as hub:
            session, events = (await hub.create()).id, list[Any]()
            async for event in hub.run_turn(session, "Draw a fox."):
                events.append(event)
                if event.type == "confirm_required":
                    assert event.data["question"].startswith("Send 1 prompt to openai:gpt-image-1-mini (127.0.0.1:")
                    answer = ConfirmAnswer(approved=True)
                    await hub.answer(event.data["id"], answer, digest=event.data["digest"])
    (stored,) = [event.data for event in events if event.type == "artifact"]
    assert (stored["path"], stored["media_type"], stored["size"]) == (path, "image/png", len(photo))
    (paid,) = [
        event.data for event in events if event.type == "usage" and event.data["model"] == "openai:gpt-image-1-mini"
    ]
    assert paid["cost_usd"] == "0.008025"
    async with open_hub(url, **options) as hub:
        _ = [event async for event in hub.run_turn(session, "Which color?")]
    (file,) = [file for message in model.requests[2].messages for file in files_of(message)]
    assert (file.name, file.content()) == (path, photo)


async def test_the_tools_are_offered_only_with_an_image_model(tmp_path: Path) -> None:
    home = tmp_path / "home"
    named = load_settings({"home": home, "image_model": "openai:gpt-image-1-mini"}, environ={})
    names = list[set[str]]()
    for options in ({}, {"settings": named}, {"images": ScriptedImages()}):
        model = ScriptedModel(["Hi."])
        settings: Any = {"settings": load_settings({"home": home}, environ={}), **options}
        async with open_hub("memory://", model=model, workspace=tmp_path, **settings) as hub:
            session = await hub.create(tools=["generate_images", "remove_background", "ask_user"])
            _ = [event async for event in hub.run_turn(session.id, "Hi.")]
        names.append({tool.name for tool in model.requests[0].tools})
    assert names == [{"ask_user"}, *[{"generate_images", "remove_background", "ask_user"}] * 2]
    unknown = load_settings({"home": home, "image_model": "anthropic:x"}, environ={})
    with pytest.raises(SettingsError, match=r"^AGX_IMAGE_MODEL: images of 'anthropic' cannot be used"):
        async with open_hub("memory://", settings=unknown):
            pass
    with pytest.raises(TypeError, match="images must be an ImageProvider"):
        async with open_hub("memory://", images="openai:gpt-image-1-mini"):  # type: ignore[arg-type]
            pass


async def test_without_a_key_the_call_says_which_one_is_missing_until_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    drawing = call("generate_images", {"prompts": ["a fox"]})
    model = ScriptedModel([drawing, "Sorry.", drawing, "Done."])
    values = {"home": tmp_path, "image_model": "openai:gpt-image-1-mini", "permission_mode": "auto"}
    settings = load_settings(values, environ={})
    with image_server() as server:
        async with open_hub("memory://", model=model, workspace=tmp_path, settings=settings) as hub:
            session = (await hub.create()).id
            events = [event async for event in hub.run_turn(session, "Draw.")]
            assert "no images can be made: model 'openai:gpt-image-1-mini' needs a key (OPENAI_API_KEY " in result_of(
                events
            )
            monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1")
            events = [event async for event in hub.run_turn(session, "Draw.")]
    assert (server.prompts, result_of(events).startswith("1. 'a fox': images/a-fox-")) == (["a fox"], True)


async def test_a_turn_of_another_terminal_makes_images_with_the_key_of_that_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel([call("generate_images", {"prompts": ["a fox"]}), "Done."] * 3)
    values = {"home": tmp_path, "image_model": "openai:gpt-image-1-mini", "permission_mode": "auto"}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-first")
    with image_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1")
        second = {"OPENAI_API_KEY": "sk-of-the-second", "OPENAI_BASE_URL": f"{server.address}/v1"}
        async with open_hub("memory://", model=model, workspace=tmp_path, settings=load_settings(values)) as hub:
            for variables in ({}, second, {}):
                with using_provider_variables(variables):
                    _ = [event async for event in hub.run_turn((await hub.create()).id, "Draw.")]
    first = "Bearer sk-of-the-first"
    assert server.keys == [first, "Bearer sk-of-the-second", first]


async def test_images_count_apart_from_the_files_of_a_session() -> None:
    artifacts = Session().artifacts
    for number in range(200):
        await artifacts.write(f"{number}.txt", b"x")
    for number in range(10):
        await artifacts.write(f"images/{number}.png", bytes(10 * 1024 * 1024), media_type="image/png")
    with pytest.raises(ToolError, match="the session has 200 files, and 200 is the most"):
        await artifacts.write("one.txt", b"x")
    with pytest.raises(ToolError, match="images would have 104,857,601 bytes together, and 104,857,600 is the most"):
        await artifacts.write("images/one.png", b"x", media_type="image/png")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("Images", "'Images' would be both a file and the folder"),
        ("images/0.png", "the session has 193 images, and 200"),
    ],
)
async def test_images_that_could_not_be_stored_are_neither_asked_about_nor_paid(path: str, reason: str) -> None:
    session, images, gate = Session(), ScriptedImages([FOX] * 8), ScriptedGate()
    for number in range(193):
        await session.artifacts.write(path.replace("0", str(number)), b"x", media_type="image/png")
    prompts = [f"fox {number}" for number in range(8)]
    model = ScriptedModel([call("generate_images", {"prompts": prompts}), say("Sorry.")])
    events = await collect(AgentRuntime(model, gate, tools=image_tools(images)).run_turn("Draw.", session))
    assert reason in result_of(events)
    assert (gate.requests, images.prompts) == ([], [])
