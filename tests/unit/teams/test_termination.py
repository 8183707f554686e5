"""Termination conditions: functions of the run, their combinations, and calls by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agenticx.errors import UserCodeError
from agenticx.teams import (
    CostTermination,
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    FunctionExecutionResult,
    HandoffMessage,
    HandoffTermination,
    MaxMessageTermination,
    RequestUsage,
    Run,
    SourceMatchTermination,
    StopMessage,
    StopMessageTermination,
    StuckTermination,
    TerminatedException,
    TerminationCondition,
    TextMentionTermination,
    TextMessage,
    TextMessageTermination,
    ThoughtEvent,
    TimeoutTermination,
    TokenUsageTermination,
    ToolCallExecutionEvent,
)
from agenticx.teams.termination.base import ConditionRun

pytestmark = pytest.mark.anyio


def said(*texts: str, by: str = "a") -> tuple[TextMessage, ...]:
    return tuple(TextMessage(content=text, source=by) for text in texts)


def ran(tool: str, content: str = "", *, by: str = "a") -> ToolCallExecutionEvent:
    return ToolCallExecutionEvent(content=[FunctionExecutionResult(content=content, name=tool, call_id="c")], source=by)


def talk(*lines: str) -> tuple[TextMessage, ...]:
    """Return messages written as `source: text`."""
    return tuple(TextMessage(source=line.split(": ")[0], content=line.split(": ")[1]) for line in lines)


HANDOFF = HandoffMessage(content="Yours", target="b", source="a")
USED = TextMessage(content="x", source="a", models_usage=RequestUsage(6, 4))

CASES = [
    (
        MaxMessageTermination(2),
        Run(messages=(*said("one"), ThoughtEvent(content="hm"))),
        Run(messages=said("one", "two", "three")),
        "Maximum number of messages 2 reached, current message count: 3",
    ),
    (
        MaxMessageTermination(2, include_agent_event=True),
        Run(messages=said("one")),
        Run(messages=(*said("one"), ThoughtEvent(content="hm"))),
        "Maximum number of messages 2 reached, current message count: 2",
    ),
    (
        TextMentionTermination("DONE"),
        Run(messages=(*said("done"), ThoughtEvent(content="DONE"))),
        Run(messages=said("all DONE.", "more")),
        "Text 'DONE' mentioned",
    ),
    (
        TextMentionTermination("DONE", sources=["b"]),
        Run(messages=said("DONE")),
        Run(messages=said("DONE", by="b")),
        "Text 'DONE' mentioned",
    ),
    (
        StopMessageTermination(),
        Run(messages=said("stop")),
        Run(messages=(StopMessage(content="stop"),)),
        "Stop message received",
    ),
    (
        TextMessageTermination("b"),
        Run(messages=(*said("one"), HANDOFF)),
        Run(messages=said("one", by="b")),
        "Text message received from 'b'",
    ),
    (
        SourceMatchTermination(["b", "c"]),
        Run(messages=(*said("one"), ThoughtEvent(content="hm", source="b"))),
        Run(messages=(*said("one", by="c"), *said("two"))),
        "'c' answered",
    ),
    (
        HandoffTermination("b"),
        Run(messages=(HANDOFF.model_copy(update={"target": "c"}),)),
        Run(messages=(HANDOFF,)),
        "Handoff to b from a detected.",
    ),
    (
        FunctionCallTermination("approve"),
        Run(messages=(ran("look"),)),
        Run(messages=(ran("approve"),)),
        "Function 'approve' was executed.",
    ),
    (
        TokenUsageTermination(max_total_token=10),
        Run(usage=RequestUsage(5, 4)),
        Run(usage=RequestUsage(6, 4)),
        "Token usage limit reached, total token count: 10, prompt token count: 6, completion token count: 4.",
    ),
    (
        TokenUsageTermination(max_completion_token=5),
        Run(usage=RequestUsage(50, 4)),
        Run(usage=RequestUsage(0, 5)),
        "Token usage limit reached, total token count: 5, prompt token count: 0, completion token count: 5.",
    ),
    (
        CostTermination(0.5),
        Run(cost_usd=0.49),
        Run(cost_usd=0.5),
        "Cost limit of 0.5 USD reached, cost: 0.5 USD",
    ),
    (
        CostTermination(0.5),
        Run(),
        Run(cost_usd=None),
        "Cost unknown: a model has no price, so the limit of 0.5 USD cannot be kept",
    ),
    (TimeoutTermination(1.5), Run(seconds=1.4), Run(seconds=1.5), "Timeout of 1.5 seconds reached"),
    (
        FunctionalTermination(lambda messages: len(messages) > 1),
        Run(messages=said("one")),
        Run(messages=said("one", "two")),
        "Functional termination condition met",
    ),
]


@pytest.mark.parametrize(("condition", "going", "over", "reason"), CASES, ids=lambda case: type(case).__name__)
async def test_a_condition_is_a_function_of_the_run(condition, going, over, reason):
    for _ in range(2):  # it keeps nothing
        assert await ConditionRun(condition).check(going) is None
        stop = await ConditionRun(condition).check(over)
        assert (stop.content, stop.source) == (reason, type(condition).__name__)
    assert not condition.terminated


async def test_an_external_stop_reaches_runs_that_have_begun():
    condition, early = ExternalTermination(), Run()
    assert condition.check(early) is None
    condition.set()
    assert condition.check(early).content == "External termination requested"
    assert condition.check(Run()) is None


async def test_a_termination_function_may_be_async_and_its_error_is_raised_as_it_is():
    async def over(messages):
        return messages[0].content == "stop"

    def broken(messages):
        raise LookupError("no table")

    assert await FunctionalTermination(over).check(Run(messages=said("go"))) is None
    assert (await FunctionalTermination(over).check(Run(messages=said("stop")))).content
    with pytest.raises(LookupError, match="no table"):
        await FunctionalTermination(broken).check(Run())


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (TokenUsageTermination, "needs one of max_total_token"),
        (lambda: StuckTermination(1), "greater than or equal to 2"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(wrong, problem):
    with pytest.raises(ValueError, match=problem):
        wrong()


# --- combinations -----------------------------------------------------------------------------------------------------


async def test_conditions_are_combined_with_and_and_or():
    both = MaxMessageTermination(2) & TextMentionTermination("DONE")
    either = MaxMessageTermination(2) | TextMentionTermination("DONE")
    mixed = both | TimeoutTermination(10)
    done = "Text 'DONE' mentioned"
    two = "Maximum number of messages 2 reached, current message count: 2"

    async def reasons(run):
        stops = [await condition.check(run) for condition in (both, either, mixed)]
        return [stop and stop.content for stop in stops]

    assert await reasons(Run(messages=said("one"))) == [None, None, None]
    assert await reasons(Run(messages=said("DONE"))) == [None, done, None]
    assert await reasons(Run(messages=said("one", "DONE"))) == [f"{two}, {done}"] * 3
    assert await reasons(Run(seconds=10)) == [None, None, "Timeout of 10 seconds reached"]


# --- calls by hand ----------------------------------------------------------------------------------------------------


async def test_a_condition_called_by_hand_keeps_a_transcript_until_its_reset():
    condition = MaxMessageTermination(3)
    assert await condition([]) is None
    assert await condition(said("one", "two")) is None
    assert (await condition(said("three"))).content.endswith("current message count: 3")
    assert condition.terminated
    with pytest.raises(TerminatedException, match="MaxMessageTermination has said stop already"):
        await condition([])
    await condition.reset()
    assert not condition.terminated
    assert await condition(said("one", "two")) is None


async def test_calls_by_hand_count_tokens_and_know_no_cost():
    tokens, cost = TokenUsageTermination(max_total_token=20), CostTermination(1)
    assert (await tokens([USED]), await cost(said("free"))) == (None, None)
    assert (await tokens([USED])).content.startswith("Token usage limit reached, total token count: 20")
    assert (await cost([USED])).content.startswith("Cost unknown")


async def test_an_external_stop_by_hand_ends_with_the_reset():
    external = ExternalTermination()
    either = external | MaxMessageTermination(5)
    external.set()
    assert (await external([])).content == (await either([])).content == "External termination requested"
    await either.reset()
    assert (await external([]), await either([])) == (None, None)


class Foreign(TerminationCondition):
    """A condition that keeps a state of its own, without `check`."""

    def __init__(self):
        self.heard = []
        self.resets = 0

    @property
    def terminated(self):
        return "stop" in self.heard

    async def __call__(self, messages):
        self.heard += [message.content for message in messages]
        return StopMessage(content="heard", source="Foreign") if self.terminated else None

    async def reset(self):
        self.heard = []
        self.resets += 1


async def test_a_foreign_condition_is_reset_before_a_run_and_called_with_what_is_new():
    foreign = Foreign()
    combined = foreign & MaxMessageTermination(4)
    run = ConditionRun(combined)
    await run.begin()
    messages = said("one", "stop")
    assert await run.check(Run(messages=messages)) is None
    assert await run.check(Run(messages=messages + said("three"))) is None
    stop = await run.check(Run(messages=messages + said("three", "four")))
    assert stop.content == "heard, Maximum number of messages 4 reached, current message count: 4"
    assert (foreign.heard, foreign.resets) == (["one", "stop"], 1)
    assert (await combined(said("stop", "2", "3", "4"))).content == stop.content
    await combined.reset()
    assert foreign.resets == 2
    with pytest.raises(NotImplementedError, match="Foreign must override `check`"):
        await combined.check(Run())


async def test_a_condition_must_return_a_stop_message():
    class Odd(TerminationCondition):
        def check(self, run):
            return True

    with pytest.raises(UserCodeError, match=r"Odd\.check returned a .*bool.*; right would be a StopMessage or None"):
        await ConditionRun(Odd()).check(Run())


# --- stuck ------------------------------------------------------------------------------------------------------------


def stopped_after(condition: TerminationCondition, messages) -> int | None:
    """Return the number of messages after which the condition stops the run."""
    counts = range(1, len(messages) + 1)
    return next((count for count in counts if condition.check(Run(messages=messages[:count]))), None)


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["a: Thank you!", "b: You are welcome."] * 4, 5),
        (["a: Thank you!", "b: You are welcome.", "a: THANK YOU", "b: you are welcome!"] * 2, 5),
        (["a: Anything else?"] * 4, 3),
        (["a: Over to b.", "b: Over to c.", "c: Over to a."] * 4, 10),
        (["a: 👍", "b: 👍"] * 4, 5),
        ([f"{name}: {n}" for n in range(20) for name in "ab"], None),
        ([line for n in range(20) for line in (f"a: draft {n}", "b: again")], None),
        (["a: Thank you!", "user: Go on."] * 8, None),
        (["a: Thank you!", "b: You are welcome."] * 2, None),
    ],
    ids=[
        "thanks",
        "thanks in other letters",
        "one speaker",
        "three speakers",
        "emoji",
        "news",
        "drafts",
        "user",
        "short",
    ],
)
def test_participants_that_only_repeat_themselves_are_stopped(lines, count):
    assert stopped_after(StuckTermination(), talk("user: Begin.", *lines)) == (count and count + 1)


def test_handoffs_back_and_forth_are_a_repetition_whatever_their_reasons():
    lines = [
        HandoffMessage(content="Yours.", source=source, target=target, metadata={"reason": f"Reason {number}."})
        for number, (source, target) in enumerate([("a", "b"), ("b", "a")] * 3)
    ]
    assert stopped_after(StuckTermination(), lines) == 5


def test_new_texts_beside_handoffs_are_no_repetition():
    def handoffs(texts: Sequence[str]) -> list[Any]:
        pairs = zip(texts, [("a", "b"), ("b", "a")] * 5, strict=True)
        return [
            message
            for text, (source, target) in pairs
            for message in (
                ThoughtEvent(content=text, source=source, beside_calls=True),
                HandoffMessage(content="Yours.", source=source, target=target),
            )
        ]

    assert stopped_after(StuckTermination(), handoffs([f"Draft {n}" for n in range(10)])) is None
    assert stopped_after(StuckTermination(), handoffs(["Your turn."] * 10)) == 10


def test_new_results_of_tools_are_no_repetition():
    polls = [message for n in range(10) for message in (ran("look", f"page {n}"), *said("Looking."))]
    same = [message for _ in range(10) for message in (ran("look", "nothing"), *said("Looking."))]
    assert stopped_after(StuckTermination(), polls) is None
    assert stopped_after(StuckTermination(), same) == 6


def test_the_number_of_repeats_is_set():
    lines = talk(*["a: Thank you!", "b: You are welcome."] * 10)
    assert [stopped_after(StuckTermination(repeats), lines) for repeats in (2, 3, 5)] == [3, 5, 9]
    stop = StuckTermination(2).check(Run(messages=lines[:6]))
    assert stop.content == "Conversation stuck: the last 6 speeches only repeat what was said"


def test_a_long_talk_is_judged_by_its_end():
    lines = talk(*[f"a: {n}" for n in range(500)], *["a: Thank you!", "b: You are welcome."] * 3)
    checks = [StuckTermination().check(Run(messages=lines[:count])) is not None for count in range(500, 507)]
    assert checks == [False] * 5 + [True] * 2


def test_names_of_sources_are_a_list() -> None:
    name: Any = "writer"
    for make in (SourceMatchTermination, lambda sources: TextMentionTermination("x", sources=sources)):
        with pytest.raises(TypeError, match="sources must be a list, not str"):
            make(name)


def test_only_conditions_can_be_combined() -> None:
    other: Any = "x"
    with pytest.raises(TypeError, match="unsupported operand"):
        MaxMessageTermination(3) | other
    with pytest.raises(TypeError, match="unsupported operand"):
        MaxMessageTermination(3) & other


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: MaxMessageTermination("3"), "max_messages must be an int, not str"),
        (lambda: TextMentionTermination(3), "text must be a str, not int"),
        (lambda: TextMessageTermination(3), "source must be a str, not int"),
        (lambda: HandoffTermination(3), "target must be a str, not int"),
        (lambda: FunctionCallTermination(3), "function_name must be a str, not int"),
        (lambda: TokenUsageTermination(True), "max_total_token must be an int, not bool"),
        (lambda: CostTermination("a"), "max_cost_usd must be a number, not str"),
        (lambda: CostTermination(float("nan")), "max_cost_usd must be a finite number, not nan"),
        (lambda: TimeoutTermination("x"), "timeout_seconds must be a number, not str"),
        (lambda: TimeoutTermination(float("inf")), "timeout_seconds must be a finite number, not inf"),
        (lambda: StuckTermination(2.5), "repeats must be an int, not float"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused(make: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{problem}$"):
        make()


def test_a_function_is_one() -> None:
    function: Any = 3
    with pytest.raises(TypeError, match="func must be a function of the messages"):
        FunctionalTermination(function)
