"""The context envelope: what a model is given for a turn, in five layers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from agenticx.knowledge.parsing import Passage
from agenticx.knowledge.passages import CITING, numbered_passages, shown_numbers, shown_passage
from agenticx.messages import AssistantMessage, Message, UserMessage
from agenticx.tools.context import ToolState

__all__ = ["NOTES_HEAD", "ContextEnvelope", "GivenPassage", "LayerSize", "standing_context"]

_MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class GivenPassage:
    """A passage with its number in the session; if it is `known`, the conversation has its text and it is only named.

    `vault_name` is None if the session has one vault.
    """

    number: int
    passage: Passage
    vault_name: str | None = None
    known: bool = False


NOTES_HEAD = "[notes]"
"""The beginning of the message with the notes of a turn."""


@dataclass(frozen=True, slots=True)
class LayerSize:
    """The size of a layer in characters, and the SHA-256 of its text."""

    layer: str
    characters: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEnvelope:
    """The context of a turn: L1 `system`, L2 `notes` that are pinned, L3 `smart` passages, L4 `history`, L5 `raw`.

    `left_out` names passages that did not fit, and `remarks` are sentences about the notes. `raw` is the person's
    message, byte for byte.
    """

    system: str = ""
    notes: Sequence[GivenPassage] = ()
    smart: Sequence[GivenPassage] = ()
    history: Sequence[Message] = ()
    raw: UserMessage | None = None
    left_out: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def notes_message(self) -> UserMessage | None:
        """Return the message with the passages of L2 and L3, None if there is nothing to say."""
        given = [*self.notes, *self.smart]
        parts = [shown_passage(one.number, one.passage, one.vault_name) for one in given if not one.known]
        if known := [f"passage {one.number}" for one in given if one.known]:
            parts.append(f"You have these already: {', '.join(known)}.")
        if self.left_out:
            more = ", …" if len(self.left_out) > _MAX_NAMED else ""
            parts.append(f"Left out for want of room: {', '.join(self.left_out[:_MAX_NAMED])}{more}.")
        parts += self.remarks
        if not parts:
            return None
        if given:
            parts.append(CITING)
        sources = tuple(dict.fromkeys(one.passage.path for one in given if not one.known))
        head = f"{NOTES_HEAD} From the user's notes:" if given else NOTES_HEAD
        return UserMessage(content="\n\n".join([head, *parts]), injected=True, sources=sources)

    def sizes(self) -> list[LayerSize]:
        """Return the sizes of the layers, by which a large prompt is explained."""
        texts = {
            "L1 System": self.system,
            "L2 Notes": "".join(one.passage.text for one in self.notes if not one.known),
            "L3 Smart": "".join(one.passage.text for one in self.smart if not one.known),
            "L4 History": "".join(map(_message_text, self.history)),
            "L5 Raw": "" if self.raw is None else self.raw.content,
        }
        return [LayerSize(layer, len(text), _sha256(text)) for layer, text in texts.items()]


def standing_context(system: str, messages: Sequence[Message], state: ToolState) -> ContextEnvelope:
    """Return the context of a session between turns: its history, and apart from it the passages of notes.

    A passage in a message is in L2 if its note is pinned, else in L3; L5 is empty.
    """
    given: dict[int, GivenPassage] = {}
    history: list[Message] = []
    numbered = numbered_passages(state)
    for message in messages:
        if not (isinstance(message, UserMessage) and message.injected and message.sources):
            history.append(message)
            continue
        for number in shown_numbers(message.content):
            if number in numbered:
                given[number] = GivenPassage(number, numbered[number].passage)
    pinned = {number for number in given if state.passages[number - 1].get("pinned")}
    return ContextEnvelope(
        system=system,
        notes=[one for number, one in given.items() if number in pinned],
        smart=[one for number, one in given.items() if number not in pinned],
        history=history,
    )


def _message_text(message: Message) -> str:
    """Return the text of a message, with the arguments of its calls."""
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return message.content + "".join(call.arguments for call in calls)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
