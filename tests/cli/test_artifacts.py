"""The files of a session in the terminal: listed, shown, saved, and seen while they are written."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenticx import builtin_tools, open_hub
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, collect
from agenticx.tools import ToolContext, tool
from tests.support.image_server import png
from tests.support.screen import Screen

PAGE = '<!doctype html>\n<html lang="de">\r\n<h1>Bäckerei \x1b[2J</h1>\n</html>'
OLD = "<p>old</p>\n"
CSS = "body { margin: 0 }\n"
LOGO = png()


@tool(risk="read")
async def draw(context: ToolContext) -> str:
    """Draw a logo."""
    artifact = await context.artifacts.write("images/logo.png", LOGO, media_type="image/png")
    context.emit("artifact", artifact.event_data)
    return "Drawn."


def create(content: str, path: str = "index.html") -> Any:
    return call("create_file", {"path": path, "content": content}, pieces=9)


async def build_in(home: Path) -> None:
    """Let a model write files in a session of the store in `home`."""
    with ScriptedModel([create(OLD), create(PAGE), [create(CSS, "css/site.css"), call("draw")], "Done."]) as model:
        settings = load_settings({"home": home}, environ={})
        async with open_hub(model=model, tools=[*builtin_tools(), draw], settings=settings) as hub:
            session = await hub.create(name="Bakery")
            await collect(hub.run_turn(session.id, "A page about a bakery"))


@pytest.fixture(params=["in this process", "at a server", "beside a chat"])
def shell(request: pytest.FixtureRequest, agx: Any) -> Any:
    """Return the shell, with a session that has files, read in the three ways in which a command reads sessions."""
    asyncio.run(build_in(Path(agx.environment["AGX_HOME"])))
    match request.param:
        case "at a server":
            request.getfixturevalue("studio")
        case "beside a chat":
            request.getfixturevalue("terminal")("chat").wait_for("› ")
        case _:
            pass
    return agx


def failure(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """Return the error of a command that printed nothing else."""
    assert (done.returncode, done.stdout) == (code, ""), done
    return done.stderr.removeprefix("agx: ").removesuffix("\n")


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_listed_shown_and_saved(shell: Any) -> None:
    listed = shell("artifacts", "list", "last")
    assert (listed.returncode, listed.stdout.splitlines()) == (
        0,
        [
            "css/site.css     19 bytes, revision 1, text/css",
            "images/logo.png  24 bytes, revision 1, image/png",
            f"index.html       {len(PAGE.encode())} bytes, revision 2, text/html",
        ],
    )
    rows = [json.loads(line) for line in shell("artifacts", "list", "last", "--json").stdout.splitlines()]
    assert [(row["path"], row["revision"], row["media_type"]) for row in rows] == [
        ("css/site.css", 1, "text/css"),
        ("images/logo.png", 1, "image/png"),
        ("index.html", 2, "text/html"),
    ]
    assert rows[0].keys() == {"path", "revision", "size", "sha256", "media_type"}
    assert shell("artifacts", "show", "last", "index.html", "--revision", "1").stdout == OLD
    saved = shell("artifacts", "save", "last", "--to", "site/new")
    site = shell.folder / "site" / "new"
    assert (saved.returncode, saved.stdout) == (0, "")
    assert saved.stderr.splitlines()[0] == f"css/site.css  19 bytes, revision 1, saved to {site}/css/site.css"
    assert files_in(site) == {"css/site.css": CSS.encode(), "images/logo.png": LOGO, "index.html": PAGE.encode()}
    (site / "index.html").write_text("mine")
    for words in (["last"], ["last", "index.html"]):
        refused = failure(shell("artifacts", "save", *words, "--to", str(site)))
        assert "'index.html'" in refused
        assert refused.endswith(f"already in {str(site)!r}; --force overwrites")
    assert (site / "index.html").read_text() == "mine"
    one = ["artifacts", "save", "last", "index.html", "--revision", "1", "--to", str(site), "--force", "--json"]
    assert json.loads(shell(*one).stdout) == {
        "path": "index.html",
        "revision": 1,
        "size": len(OLD),
        "file": f"{site}/index.html",
    }
    assert (site / "index.html").read_text() == OLD


@pytest.mark.ci_lane
def test_what_a_session_does_not_have_is_an_error_that_names_what_it_has(shell: Any) -> None:
    names = "css/site.css, images/logo.png, index.html"
    for action in ("show", "save"):
        other = failure(shell("artifacts", action, "last", "other.html"))
        assert other == f"the session has no file 'other.html'; it has {names}"
        revision = failure(shell("artifacts", action, "last", "index.html", "--revision", "7"))
        assert revision == "'index.html' has no revision 7; it has 1, 2"
        assert "has the part '..'" in failure(shell("artifacts", action, "last", "../index.html"))
        needed = "--revision needs the path" if action == "save" else "give the path of a file: 'css/site.css'"
        assert needed in failure(shell("artifacts", action, "last", "--revision", "1"), 2)
        assert "no session has the id or id prefix 'none'" in failure(shell("artifacts", action, "none"), 2)
        assert "not the number of a revision" in failure(shell("artifacts", action, "last", "a", "--revision", "0"), 2)
    named = failure(shell("artifacts", "show", "last"), 2)
    assert named == "give the path of a file: 'css/site.css', 'images/logo.png', 'index.html' are in the session"
    assert files_in(shell.folder) == {}


@pytest.mark.ci_lane
def test_a_session_without_files_says_so(agx: Any) -> None:
    agx("run", "say one")
    listed = agx("artifacts", "list", "last")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "has no files; a model writes some with create_file" in listed.stderr
    assert "has no files" in failure(agx("artifacts", "show", "last"))
    assert "has no files" in failure(agx("artifacts", "save", "last"))


@pytest.mark.ci_lane
def test_nothing_is_written_outside_the_folder(agx: Any, tmp_path: Path) -> None:
    asyncio.run(build_in(Path(agx.environment["AGX_HOME"])))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "index.html").write_text("mine")
    for path, link in (("css/site.css", "css"), ("index.html", "index.html"), ("images/logo.png", "images")):
        folder = tmp_path / link
        folder.mkdir()
        (folder / link).symlink_to(outside / "index.html" if link == "index.html" else outside)
        refused = failure(agx("artifacts", "save", "last", path, "--to", str(folder), "--force"))
        assert f"{path!r} would be written outside the folder" in refused
        assert f"would be written outside the folder, to '{outside}/" in failure(
            agx("artifacts", "save", "last", "--to", str(folder), "--force")
        )
        assert files_in(folder) == ({"index.html": b"mine"} if link == "index.html" else {})
    assert files_in(outside) == {"index.html": b"mine"}
    refused = failure(agx("artifacts", "save", "last", "--to", str(outside / "index.html")), 2)
    assert refused == f"--to '{outside}/index.html' is not a folder"


def test_protected_files_are_saved_by_name_only_and_never_into_the_home(agx: Any, tmp_path: Path) -> None:
    async def build() -> None:
        with ScriptedModel(
            [[create("echo hi", ".zshenv"), create("a = 1", ".agenticx/settings.toml")], "Done."]
        ) as model:
            settings = load_settings({"home": Path(agx.environment["AGX_HOME"])}, environ={})
            async with open_hub(model=model, tools=builtin_tools(), settings=settings) as hub:
                session = await hub.create(name="Shell")
                await collect(hub.run_turn(session.id, "Files that run"))

    asyncio.run(build())
    folder, home = tmp_path / "site", Path(agx.environment["AGX_HOME"])
    assert "is not saved with all files" in failure(agx("artifacts", "save", "last", "--to", str(folder)))
    assert files_in(folder) == {}
    assert agx("artifacts", "save", "last", ".zshenv", "--to", str(folder)).returncode == 0
    assert files_in(folder) == {".zshenv": b"echo hi"}
    refused = failure(agx("artifacts", "save", "last", ".zshenv", "--to", str(home / "agents")))
    assert refused.endswith("the folder of AgenticX itself")


def test_a_terminal_shows_text_escaped_and_no_image(agx: Any, terminal: Callable[..., Any]) -> None:
    asyncio.run(build_in(Path(agx.environment["AGX_HOME"])))
    page = terminal("artifacts", "show", "last", "index.html")
    assert page.exit_code() == 0
    assert page.screen == '<!doctype html>\n<html lang="de">\n<h1>Bäckerei ⟨U+001B⟩[2J</h1>\n</html>\n'
    logo = terminal("artifacts", "show", "last", "images/logo.png")
    assert logo.exit_code() == 1
    assert "'images/logo.png' is no text, which a terminal could show; `agx artifacts save ses_" in logo.screen
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        agx("artifacts", "show", "last", "images/logo.png", stdout=reader.stdin.fileno())
        assert reader.communicate()[0] == LOGO


# --- while they are written -------------------------------------------------------------------------------------------


def growing(path: str, pieces: list[str], **last: Any) -> list[dict[str, Any]]:
    """Return the events of a file that grows by these pieces; `last` are fields of the last one."""
    rows: list[dict[str, Any]] = []
    offset = 0
    for piece in pieces:
        rows.append({"path": path, "final": False, "revision": 2, "delta": piece, "offset": offset})
        offset += len(piece)
    rows.append({"path": path, "final": True, "revision": 2, **last})
    call_id = {"tool_call_id": f"call_{path}"}
    return [{"type": "artifact", "turn_id": "t", "data": row | call_id} for row in rows]


def token(text: str, offset: int = 0) -> dict[str, Any]:
    return {"type": "token", "turn_id": "t", "data": {"text": text, "message_id": "m", "offset": offset}}


LONG = f"{'pages/' * 30}é.html"
EVENTS = [
    token("I'll write it."),
    *growing("index.html", ["<p>é"] * 1000, size=5_000, sha256="0" * 64, media_type="text/html"),
    *growing(LONG, ["ab"], dropped=True)[:1],
    token(" And"),
    *growing(LONG, ["ab", "c" * 4_000], dropped=True)[1:],
    *growing("a\x1b[2J.css", ["a{}\ud83d"], size=1, content="x")[:-1],
    {"type": "error", "turn_id": "t", "data": {"code": "stopped", "text": "stopped", "fatal": True}},
]
LINES = [
    "index.html  5,000 bytes, revision 2",
    f"{LONG}  dropped, nothing of it is stored",
    "the turn was stopped",
]


@pytest.fixture
def talk(agx: Any) -> str:
    """Return the name of a file of events, in which files grow."""
    rows = [json.dumps({"v": 1, "agent_id": "meta", **event}) + "\n" for event in EVENTS]
    (agx.folder / "talk.jsonl").write_text("".join(rows))
    return "talk.jsonl"


def test_a_file_that_is_written_is_one_line_of_plain_output(agx: Any, talk: str) -> None:
    done = agx("sessions", "replay", talk)
    assert (done.stdout, done.stderr.splitlines()) == ("I'll write it. And\n", LINES)
    assert agx("sessions", "replay", "./talk.jsonl", "--json").stdout == (agx.folder / talk).read_text()


@pytest.mark.ci_lane
@pytest.mark.parametrize("columns", [60, 10])
@pytest.mark.cases(quick=1)
def test_a_terminal_updates_the_line_of_a_file_in_place(
    agx: Any, terminal: Callable[..., Any], talk: str, columns: int
) -> None:
    shown = terminal("sessions", "replay", talk, columns=columns)
    assert shown.exit_code() == 0
    screen = Screen(columns)
    screen.write(shown.raw)
    text = "".join(screen.text().split("\n"))
    assert text == f"I'll write it.{LINES[0]} And{''.join(LINES[1:])}"
    assert ("index.html  2,500 bytes, revision 2 …" in shown.screen) is (columns == 60)
    assert ("/pages/é.html  2 bytes, revision 2 …" in shown.screen) is (columns == 60)


def test_a_run_shows_a_file_while_the_model_writes_it(agx: Any, terminal: Callable[..., Any], provider: Any) -> None:
    arguments = json.dumps({"path": "index.html", "content": "x" * 4_210})
    function = {"name": "create_file", "arguments": arguments}
    call = {"index": 0, "id": "call_0", "type": "function", "function": function}
    provider.events(json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    provider.hold = True
    run = terminal("run", "a page", "--model", "openai-chat:x", "--base-url", provider.base_url, columns=100)
    run.wait_for("index.html  4,210 bytes, revision 1 …")
    run.type("\x03")
    run.wait_for("index.html  dropped, nothing of it is stored\n")
    assert run.exit_code() == 130
    screen = Screen(100)
    screen.write(run.raw)
    lines = [line for line in screen.text().splitlines() if "index.html" in line]
    assert lines == ["index.html  dropped, nothing of it is stored"]
