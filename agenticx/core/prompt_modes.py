"""The mode of a prompt: chat (general knowledge), vault (the person's notes) or agent (work).

A mode is a hint, never a lock: tools and system prompt are the same in all three. Only rules decide, no model; their
words are in `config/modes.toml`. In doubt the mode is agent, which can do everything that the others can.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from agenticx.knowledge.words import find_tags
from agenticx.settings import config_text
from agenticx.tools.patterns import LinearPattern, compile_pattern

__all__ = ["Mode", "ModeKind", "detect_mode"]

ModeKind = Literal["chat", "vault", "agent"]

_MAX_CHARS = 2_000  # of a prompt that are looked at: its beginning and its end
_QUOTED = re.compile(
    r'"[^"\n]{1,500}"|“[^”\n]{1,500}”|„[^“”\n]{1,500}[“”]|«[^»\n]{1,500}»|「[^」\n]{1,500}」|`[^`\n]{1,500}`'
)
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*")
_NEEDS_TOOLS = "it needs files, programs or the present"
_MENTION = re.compile(r"(?<!\S)@(\w+)")
_AT_START = re.compile(r"^(?:@\w+ )+")
_NOTE_MARK = re.compile(r"\[\[[^\[\]\n]+\]\]")


@dataclass(frozen=True, slots=True)
class Mode:
    """The mode of a prompt with its reason, a sentence; `certain` is False if a general rule decided."""

    kind: ModeKind
    reason: str
    certain: bool


def detect_mode(
    text: str, *, vaults: bool, tools: Collection[str], mentions: Sequence[str] = (), previous: Mode | None = None
) -> Mode:
    """Return the mode of a prompt, in less than a millisecond after the first call.

    `vaults` says that the session has notes, `tools` are the names of its tools. `mentions` are words that the person
    gave with "@" in another way than in the text; `previous` is the mode of the turn before, which a prompt such as
    "continue" keeps. Without vaults no prompt has the mode vault, without tools none has the mode agent.
    """
    mode = _detect(
        text, {*_MENTION.findall(text.lower()), *(mention.lstrip("@").lower() for mention in mentions)}, previous
    )
    if mode.kind == "vault" and not vaults:
        return Mode("agent" if tools else "chat", f"{mode.reason}, but there is no vault", False)
    if mode.kind == "agent" and not tools:
        return Mode("chat", f"{mode.reason}, but there are no tools", False)
    return mode


def _detect(text: str, mentions: Collection[str], previous: Mode | None) -> Mode:
    words = _words(text)
    orders = _AT_START.sub("", words)
    sentences = [sentence.strip() for sentence in _SENTENCE_END.split(orders) if sentence.strip()] or [words]
    if "web" in mentions:
        return Mode("agent", "it mentions @web", True)
    if len(words) <= 80 and _matches("go_on", words.rstrip(".!?。！？"), whole=True):
        return Mode(
            "agent" if previous is None else previous.kind, "it goes on with what was said before", previous is None
        )
    names_files = _matches("files", words)
    if _matches("compose", orders) and not names_files:
        return Mode("chat", "it asks for a text", True)
    of_notes = "vault" in mentions or _NOTE_MARK.search(words) is not None or find_tags(words) != []
    names_notes = _matches("own_notes", words)
    if _matches("on_the_web", orders) or any(map(_orders_more, sentences)):
        return Mode("agent", "it is an order", True)
    is_order = any(_matches("order", sentence) for sentence in sentences)
    only_looks = all(_matches("look_up", sentence) for sentence in sentences if _matches("order", sentence))
    if is_order and not (only_looks and (of_notes or names_notes) and not names_files):
        return Mode("agent", "it is an order", True)
    if of_notes or names_notes:
        return Mode("vault", "it names notes or tags" if of_notes else "it asks about your notes", True)
    if names_files:
        return Mode("agent", _NEEDS_TOOLS, True)
    rules: tuple[tuple[str, str, Mode], ...] = (
        ("needs_tools", words, Mode("agent", _NEEDS_TOOLS, True)),
        ("own_writing", words, Mode("vault", "it asks what the person wrote", True)),
        ("small_talk", words, Mode("chat", "it is small talk", True)),
        ("knowledge", sentences[-1], Mode("chat", "it is a question of general knowledge", False)),
    )
    found = (mode for group, looked_at, mode in rules if _matches(group, looked_at))
    return next(found, Mode("agent", "nothing says otherwise", False))


def _orders_more(sentence: str) -> bool:
    """Return whether a sentence that begins with an order, for example to look something up, orders a change too."""
    begins = _matches("order", sentence) or _matches("look_up", sentence)
    return begins and _matches("further_order", sentence) and not _matches("instructions", sentence)


def _words(text: str) -> str:
    """Return the text for the rules: beginning and end, in lower case, on one line, quoted text blanked."""
    if len(text) > _MAX_CHARS:
        text = f"{text[: _MAX_CHARS // 2]} {text[-_MAX_CHARS // 2 :]}"
    return " ".join(_QUOTED.sub('""', text).replace("’", "'").lower().split())


@cache
def _patterns(group: str) -> tuple[LinearPattern, ...]:
    expressions: list[str] = tomllib.loads(config_text("modes.toml"))[group]
    return tuple(map(compile_pattern, expressions))


@cache
def _whole_patterns(group: str) -> tuple[LinearPattern, ...]:
    expressions: list[str] = tomllib.loads(config_text("modes.toml"))[group]
    return tuple(compile_pattern(f"^(?:{expression})$") for expression in expressions)


def _matches(group: str, text: str, *, whole: bool = False) -> bool:
    patterns = _whole_patterns(group) if whole else _patterns(group)
    return any(pattern.found_in(text) for pattern in patterns)
