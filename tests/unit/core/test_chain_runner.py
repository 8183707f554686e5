"""The runner of questions: its input and limits, foreign passages, and results where something fails."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agenticx import ToolContext, UserMessage, tool
from agenticx.clocks import ScaledClock
from agenticx.core import AgentChainRunner, AgentInput, InvalidAgentInput
from agenticx.core.context_envelope import ContextEnvelope, GivenPassage
from agenticx.errors import ModelError
from agenticx.knowledge import Passage, Vaults, passage_sha256
from agenticx.knowledge.passages import CITING, number_passage, number_url_passage, shown_passage
from agenticx.llms import ScriptedModel
from agenticx.runtime import Session
from agenticx.settings import load_settings
from agenticx.testing import call, check_grammar, hang, outline

pytestmark = pytest.mark.anyio

LEASE = "# Lease\n\nIt ends in May 2027. The rent is 900 EUR.\n"


class Ask:
    """A runner over a vault of one note, and a session."""

    def __init__(self, folder: Path, *script: Any, tools: Any = (), clock: Any = None, **settings: Any) -> None:
        self.notes = folder / "Notes"
        self.notes.mkdir()
        (self.notes / "Lease.md").write_text(LEASE)
        self.vaults = Vaults(folder / "home")
        self.model = ScriptedModel(script)
        self.session = Session(workspace=folder)
        self.runner = AgentChainRunner(
            self.model,
            vaults=self.vaults,
            tools=tools,
            system_prompt="Be brief.",
            settings=load_settings({"home": folder / "home", **settings}, environ={}),
            clock=clock,
        )

    async def __aenter__(self) -> Ask:
        self.vault, _ = await self.vaults.add(self.notes)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.vaults.close()

    async def __call__(self, agent_input: Any, **options: Any) -> list[Any]:
        events = [event async for event in self.runner.run_turn(agent_input, self.session, **options)]
        check_grammar(events)
        return events


def citations(events: list[Any]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == "citation"]


@tool(risk="read")
async def page_read(context: ToolContext) -> str:
    """Read a page."""
    url, text = "https://example.org/rent", "Rents\n\nThe average is 1,100 EUR.\n"
    number, passage = number_url_passage(context.state, url, text, heading="Rents")
    return f"{shown_passage(number, passage)}\n{CITING}"


async def test_a_question_gets_passages_tools_limits_and_checked_citations(tmp_path: Path) -> None:
    async with Ask(tmp_path, "It ends in May 2027 [^1].") as ask:
        events = await ask("What do my notes say about the lease?")

    assert (events[0].data["mode"], events[1].data["max_rounds"]) == ("vault", 5)
    assert [(data["status"], data["path"]) for data in citations(events)] == [("verified", "Lease.md")]
    request = ask.model.requests[0]
    assert [message.role for message in request.messages] == ["system", "user", "user"]
    assert {schema.name for schema in request.tools} >= {"note_search", "note_read"}


async def test_a_passage_from_elsewhere_is_cited_with_its_url(tmp_path: Path) -> None:
    reply = "The average is 1,100 EUR [^1]. It was 900 before [^1]."
    async with Ask(tmp_path, call("page_read"), reply, tools=[page_read]) as ask:
        events = await ask("Look up the average rent", mode="agent")

    first, second = citations(events)
    assert {key: value for key, value in first.items() if key not in ("message_id", "sha256")} == {
        "marker": 1,
        "status": "verified",
        "url": "https://example.org/rent",
        "heading": "Rents",
        "line_start": 1,
        "line_end": 3,
        "quote": "The average is 1,100 EUR.",
        "quote_line": 3,
    }
    assert second["status"] == "unsupported"


@pytest.mark.parametrize(
    "given",
    [
        {"message": ""},
        {"message": 7},
        {},
        {"message": "Hello", "mesage": "Hello"},
        {"message": "Hello", "original_message": b"Hello"},
        {"message": "Hello", "attachments": [{"name": "a.txt"}]},
        {"message": "Hello", "envelope": {"system": "x"}},
        {"message": "Hello", "options": {"debug": "yes"}},
        "",
    ],
    ids=str,
)
def test_an_invalid_input_is_a_sentence_for_the_person_and_the_whole_error_in_the_log(
    given: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidAgentInput) as caught:
        AgentInput.checked(given)

    assert str(caught.value) == (
        "The message cannot be used as it is; the log says why. Write it again, or without what is attached."
    )
    assert "validation error" in str(caught.value.__cause__)


async def test_options_the_persons_own_words_and_enabled_tools_are_used(tmp_path: Path) -> None:
    enabled = {"autonomous_agent_enabled_tool_ids": ["note_read"], "autonomous_agent_max_iterations": 2}
    async with Ask(tmp_path, "Yes.", tools=[page_read], **enabled) as ask:
        agent_input = {
            "message": "Is this right? [[Nowhere]]",
            "original_message": "In [[Lease]], is this right?",
            "options": {"ignore_system_message": True, "debug": True},
        }
        events = await ask(agent_input)

    (request,) = ask.model.requests
    assert [schema.name for schema in request.tools] == ["note_read"]
    assert events[1].data["max_rounds"] == 2
    assert [message.role for message in request.messages] == ["user", "user"]
    assert "[passage 1: Lease.md, lines 1-3, " in request.messages[0].content
    assert "Nowhere" not in request.messages[0].content


async def test_an_envelope_takes_the_place_of_the_runners_context(tmp_path: Path) -> None:
    async with Ask(tmp_path, "It is 12 [^1].") as ask:
        passage = Passage("Keys.md", None, 3, 3, "The code is 12.", passage_sha256("The code is 12."))
        (ask.notes / "Keys.md").write_text("# Keys\n\nThe code is 12.\n")
        number = number_passage(ask.session.state, ask.vault.record.id, passage)
        envelope = ContextEnvelope(
            system="Use the passage.",
            smart=[GivenPassage(number, passage)],
            history=[UserMessage(content="Hello", message_id="msg_earlier")],
        )
        events = await ask({"message": "What is the code?", "envelope": envelope})

    texts = [message.content for message in ask.model.requests[0].messages]
    assert (texts[0], texts[1], texts[3]) == ("Use the passage.", "Hello", "What is the code?")
    assert "[passage 1: Keys.md, line 3, " in texts[2]
    assert [(data["status"], data["line_start"]) for data in citations(events)] == [("verified", 3)]


COMPOSED = """\
No model wrote this text: the turn was out of rounds or time, and the model call that was to say what was found gave \
no answer. What was found, with the first sentence of each:

- Lease.md, Lease, lines 1-3
  - It ends in May 2027. [^1]
- clock: 2 lines
  - It is 3.5 o'clock."""


@tool(risk="read")
async def clock() -> str:
    """Tell the time."""
    return "# Time\nIt is 3.5 o'clock. And [^1] more"


@pytest.mark.parametrize(
    "last", [ModelError("the server is down", code="provider.overloaded"), "", hang()], ids=["error", "empty", "time"]
)
async def test_if_the_last_call_fails_too_the_answer_is_made_of_what_was_found(tmp_path: Path, last: Any) -> None:
    script = [call("note_search", {"query": "lease"}), call("clock"), [last] if last else last]
    options = {"tools": [clock], "clock": ScaledClock(speed=500), "autonomous_agent_max_iterations": 2}
    async with Ask(tmp_path, *script, **options) as ask:
        events = await ask("When does it end?", mode="vault")

    assert (events[-1].type, events[-1].data["reason"], events[-1].data["text"]) == ("final", "partial", COMPOSED)
    assert [(data["marker"], data["status"]) for data in citations(events)] == [(1, "verified")]
    assert outline(events, state=True)[-5:] == ["state:responding", "token", "citation", "state:done", "final"]
    assert ask.session.messages[-1].content == COMPOSED


async def test_an_unreadable_index_makes_the_turn_one_of_mode_agent_and_is_said(tmp_path: Path) -> None:
    async with Ask(tmp_path, call("note_search", {"query": "lease"}), "I cannot search them.") as ask:
        ask.vaults.registry.index_file(ask.vault.record).mkdir(parents=True)
        events = await ask("What do my notes say about [[Lease]]?")

    started = events[0].data
    assert started["mode"] == "agent"
    assert started["mode_reason"].endswith("but the notes of 'Notes' cannot be read")
    assert "The notes of 'Notes' cannot be searched now" in ask.model.requests[0].messages[1].content
    assert [event.data["outcome"] for event in events if event.type == "tool_result"] == ["error"]
    assert (events[-1].type, events[-1].data["reason"]) == ("final", "answer")


async def test_a_changed_pinned_note_is_given_again_and_the_old_one_named_outdated(tmp_path: Path) -> None:
    async with Ask(tmp_path, "One.", "Two.", "Three.", "Four.") as ask:
        await ask("Read [[Lease]]", mode="agent")
        (ask.notes / "Lease.md").write_text(f"{LEASE}It has a garden.\n")
        await ask("Go on", mode="agent")
        await ask("Go on", mode="agent")
        (ask.notes / "Lease.md").unlink()
        await ask("Go on", mode="agent")

    requests = [list(request.messages) for request in ask.model.requests]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(requests))
    second = requests[1][-2].content
    assert "Outdated: passage 1; Lease.md has changed." in second
    assert "It has a garden." in second
    assert [message.content for message in requests[2][-2:]] == ["Two.", "Go on"]
    assert "Outdated: passage 2; Lease.md is gone." in requests[3][-2].content


@pytest.mark.parametrize(("name", "arguments"), [("note_read", {"path": "Lease"}), ("note_search", {"query": "ends"})])
async def test_a_result_names_the_passages_that_its_note_no_longer_has(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    @tool(risk="read")
    def extend() -> str:
        """Extend the lease."""
        (ask.notes / "Lease.md").write_text(LEASE.replace("2027", "2029"))
        return "done"

    script = [call(name, arguments), call("extend"), call("note_read", {"path": "Lease"}), "Two."]
    async with Ask(tmp_path, *script, tools=[extend]) as ask:
        await ask("When does it end?", mode="agent")

    first, _, second = [message.content for message in ask.session.messages if message.role == "tool"]
    assert "Outdated" not in first
    assert second.endswith(f"{CITING}\nOutdated: passage 1; Lease.md has changed.")
    assert "It ends in May 2029." in second
