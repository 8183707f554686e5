"""One output item of a Responses reply while it streams: what is known of it, and what is still unsaid."""

from __future__ import annotations

import json
from typing import Any, Literal

from agenticx.llms._json_events import malformed_reply
from agenticx.llms._limits import MAX_ITEMS
from agenticx.llms._values import text_in
from agenticx.llms.base import Delta, ReplySize, TextDelta, ThinkingDelta, ToolCallDelta
from agenticx.llms.openai_responses._parts import Channel, TextPart, iter_texts

__all__ = ["THOUGHT_SEPARATOR", "OutputItem", "State", "is_call"]

THOUGHT_SEPARATOR = ThinkingDelta("\n\n")
"""Stands before each thought; whoever says the first of a reply leaves it out."""

_PART_BYTES = 512  # what a part takes beside its text

State = Literal["open", "arguments_done", "done", "incomplete"]
"""How far an item is. It begins `open`; `told` is a call whose arguments are whole and whose item has not ended. An
item that ended is `ended`, or `cut` where it says that it is not whole. Only calls that are `told` or `ended` run.
"""

_IDENTITY_FIELDS = ("type", "call_id", "name", "arguments", "input", "content", "summary")
"""What tells one item from another, where ids rotate."""


def is_call(item: dict[str, Any]) -> bool:
    """Whether an item calls a tool of ours; xAI reports searches on X, which it runs itself, as custom tool calls."""
    kind = item.get("type")
    return kind == "function_call" or (kind == "custom_tool_call" and not text_in(item, "call_id").startswith("xs_"))


class OutputItem:
    """One item, which begins as `head`, at `index` if that is a number. `call` is its number, None for no call of ours.

    `final` is the item as its end has it, None until then. What its methods return is to be said; they raise
    `ModelError` where the item contradicts itself, in which `who` names the provider, or is too much for `size`.
    """

    def __init__(self, head: dict[str, Any], *, index: object, call: int | None, label: str, size: ReplySize) -> None:
        self.head = head
        self.kind = text_in(head, "type")
        self.id = text_in(head, "id")
        self.call_id = text_in(head, "call_id")
        self.index = index if type(index) is int else None
        self.call = call
        self.state: State = "open"
        self.final: dict[str, Any] | None = None
        self._label = label
        self._size = size
        self._name_sent = self._id_sent = False
        self._parts: dict[tuple[Channel, int], TextPart] = {}
        self._latest: dict[Channel, tuple[int, TextPart]] = {}
        self._alternative_arguments: str | None = None

    @property
    def is_runnable(self) -> bool:
        """Whether it is a call of ours that is whole."""
        return self.call is not None and self.state in ("arguments_done", "done")

    @property
    def streamed_text(self) -> str:
        """All text of it that was said so far."""
        return "".join(part.text for part in self._parts.values())

    def repeats(self, index: object, item: dict[str, Any]) -> bool:
        """Whether `item`, at `index`, is this finished one once more, and not another one that is numbered like it."""
        final = self.final or {}
        if all(final.get(name) == item.get(name) for name in _IDENTITY_FIELDS):
            return True
        moved = type(index) is int and self.index is not None and index != self.index
        ids = ((self.id, text_in(item, "id")), (self.call_id, text_in(item, "call_id")))
        return not moved and any(mine and mine == its for mine, its in ids)

    # --- what events say of it

    def begin(self) -> list[Delta]:
        """The head of a call."""
        return self._emit_identity(self.head, last=False)

    def extend(self, channel: Channel, index: int, text: str) -> list[Delta]:
        """The next piece of a part."""
        if self.call is not None and self.state != "open":
            raise malformed_reply("a tool call goes on behind its end", label=self._label)
        part = self._parts.get((channel, index))
        return self._emit(channel, self._begin_part(channel, index) if part is None else part, text)

    def complete(self, channel: Channel, index: int, whole: str) -> list[Delta]:
        """A whole part."""
        if channel in ("arguments", "input"):
            deltas = self._complete_arguments(channel, whole)
            self.state = "arguments_done" if self.state == "open" else self.state
            return deltas
        part = self._find_part(channel, index, whole)
        part.ended = True
        return self._complete_text(channel, part, whole)

    def close(self, item: dict[str, Any]) -> list[Delta]:
        """The item, finished."""
        again, self.final = self.final is not None, item
        self.id, self.call_id = self.id or text_in(item, "id"), self.call_id or text_in(item, "call_id")
        deltas = [*self._emit_identity(item, last=True), *self._emit_rest(item)]
        if self.kind == "custom_tool_call" and self.call is not None and not again:
            deltas.append(ToolCallDelta(self.call, arguments='"' if self.streamed_text else '""'))
        self.state = "incomplete" if item.get("status") == "incomplete" else "done"
        return deltas

    # --- what is left at the end of the reply

    def reconcile(self, item: dict[str, Any]) -> list[Delta]:
        """The item as the reply lists it in the end; one that is listed as unfinished is as far as events said."""
        if self.final is not None:
            return self._emit_rest(item)
        state = self.state
        deltas = self.close(item)
        self.state = state if item.get("status") == "in_progress" else self.state
        return deltas

    def flush(self) -> list[Delta]:
        """What an item that nothing has ended began with, if nothing was said of it since; it stays unfinished."""
        return self._emit_rest(self.head) if self.final is None and not self.streamed_text else []

    # --- how it is said

    def _emit_identity(self, item: dict[str, Any], *, last: bool) -> list[Delta]:
        """The call's name and id as soon as they are known; the id of the item stands in for none at all."""
        if self.call is None or (self._name_sent and self._id_sent):
            return []
        name = "" if self._name_sent else text_in(item, "name")
        id_ = "" if self._id_sent else text_in(item, "call_id") or (text_in(item, "id") if last else "")
        self._name_sent, self._id_sent = self._name_sent or bool(name), self._id_sent or bool(id_)
        return [ToolCallDelta(self.call, id_, name)]

    def _emit_rest(self, item: dict[str, Any]) -> list[Delta]:
        """What the whole item has beyond what was said."""
        if self.kind == "function_call":
            return self._complete_arguments("arguments", text_in(item, "arguments"))
        if self.kind == "custom_tool_call":
            return self._complete_arguments("input", text_in(item, "input"))
        deltas: list[Delta] = []
        listed: dict[Channel, list[tuple[int, str]]] = {}
        for channel, index, text in iter_texts(item):
            listed.setdefault(channel, []).append((index, text))
        for channel, texts in listed.items():
            for part, text in self._match_parts(channel, texts):
                deltas += self._complete_text(channel, part, text)
        return deltas

    def _complete_arguments(self, channel: Channel, whole: str) -> list[Delta]:
        """What whole arguments have beyond what was said; the same ones may be written in one other way."""
        part = self._parts.get((channel, 0)) or self._begin_part(channel, 0)
        rest = part.remainder(whole)
        if rest is not None and (not rest or not part.size or self.state == "open"):
            return self._emit(channel, part, rest)
        if whole in ("", self._alternative_arguments):
            return []
        if self._alternative_arguments is not None or not (
            part.text.startswith(whole) or _equal_json(part.text, whole)
        ):
            raise malformed_reply("it says twice, and differently, what a tool is called with", label=self._label)
        self._alternative_arguments = whole
        return []

    def _complete_text(self, channel: Channel, part: TextPart, whole: str) -> list[Delta]:
        """What a whole text has beyond what was said; where it begins otherwise, it stays what was shown of it."""
        return self._emit(channel, part, part.remainder(whole) or "")

    def _emit(self, channel: Channel, part: TextPart, text: str) -> list[Delta]:
        if not text:
            return []
        first = not part.size
        part.add(text)
        match channel:
            case "text" | "refusal":
                return [TextDelta(text)]
            case "summary" | "reasoning":
                return [THOUGHT_SEPARATOR, ThinkingDelta(text)] if first else [ThinkingDelta(text)]
            case "input":
                text = _json_string_fragment(text, first=first)
            case "arguments":
                pass
        return [] if self.call is None else [ToolCallDelta(self.call, arguments=text)]

    # --- its parts

    def _begin_part(self, channel: Channel, index: int) -> TextPart:
        if len(self._parts) >= MAX_ITEMS:
            raise malformed_reply(f"an item of it has more than {MAX_ITEMS} parts", label=self._label)
        self._size.keep_bytes(_PART_BYTES)
        part = self._parts[channel, index] = TextPart()
        self._latest[channel] = (index, part)
        return part

    def _find_part(self, channel: Channel, index: int, whole: str) -> TextPart:
        """The part of that index; the latest one if there is none, and that one begins like it and has not ended."""
        if (part := self._parts.get((channel, index))) is not None:
            return part
        latest_index, latest = self._latest.get(channel, (index, None))
        if latest is None or latest.ended or latest.remainder(whole) is None:
            return self._begin_part(channel, index)
        self._parts[channel, index] = self._parts.pop((channel, latest_index))
        self._latest[channel] = (index, latest)
        return latest

    def _match_parts(self, channel: Channel, texts: list[tuple[int, str]]) -> list[tuple[TextPart, str]]:
        """Each text of the whole item with its part: by index, or in order where the item counts otherwise."""
        seen = sorted(index for of, index in self._parts if of == channel)
        if set(seen) <= {index for index, _ in texts}:
            indexes = [index for index, _ in texts]
        else:
            last = seen[-1]
            indexes = [*seen, *(last + 1 + more for more in range(len(texts) - len(seen)))]
        parts = (self._parts.get((channel, place)) or self._begin_part(channel, place) for place in indexes)
        return [(part, text) for part, (_, text) in zip(parts, texts, strict=False)]


def _json_string_fragment(text: str, *, first: bool) -> str:
    """A piece of an input as it stands in the JSON text of a string, so that arguments are always JSON."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted[:-1] if first else quoted[1:-1]


def _equal_json(left: str, right: str) -> bool:
    try:
        return json.loads(left) == json.loads(right)
    except (ValueError, RecursionError):
        return False
