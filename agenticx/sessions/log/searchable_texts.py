"""The texts of a session that a search can find."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from agenticx.messages import AssistantMessage, Message, ToolMessage, UserMessage, clean_text

__all__ = ["Role", "SearchableText", "answer_text", "reply_text", "searchable_texts"]

Role = Literal["name", "user", "assistant"]

_ASKING_TOOL = "ask_user"
_WITHOUT_ANSWER = "No answer: "  # begins the result of a question that the user did not answer


@dataclass(frozen=True, slots=True)
class SearchableText:
    """A text that a search can find: a message of the user or of the model, or the session's name, which has no id.

    A message of the model has the questions that it asks the user; their answers are texts of the user.
    """

    message_id: str | None
    role: Role
    text: str


def searchable_texts(messages: Sequence[Message]) -> list[SearchableText]:
    """Return the texts of the messages that a search can find.

    Of the results of tools these are the answers to questions; messages that the engine added have none. Ids are those
    of the transcript: it names a reply without a text by its first call, and a result by its call.
    """
    texts: list[SearchableText] = []
    for message in messages:
        match message:
            case UserMessage() if not message.injected and message.content:
                texts.append(SearchableText(message.message_id, "user", clean_text(message.content)))
            case AssistantMessage(tool_calls=calls):
                text = reply_text(message.content, ((call.name, call.arguments) for call in calls))
                id_ = message.message_id if message.content else f"calls_{calls[0].id}" if calls else ""
                if text:
                    texts.append(SearchableText(id_, "assistant", clean_text(text)))
            case ToolMessage():
                if text := answer_text(message.name, message.content, message.outcome):
                    texts.append(SearchableText(f"result_{message.tool_call_id}", "user", clean_text(text)))
            case _:
                pass
    return texts


def reply_text(content: str, calls: Iterable[tuple[str, object]]) -> str:
    """Return the text of a reply with the questions among its calls, given as names and arguments."""
    questions = (_question(arguments) for name, arguments in calls if name == _ASKING_TOOL)
    return "\n\n".join(text for text in (content, *questions) if text)


def answer_text(tool: str, result: str, outcome: str) -> str:
    """Return the answer of the user that is the result of a call, "" if it is none."""
    is_answer = tool == _ASKING_TOOL and outcome == "ok" and not result.startswith(_WITHOUT_ANSWER)
    return result if is_answer else ""


def _question(arguments: object) -> str:
    """Return the question and the options in the arguments of a call, as an object or its JSON text."""
    try:
        given: object = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):  # of a call that was refused
        return ""
    if not isinstance(given, Mapping):
        return ""
    fields = cast("Mapping[str, object]", given)
    options = fields.get("options")
    texts = [fields.get("text"), *(cast("list[object]", options) if isinstance(options, list) else ())]
    return "\n".join(text for text in texts if isinstance(text, str))
