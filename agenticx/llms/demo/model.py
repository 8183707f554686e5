"""The `demo` model: an offline script that follows the user's words and uses the real tools.

It plans from the last user message, makes one call per round, reads the results after that message, and reports them
unchanged. It keeps no state between calls: the same request gives the same reply. Its replies say that it is a script.
In teams it hands over and never quotes a speech (`conversation` has the rules).

It runs on the event loop, so its work on a long message is bounded: it searches the first 4,000 characters for the
sentences that it knows, and streams the first 10,000 characters of its reply word by word, the rest in one delta.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import assert_never

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import ModelError
from agenticx.llms.base import (
    Delta,
    Finished,
    ModelRequest,
    OutputSchema,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from agenticx.llms.demo.conversation import DemoConversation, least_heard_choice
from agenticx.llms.demo.plan import Plan, PlannedCall
from agenticx.llms.sampling import check_sampling
from agenticx.messages import AssistantMessage, Message, ToolMessage, ToolOutcome

__all__ = ["DemoModel"]

_WORD_SECONDS = 0.025
_QUOTED_LINES = 12
_QUOTED_CHARS = 800
_MAX_CALL_DELTAS = 12
_MAX_PAGE_DELTAS = 60  # in 1.5 s, while the preview of a page grows
_QUOTED_WORDS_CHARS = 80
_EXTRACTED_CHARS = 60
_STREAMED_CHARS = 10_000

_HELP = """\
Hello! I am AgenticX's demo model: a script that runs offline, not a language model. I understand a few sentences \
and use the real tools for them, so you can watch a real turn:

- list the files [in FOLDER]
- read NAME
- search for WORDS [in NAME]
- Write NAME with the text TEXT (asks you first)
- replace OLD with NEW in NAME (asks you first)
- run COMMAND (asks you first unless it is plainly harmless)
- todo: one, two, three
- remember KEY: TEXT, and later: recall KEY
- ask me: QUESTION (ONE, ANOTHER), which waits for your answer
- think about SOMETHING, say SOMETHING, count to N
- make a page about SOMETHING, and later: make the heading red, change the title to TEXT, add a section about SOMETHING
- start a sub-agent that VERBS …, for instance: start a sub-agent that lists the files and then start a sub-agent \
that counts to 3
- in a team: hand over to NAME

Join them with "and then". Everything after "with the text" is written exactly as it is, to the end."""

_UNKNOWN = """\
I am a demo model, a script without understanding, and your words {words} are none of the sentences that I know. \
I can list, read, search, write and edit files, run a command, keep a to-do list and notes, make a page and start \
sub-agents; say "help" for the exact sentences. For real answers start AgenticX with a real model, for instance with \
`--model` or the AGX_MODEL variable."""

_HEARD = """\
I have read what {speaker} said about {words}. I am a demo model too, a script without understanding, so I can \
add nothing to it."""

_NO_OBJECT = """\
The demo model is a script and cannot answer with an object of a type (output_type), except with one that the message \
asks it to say, as in: say {"name": "x"}. Use a real model, or agenticx.testing.ScriptedModel."""

_OUTCOME_TEXTS: dict[ToolOutcome, str] = {
    "denied": "was not allowed, so it did not run",
    "blocked": "was blocked, so it did not run",
    "unknown_tool": "does not exist here, so nothing ran",
    "invalid_arguments": "was refused because of its arguments",
    "cancelled": "was cancelled",
    "timed_out": "ran out of time",
    "unknown": "was interrupted, and whether it took effect is not known",
    "error": "failed",
}


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A `ChatModel` for trying things out; `clock` paces its words.

    `context_window` is not a real limit. It is given so that the conversation is not compacted after 20 messages: the
    script changes a page by the exact text of its earlier calls, which a summary would not have.
    """

    clock: Clock = field(default_factory=SystemClock)
    name: str = "demo"
    context_window: int | None = 100_000

    def takes_output_schema(self, output: OutputSchema, *, with_tools: bool) -> bool:
        """Return True: `say {…}` makes it answer with an object; `stream` raises `ModelError` for any other answer."""
        return True

    def largest_cost(self, usage: Usage) -> Decimal:
        """Return 0: a script costs nothing."""
        return Decimal(0)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Reply to the last user message, one word per batch."""
        check_sampling(self, request.sampling)
        reply = list(_reply(request))
        if request.output_schema is not None:
            _check_object(reply)
        for delta in reply:
            await self.clock.sleep(_WORD_SECONDS)
            yield (delta,)
        calls = any(isinstance(delta, ToolCallDelta) for delta in reply)
        yield (
            UsageDelta(Usage(_estimate_tokens(request.messages), len(reply), cost_usd=Decimal(0))),
            Finished("tool_calls", "tool_calls") if calls else Finished("end", "stop"),
        )


def _check_object(reply: Sequence[Delta]) -> None:
    """Raise `ModelError` if the answer is neither a JSON object nor a call."""
    text = "".join(delta.text for delta in reply if isinstance(delta, TextDelta)).lstrip()
    if text[:1] != "{" and not any(isinstance(delta, ToolCallDelta) for delta in reply):
        raise ModelError(_NO_OBJECT, code="provider.bad_request")


# --- one reply -----------------------------------------------------------------------------------------------------


def _reply(request: ModelRequest) -> Iterator[Delta]:
    talk = DemoConversation.of(request)
    if request.tool_choice == "none" and not talk.later:  # not a turn: the history is to be summarised
        yield from _text_deltas(_shortened_lines(talk.message.content))
        return
    if (chosen := least_heard_choice(request)) is not None:
        yield from _text_deltas(chosen)
        return
    plan, results, calls_made = talk.plan(), talk.results, talk.calls_made
    if plan.thinking_topic is not None and not calls_made:
        yield from _thinking_deltas(plan.thinking_topic)
    missing = [planned for planned in plan.calls if planned.tool not in talk.tools]
    remaining = [planned for planned in plan.calls if planned.tool in talk.tools][calls_made:]
    problem = ""
    if remaining and not _was_refused(results):
        due = talk.due(remaining[0])
        if isinstance(due, PlannedCall):
            id_ = f"demo_{talk.message.message_id[-8:]}_{calls_made + 1}"
            yield from _call_deltas(due, id_=id_, first=not calls_made)
            return
        problem, remaining = due, remaining[1:]
    made = [planned for planned in plan.calls if planned.tool in talk.tools][:calls_made]
    texts = [*_report(talk, made, remaining, missing), problem] if plan.calls else [_answer_text(plan, talk)]
    text = "\n\n".join(filter(None, texts))
    yield from _text_deltas("\n\n".join(filter(None, [text, talk.ending()])))


def _was_refused(results: Iterable[ToolMessage]) -> bool:
    return any(result.outcome in {"denied", "cancelled"} for result in results)


def _call_deltas(planned: PlannedCall, *, id_: str, first: bool) -> Iterator[Delta]:
    yield from _text_deltas(f"{'' if first else 'Next, '}I'll {planned.intent}.")
    arguments = json.dumps(planned.arguments, ensure_ascii=False)
    pieces = _MAX_PAGE_DELTAS if planned.tool == "create_file" else _MAX_CALL_DELTAS
    step = max(8, -(-len(arguments) // pieces))
    yield ToolCallDelta(0, id_, planned.tool, arguments[:step])
    for start in range(step, len(arguments), step):
        yield ToolCallDelta(0, arguments=arguments[start : start + step])


def _thinking_deltas(topic: str) -> Iterator[Delta]:
    about = f" about {topic}" if topic else ""
    text = f"I was asked to think{about}. I am a script, so this thought was written beforehand: look first, then act."
    return (ThinkingDelta(word) for word in _split_words(text))


def _text_deltas(text: str) -> Iterator[Delta]:
    return (TextDelta(word) for word in _split_words(text))


def _split_words(text: str) -> list[str]:
    """Split `text` into words, each with the white space before it; the end of a long text is one piece."""
    words = re.findall(r"\s*+\S+|\s+$", text[:_STREAMED_CHARS])
    return [*words, text[_STREAMED_CHARS:]] if len(text) > _STREAMED_CHARS else words


def _estimate_tokens(messages: Iterable[Message]) -> int:
    """Return a rough count of tokens, four characters each; the demo has no tokenizer."""
    chars = 0
    for message in messages:
        chars += len(message.content)
        if isinstance(message, AssistantMessage):
            chars += sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return -(-chars // 4)


# --- texts of replies ----------------------------------------------------------------------------------------------


def _report(
    talk: DemoConversation,
    made: Sequence[PlannedCall],
    remaining: Sequence[PlannedCall],
    missing: Sequence[PlannedCall],
) -> Iterator[str]:
    """Yield the result of each call, or of the sub-agents, then the planned calls that were not made."""
    endings = talk.subagent_endings
    for index, result in enumerate(talk.results):
        if endings and result.name in {"spawn_subagent", "wait_subagents"}:
            continue
        if result.outcome == "ok" and index < len(made) and (sentence := talk.report(made[index])):
            yield sentence
        elif result.outcome == "ok":
            yield (
                f"`{result.name}` gave:\n\n{_fenced_excerpt(result.content)}"
                if result.content
                else f"`{result.name}` is done."
            )
        else:
            yield f"`{result.name}` {_OUTCOME_TEXTS[result.outcome]}:\n\n{_fenced_excerpt(result.content)}"
    for ending in endings:
        yield f"The sub-agents report:\n\n{_fenced_excerpt(ending)}"
    if remaining:
        yield f"So I did not {_joined_intents(remaining)}."
    for planned in missing:
        yield f"I could not {planned.intent}: that takes the tool `{planned.tool}`, which I was not given."


def _joined_intents(calls: Iterable[PlannedCall]) -> str:
    return " or ".join(planned.intent for planned in calls)


def _fenced_excerpt(content: str) -> str:
    """Return the start of `content` in a code fence longer than any in it, and the number of omitted characters."""
    lines = content[:_QUOTED_CHARS].splitlines()[:_QUOTED_LINES]
    shown = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    left_out = len(content.rstrip()) - len(shown.rstrip())
    more = f"\n({left_out} more characters are in the tool's result.)" if left_out > 0 else ""
    return f"{fence}\n{shown}\n{fence}{more}"


def _shortened_lines(conversation: str) -> str:
    """Return the beginnings of the first and the last lines, in place of a summary."""
    lines = [line.strip()[:_EXTRACTED_CHARS] for line in conversation.splitlines() if line.strip()]
    excerpt = lines if len(lines) <= 8 else [*lines[:3], "…", *lines[-5:]]
    return "\n".join(["The demo model cannot summarise; these are lines of the conversation, shortened:", *excerpt])


def _quoted(words: str) -> str:
    return f"“{words[:_QUOTED_WORDS_CHARS]}{'…' if len(words) > _QUOTED_WORDS_CHARS else ''}”"


def _answer_text(plan: Plan, talk: DemoConversation) -> str:
    match plan.kind:
        case "help":
            return _HELP
        case "count":
            return " ".join(str(number) for number in range(1, int(plan.text) + 1)) or "Nothing to count."
        case "say":
            return plan.text
        case "thought":
            return "I have thought about it; a language model would now have an answer, a script has none."
        case "other":
            noted = talk.noted_line()
            return f"Your notes have this: {noted}." if noted else _UNKNOWN.format(words=_quoted(plan.text))
        case "heard":
            return _HEARD.format(speaker=talk.speaker, words=_quoted(plan.text))
        case "calls":
            return "Done."
        case _:
            assert_never(plan.kind)
