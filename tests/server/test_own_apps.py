"""`create_app`: a studio with an application's own models, tools, hooks and prompt, served or mounted."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from agenticx.core import Agent, memory_tools
from agenticx.errors import SettingsError
from agenticx.llms import NamedModels, ScriptedModel
from agenticx.runtime import AgentHook, AgentRuntime, TurnContext, current_turn
from agenticx.sessions import OwnedElsewhere
from agenticx.settings import Settings, load_settings
from agenticx.subagents import session_tools
from agenticx.testing import ScriptedImages, call
from agenticx.tools import tool
from studio import create_app
from studio.app_import import import_app
from studio.server import listen
from tests.support.server.agx_processes import agx, agx_serve, outcome
from tests.support.server.chromium import CHROMIUM, browser_tab
from tests.support.server.page import send_message
from tests.support.server.running_studio import frames_of, note, until
from tests.support.timeouts import patient_client

pytestmark = pytest.mark.anyio

MODULE = '''
"""An application."""
import subprocess

from agenticx import AgentHook, tool
from agenticx.testing import ScriptedModel, call, say
from studio import create_app

print("printed while it is imported")
subprocess.run(["echo", "printed by a process"], check=True)


@tool(risk="read")
def temperature(city: str) -> str:
    """Return the temperature in a city."""
    print("printed by a tool")
    return f"12 degrees in {city}"


class Louder(AgentHook):
    def after_tool_call(self, name, arguments, result, context):
        return result.upper()


model = ScriptedModel([call("temperature", {"city": "Lyon"}), say("It is cold.")])
app = create_app(models={"mine": model}, tools=[temperature], hooks=[Louder()])
not_one = 1
'''


TOOLS = ["temperature", *(each.schema.name for each in (*session_tools(), *memory_tools()))]
EVENT_STREAM = {"Accept": "text/event-stream"}
SHOWN = frozenset({"turn_started", "tool_call", "confirm_required", "confirm_response", "tool_result", "final"})


def settings_in(folder: Path, **settings: Any) -> Settings:
    (folder / "workspace").mkdir(exist_ok=True)
    given = {"home": folder / "home", "workspace_root": folder / "workspace", **settings}
    return load_settings(given, environ={})


def authorized(home: Path) -> dict[str, str]:
    return {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}


async def turn_in(client: httpx.AsyncClient, text: str, api: str = "/api") -> list[Any]:
    """Run a turn in a new session and return its events."""
    session_id = (await client.post(f"{api}/sessions", json={"name": "Named"})).json()["id"]
    started = await client.post(f"{api}/sessions/{session_id}/turns", json={"input": text})
    assert started.status_code == 202, started.text
    async with client.stream("GET", f"{api}/sessions/{session_id}/events") as answer:
        return [frame.data for frame in await until(frames_of(answer), "final") if frame.data]


async def test_serve_runs_an_application_with_its_own_model_tool_and_hook(tmp_path: Path) -> None:
    (tmp_path / "my_studio.py").write_text(MODULE)
    home = tmp_path / "home"
    process = await agx(home, "serve", "--json", "--port", "0", "--app", "my_studio:app", AGX_MODEL="")
    line = json.loads(await process.stdout.readline())
    async with patient_client(line["url"], headers=authorized(home)) as client:
        models = (await client.get("/api/models")).json()
        assert (models["default"], models["models"][0]["id"]) == ("mine", "mine")
        assert [row["name"] for row in (await client.get("/api/tools")).json()["tools"]] == TOOLS
        events = await turn_in(client, "How cold is it in Lyon?")
    (result,) = [event["data"]["result"] for event in events if event["type"] == "tool_result"]
    assert result == "12 DEGREES IN LYON"
    assert events[-1]["data"]["text"] == "It is cold."
    process.send_signal(signal.SIGTERM)
    code, out, err = await outcome(process)
    assert (code, out) == (0, "")
    assert "printed while it is imported\n" in err
    assert "printed by a process\n" in err
    assert "printed by a tool\n" in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_studio", "it must be MODULE:NAME"),
        (":app", "it must be MODULE:NAME"),
        ("../my_studio:app", "it must be MODULE:NAME"),
        ("my_studio:", "it must be MODULE:NAME"),
        ("none_such:app", "there is no module 'none_such'"),
        ("my_studio:none_such", "'none_such' is missing, not an application of studio.create_app"),
        ("my_studio:not_one", "'not_one' is a int, not an application of studio.create_app"),
        ("broken_studio:app", "importing 'broken_studio' raised ZeroDivisionError: division by zero"),
        ("needy_studio:app", "importing 'needy_studio' raised ModuleNotFoundError: No module named 'none_such'"),
    ],
)
async def test_serve_says_what_is_wrong_with_an_application(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "my_studio.py").write_text(MODULE)
    (tmp_path / "broken_studio.py").write_text("1 / 0")
    (tmp_path / "needy_studio.py").write_text("import none_such")
    code, out, err = await outcome(await agx(tmp_path / "home", "serve", "--port", "0", "--app", name))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"agx: --app is {name!r}")
    assert words in err.splitlines()[-1]
    assert ("Traceback" in err) is ("raised" in words)
    frames = [line for line in err.splitlines() if line.startswith("  File ")]
    assert all(str(tmp_path) in frame for frame in frames)
    assert len(frames) == ("raised" in words)


async def test_the_models_of_an_application_may_be_names_of_the_catalogue(tmp_path: Path) -> None:
    app = create_app(models={"mine": "demo"}, settings=settings_in(tmp_path))
    async with served(app) as url, patient_client(url, headers=authorized(tmp_path / "home")) as client:
        assert (await client.get("/api/models")).json()["default"] == "mine"
        assert (await turn_in(client, "say hello"))[-1]["data"]["text"] == "hello"


async def test_a_name_of_no_model_is_refused_as_the_application_starts(tmp_path: Path) -> None:
    app = create_app(models={"mine": "none-such"}, settings=settings_in(tmp_path))
    with pytest.raises(SettingsError, match="none-such"):
        async with app.router.lifespan_context(app):
            pass


async def test_the_prompt_of_an_application_takes_the_place_of_the_usual_one(tmp_path: Path) -> None:
    model, settings = ScriptedModel(["hello"]), settings_in(tmp_path)
    app = create_app(models={"mine": model}, system_prompt="Be brief in {workspace}.", settings=settings)
    async with served(app) as url, patient_client(url, headers=authorized(tmp_path / "home")) as client:
        await turn_in(client, "hi")
    assert model.requests[0].messages[0].content == f"Be brief in {tmp_path / 'workspace'}."


async def test_the_agent_of_a_session_is_chosen_over_http_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    model, agents = ScriptedModel(["It is paid.", "Hello."]), [Agent(name="Billing", instructions="You do invoices.")]
    app = create_app(models={"mine": model}, agents=agents, system_prompt="Main.", settings=settings_in(tmp_path))
    async with served(app) as url, patient_client(url, headers=authorized(tmp_path / "home")) as client:
        session = (await client.post("/api/sessions", json={"agent": "Billing"})).json()
        path, listen_to = f"/api/sessions/{session['id']}", EVENT_STREAM
        await client.post(f"{path}/turns", json={"input": "Paid?"}, headers=listen_to)
        changed = (await client.patch(path, json={"agent": None})).json()
        await client.post(f"{path}/turns", json={"input": "Hi"}, headers=listen_to)
        refused = await client.patch(path, json={"agent": "Nobody"})
    assert (session["agent"], changed["agent"]) == ("Billing", None)
    assert [request.messages[0].content for request in model.requests] == ["You do invoices.", "Main."]
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_agent")
    assert "known agents: 'Billing'" in refused.json()["detail"]


async def test_the_stream_of_a_turn_has_the_events_of_turns_below_it_and_of_no_other_turn(tmp_path: Path) -> None:
    reader = ScriptedModel([call("note_line", {"text": "ok"}), "I noted it."])

    @tool(risk="write")
    def note_line(text: str) -> str:
        """Note a line."""
        return f"noted {text}"

    @tool(risk="read", read_only=False)
    async def ask_reader(question: str) -> str:
        """Have the reader answer."""
        context = TurnContext(parent=current_turn())
        return (await AgentRuntime(reader, tools=[note_line]).run(question, agent_id="reader", context=context)).text

    model = ScriptedModel(["Hello.", call("ask_reader", {"question": "Is it so?"}), "It is."])
    app = create_app(models={"mine": model}, tools=[ask_reader], settings=settings_in(tmp_path))
    async with served(app) as url, patient_client(url, headers=authorized(tmp_path / "home")) as client:
        path = f"/api/sessions/{(await client.post('/api/sessions', json={})).json()['id']}/turns"
        frames: list[dict[str, Any]] = []
        for text in ("Hi", "Ask the reader"):
            async with client.stream("POST", path, json={"input": text}, headers=EVENT_STREAM) as answer:
                async for frame in frames_of(answer):
                    frames += [] if frame.type == "comment" else [frame.data]
                    if frame.type == "confirm_required":
                        asked = frame.data["data"]
                        given = {"approved": True, "digest": asked["digest"]}
                        await client.post(f"/api/confirms/{asked['id']}", json=given)
    shown = [(frame["agent_id"], frame["type"]) for frame in frames if frame["type"] in SHOWN]
    assert shown[:2] == [("meta", "turn_started"), ("meta", "final")]
    assert shown[2:] == [
        ("meta", "turn_started"),
        ("meta", "tool_call"),
        ("reader", "turn_started"),
        ("reader", "tool_call"),
        ("reader", "confirm_required"),
        ("reader", "confirm_response"),
        ("reader", "tool_result"),
        ("reader", "final"),
        ("meta", "tool_result"),
        ("meta", "final"),
    ]


@asynccontextmanager
async def served(app: Starlette) -> AsyncGenerator[str]:
    """Serve an application with uvicorn as it comes, and yield its URL."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    server.capture_signals = no_signals  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        assert not serving.done(), serving.exception()
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    await serving


@contextmanager
def no_signals() -> Generator[None]:
    yield


def outer_app(studio_app: Starlette) -> Starlette:
    """Return an application that mounts a studio beside a route of its own, and runs its lifespan."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with studio_app.router.lifespan_context(studio_app):
            yield

    async def hello(_request: Request) -> Response:
        return PlainTextResponse("hello from outside")

    return Starlette(routes=[Route("/hello", hello), Mount("/studio", studio_app)], lifespan=lifespan)


async def test_an_image_model_of_the_application_adds_the_tools_for_images(tmp_path: Path) -> None:
    app = outer_app(create_app(tools=[note], images=ScriptedImages(), settings=settings_in(tmp_path)))
    async with served(app) as url, patient_client(url, headers=authorized(tmp_path / "home")) as client:
        rows = {row["name"]: row["read_only"] for row in (await client.get("/studio/api/tools")).json()["tools"]}
    assert (rows["generate_images"], rows["remove_background"]) == (False, False)
    with pytest.raises(TypeError, match="images must be an ImageProvider"):
        create_app(images="openai:gpt-image-2")  # type: ignore[arg-type]


async def test_a_studio_is_mounted_in_another_application(tmp_path: Path) -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "Noted."])
    settings = settings_in(tmp_path, permission_mode="auto")
    app = outer_app(create_app(models={"mine": model}, tools=[note], settings=settings))
    async with served(app) as url, patient_client(url) as stranger:
        assert (await stranger.get("/hello")).text == "hello from outside"
        public = ("", "/", "/assets/main.js", "/api/health")
        for path, status in (*((path, 200) for path in public), ("/api/tools", 401)):
            answer = await stranger.get(f"/studio{path}", follow_redirects=True)
            assert (path, answer.status_code) == (path, status)
        assert (await stranger.get("/studio/api/health", headers={"Host": "evil.example"})).status_code == 421
        headers = authorized(tmp_path / "home")
        assert (await stranger.get("/studio/api/nothing", headers=headers)).status_code == 404
        async with patient_client(url, headers=headers) as client:
            events = await turn_in(client, "note x", "/studio/api")
            assert [event["type"] for event in events[-2:]] == ["state", "final"]
        assert not (tmp_path / "home" / "studio.json").exists()  # it does not know its address


@pytest.mark.ci_lane
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_the_page_of_a_mounted_studio_works(tmp_path: Path) -> None:
    app = outer_app(create_app(models={"mine": ScriptedModel(["Good morning."])}, settings=settings_in(tmp_path)))
    async with served(app) as url, browser_tab() as tab:
        async with patient_client(url, headers=authorized(tmp_path / "home")) as client:
            ticket = (await client.post("/studio/api/tickets")).json()["ticket"]
        await tab.open(f"{url}/studio/#{ticket}")
        await tab.wait_for("document.getElementById('input')")
        await send_message(tab, "hi")
        await tab.wait_for("document.getElementById('log')?.innerText.includes('Good morning.')")
        assert tab.errors == []


async def test_an_application_may_start_again_but_not_beside_itself(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    app, other = (create_app(models={"mine": ScriptedModel()}, settings=settings) for _ in range(2))
    for _ in range(2):
        async with app.router.lifespan_context(app):
            with pytest.raises(OwnedElsewhere, match="has the sessions of this AGX_HOME"):
                async with other.router.lifespan_context(other):
                    pass
            code, out, err = await outcome(await agx(tmp_path / "home", "serve", "--port", "0"))
            assert (code, out) == (1, "")
            assert "has the sessions of this AGX_HOME" in err
    async with agx_serve(tmp_path / "home"):
        with pytest.raises(OwnedElsewhere, match="the studio at http"):
            async with app.router.lifespan_context(app):
                pass


async def test_a_studio_whose_lifespan_nobody_runs_says_so(tmp_path: Path) -> None:
    app = Starlette(routes=[Mount("/studio", create_app(settings=settings_in(tmp_path)))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        with pytest.raises(RuntimeError, match="the lifespan of the studio has not begun"):
            await client.get("/studio/api/health")
    assert not (tmp_path / "home").exists()


def test_models_of_an_application_are_a_mapping_or_a_function(tmp_path: Path) -> None:
    first, second = ScriptedModel(name="one"), ScriptedModel(name="two")
    settings, named = settings_in(tmp_path), settings_in(tmp_path, model="second")
    models = NamedModels(settings, own={"first": first, "second": second})
    assert (models.default, models.get(None), models.get("second")) == ("first", first, second)
    assert models.get("demo").name == "demo"
    assert NamedModels(named, own={"first": first, "second": second}).get(None) is second
    with pytest.raises(SettingsError, match="model 'third' is not provider:name"):
        models.get("third")

    def find(name: str | None) -> ScriptedModel:
        return second if name == "two" else first

    models = NamedModels(settings, own=find)
    assert (models.default, models.get(None), models.get("two")) == ("one", first, second)


def test_an_imported_application_is_the_object_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_studio.py").write_text("from studio import create_app\napp = create_app()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(import_app("imported_studio:app"), Starlette)


class Misspelt(AgentHook):
    def before_tool_cal(self) -> None: ...


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"hooks": [Misspelt()]}, "before_tool_cal"),
        ({"models": ["demo"]}, "models must be a mapping of names to models or a function of a name"),
        ({"models": {"mine": object()}}, "is not a model"),
        ({"tools": note}, "tools must be a list of tools and functions; write"),
        ({"tools": [1]}, "1"),
    ],
)
def test_the_parts_of_an_application_are_checked_when_it_is_made(part: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        create_app(**part)
