"""The completions at the prompt of `agx chat`: commands and their arguments, and paths anywhere."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import get_args

from agenticx.cli.client.base import SessionInfo
from agenticx.cli.commands.completion_values import catalogue_models, values_of
from agenticx.cli.commands.rewinding import user_messages
from agenticx.cli.terminal.conversation import TerminalConversation
from agenticx.cli.terminal.event_text import one_line
from agenticx.cli.terminal.line_editor import Suggestion
from agenticx.errors import AgenticXError
from agenticx.messages import MAIN_AGENT
from agenticx.permissions.rules import Rule
from agenticx.permissions.verdict import PermissionMode
from agenticx.tools.visible import visible_line

__all__ = ["ChatSuggestions"]

_MAX_ENTRIES = 10_000  # of a folder that are looked at
_MAX_SUGGESTIONS = 200
_MAX_SESSIONS = 30
_MAX_MESSAGES = 30
_NAME_CHARS = 40
_MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]*)|(?P<plain>[^\s"]*))$')


class ChatSuggestions:
    """The completions of a chat.

    The names of models and sessions, the user's messages and rules are requested when a command that takes one is typed
    (`prepare`); until they arrive, models are completed from the catalogue.
    """

    def __init__(self, conversation: TerminalConversation, commands: Sequence[str]) -> None:
        self._conversation = conversation
        self._commands = commands
        self._models: Sequence[str] = ()
        self._sessions: Sequence[SessionInfo] = ()
        self._messages: Sequence[str] = ()
        self._rules: Sequence[Rule] = ()
        self._request: asyncio.Task[None] | None = None

    def prepare(self, text: str) -> None:
        """Request the names that the beginning of a command will need."""
        if not text.startswith(("/model", "/open", "/rewind", "/permissions")) or not (
            self._request is None or self._request.done()
        ):
            return
        if text.startswith("/model") and not self._models:
            self._models = catalogue_models()
            self._request = asyncio.get_running_loop().create_task(self._fetch_models())
        elif text == "/open":
            self._request = asyncio.get_running_loop().create_task(self._fetch_sessions())
        elif text == "/rewind":
            self._request = asyncio.get_running_loop().create_task(self._fetch_messages())
        elif text == "/permissions":
            self._request = asyncio.get_running_loop().create_task(self._fetch_rules())

    async def _fetch_models(self) -> None:
        with suppress(AgenticXError):
            self._models = list(dict.fromkeys([*await self._conversation.models(), *self._models]))

    async def _fetch_sessions(self) -> None:
        with suppress(AgenticXError):
            self._sessions = await self._conversation.client.list_sessions(limit=_MAX_SESSIONS)

    async def _fetch_rules(self) -> None:
        self._rules = ()
        with suppress(AgenticXError):
            self._rules = await self._conversation.rules()

    async def _fetch_messages(self) -> None:
        session, self._messages = self._conversation.session, ()
        if session is not None:
            with suppress(AgenticXError):
                self._messages = await user_messages(self._conversation.client, session)

    def suggest(self, before: str) -> Iterator[Suggestion]:
        """Yield the completions of the text before the cursor; each replaces its last part."""
        word, space, rest = before.partition(" ")
        if (mention := _MENTION.search(before)) is not None and not _is_command(before):
            yield from _mentions(mention["quoted"] or mention["plain"] or "", mention[0], self._conversation.workspace)
        elif not _is_command(before):
            yield from _paths(before[_start_of_word(before) :], self._conversation.workspace)
        elif not space:
            yield from _matching((f"/{command}" for command in self._commands), word)
        else:
            yield from self._arguments(word, rest.lstrip())

    def _arguments(self, command: str, typed: str) -> Iterator[Suggestion]:
        match command:
            case "/mode" | "/model" | "/agent" | "/team":
                yield from _matching(self._names(command), typed)
            case "/open":
                for session in self._sessions:
                    if session.id.startswith(typed):
                        label = f"{session.id} {visible_line(session.record.name or '', _NAME_CHARS)}"
                        yield Suggestion(session.id, len(typed), label)
            case "/rewind":
                for number, text in enumerate(reversed(self._messages[-_MAX_MESSAGES:]), 1):
                    if str(number).startswith(typed):
                        yield Suggestion(str(number), len(typed), f"{number} {one_line(text, _NAME_CHARS)}")
                yield from _matching(["undo"], typed)
            case "/permissions":
                yield from self._rule_arguments(typed)
            case "/attach" | "/export":
                yield from _paths(typed, Path.cwd())
            case _:
                return

    def _rule_arguments(self, typed: str) -> Iterator[Suggestion]:
        action, space, beginning = typed.partition(" ")
        if not space:
            yield from _matching(["remove"], typed)
        elif action == "remove":
            for rule in self._rules:
                if rule.id.startswith(beginning):
                    label = f"{rule.id} {visible_line(str(rule), _NAME_CHARS)}"
                    yield Suggestion(rule.id, len(beginning), label)

    def _names(self, command: str) -> Sequence[str]:
        """Return the names that `/mode`, `/model`, `/team` or `/agent` takes."""
        match command:
            case "/mode":
                return get_args(PermissionMode)
            case "/model":
                return self._models
            case "/team":
                return values_of("team")
            case _:
                return (MAIN_AGENT,)


def _paths(typed: str, folder: Path) -> Iterator[Suggestion]:
    """Yield the files and folders whose paths begin with `typed` and whose names are printable."""
    parent, slash, beginning = typed.rpartition("/")
    directory = folder / Path(f"{parent}{slash}").expanduser() if slash else folder
    try:
        with os.scandir(directory) as entries:
            found = [
                (entry.name, entry.is_dir())
                for entry in islice(entries, _MAX_ENTRIES)
                if entry.name.startswith(beginning)
                and (beginning or not entry.name.startswith("."))
                and entry.name.isprintable()
            ]
    except (OSError, RuntimeError):  # no such folder; an unknown user's home
        return
    for name, is_folder in sorted(found)[:_MAX_SUGGESTIONS]:
        yield Suggestion(name + "/" * is_folder, len(beginning))


def _mentions(typed: str, mention: str, folder: Path) -> Iterator[Suggestion]:
    """Yield the completions of a mention such as `@src/a` or `@"src/a`: quoted from the `@` on if a path has blanks."""
    for found in _paths(typed, folder):
        path = typed[: len(typed) - found.replaced] + found.text
        if '"' in mention or " " in path:
            yield Suggestion(f'@"{path}' + '"' * (not path.endswith("/")), len(mention), found.text)
        else:
            yield found


def _is_command(text: str) -> bool:
    return text.startswith("/") and not text.startswith("//") and "\n" not in text


def _matching(candidates: Iterator[str] | Sequence[str], typed: str) -> Iterator[Suggestion]:
    return (Suggestion(text, len(typed)) for text in candidates if text.startswith(typed) and text.isprintable())


def _start_of_word(text: str) -> int:
    return max(text.rfind(blank) for blank in " \t\n\"'`(@") + 1
