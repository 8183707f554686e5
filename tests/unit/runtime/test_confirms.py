"""Confirmations in turns: who is asked, the effect of the answer, and a question without an answer."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import dataclass, field
from datetime import datetime

import pytest

from agenticx.errors import StoreError, UserCodeError
from agenticx.runtime import (
    AgentHook,
    AsyncConfirmGate,
    AutoApproveConfirmGate,
    ConfirmAnswer,
    ConfirmClosed,
    ConfirmGate,
    DigestMismatch,
    StopSignal,
    UnknownConfirm,
)
from agenticx.testing import ScriptedGate, ScriptedModel, call
from agenticx.tools import Assessment, ToolContext, tool
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E2")]

ASKED = ["turn_started", "round_start", "tool_call_delta", "tool_call:note", "confirm_required"]
ANSWERED = ["round_start", "token", "final:answer"]


@dataclass
class Notes:
    """A tool with a side effect that can be seen, and an assessment that can change."""

    kept: list[str] = field(default_factory=list)
    version: int = 1

    def tools(self):
        @tool(risk="write", assess=self.assess)
        async def note(text: str) -> str:
            """Keep a note."""
            self.kept.append(text)
            return f"kept {text}"

        return [note]

    def assess(self, arguments, context):
        return Assessment(
            risk="write",
            question=f"Keep {arguments['text']!r}?",
            reasons=("It keeps.",),
            protected=arguments["text"] == "protected",
            path="notes.txt",
            binding={"version": self.version},
        )


@pytest.fixture
def notes():
    return Notes()


def note(text="hi"):
    return call("note", {"text": text})


async def test_an_approved_call_runs(play, notes):
    gate = ScriptedGate(True)
    run = await play([note(), "ok"], tools=notes.tools(), gate=gate)

    assert run.outline == [*ASKED, "confirm_response:approved", "tool_result:ok", *ANSWERED]
    required = dict(run.events_of("confirm_required")[0].data)
    request = gate.requests[0]
    assert datetime.fromisoformat(required.pop("expires_at")).timestamp() == pytest.approx(
        request.expires_at.timestamp(), abs=0.001
    )
    exactly = {
        "decision": "allow",
        "tool": "note",
        "arguments": {"text": "hi"},
        "digest": request.digest,
        "exact": True,
        "scope": "session",
    }
    assert required == {
        "id": request.id,
        "question": "Keep 'hi'?",
        "context": {
            "tool": "note",
            "tool_call_id": "call_1",
            "arguments": {"text": "hi"},
            "risk": "write",
            "reasons": ["It keeps."],
            "decided_by": "default",
            "path": "notes.txt",
            "kinds": ["note with exactly these arguments"],
            "rules": [exactly],
            "rule": exactly,
            "exact_rule": exactly,
        },
        "digest": request.digest,
    }
    assert run.events_of("confirm_response")[0].data == {
        "id": request.id,
        "approved": True,
        "by": "user",
        "remember": "once",
    }
    assert notes.kept == ["hi"]


async def test_a_denied_call_does_not_run_and_the_model_reads_why(play, notes):
    gate = ScriptedGate(ConfirmAnswer(approved=False, reason="not today"))
    run = await play([note(), "ok"], tools=notes.tools(), gate=gate)

    assert run.outline == [*ASKED, "confirm_response:denied", "tool_result:denied", *ANSWERED]
    assert run.results == [("call_1", "denied", "Denied by the user. Reason: not today")]
    assert run.rows[2] == ("tool", "call_1", "denied", "Denied by the user. Reason: not today")
    assert notes.kept == []


async def test_an_unanswered_question_expires_as_denied(play, notes):
    run = await play(
        [note(), "ok"],
        tools=notes.tools(),
        gate=ScriptedGate("silent"),
        settings={"confirm_timeout_seconds": 5},
    )

    assert run.outline == [*ASKED, "stall:confirm", "confirm_response:denied", "tool_result:denied", *ANSWERED]
    assert run.events_of("stall")[0].data["limit_seconds"] == 5
    assert run.events_of("stall")[0].data["elapsed_seconds"] == pytest.approx(5)
    assert run.events_of("confirm_response")[0].data["by"] == "timeout"
    assert run.results == [("call_1", "denied", "Denied: no answer was given in time.")]
    assert notes.kept == []


class CutShort(ConfirmGate):
    """A gate that has an answer at the very moment at which its asking is cancelled."""

    def request_confirm(self, question, context):
        raise AssertionError("it is asked through ask()")

    async def ask(self, request, announce):
        announce()
        await asyncio.Event().wait()

    def decided(self, request_id):
        return ConfirmAnswer(approved=True)


async def test_an_answer_at_the_moment_at_which_the_time_is_over_counts(play, notes):
    run = await play([note(), "ok"], tools=notes.tools(), gate=CutShort(), settings={"confirm_timeout_seconds": 5})

    assert run.outline == [*ASKED, "confirm_response:approved", "tool_result:ok", *ANSWERED]


async def test_an_answer_at_the_moment_of_a_stop_is_the_one_that_is_reported(play, notes):
    gate, stop = AsyncConfirmGate(), StopSignal()
    runtime = play.runtime(ScriptedModel([note(), "ok"]), gate)
    events = []
    async for event in runtime.run_turn("go", play.session(), stop, tools=notes.tools()):
        events.append(event)
        if event.type == "confirm_required":
            gate.resolve(event.data["id"], True)
            stop.set()

    (response,) = [event.data for event in events if event.type == "confirm_response"]
    assert (response["approved"], response["by"]) == (True, "user")
    assert [event.data["outcome"] for event in events if event.type == "tool_result"] == ["cancelled"]
    assert notes.kept == []


async def test_a_read_only_call_needs_no_confirmation(play):
    @tool(risk="read")
    def look() -> str:
        """Look."""
        return "seen"

    run = await play([call("look"), "ok"], tools=[look])

    assert run.outline[3:5] == ["tool_call:look", "tool_result:ok"]


async def test_arguments_changed_by_the_user_are_executed(play, notes):
    gate = ScriptedGate(ConfirmAnswer(approved=True, arguments={"text": "bye"}))
    run = await play([note("hi"), "ok"], tools=notes.tools(), gate=gate)

    assert run.events_of("tool_call")[0].data["arguments"] == {"text": "hi"}
    assert run.events_of("confirm_response")[0].data["arguments"] == {"text": "bye"}
    assert notes.kept == ["bye"]
    told = 'The user ran this call with other arguments: {"text": "bye"}\nkept bye'
    assert run.results == [("call_1", "ok", told)]
    assert run.rows[2] == ("tool", "call_1", "ok", told)


async def test_arguments_that_the_user_sends_back_as_they_were_are_no_other_ones(play, notes):
    gate = ScriptedGate(ConfirmAnswer(approved=True, arguments={"text": "hi"}))
    run = await play([note("hi"), "ok"], tools=notes.tools(), gate=gate)

    assert run.results == [("call_1", "ok", "kept hi")]


async def test_the_model_reads_the_beginning_of_changed_arguments_without_secrets(play, notes):
    arguments = {"text": "x" * 5_000 + "TAIL", "api_token": "hunter2"}

    class Counting(AgentHook):
        def after_tool_call(self, name, arguments, result, context):
            return f"{name} {len(arguments['text'])}"

    @tool(risk="write")
    def post(text: str, api_token: str) -> str:
        """Post."""
        return "posted"

    gate = ScriptedGate(ConfirmAnswer(approved=True, arguments=dict(reversed(arguments.items()))))
    run = await play([call("post", {"text": "a", "api_token": "b"}), "ok"], tools=[post], gate=gate, hooks=[Counting()])

    ((_, _, text),) = run.results
    first, _, rest = text.partition("\n")
    assert first.startswith('The user ran this call with other arguments: {"api_token": "[hidden]", "text": "xxx')
    assert len(first) < 1_100
    assert rest == "post 5004"


async def test_changed_arguments_that_do_not_match_the_schema_are_not_executed(play, notes):
    gate = ScriptedGate(ConfirmAnswer(approved=True, arguments={"text": 7}))
    run = await play([note("hi"), "ok"], tools=notes.tools(), gate=gate)

    assert run.outline == [*ASKED, "confirm_response:approved", "tool_result:invalid_arguments", *ANSWERED]
    assert notes.kept == []


async def test_remember_session_allows_just_that_call_for_the_session(play, notes):
    session = play.session()
    first = ScriptedGate(ConfirmAnswer(approved=True, remember="session"))
    await play([[note("a"), note("a")], "ok"], tools=notes.tools(), gate=first, session=session)
    second = ScriptedGate(False)
    run = await play([[note("a"), note("b")], "ok"], tools=notes.tools(), gate=second, session=session)

    assert run.outline[3:9] == [
        "tool_call:note",
        "tool_call:note",
        "tool_result:ok",
        "confirm_required",
        "confirm_response:denied",
        "tool_result:denied",
    ]
    assert notes.kept == ["a", "a", "a"]


async def test_an_approval_for_once_applies_once(play, notes):
    run = await play([[note("a"), note("a")], "ok"], tools=notes.tools(), gate=ScriptedGate(True, False))

    assert [outcome for _, outcome, _ in run.results] == ["ok", "denied"]
    assert notes.kept == ["a"]


async def test_a_remembered_approval_does_not_cover_a_changed_file(play, notes):
    session = play.session()
    first = ScriptedGate(ConfirmAnswer(approved=True, remember="session"))
    await play([note("a"), "ok"], tools=notes.tools(), gate=first, session=session)
    notes.version = 2
    second = ScriptedGate(False)
    run = await play([note("a"), "ok"], tools=notes.tools(), gate=second, session=session)

    assert run.events_of("tool_result")[0].data["outcome"] == "denied"
    assert notes.kept == ["a"]


async def test_a_call_whose_effect_changed_after_the_question_is_denied(play, notes):
    gate = AsyncConfirmGate()

    def on(event):
        if event.type == "confirm_required":
            notes.version += 1
            gate.resolve(event.data["id"], True, digest=event.data["digest"])

    run = await play([note(), "ok"], tools=notes.tools(), gate=gate, on=on)

    assert run.outline == [*ASKED, "confirm_response:approved", "tool_result:denied", *ANSWERED]
    assert run.results == [
        ("call_1", "denied", "Not done: the effect of the call changed after the user was asked; ask again.")
    ]
    assert notes.kept == []


async def test_a_stop_while_a_question_is_open_cancels_the_call(play, notes):
    gate, stop = AsyncConfirmGate(), StopSignal()
    asked: list[str] = []

    def on(event):
        if event.type == "confirm_required":
            asked.append(event.data["id"])
            stop.set()

    run = await play([[note("a"), note("b")]], tools=notes.tools(), gate=gate, stop=stop, on=on)

    assert run.outline == [
        *ASKED[:-1],
        "tool_call:note",
        "confirm_required",
        "confirm_response:denied",
        "tool_result:cancelled",
        "tool_result:cancelled",
        "error:stopped",
    ]
    assert run.events_of("confirm_response")[0].data == {"id": asked[0], "approved": False, "by": "stop"}
    assert gate.pending() == []
    with pytest.raises(ConfirmClosed):
        gate.resolve(asked[0], True)
    assert notes.kept == []


async def test_only_the_first_valid_answer_has_an_effect(play, notes):
    gate = AsyncConfirmGate()
    refused: list[str] = []

    def on(event):
        if event.type != "confirm_required":
            return
        id_, digest = event.data["id"], event.data["digest"]
        for session_id, other in (("ses_other", digest), (None, "0" * 64)):
            try:
                gate.resolve(id_, False, digest=other, session_id=session_id)
            except (UnknownConfirm, DigestMismatch) as exc:
                refused.append(type(exc).__name__)
        first = gate.resolve(id_, True, digest=digest)
        assert gate.resolve(id_, True, digest=digest) == first
        with pytest.raises(ConfirmClosed):
            gate.resolve(id_, False, digest=digest)

    run = await play([note(), "ok"], tools=notes.tools(), gate=gate, on=on)

    assert refused == ["UnknownConfirm", "DigestMismatch"]
    assert run.results == [("call_1", "ok", "kept hi")]
    with pytest.raises(ConfirmClosed):
        gate.resolve(run.events_of("confirm_required")[0].data["id"], False)


async def test_auto_mode_asks_only_about_protected_paths(play, notes):
    run = await play(
        [[note("hi"), note("protected")], "ok"],
        tools=notes.tools(),
        gate=ScriptedGate(False),
        session=play.session(permission_mode="auto"),
    )

    assert run.outline[5:9] == ["tool_result:ok", "confirm_required", "confirm_response:denied", "tool_result:denied"]
    assert notes.kept == ["hi"]


async def test_a_call_knows_the_risk_that_was_permitted(play):
    @tool(risk="execute", assess=lambda arguments, context: Assessment(risk=arguments["risk"]))
    async def risky(risk: str, context: ToolContext) -> str:
        """Return the permitted risk."""
        return context.permitted_risk

    calls = [call("risky", {"risk": risk}) for risk in ("read", "execute", "write")]
    gate = ScriptedGate(True, ConfirmAnswer(approved=True, arguments={"risk": "execute"}))
    run = await play([calls, "ok"], tools=[risky], gate=gate)

    assert [text.splitlines()[-1] for _, _, text in run.results] == ["read", "execute", "execute"]


async def test_plan_mode_denies_without_asking(play, notes):
    run = await play([note(), "ok"], tools=notes.tools(), session=play.session(permission_mode="plan"))

    assert run.outline == [*ASKED[:-1], "tool_result:denied", *ANSWERED]
    assert notes.kept == []


async def test_auto_approval_emits_both_events_by_policy_and_keeps_no_request(play, notes):
    gate = AutoApproveConfirmGate()
    run = await play([note(), "ok"], tools=notes.tools(), gate=gate)

    assert run.outline == [*ASKED, "confirm_response:approved", "tool_result:ok", *ANSWERED]
    assert run.events_of("confirm_response")[0].data["by"] == "policy"
    assert gate.last_request is None


# --- gates that are not ours ------------------------------------------------------------------------------------------


class FunctionGate(ConfirmGate):
    """A gate made of one function."""

    def __init__(self, answer):
        self.answer = answer

    def request_confirm(self, question, context):
        return self.answer(question, context)


async def test_a_gate_with_request_confirm_alone_works(play, notes):
    run = await play([note(), "ok"], tools=notes.tools(), gate=FunctionGate(lambda question, context: True))

    assert run.outline == [*ASKED, "confirm_response:approved", "tool_result:ok", *ANSWERED]
    later = ConfirmAnswer(approved=False, reason="not before lunch")
    run = await play([note(), "ok"], tools=notes.tools(), gate=FunctionGate(lambda question, context: later))
    assert run.results[0][2] == "Denied by the user. Reason: not before lunch"


async def test_a_blocking_gate_does_not_block_the_event_loop(play, notes):
    pressed = threading.Event()
    gate = FunctionGate(lambda question, context: pressed.wait(PATIENCE))

    def on(event):
        if event.type == "confirm_required":
            asyncio.get_running_loop().call_later(0.01, pressed.set)

    run = await play([note(), "ok"], tools=notes.tools(), gate=gate, on=on)

    assert run.events_of("confirm_response")[0].data["approved"] is True


def _raise(exc):
    raise exc


@pytest.mark.parametrize(
    "answer",
    [
        lambda *_: _raise(RuntimeError("broken")),
        lambda *_: _raise(SystemExit(3)),
        lambda *_: _raise(asyncio.CancelledError()),
        lambda *_: None,
        lambda *_: "yes",
        lambda *_: 1,
    ],
    ids=["raises", "exits", "cancels", "none", "text", "one"],
)
async def test_any_gate_result_except_true_denies(play, notes, answer):
    run = await play([note(), "ok"], tools=notes.tools(), gate=FunctionGate(answer))

    assert run.outline == [*ASKED, "confirm_response:denied", "tool_result:denied", *ANSWERED]
    assert notes.kept == []


@pytest.mark.parametrize("error", [StoreError("late"), UserCodeError("late", what="a service", kind="timed_out")])
async def test_an_agenticx_error_raised_by_a_gate_denies_by_policy_with_its_reason(play, notes, error):
    run = await play([note(), "ok"], tools=notes.tools(), gate=ScriptedGate(error))

    assert [(event.data["by"], event.data["reason"]) for event in run.events_of("confirm_response")] == [
        ("policy", "late")
    ]
    assert run.events_of("stall") == []
    assert run.results == [("call_1", "denied", "Denied by policy. Reason: late")]


@pytest.mark.parametrize(
    ("junk", "reason"),
    [
        (True, "bool; it must return a ConfirmAnswer"),
        (None, "NoneType; it must return a ConfirmAnswer"),
        (ConfirmAnswer(approved="no"), "an answer whose approved is str; it must be True or False"),
        (ConfirmAnswer(approved=1), "an answer whose approved is int; it must be True or False"),
        (
            ConfirmAnswer(approved=True, by="me"),
            "an answer whose by is str; it must be one of user, policy, timeout, stop, restart",
        ),
        (
            ConfirmAnswer(approved=True, remember=True),
            "an answer whose remember is bool; it must be one of once, session, always",
        ),
        (
            ConfirmAnswer(approved=True, arguments="text"),
            "an answer whose arguments is str; it must be a mapping or None",
        ),
        (ConfirmAnswer(approved=False, reason=5), "an answer whose reason is int; it must be a text or None"),
    ],
)
async def test_an_invalid_return_value_of_ask_denies_with_the_reason(play, notes, junk, reason, caplog):
    class Junk(FunctionGate):
        async def ask(self, request, announce):
            return junk

    run = await play([note(), "ok"], tools=notes.tools(), gate=Junk(None))

    assert run.outline == [*ASKED, "confirm_response:denied", "tool_result:denied", *ANSWERED]
    assert run.results == [("call_1", "denied", f"Denied by policy. Reason: the gate Junk returned {reason}")]
    assert gate_lines(caplog) == [failed_gate(f"the gate Junk returned {reason}")]
    assert notes.kept == []


def gate_lines(caplog):
    """Return the lines of the log at level error, without the ids of session and agent."""
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    return [re.sub(r"session='\w+' agent='meta' ", "", line) for line in errors]


def failed_gate(reason):
    """Return the line about a gate that failed with `reason`."""
    return f"the confirm gate failed; the call is denied tool_name='note' call_id='call_1' reason={reason!r}"


@pytest.mark.parametrize("junk", ["yes", 1, None])
async def test_a_value_other_than_true_or_false_is_no_answer_and_the_denial_names_it(play, notes, junk, caplog):
    class Chatty(ConfirmGate):
        def request_confirm(self, question, context):
            return junk

    run = await play([note(), "ok"], tools=notes.tools(), gate=Chatty())

    assert run.outline == [*ASKED, "confirm_response:denied", "tool_result:denied", *ANSWERED]
    reason = f"the gate Chatty returned {type(junk).__name__}; it must return True, False or a ConfirmAnswer"
    (response,) = run.events_of("confirm_response")
    assert (response.data["by"], response.data["reason"]) == ("policy", reason)
    assert run.results[0][2] == f"Denied by policy. Reason: {reason}"
    assert gate_lines(caplog) == [failed_gate(reason)]
    assert notes.kept == []


async def test_an_exception_of_a_gate_denies_with_its_text_and_one_line_in_the_log_with_its_place(play, notes, caplog):
    caplog.set_level("INFO")
    run = await play([note(), "ok"], tools=notes.tools(), gate=FunctionGate(lambda *_: _raise(RuntimeError("broken"))))

    reason = "the confirm gate raised RuntimeError: broken"
    assert run.results == [("call_1", "denied", f"Denied by policy. Reason: {reason}")]
    (line,) = gate_lines(caplog)
    assert re.fullmatch(re.escape(failed_gate(reason)) + r" place='.*test_confirms\.py:\d+'", line)
    assert [record.exc_info for record in caplog.records if record.levelname == "ERROR"] == [None]


@pytest.mark.parametrize("gate", [object(), lambda question, context: True, AsyncConfirmGate])
async def test_a_runtime_takes_no_gate_that_is_none(play, gate):
    with pytest.raises(TypeError, match=r"confirm_gate .*must (be a ConfirmGate, or a function|take one argument)"):
        play.runtime(ScriptedModel(), gate)


async def test_a_gate_that_hangs_and_ignores_cancellation_is_abandoned(play, notes):
    release, ended = asyncio.Event(), asyncio.Event()

    class Deaf(FunctionGate):
        async def ask(self, request, announce):
            announce()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            ended.set()
            return ConfirmAnswer(approved=True)

    runtime = play.runtime(ScriptedModel([note(), "ok"]), Deaf(None), settings={"confirm_timeout_seconds": 1})
    events = [event async for event in runtime.run_turn("go", play.session(), tools=notes.tools())]
    release.set()
    await ended.wait()

    assert [event.type.value for event in events][-5:] == ["state", "token", "usage", "state", "final"]
    assert notes.kept == []
