"""The choice of the next speaker by a model or a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agenticx.errors import ModelError
from agenticx.teams import (
    ModelClientStreamingChunkEvent,
    RequestUsage,
    RoundRobinGroupChat,
    SelectorEvent,
    SelectorGroupChat,
    TeamError,
    TextMessage,
    TokenUsageTermination,
)
from agenticx.teams.group_chats.speaker_names import named_candidates
from agenticx.testing import ScriptedModel, fail, hang, say, usage
from tests.support.jumping_clock import VIRTUAL_TIME, LoopClock
from tests.unit.teams.chat_agents import Saying, lines

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL_TIME


NAMES = ["writer", "code_writer", "critic", "Critic2"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("writer", ["writer"]),
        ("  Writer\n", ["writer"]),
        ("CODE_WRITER", ["code_writer"]),
        ("code writer", ["code_writer"]),
        (r"**code\_writer**", ["code_writer"]),
        ("I think `critic` should go on, since the critic knows.", ["critic"]),
        ("critic2", ["Critic2"]),
        ("writer, critic", ["writer", "critic"]),
        ("Critic or code_writer?", ["critic", "code_writer"]),
        ("_critic_, __critic__", ["critic"]),
        (r"\_critic\_", ["critic"]),
        ("code  writer", ["code_writer"]),
        ("code-writer", ["code_writer"]),
        (r"- Code\-Writer -", ["code_writer"]),
        ("code\N{NON-BREAKING HYPHEN}writer", ["code_writer"]),
        ("_critic_ or writer", ["critic", "writer"]),
        ("critic-writer", []),
        ("code_critic_writer", []),
        ("writer" + " " * 4_000, []),
        ("non-writer", []),
        ("ｃritic", ["critic"]),
        ("writers", []),
        ("nobody", []),
        ("", []),
    ],
)
async def test_a_reply_names_candidates_tolerantly(text: str, named: list[str]) -> None:
    assert named_candidates(text, NAMES) == named


async def test_names_that_differ_in_case_only_are_told_apart() -> None:
    assert named_candidates("Bob", ["bob", "Bob"]) == ["Bob"]
    assert named_candidates("BOB", ["bob", "Bob"]) == ["bob", "Bob"]
    assert named_candidates("anyone", []) == []


async def test_names_that_differ_in_separators_only_are_told_apart() -> None:
    names = ["code_writer", "Code-Writer", "research team"]
    assert named_candidates("Code-Writer", names) == ["Code-Writer"]
    assert named_candidates(r"code\_writer", names) == ["code_writer"]
    assert named_candidates("code writer", names) == ["code_writer"]
    assert named_candidates("CODE WRITER", names) == ["code_writer", "Code-Writer"]
    assert named_candidates("research_team", names) == ["research team"]


async def test_underscores_at_the_ends_and_in_rows_belong_to_names() -> None:
    names = ["_writer", "writer", "writer__", "a____b", "a_b"]
    assert [named_candidates(name, names) for name in names] == [[name] for name in names]
    assert named_candidates("**_writer**, a  b", names) == ["_writer", "a____b", "a_b"]


async def test_a_name_may_have_marks_of_any_script() -> None:
    assert named_candidates("अब लेखिका बोले।", ["लेखिका", "कवि"]) == ["लेखिका"]


async def test_an_accented_name_may_be_decomposed() -> None:
    assert named_candidates("Rene\N{COMBINING ACUTE ACCENT}e", ["Ren\N{LATIN SMALL LETTER E WITH ACUTE}e"]) == ["Renée"]


def team(model: ScriptedModel, **options: Any) -> SelectorGroupChat:
    return SelectorGroupChat([Saying("a"), Saying("b"), Saying("c")], model, **{"max_turns": 1} | options)


async def speakers(chat: SelectorGroupChat) -> Sequence[str]:
    return [message.source for message in (await chat.run(task="go")).messages if isinstance(message, TextMessage)][1:]


async def test_the_model_chooses_among_the_others() -> None:
    with ScriptedModel([say("c"), say("I choose A.")]) as model:
        assert await speakers(team(model, max_turns=2)) == ["c", "a"]
    question = model.requests[1].messages[0].content
    assert "a: a of the team\nb: b of the team\nc: c of the team" in question
    assert "user: go\n\nc: c here" in question
    assert "from ['a', 'b']" in question


async def test_a_single_candidate_costs_no_call() -> None:
    with ScriptedModel([say("b")]) as model:
        chat = SelectorGroupChat([Saying("a"), Saying("b")], model, max_turns=4)
        assert await speakers(chat) == ["b", "a", "b", "a"]
    alone = SelectorGroupChat([Saying("a")], ScriptedModel(), max_turns=2)
    assert await speakers(alone) == ["a", "a"]


async def test_with_repeated_speakers_all_are_candidates() -> None:
    with ScriptedModel([say("b"), say("b")]) as model:
        assert await speakers(team(model, max_turns=2, allow_repeated_speaker=True)) == ["b", "b"]


async def test_a_reply_that_names_no_single_candidate_goes_back_with_what_is_wrong() -> None:
    with ScriptedModel([say("a or b"), say("nobody"), say("b")]) as model:
        assert await speakers(team(model)) == ["b"]
    texts = [message.content for message in model.requests[2].messages]
    choice = "Choose one of a, b, c, and answer with its name and nothing else."
    assert texts[1:] == [
        "a or b",
        f"Your answer names more than one role: a, b. {choice}",
        "nobody",
        f"Your answer names none of the roles. {choice}",
    ]


async def test_a_reply_that_names_someone_who_cannot_speak_next_is_told_so() -> None:
    with ScriptedModel([say("a"), say("a"), say("c")]) as model:
        assert await speakers(team(model, max_turns=2)) == ["a", "c"]
    assert model.requests[2].messages[-1].content.startswith("Your answer names a role that cannot speak next: a.")


async def test_the_tokens_of_a_choice_are_on_its_event_and_count_for_the_run() -> None:
    replies = [[say("nobody"), usage(5, 1)], [say("b"), usage(7, 1)]]
    with ScriptedModel(replies) as model:
        limit = TokenUsageTermination(max_total_token=14)
        result = await team(model, emit_team_events=True, termination_condition=limit).run(task="go")
    assert [message.models_usage for message in result.messages] == [None, RequestUsage(12, 2), None]
    assert result.stop_reason is not None
    assert result.stop_reason.startswith("Token usage limit reached, total token count: 14")


async def test_after_its_attempts_the_previous_speaker_goes_on_with_the_models_words_as_an_event() -> None:
    with ScriptedModel([say("x"), say("b"), say("x"), say("y")]) as model:
        result = await team(model, max_turns=2, max_selector_attempts=2, emit_team_events=True).run(task="go")
    assert lines(result.messages) == [
        "user: go",
        "SelectorGroupChat: b",
        "b: b here",
        "SelectorGroupChat: y",
        "SelectorGroupChat: b",
        "b: b here",
    ]
    assert isinstance(result.messages[3], SelectorEvent)


async def test_without_a_previous_speaker_the_first_begins() -> None:
    with ScriptedModel([say("x")]) as model:
        assert await speakers(team(model, max_selector_attempts=1)) == ["a"]


async def test_streamed_choices_come_in_chunks_and_as_an_event() -> None:
    with ScriptedModel([say("b please", pieces=2)]) as model:
        stream = team(model, model_client_streaming=True, emit_team_events=True).run_stream(task="go")
        items = [item async for item in stream]
    chunks = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    events = [item.content for item in items if isinstance(item, SelectorEvent)]
    assert ("".join(chunks), events) == ("b please", ["b please"])


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_function_chooses_or_leaves_it_to_the_model(kind: str) -> None:
    def choose(messages: Sequence[Any]) -> str | None:
        return None if len(messages) > 1 else "c"

    async def choose_later(messages: Sequence[Any]) -> str | None:
        return choose(messages)

    function = choose if kind == "plain" else choose_later
    with ScriptedModel([say("a")]) as model:
        assert await speakers(team(model, max_turns=2, selector_func=function)) == ["c", "a"]


async def test_a_function_names_the_candidates() -> None:
    with ScriptedModel([say("b")]) as model:
        chat = team(model, max_turns=2, candidate_func=lambda messages: ["b", "b"] if len(messages) < 2 else ["b", "c"])
        assert await speakers(chat) == ["b", "b"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"selector_func": lambda messages: "x"}, "selector_func returned 'x', which is no participant"),
        ({"candidate_func": lambda messages: []}, r"candidate_func returned \[\]"),
        ({"candidate_func": lambda messages: ["x"]}, "candidate_func returned 'x'"),
        ({"selector_func": lambda messages: messages[9].content}, "selector_func raised IndexError"),
    ],
)
async def test_a_function_that_fails_ends_the_run(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TeamError, match=problem):
        await team(ScriptedModel(), **options).run(task="go")


async def test_a_failed_model_call_ends_the_run_and_it_can_be_gone_on_with() -> None:
    with ScriptedModel([fail(ModelError("broken", code="provider.overloaded")), say("b")]) as model:
        chat = team(model)
        with pytest.raises(TeamError, match="broken") as raised:
            await chat.run(task="go")
        assert isinstance(raised.value.__cause__, ModelError)
        assert lines((await chat.run()).messages) == ["b: b here"]


async def test_a_choice_that_takes_too_long_ends_the_run() -> None:
    model = ScriptedModel([hang()])
    with pytest.raises(TeamError, match="the next speaker took longer than 300 s"):
        await team(model, clock=LoopClock()).run(task="go")


async def test_a_prompt_of_the_application_may_have_other_braces() -> None:
    with ScriptedModel([say("b")]) as model:
        await team(model, selector_prompt='{"of": {participants}}\n{history}').run(task="go")
    assert model.requests[0].messages[0].content == "{\"of\": ['a', 'b', 'c']}\nuser: go"


async def test_a_prompt_without_placeholders_is_the_system_message_before_the_built_in_one() -> None:
    with ScriptedModel([say("b"), say("b")]) as model:
        await team(model, selector_prompt="Pick the best {next} speaker.").run(task="{roles}?")
        await team(model).run(task="{roles}?")
    (system, question), (built_in,) = [request.messages for request in model.requests]
    assert (system.role, system.content) == ("system", "Pick the best {next} speaker.")
    assert question.content == built_in.content
    assert "user: {roles}?\n" in question.content


async def test_the_history_that_the_model_reads_is_bounded() -> None:
    with ScriptedModel([say("b")]) as model:
        task = [TextMessage(content=f"{number} " + "x" * 9_000) for number in range(60)]
        await team(model).run(task=task)
    question = model.requests[0].messages[0].content
    assert len(question) < 30_000
    assert "user: 59 " in question


async def test_a_team_is_chosen_by_its_name_and_description() -> None:
    inner = RoundRobinGroupChat([Saying("a")], name="makers", description="They make things.", max_turns=1)
    with ScriptedModel([say("makers")]) as model:
        result = await SelectorGroupChat([inner, Saying("b")], model, max_turns=1).run(task="go")
    assert lines(result.messages) == ["user: go", "a: a here"]
    assert "makers: They make things." in model.requests[0].messages[0].content


async def test_attempts_must_be_at_least_one() -> None:
    with pytest.raises(ValueError, match="max_selector_attempts must be at least 1, not 0"):
        team(ScriptedModel(), max_selector_attempts=0)
