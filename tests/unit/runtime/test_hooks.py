"""Hooks: their effects, and that no failure of a hook breaks a turn."""

from __future__ import annotations

import asyncio

import pytest

from agenticx import UserMessage
from agenticx.runtime import AgentHook, Block, HookContext, HookRegistry
from agenticx.testing import ScriptedModel, call, say
from agenticx.tools import tool
from tests.support.histories import conversation
from tests.support.odd_tools import Panic

pytestmark = [pytest.mark.anyio, pytest.mark.promise("D3")]

LIMIT = 30


@tool(risk="read")
def look(at: str = "here") -> str:
    """Look."""
    return f"saw {at}"


def hook(point, method):
    """Return a hook that overrides one point."""
    return type("Odd", (AgentHook,), {point: method})()


# --- what hooks can do ------------------------------------------------------------------------------------------------


async def test_hooks_may_be_given_as_a_list(play):
    seen: list[str] = []
    watch = hook("after_model", lambda self, reply, context: seen.append(reply.text))
    await play([say("hi")], hooks=[watch])
    assert seen == ["hi"]


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        (AgentHook(), "hooks must be a HookRegistry or a list of hooks, not AgentHook"),
        ([AgentHook], "the class AgentHook is no hook: give an object of a class that derives from AgentHook"),
        ([print], "builtin_function_or_method is no hook: give an object of a class that derives from AgentHook"),
    ],
)
async def test_an_object_that_is_no_hook_is_refused_before_any_turn(play, hooks, sentence):
    with pytest.raises(TypeError, match=sentence):
        play.runtime(ScriptedModel([]), hooks=hooks)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("before_tool", "before_tool_call"),
        ("after_tool_use", "after_tool_call"),
        ("on_end", "on_agent_end"),
        ("on_compacted", "on_compaction"),
        ("befor_model", "before_model"),
        ("befor_tool", "before_tool_call"),
        ("after_tool", "after_tool_call"),
        ("tool_call_after", "after_tool_call"),
        ("tool_before", "before_tool_call"),
        ("before_model_call", "before_model"),
        ("model_after", "after_model"),
        ("afterToolCall", "after_tool_call"),
        ("beforemodel", "before_model"),
        ("compaction", "on_compaction"),
    ],
)
def test_a_method_that_would_never_be_called_is_refused_with_the_name_that_was_meant(play, name, meant):
    watch = type("Watch", (AgentHook,), {name: lambda self: None})
    with pytest.raises(TypeError, match=rf"Watch\.{name} would never be called; did you mean {meant}"):
        play.runtime(ScriptedModel([]), hooks=[watch()])


@pytest.mark.parametrize("name", ["on_finish", "on_error", "before_request", "after_run"])
def test_a_method_that_resembles_none_is_refused_with_the_names_of_all(play, name):
    watch = type("Watch", (AgentHook,), {name: lambda self: None})
    with pytest.raises(TypeError) as raised:
        play.runtime(ScriptedModel([]), hooks=[watch()])
    assert str(raised.value) == (
        f"Watch.{name} would never be called; the methods of a hook are before_model, after_model, before_tool_call, "
        "after_tool_call, on_compaction, on_agent_end"
    )


OWN_METHODS = ("report", "close", "reset", "end", "compact", "model_name", "call_tool", "tool_calls", "count_calls")


def test_other_public_methods_of_a_hook_are_its_own(play):
    own = dict.fromkeys(OWN_METHODS, lambda self: None)
    watch = type("Watch", (AgentHook,), {**own, "model": "m", "after_model": lambda *_: None})
    play.runtime(ScriptedModel([]), hooks=[watch()])


async def test_hooks_run_in_priority_order_at_their_points(play):
    order: list[str] = []

    class Watch(AgentHook):
        def __init__(self, name):
            self.name = name

        def before_model(self, messages, context):
            order.append(f"{self.name} before_model {context.round} {len(messages)}")

        async def after_model(self, reply, context):
            order.append(f"{self.name} after_model {reply.text}")

        def before_tool_call(self, name, arguments, context):
            order.append(f"{self.name} before_tool_call {name} {dict(arguments)}")

        async def after_tool_call(self, name, arguments, result, context):
            order.append(f"{self.name} after_tool_call {result}")

        def on_compaction(self, compacted_count, summary, context):
            order.append(f"{self.name} on_compaction")

        async def on_agent_end(self, reason, text, context):
            order.append(f"{self.name} on_agent_end {reason} {text}")

    hooks = HookRegistry([Watch("b")])
    hooks.register(Watch("a"), priority=-1)
    await play([[say("Hm."), call("look")], "Done."], tools=[look], hooks=hooks)

    steps = [
        "before_model 1 1",
        "after_model Hm.",
        "before_tool_call look {}",
        "after_tool_call saw here",
        "before_model 2 3",
        "after_model Done.",
        "on_agent_end answer Done.",
    ]
    assert order == [f"{name} {step}" for step in steps for name in "ab"]


async def test_hooks_get_the_session_the_turn_the_agent_its_model_the_round_and_the_call(play):
    contexts: list[HookContext] = []

    async def note(self, *args):
        contexts.append(args[-1])

    session = play.session()
    session.state.context_variables["city"] = "Lyon"
    hooks = HookRegistry([hook("after_model", note), hook("before_tool_call", note), hook("after_tool_call", note)])
    run = await play([call("look"), "Hi."], tools=[look], agent_id="scout", hooks=hooks, session=session)

    turn = run.events[0].turn_id
    known = {"turn_id": turn, "model": "scripted", "context_variables": {"city": "Lyon"}}
    assert contexts == [
        HookContext(session.id, "scout", 1, **known),
        HookContext(session.id, "scout", 1, call_id="call_1", **known),
        HookContext(session.id, "scout", 1, call_id="call_1", **known),
        HookContext(session.id, "scout", 2, **known),
    ]


@pytest.mark.parametrize(
    "added", [UserMessage(content="and be brief"), {"role": "user", "content": "and be brief"}], ids=["message", "row"]
)
async def test_before_model_changes_the_request_and_not_the_history(play, added):
    async def change(self, messages, context):
        return [*messages, added]

    run = await play(["Hi."], hooks=HookRegistry([hook("before_model", change)]))

    assert [message.content for message in run.model.requests[0].messages] == ["go", "and be brief"]
    assert run.rows == [("user", "go"), ("assistant", "Hi.")]


async def test_after_tool_call_rewrites_the_result_in_event_and_history(play):
    async def redact(self, name, arguments, result, context):
        return result.replace("here", "[redacted]")

    run = await play([call("look"), "ok"], tools=[look], hooks=HookRegistry([hook("after_tool_call", redact)]))

    assert run.results == [("call_1", "ok", "saw [redacted]")]
    assert run.rows[2] == ("tool", "call_1", "ok", "saw [redacted]")


async def test_the_first_block_wins(play):
    seen: list[str] = []

    async def block(self, name, arguments, context):
        return Block("no looking")

    async def watch(self, name, arguments, context):
        seen.append(name)

    hooks = HookRegistry([hook("before_tool_call", block), hook("before_tool_call", watch)])
    run = await play([call("look"), "ok"], tools=[look], hooks=hooks)

    assert run.results == [("call_1", "blocked", "Blocked: no looking")]
    assert seen == []


async def test_hooks_cannot_change_the_arguments_that_run(play):
    async def meddle(self, name, arguments, context):
        arguments["at"] = "elsewhere"

    run = await play(
        [call("look", {"at": "home"}), "ok"], tools=[look], hooks=HookRegistry([hook("before_tool_call", meddle)])
    )

    assert run.results == [("call_1", "ok", "saw home")]


# --- what they cannot -------------------------------------------------------------------------------------------------


def _raises(exc):
    def method(self, *args):
        raise exc

    return method


def _raises_async(exc):
    async def method(self, *args):
        raise exc

    return method


async def _hangs(self, *args):
    await asyncio.Event().wait()


async def _cancels_itself(self, *args):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def _ignores_cancellation(self, *args):
    for seconds in (2 * LIMIT, 0.05):
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            continue


FAILURES = {
    "raises": _raises(RuntimeError("broken")),
    "raises later": _raises_async(ValueError("broken")),
    "raises one of ours": _raises_async(PermissionError("broken")),
    "exits": _raises(SystemExit(3)),
    "exits later": _raises_async(SystemExit(3)),
    "panics": _raises(Panic()),
    "panics later": _raises_async(Panic()),
    "raises CancelledError": _raises_async(asyncio.CancelledError()),
    "raises StopIteration": _raises(StopIteration()),
    "raises StopAsyncIteration": _raises_async(StopAsyncIteration()),
    "raises GeneratorExit": _raises_async(GeneratorExit()),
    "hangs": _hangs,
    "cancels itself": _cancels_itself,
    "ignores cancellation": _ignores_cancellation,
}
failures = pytest.mark.parametrize("method", FAILURES.values(), ids=FAILURES.keys())


def _junk(value):
    async def method(self, *args):
        return value

    return method


junk = pytest.mark.parametrize("value", [7, "text", [1], {"a": 1}, object(), True, b"", [UserMessage(content="x"), 1]])


@failures
async def test_a_failing_before_model_prevents_the_model_call(play, method):
    run = await play(ScriptedModel([]), hooks=HookRegistry([hook("before_model", method)], limit=LIMIT))

    assert run.outline == ["turn_started", "round_start", "error:hook_failed"]
    assert run.terminal.keys() == {"text", "code", "fatal"}
    assert "Odd.before_model" in run.terminal["text"]


@junk
async def test_an_invalid_return_value_of_before_model_prevents_the_model_call(play, value):
    run = await play(ScriptedModel([]), hooks=HookRegistry([hook("before_model", _junk(value))]))

    assert run.outline == ["turn_started", "round_start", "error:hook_failed"]


@failures
async def test_a_failing_before_tool_call_blocks_the_call(play, method):
    hooks = HookRegistry([hook("before_tool_call", method)], limit=LIMIT)
    run = await play([call("look"), "ok"], tools=[look], hooks=hooks)

    assert run.outline[3:] == [
        "tool_call:look",
        "error:hook_failed",
        "tool_result:blocked",
        "round_start",
        "token",
        "final:answer",
    ]
    assert run.events_of("error")[0].data["fatal"] is False


@junk
async def test_an_invalid_return_value_of_before_tool_call_blocks_the_call(play, value):
    run = await play([call("look"), "ok"], tools=[look], hooks=HookRegistry([hook("before_tool_call", _junk(value))]))

    assert [outcome for _, outcome, _ in run.results] == ["blocked"]


@failures
async def test_a_failing_after_tool_call_withholds_the_result(play, method):
    hooks = HookRegistry([hook("after_tool_call", method)], limit=LIMIT)
    run = await play([call("look"), "ok"], tools=[look], hooks=hooks)

    assert run.outline[3:6] == ["tool_call:look", "error:hook_failed", "tool_result:error"]
    assert run.results[0][2].startswith("The result is withheld: ")
    assert "saw" not in run.results[0][2]


@pytest.mark.parametrize("value", [7, [1], {"a": 1}, object(), True, b"bytes"])
async def test_an_invalid_return_value_of_after_tool_call_withholds_the_result(play, value):
    run = await play([call("look"), "ok"], tools=[look], hooks=HookRegistry([hook("after_tool_call", _junk(value))]))

    assert [outcome for _, outcome, _ in run.results] == ["error"]


@failures
@pytest.mark.parametrize("point", ["after_model", "on_agent_end"])
async def test_a_failing_observer_is_reported_and_the_turn_goes_on(play, point, method):
    run = await play(["Hi."], hooks=HookRegistry([hook(point, method)], limit=LIMIT))

    assert run.outline == ["turn_started", "round_start", "token", "error:hook_failed", "final:answer"]
    assert run.events_of("error")[0].data["fatal"] is False
    assert f"Odd.{point}" in run.events_of("error")[0].data["text"]


@failures
async def test_a_failing_on_compaction_is_reported_and_the_turn_goes_on(play, method):
    hooks = HookRegistry([hook("on_compaction", method)], limit=LIMIT)
    run = await play(["A summary.", "Hi."], hooks=hooks, session=play.session(messages=conversation()))

    assert run.outline == ["turn_started", "round_start", "compaction", "error:hook_failed", "token", "final:answer"]


@failures
async def test_a_failing_on_agent_end_does_not_change_the_ending(play, method):
    hooks = HookRegistry([hook("on_agent_end", method)], limit=LIMIT)
    run = await play([call("look")], tools=[look], max_tool_rounds=1, hooks=hooks)

    assert run.outline[-2:] == ["error:hook_failed", "error:max_rounds"]


@junk
@pytest.mark.parametrize("point", ["after_model", "on_agent_end"])
async def test_the_return_value_of_an_observer_is_ignored(play, point, value):
    run = await play(["Hi."], hooks=HookRegistry([hook(point, _junk(value))]))

    assert run.outline == ["turn_started", "round_start", "token", "final:answer"]


async def test_the_time_limit_of_hooks_is_a_setting(play):
    hooks = HookRegistry([hook("after_model", _hangs)])
    run = await play(["Hi."], hooks=hooks, settings={"hook_timeout_seconds": 2})

    assert run.outline == ["turn_started", "round_start", "token", "error:hook_failed", "final:answer"]
