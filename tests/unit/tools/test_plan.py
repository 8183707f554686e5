"""Tests of the to-do list and the scratchpad."""

from __future__ import annotations

import pytest

from agenticx.errors import InvalidArguments, ToolError
from agenticx.tools.builtin import scratchpad_read, scratchpad_write, todo_write
from tests.support.verdicts import decide

pytestmark = pytest.mark.anyio


async def test_each_call_replaces_the_complete_to_do_list(runner) -> None:
    first = [
        {"text": "look", "status": "done"},
        {"text": "act", "status": "in_progress"},
        {"text": "tell", "status": "pending"},
    ]
    assert await runner.call(todo_write, todos=first) == "The to-do list has 3 items: 1 done, 1 in progress, 1 pending."
    assert runner.context.state.todos == first
    assert await runner.call(todo_write, todos=first[:1]) == "The to-do list has 1 item: 1 done."
    assert await runner.call(todo_write, todos=[]) == "The to-do list is empty."
    assert runner.context.state.todos == []


@pytest.mark.parametrize(
    ("todos", "sentence"),
    [
        (
            [{"text": "x", "status": "doing"}],
            "'todos.0.status' should be 'pending', 'in_progress' or 'done', not 'doing'",
        ),
        ([{"text": "x"}], "'todos.0.status' is missing: it has no default"),
        ([{"text": "x", "status": "done", "due": 1}], "'todos.0.due' is not an argument of this tool"),
        ("x", "'todos' should be a valid array, not 'x'"),
    ],
)
def test_an_invalid_list_is_refused_with_a_reason(todos, sentence) -> None:
    with pytest.raises(InvalidArguments) as caught:
        todo_write.validate({"todos": todos})
    assert str(caught.value) == sentence


async def test_notes_are_stored_replaced_listed_and_removed(runner) -> None:
    assert await runner.call(scratchpad_read) == "(no notes)"
    assert await runner.call(scratchpad_write, key="a", content="one") == "Noted under 'a' (3 characters)."
    assert await runner.call(scratchpad_write, key="b", content="two!") == "Noted under 'b' (4 characters)."
    assert await runner.call(scratchpad_write, key="a", content="1") == "Noted under 'a' (1 character)."
    assert await runner.call(scratchpad_read) == "a (1 character)\nb (4 characters)"
    assert await runner.call(scratchpad_read, key="a") == "1"
    assert await runner.call(scratchpad_write, key="a", content="") == "Removed the note 'a'."
    assert await runner.call(scratchpad_write, key="a", content="") == "There is no note 'a'."
    with pytest.raises(ToolError, match="there is no note 'a'; notes: 'b'"):
        await runner.call(scratchpad_read, key="a")


async def test_the_scratchpad_is_bounded(runner) -> None:
    for number in range(10):
        await runner.call(scratchpad_write, key=str(number), content="x" * 20_000)
    with pytest.raises(ToolError, match="the scratchpad holds 200,000 characters at most"):
        await runner.call(scratchpad_write, key="more", content="x")
    await runner.call(scratchpad_write, key="0", content="y" * 20_000)


def test_planning_calls_are_allowed_but_writers_are_not_read_only(runner) -> None:
    assert [tool.read_only for tool in (todo_write, scratchpad_write, scratchpad_read)] == [False, False, True]
    for tool, arguments in ((todo_write, {"todos": []}), (scratchpad_write, {"key": "a", "content": "b"})):
        for mode in ("default", "plan"):
            assert decide(mode, runner.assess(tool, **arguments)).decision == "allow"
