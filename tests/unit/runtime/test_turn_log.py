"""The log lines of a turn: one for each loggable event, complete, and none for a token."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from agenticx import UserMessage
from agenticx.errors import ModelError
from agenticx.llms import RetryingModel, RetryPolicy, Usage, UsageDelta
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import AssistantMessage, ToolCall
from agenticx.runtime import (
    AgentRuntime,
    AutoApproveConfirmGate,
    ConfirmAnswer,
    ConfirmRequest,
    StopSignal,
    TurnContext,
)
from agenticx.runtime.resume import NullCallJournal, ResumedRequest, ResumePoint
from agenticx.testing import ScriptedGate, ScriptedModel, call, cut, hang, pause, raw, say, usage
from agenticx.tools import ToolContext, tool
from tests.support.histories import conversation
from tests.support.jumping_clock import LoopClock
from tests.support.secret_samples import SECRETS
from tests.support.turn_player import collector

pytestmark = pytest.mark.anyio

DOWN = ModelError("down", code="provider.overloaded", retryable=True)


@tool(risk="read")
async def look(path: str, context: ToolContext) -> str:
    """Read a file."""
    await context.clock.sleep(0.5)
    return f"content of {path}"


@tool(risk="write")
async def note(text: str) -> str:
    """Keep a note."""
    return "kept"


@pytest.fixture
def logged(caplog):
    """Return the lines so far without session and agent ids, seconds rounded because threads take real time."""
    caplog.set_level(logging.INFO, logger="agenticx")

    def lines():
        texts = (re.sub(r" session='ses_\w+'| agent='meta'", "", record.getMessage()) for record in caplog.records)
        return [re.sub(r"(?<=seconds=)\d+\.\d+", lambda found: str(round(float(found[0]), 1)), text) for text in texts]

    return lines


@pytest.fixture
def debugged(logged, caplog):
    caplog.set_level(logging.DEBUG, logger="agenticx")
    return logged


def turn(reason="answer", rounds=1, seconds=0.0, more=""):
    return f"turn model='scripted' rounds={rounds} reason={reason!r} seconds={seconds}{more}"


async def test_a_turn_has_a_line_for_each_model_call_tool_call_and_question_and_one_for_itself(play, logged):
    priced = raw(UsageDelta(Usage(120, 30, cost_usd=Decimal("0.0012"))))
    script = [
        [pause(1.5), call("look", {"path": "a.txt"}), call("note", {"text": "x"}), priced],
        [pause(0.5), say("Done."), raw(UsageDelta(Usage(160, 4, cost_usd=Decimal("0.0003"))))],
    ]
    await play(script, tools=[look, note], gate=ScriptedGate(True))

    assert logged() == [
        "llm_call model='scripted' outcome='ok' seconds=1.5 tokens=150 input_tokens=120 output_tokens=30 cost=0.0012",
        "tool_call tool_name='look' call_id='call_1' outcome='ok' seconds=0.5",
        "confirm tool_name='note' call_id='call_2' approved=True by='user' seconds=0.0",
        "tool_call tool_name='note' call_id='call_2' outcome='ok' seconds=0.0",
        "llm_call model='scripted' outcome='ok' seconds=0.5 tokens=164 input_tokens=160 output_tokens=4 cost=0.0003",
        turn(rounds=2, seconds=2.5, more=" tokens=314 input_tokens=280 output_tokens=34 cost=0.0015"),
    ]


async def test_each_line_has_the_session_and_the_agent_even_if_the_caller_bound_neither(play, caplog):
    caplog.set_level(logging.INFO, logger="agenticx")
    session = play.session()
    with bound_ids(turn="turn_1"):
        await play([call("look", {"path": "a"}), "Done."], tools=[look], session=session, agent_id="helper")
        get_logger("agenticx.behind").info("behind")

    ids = f"turn='turn_1' session='{session.id}' agent='helper'"
    assert [record.getMessage().partition(" model=")[0].partition(" tool_name=")[0] for record in caplog.records] == [
        f"llm_call {ids}",
        f"tool_call {ids}",
        f"llm_call {ids}",
        f"turn {ids}",
        "behind turn='turn_1'",
    ]


async def test_a_retry_and_a_fallback_have_a_line_each_and_the_call_names_the_model_that_answered(play, logged):
    clock = LoopClock()
    policy = RetryPolicy(attempts=2, shortest_wait=1, longest_wait=1)
    first = ScriptedModel([DOWN, DOWN], name="first", clock=clock)
    second = ScriptedModel([[say("Hi."), usage(3, 1)]], name="second", clock=clock)
    await play(RetryingModel(first, [second], policy, clock))

    counted = "tokens=4 input_tokens=3 output_tokens=1"
    assert logged() == [
        "retry attempt=2 model='first' wait_seconds=1.0 code='provider.overloaded' error='down'",
        "retry attempt=1 model='second' wait_seconds=0.0 code='provider.overloaded' error='down'",
        f"llm_call model='second' outcome='ok' seconds=1.0 {counted}",
        f"turn model='first' rounds=1 reason='answer' seconds=1.0 {counted}",
    ]


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (ModelError("no key", code="provider.auth"), "code='provider.auth' error='no key'"),
        ([say("half"), usage(5, 1), cut()], "code='provider.truncated' error=\"the model's answer ended without"),
        ([say("half"), hang()], "code='timeout.heartbeat' error='"),
    ],
    ids=["refused", "cut", "silent"],
)
async def test_a_failed_model_call_and_its_turn_have_a_line_each_with_the_code(play, logged, reply, failure):
    run = await play([reply])

    code = run.terminal["code"]
    ended_call, ended_turn = logged()
    assert ended_call.startswith(f"llm_call model='scripted' outcome='failed' {failure}")
    assert ended_turn.startswith(f"turn model='scripted' rounds=1 reason={code!r} error=")
    assert [line.endswith(" tokens=6 input_tokens=5 output_tokens=1") for line in logged()] == [
        code == "provider.truncated"
    ] * 2


async def test_a_stopped_model_call_has_one_line_and_so_has_its_turn(play, logged):
    stop = StopSignal()
    await play([hang()], stop=stop, on=lambda event: event.type == "round_start" and stop.set())

    stopped = " error='the turn was stopped'"
    assert logged() == [
        "llm_call model='scripted' outcome='cancelled' seconds=0.0",
        f"turn model='scripted' rounds=1 reason='stopped'{stopped} seconds=0.0",
    ]


async def test_calls_that_a_stop_cut_off_have_one_line_each_and_the_open_question_too(play, logged):
    stop = StopSignal()
    script = [[call("note", {"text": "x"}), call("look", {"path": "a"}), call("note", {"text": "y"})]]
    on = {"confirm_required": stop.set}
    gate = ScriptedGate("silent")
    await play(script, tools=[look, note], gate=gate, stop=stop, on=lambda event: on.get(event.type, bool)())

    assert logged()[1:] == [
        "confirm tool_name='note' call_id='call_1' approved=False by='stop' seconds=0.0",
        "tool_call tool_name='note' call_id='call_1' outcome='cancelled'",
        "tool_call tool_name='look' call_id='call_2' outcome='cancelled'",
        "tool_call tool_name='note' call_id='call_3' outcome='cancelled'",
        "turn model='scripted' rounds=1 reason='stopped' error='the turn was stopped' seconds=0.0",
    ]


async def test_calls_that_did_not_run_have_a_line_with_the_reason_and_no_seconds(play, logged):
    script = [[call("note", {"text": "x"}), call("nothing"), call("look", "{")], "Done."]
    await play(script, tools=[look, note], gate=ScriptedGate(False))

    assert [line for line in logged() if line.startswith(("confirm", "tool_call"))] == [
        "confirm tool_name='note' call_id='call_1' approved=False by='user' seconds=0.0",
        "tool_call tool_name='note' call_id='call_1' outcome='denied'",
        "tool_call tool_name='nothing' call_id='call_2' outcome='unknown_tool'",
        "tool_call tool_name='look' call_id='call_3' outcome='invalid_arguments'",
    ]


async def test_the_line_of_a_question_has_its_waiting_time(play, logged):
    await play(
        [call("note", {"text": "x"}), "Done."],
        tools=[note],
        gate=ScriptedGate("silent"),
        settings={"confirm_timeout_seconds": 30},
    )

    assert logged()[1] == "confirm tool_name='note' call_id='call_1' approved=False by='timeout' seconds=30.0"


async def test_a_turn_that_is_not_read_to_its_end_is_logged_as_interrupted(play, logged):
    runtime = play.runtime(ScriptedModel([hang()], clock=LoopClock()))
    events = runtime.run_turn("go", play.session())
    await anext(events)
    await events.aclose()
    assert logged() == [turn("interrupted", rounds=0)]

    events = runtime.run_turn("go", play.session())
    async for event in events:
        if event.type == "state":
            await asyncio.sleep(2)
            break
    await events.aclose()
    assert logged()[1:] == [
        "llm_call model='scripted' outcome='cancelled' seconds=2.0",
        turn("interrupted", seconds=2.0),
    ]


async def test_an_internal_bug_is_logged_as_the_end_of_the_turn(play, logged):
    class Broken(AssertionError):
        pass

    class Journal(NullCallJournal):
        async def record_call(self, call):
            raise Broken

    runtime = play.runtime(ScriptedModel([call("look", {"path": "a"})], clock=LoopClock()))
    with pytest.raises(Broken):
        async for _ in runtime.run_turn("go", play.session(), tools=[look], context=TurnContext(journal=Journal())):
            pass
    assert logged()[1:] == [
        "tool_call tool_name='look' call_id='call_1' outcome='cancelled'",
        turn("internal"),
    ]


async def test_the_line_of_a_turn_names_a_pause_and_exhausted_rounds(play, logged):
    script = [call("look", {"path": "a"})]
    await play(script, tools=[look], agent_id="helper", max_tool_rounds=1)
    await play(script, tools=[look], max_tool_rounds=1)

    reasons = [re.findall(r"reason='(\w+)'", line) for line in logged() if line.startswith("turn ")]
    assert reasons == [["paused"], ["max_rounds"]]


async def test_a_handoff_emitted_by_a_tool_is_logged(play, logged):
    @tool(risk="read")
    async def transfer(context: ToolContext) -> str:
        """Hand over."""
        context.emit("handoff", {"from_agent": "meta", "to_agent": "coder"})
        return "over"

    await play([call("transfer"), "Done."], tools=[transfer])

    assert logged()[1] == "agent_handoff from_agent='meta' to_agent='coder'"


async def test_the_line_of_a_summary_call_names_its_purpose(play, logged):
    script = [[pause(2), say("A summary."), usage(100, 9)], "Hi."]
    await play(script, session=play.session(messages=conversation()))
    counted = "tokens=109 input_tokens=100 output_tokens=9"
    assert logged()[0] == f"llm_call model='scripted' outcome='ok' seconds=2.0 {counted} purpose='compaction'"

    await play(
        [hang(), "Hi."], session=play.session(messages=conversation()), settings={"compaction_timeout_seconds": 3}
    )
    late = "code='timed_out' error='the compaction summary did not answer within 3 s'"
    assert f"llm_call model='scripted' outcome='failed' {late} seconds=3.0 purpose='compaction'" in logged()


async def test_a_nested_turn_has_lines_of_its_own(play, caplog):
    caplog.set_level(logging.INFO, logger="agenticx")
    inner, outer = play.session(), play.session()

    @tool(risk="read")
    async def ask_helper(context: ToolContext) -> str:
        """Ask another agent."""
        runtime = AgentRuntime(
            ScriptedModel(["Inner."], clock=LoopClock()),
            AutoApproveConfirmGate(),
            settings=play.settings(),
            clock=LoopClock(),
        )
        return [event async for event in runtime.run_turn("help", inner, agent_id="helper")][-1].data["text"]

    await play([call("ask_helper"), "Outer."], tools=[ask_helper], session=outer)

    ids = [re.findall(r"^(\w+) session='(\w+)' agent='(\w+)'", record.getMessage()) for record in caplog.records]
    assert ids == [
        [("llm_call", outer.id, "meta")],
        [("llm_call", inner.id, "helper")],
        [("turn", inner.id, "helper")],
        [("tool_call", outer.id, "meta")],
        [("llm_call", outer.id, "meta")],
        [("turn", outer.id, "meta")],
    ]


async def test_a_turn_resumed_after_a_restart_logs_only_its_remaining_work(play, debugged):
    @tool(risk="write")
    async def post(text: str, token: str) -> str:
        """Post a note."""
        return "posted"

    asked = ToolCall(id="call_1", name="post", arguments='{"text": "hello", "token": "t"}')
    session = play.session(messages=[UserMessage(content="go"), AssistantMessage(tool_calls=(asked,))])
    context = {"tool": "post", "tool_call_id": "call_1", "arguments": {}, "risk": "write", "reasons": []}
    expiry = datetime(2099, 1, 1, tzinfo=UTC)
    request = ConfirmRequest(id="cnf_1", question="?", context=context, digest="another", expires_at=expiry)
    question = ResumedRequest(request=request, answer=ConfirmAnswer(approved=True))
    point = ResumePoint(round=1, calls=(asked,), requests={"call_1": question})
    runtime = play.runtime(ScriptedModel([say("Done.")], clock=LoopClock()))
    await runtime.write_turn(point, session, collector([]), tools=[post])

    arguments = """'{"text": "hello", "token": "[hidden]"}'"""
    assert debugged() == [
        "confirm tool_name='post' call_id='call_1' approved=False by='restart' seconds=0.0",
        f"tool_call tool_name='post' call_id='call_1' outcome='denied' arguments={arguments}",
        "llm_call model='scripted' outcome='ok' seconds=0.0",
        turn(rounds=2),
    ]


# --- arguments --------------------------------------------------------------------------------------------------------


SECRET_NAMES = [
    "api_key",
    "apiKey",
    "password",
    "token",
    "accessToken",
    "DB_PASSWORD",
    "Authorization",
    "client-secret",
    "ticket",
]


def arguments_in(lines):
    return [line.partition(" arguments=")[2] for line in lines if line.startswith("tool_call ")]


async def test_arguments_are_logged_at_debug_only(play, logged, caplog):
    script = [call("look", {"path": "a.txt"}), "Done."]
    await play(script, tools=[look])
    assert arguments_in(logged()) == [""]

    caplog.clear()
    caplog.set_level(logging.DEBUG, logger="agenticx")
    await play(script, tools=[look])
    assert arguments_in(logged()) == ["""'{"path": "a.txt"}'"""]


async def test_the_line_has_the_arguments_that_the_user_substituted(play, debugged):
    changed = ConfirmAnswer(approved=True, arguments={"text": "mine"})
    await play([call("note", {"text": "its"}), "Done."], tools=[note], gate=ScriptedGate(changed))
    assert arguments_in(debugged()) == ["""'{"text": "mine"}'"""]


async def test_long_arguments_are_cut_and_give_their_length(play, debugged):
    arguments = [
        {"text": "x" * 1_000_000},
        {"a": "short", "b": list(range(1_000)), "c": 1},
        {"deep": [[[{"n": None}]]], "ok": True},
    ]
    await play([[call("nothing", given) for given in arguments], "Done."])

    one, two, three = arguments_in(debugged())
    assert one.startswith("""'{"text": "xxx""")
    assert [len(one), one[-3:]] == [203, "x…'"]
    assert two.startswith("""'{"a": "short", "b": [0, 1, 2, 3""")
    assert len(two) == 203
    assert three == """'{"deep": [[[{"n": null}]]], "ok": true}'"""


@pytest.mark.promise("I1")
@pytest.mark.parametrize("kind", SECRETS)
async def test_no_secret_in_arguments_is_logged(play, caplog, monkeypatch, kind):
    secret = SECRETS[kind]
    monkeypatch.setenv("HOUSE_API_KEY", "canary-0123456789")
    caplog.set_level(logging.DEBUG, logger="agenticx")
    arguments = [
        {"text": secret},
        {"text": f"canary-0123456789 {secret} and more"},
        {"deep": [{"text": ["x", secret]}], secret: "as a name"},
        {"text": " " * 190 + secret},
        {"text": "canary-0123456789 " * 11 + secret},
    ]
    malformed = f'{{"text": "{secret}", "password": canary'
    await play([[*(call("nothing", given) for given in arguments), call("nothing", malformed)], "Done."])

    written = "\n".join(record.getMessage() for record in caplog.records)
    assert len(arguments_in(written.splitlines())) == 6
    for part in ("0123456789", "abcdefghijkl", "dXNlcjpwYXNz", "hunter2", "c2lnbmF0", "MIIEow", "canary"):
        assert part not in written.replace("127.0.0.1", "")
    assert written.count("[hidden]") >= 6


@pytest.mark.promise("I1")
async def test_an_argument_with_a_secret_name_is_hidden_whatever_its_value(play, debugged):
    given = [
        *({name: ["w"], "path": "a"} for name in SECRET_NAMES),
        {"headers": {"Cookie": "w"}},
        {"command": "export MY_PASSWORD=wwww; mysql --password=wwww"},
    ]
    await play([[*(call("nothing", arguments) for arguments in given), call("nothing", '{"password": "w", ')], "Done."])

    assert arguments_in(debugged()) == [
        *(f"""'{{"{name}": "[hidden]", "path": "a"}}'""" for name in SECRET_NAMES),
        """'{"headers": {"Cookie": "[hidden]"}}'""",
        """'{"command": "[hidden]"}'""",
        """'"[hidden]"'""",
    ]


@pytest.mark.promise("I1")
async def test_an_argument_is_hidden_if_its_neighbour_names_a_secret(play, debugged):
    given = [
        {"headers": [{"name": "Authorization", "value": "w"}, {"name": "Accept", "value": "x"}]},
        {"entry": ["password", "w"]},
        {"argv": ["mysql", "--password", "w", "x"]},
        {"name": "the password is told below", "value": "x"},
    ]
    await play([[call("nothing", arguments) for arguments in given], "Done."])

    assert arguments_in(debugged()) == [
        """'{"headers": [{"name": "Authorization", "[hidden]": "[hidden]"}, {"name": "Accept", "value": "x"}]}'""",
        """'{"entry": ["password", "[hidden]"]}'""",
        """'{"argv": ["mysql", "--password", "[hidden]", "x"]}'""",
        """'{"name": "the password is told below", "value": "x"}'""",
    ]


# --- cost -------------------------------------------------------------------------------------------------------------


async def test_tokens_are_not_logged_and_do_not_check_log_levels(play, monkeypatch):
    asked = []
    enabled = logging.Logger.isEnabledFor
    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda self, level: asked.append(level) or enabled(self, level))

    def lines_asked_for(pieces):
        asked.clear()
        return [say("word " * pieces, pieces=pieces), call("look", '{"path": "a"}', pieces=5)]

    counts = []
    for pieces in (2, 500):
        run = await play([lines_asked_for(pieces), "Done."], tools=[look])
        assert len(run.events_of("token")) == pieces + 1
        counts.append(len(asked))
    assert counts[0] == counts[1] < 40


async def test_fields_are_not_computed_below_the_log_level(play, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, logger="agenticx")
    monkeypatch.setattr("agenticx.runtime.turn_log._usage_fields", None)
    monkeypatch.setattr("agenticx.runtime.turn_log.preview_arguments", None)
    run = await play([call("look", {"path": "x" * 1_000_000}), "Done."], tools=[look])

    assert run.outline[-1] == "final:answer"
    assert caplog.records == []
