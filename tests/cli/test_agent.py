"""`agx agent list`, and sessions with an agent of a file in the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01"


@pytest.fixture
def home(agx: Any) -> Path:
    """Return AGX_HOME, with the agent `brief`."""
    home = Path(agx.environment["AGX_HOME"])
    (home / "agents").mkdir(parents=True)
    text = 'description = "Answers briefly."\nmodel = "demo"\ntools = ["list_files"]\nsystem_prompt = "Be brief."'
    (home / "agents" / "brief.toml").write_text(text, encoding="utf-8")
    return home


def test_the_agents_are_listed_with_their_files_and_problems(agx: Any, home: Path) -> None:
    (home / "agents" / "broken.toml").write_text("tools = 3", encoding="utf-8")
    brief, broken, packaged = agx("agent", "list").stdout.splitlines()
    assert brief == f"brief             Answers briefly.  ({home}/agents/brief.toml)"
    assert broken.startswith("broken            cannot be used: ")
    assert packaged.startswith("page-builder      Builds one self-contained HTML page ")
    rows = [json.loads(line) for line in agx("agent", "list", "--json").stdout.splitlines()]
    assert [(row["name"], row["source"], row["tools"]) for row in rows[:2]] == [
        ("brief", "user", ["list_files"]),
        ("broken", "user", None),
    ]


def test_a_new_session_has_the_agent_and_a_continued_one_takes_none(agx: Any, home: Path) -> None:
    done = agx("run", "--agent", "brief", "say hi")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    (row,) = [json.loads(line) for line in agx("sessions", "list", "--json").stdout.splitlines()]
    assert (row["agent"], row["model"], row["tools"]) == ("brief", "demo", ["list_files"])
    assert "brief" in agx("sessions", "show", "last").stdout
    refused = agx("run", "-c", "--agent", "brief", "say hi")
    assert (refused.returncode, "not allowed with argument" in refused.stderr) == (2, True)
    for words in (("run", "--agent", "nobody", "say hi"), ("chat", "--agent", "nobody")):
        unknown = agx(*words)
        assert (unknown.returncode, unknown.stdout) == (2, "")
        assert "unknown agent 'nobody'; known agents: brief, page-builder" in unknown.stderr


def test_the_demo_builds_a_page_as_the_packaged_agent(agx: Any) -> None:
    done = agx("run", "--agent", "page-builder", "make a page about a bakery", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    types = [event["type"] for event in events]
    (result,) = [event["data"] for event in events if event["type"] == "tool_result"]
    assert (done.returncode, done.stderr) == (0, "")
    assert (result["name"], result["is_error"], types.count("tool_call_delta") >= 40) == ("create_file", False, True)
    assert events[-1]["data"]["text"].endswith(
        "I have made the page “Bakery” in index.html, warm and centred; its text is an example."
    )
    listed = agx("agent", "list").stdout
    assert "; without tools that are not available here: " in listed
    assert "create_file" not in listed.partition("; without")[2]


def test_an_image_is_attached_and_another_file_is_refused_with_what_is_taken(agx: Any, home: Path) -> None:
    (agx.folder / "screen.png").write_bytes(PNG)
    (agx.folder / "notes.txt").write_text("notes", encoding="utf-8")
    done = agx("run", "--agent", "brief", "--image", "screen.png", "say hi", "--json")
    started = json.loads(done.stdout.splitlines()[0])
    assert [file["name"] for file in started["data"]["attachments"]] == ["screen.png"]
    refused = agx("run", "--image", "notes.txt", "say hi")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "agx run: --image: 'notes.txt' is text/plain; right would be an image: a PNG, JPEG, GIF or WebP file\n"
    )
