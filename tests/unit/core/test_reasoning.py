"""The steps of a turn, folded from its events."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from agenticx import builtin_tools
from agenticx.assembly import default_tools
from agenticx.clocks import ScaledClock
from agenticx.core import Reasoning, reasoning_of
from agenticx.core.reasoning import add_event
from agenticx.knowledge.tools import session_note_tools
from agenticx.llms import DemoModel
from agenticx.runtime import AgentRuntime, EventType, Session
from agenticx.runtime.events import EVENT_CLASSES
from agenticx.testing import ScriptedGate, collect
from agenticx.tools import Tool
from agenticx.tools.base import is_parallel
from tests.support.javascript import NODE, run_module

TOOLS = (*default_tools(), *session_note_tools())


def events(*rows: tuple[str, dict[str, Any]], turn_id: str = "turn_a") -> list[tuple[Any, float]]:
    started: list[tuple[str, dict[str, Any]]] = [("turn_started", {"input": "hi"}), *rows]
    made = [EVENT_CLASSES[EventType(type_)](EventType(type_), data, "meta", turn_id) for type_, data in started]
    return [(event, 100.0 + 0.5 * at) for at, event in enumerate(made)]


def think(text: str) -> tuple[str, dict[str, Any]]:
    return "thinking", {"text": text, "message_id": "m", "offset": 0}


def called(number: int, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tool_call", {"tool_call_id": f"c{number}", "name": name, "arguments": arguments}


def result(number: int, name: str, text: str, outcome: str = "ok") -> tuple[str, dict[str, Any]]:
    is_error = outcome != "ok"
    return "tool_result", {
        "tool_call_id": f"c{number}",
        "name": name,
        "result": text,
        "is_error": is_error,
        "outcome": outcome,
    }


FOUND = "\n".join(f"[passage {number}: Lease.md, boundary 0]\n[passage" for number in (1, 2, 3))
WORK = (
    think("The user wants "),
    think("the end of the lease. First I search."),
    called(1, "note_search", query="lease\x1b"),
    called(2, "look", where="here"),
    result(2, "look", "", "denied"),
    result(1, "note_search", FOUND),
    think("Now I read it"),
    called(3, "note_read", path="Lease.md"),
)
FINAL = ("final", {"text": "2027", "message_id": "m", "reason": "answer"})


def test_a_running_turn_shows_its_last_four_steps_and_one_that_has_ended_all() -> None:
    running, ended = reasoning_of(events(*WORK)), reasoning_of(events(*WORK, FINAL))

    steps = [
        "The user wants the end of the lease",
        "Searched notes for 'lease⟨U+001B⟩': 3 found",
        "Call look: not allowed",
        "Now I read it",
        "Reading the note 'Lease.md'",
    ]
    assert running.to_json() == {"elapsed_seconds": 4.0, "steps": steps[1:], "done": False}
    assert ended.to_json() == {"elapsed_seconds": 4.5, "steps": [ended.steps[0], *steps], "done": True}


def test_waiting_for_the_person_and_for_subagents_is_said_in_words() -> None:
    waits = reasoning_of(events(called(1, "wait_subagents"), called(2, "ask_user")))

    assert waits.steps[1:] == ("Waiting for sub-agents", "Wants to ask you")


def test_the_first_step_follows_from_the_turns_id_and_is_one_of_twelve() -> None:
    firsts = {reasoning_of(events(turn_id=f"turn_{number}")).steps for number in range(300)}

    assert len(firsts) == 12
    assert reasoning_of(events()) == reasoning_of(events())


def test_other_turns_and_what_follows_the_end_change_nothing() -> None:
    stopped = reasoning_of(events(called(1, "look"), ("error", {"text": "s", "code": "stopped", "fatal": True})))
    ((child, at),) = events(turn_id="turn_b")

    assert stopped.steps[1:] == ("Calling look", "Stopped")
    assert add_event(stopped, *events(FINAL)[1]) is stopped
    running = reasoning_of(events())
    assert add_event(running, child, at) is running
    assert add_event(Reasoning(), *events(FINAL)[1]) == Reasoning()


def asked(number: int, name: str) -> tuple[str, dict[str, Any]]:
    return "confirm_required", {"id": f"q{number}", "context": {"tool": name, "tool_call_id": f"c{number}"}}


def answered(number: int, *, approved: bool = True, **arguments: Any) -> tuple[str, dict[str, Any]]:
    more = {"arguments": arguments} if arguments else {}
    return "confirm_response", {"id": f"q{number}", "approved": approved, "by": "user", **more}


EDITED = (
    called(1, "bash_exec", command="touch hello"),
    called(2, "file_read", path="a"),
    asked(1, "bash_exec"),
    asked(2, "file_read"),
    answered(2),
    answered(1, command="touch edited"),
    result(2, "file_read", ""),
    result(1, "bash_exec", ""),
)


def test_calls_that_wait_for_a_decision_and_those_behind_them_are_not_said_to_happen() -> None:
    work = [called(1, "bash_exec", command="curl x"), called(2, "file_write", path="b"), called(3, "ask_user")]
    asks = "question_asked", {"id": "q3", "text": "?", "tool_call_id": "c3"}
    steps = [
        (asked(1, "bash_exec"), ("Wants to run 'curl x'", "Wants to write the file 'b'", "Wants to ask you")),
        (answered(1), ("Running 'curl x'", "Wants to write the file 'b'", "Wants to ask you")),
        (asked(2, "file_write"), ("Running 'curl x'", "Wants to write the file 'b'", "Wants to ask you")),
        (answered(2, approved=False), ("Running 'curl x'", "Write the file 'b'", "Wants to ask you")),
        (asks, ("Running 'curl x'", "Write the file 'b'", "Asking you")),
    ]
    for row, told in steps:
        work.append(row)
        assert reasoning_of(events(*work)).steps[1:] == told


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.schema.name)
def test_a_call_behind_another_one_waits_unless_both_run_at_the_same_time(tool: Tool) -> None:
    name = tool.schema.name
    _, first, second = reasoning_of(events(called(1, name), called(2, name))).steps

    assert name not in first  # it has words
    assert (first == second) is is_parallel(tool)
    assert second.startswith("Wants to ") is not is_parallel(tool)


def test_a_call_that_was_stopped_before_it_began_did_not_run() -> None:
    stopped = result(1, "bash_exec", "", "cancelled")
    stopped[1]["duration_ms"] = 3.5
    work = [called(1, "bash_exec", command="a"), called(2, "file_read", path="b"), stopped]

    told = reasoning_of(events(*work, result(2, "file_read", "", "cancelled")))
    assert told.steps[1:] == ("Run 'a': stopped", "Read the file 'b': not run")


def test_spaces_side_by_side_are_told_in_a_name() -> None:
    names = [f"a.txt{' ' * count}.sh" for count in (20, 200)]
    told = reasoning_of(events(*(called(place, "file_read", path=name) for place, name in enumerate(names))))

    assert told.steps[1:] == ("Reading the file 'a.txt⟨20 spaces⟩.sh'", "Reading the file 'a.txt…'")


def test_a_call_that_the_user_edited_has_the_sentence_of_what_ran() -> None:
    assert reasoning_of(events(*EDITED[:6])).steps[1:] == ("Running 'touch edited'", "Reading the file 'a'")
    assert reasoning_of(events(*EDITED)).steps[1:] == ("Ran 'touch edited'", "Read the file 'a'")


# --- the fold of the page ---------------------------------------------------------------------------------------------

FOLD = """
    return given.map((log) => {
        let folded = module.NO_REASONING;
        return log.map((event) => {
            folded = module.addEvent(folded, event);
            return {elapsed_seconds: folded.elapsed_seconds, steps: module.shownSteps(folded), done: folded.done};
        });
    });
"""
TEXTS = (
    *("", " ", "\t\n", "\x1c", "\x85", "\ufeff", "\u180e", "\xa0\u2003", "*", "**", "'", "\u2800", "Kelvin"),
    *(".", "...", "One.", "Is it?So", "e.g. it", "。", "見る。次", "Right! Then", "one\r\ntwo\rthree\u2028four"),
    *("a" * 39, "a" * 40, "a" * 41, "b" * 119 + ".", "b" * 120 + ".", "c" * 121, "d" * 399 + "é", " " * 160 + "x"),
    *("😀" * 40, "😀" * 41, "a" + "😀" * 40, "😀" * 119 + "! So", "😀" * 120 + "! So"),
    *("a\u200db", "\u0645\u06cc\u200c\u062e", "👩\u200d💻", "1\ufe0f", "❤\ufe0f", "x\ufe0f", "\u200d\u200d"),
    *("\U000e0041", "\u202e.", "\x1b[31m", "a\0b", "<b>&amp;</b>", "__proto__", "constructor", "note_search"),
)
NAMES = (*(tool.schema.name for tool in TOOLS), "look", *TEXTS)
OUTCOMES = ("ok", "error", "denied", "blocked", "unknown_tool", "cancelled", "timed_out", "unknown", "toString")
FOUND_ODDLY = "[passage 1: a\n[passage x: b\n[passage ٣: c\r[passage 4: d\n [passage 5: e\n[passage 6: f"
ODD = (
    think(""),
    called(1, "note_search"),
    ("tool_call", {"tool_call_id": "c2", "name": "bash_exec", "arguments": '{"command": '}),
    ("tool_call", {"tool_call_id": "c3", "name": "file_read", "arguments": ["path"]}),
    ("tool_call", {"tool_call_id": "c4", "name": "file_read", "arguments": {"path": 1}}),
    ("tool_call", {"tool_call_id": "__proto__", "name": "toString", "arguments": None}),
    result(9, "note_read", "", "unknown"),
    result(1, "note_search", FOUND_ODDLY),
    ("tool_result", {"tool_call_id": "c2", "name": "bash_exec", "result": "", "is_error": True, "outcome": "error"}),
    ("tool_result", {"tool_call_id": "c3", "name": "file_read", "result": "", "is_error": False, "outcome": "ok"}),
    result(4, "file_read", "", "constructor"),
    ("error", {"text": "late", "code": "x", "fatal": False}),
    ("error", {"text": "s", "code": "stopped", "fatal": True}),
    think("after the end"),
)


def random_work(chance: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Return events of a turn with odd texts, in an order that no turn need have."""
    pick, rows = chance.choice, list[tuple[str, dict[str, Any]]]()
    for _ in range(chance.randrange(15)):
        rows += [think(pick(TEXTS) + pick(TEXTS)), think(pick(TEXTS))][: chance.randrange(3)]
        rows.append(called(chance.randrange(9), pick(NAMES), query=pick(TEXTS), command=pick(TEXTS)))
        rows.append(asked(chance.randrange(9), pick(NAMES)))
        given = pick(({}, {"command": pick(TEXTS), "path": 1}))
        rows.append(answered(chance.randrange(9), approved=pick((True, True, False)), **given))
        rows.append(result(chance.randrange(9), pick(NAMES), pick((FOUND, *TEXTS)), pick(OUTCOMES)))
        rows.append(("token", {"text": pick(("", "x")), "message_id": "m", "offset": 0}))
    return rows


@pytest.mark.anyio
@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.ci_lane
async def test_the_page_tells_the_same_steps_from_the_same_events(agx_session: Session) -> None:
    chance, many = random.Random(26), range(700)
    logs = [
        *(
            events(*work, turn_id=f"turn_{number}")
            for number, work in enumerate((WORK, (*WORK, FINAL), ODD, EDITED, ()))
        ),
        *(events(think(text), called(1, text), called(2, "note_read", path=text)) for text in TEXTS),
        *(events(*random_work(chance), turn_id=f"t{number}é😀") for number in range(200)),
        events(
            *(called(number, f"tool {number}") for number in many), *(result(number, "look", "") for number in many)
        ),
        [*events(turn_id="one"), *events(*WORK, turn_id="two"), *events(FINAL, turn_id="one")],
    ]
    words_and_answers = {"Write hello.txt with the text Good morning": [True], "List the files here": [], "hello": []}
    for words, answers in words_and_answers.items():
        with ScriptedGate(*answers) as gate:
            runtime = AgentRuntime(DemoModel(ScaledClock(1000)), gate)
            turn = await collect(runtime.run_turn(words, agx_session, tools=builtin_tools()))
        logs.append(events(*((event.type, dict(event.data)) for event in turn[1:])))

    told: list[list[dict[str, Any]]] = []
    rows: list[list[dict[str, Any]]] = []
    for log in logs:
        reasoning = Reasoning()
        told.append([(reasoning := add_event(reasoning, event, at)).to_json() for event, at in log])
        rows.append(
            [{"type": event.type, "data": event.data, "turn_id": event.turn_id, "ts": ts(at)} for event, at in log]
        )
    assert [len(states[-1]["steps"]) for states in told[-3:]] == [2, 2, 1]
    assert run_module("state/reasoning.js", FOLD, rows) == told


def ts(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
