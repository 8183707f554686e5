"""Requests at the terminal: confirmations and questions of agents are shown, and the answers are sent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, Protocol

from agenticx.cli.terminal.argument_editor import EditFailed, EditText, edit_arguments
from agenticx.cli.terminal.event_text import ALLOWED_BY_YES, ALLOWED_KIND, NO_TERMINAL, Note
from agenticx.cli.terminal.keyboard import PASTE_END, Keyboard, strip_paste_marks
from agenticx.cli.terminal.output import Output
from agenticx.errors import AgenticXError
from agenticx.runtime.gates.terminal import discard_typed_ahead
from agenticx.runtime.user_requests.kinds import CONFIRMATION, RequestKind
from agenticx.runtime.user_requests.request_text import parse_choice
from agenticx.runtime.user_requests.requests import ConfirmAnswer, QuestionAnswer, UserAnswer
from agenticx.threads import run_in_thread
from agenticx.tools.visible import visible_line

__all__ = [
    "AutomaticResponder",
    "CallKind",
    "NullResponder",
    "RequestResponder",
    "SendAnswer",
    "TerminalResponder",
    "automatic_answer",
    "can_prompt",
    "parse_answer",
    "read_line",
]

SendAnswer = Callable[[str, UserAnswer, str], Awaitable[None]]
"""Send the answer to the request of that id, with the digest of a confirmation, else ""; see `Client.answer`."""

CallKind = tuple[str, ...]
"""A kind of call that the user allowed for a session, as `_call_kind` returns it."""

_ASK_AGAIN = "y, s, n [reason] or e (Enter: no): "
_CONTENT_TOOLS = frozenset({"file_write", "file_edit"})
_MAX_REASON_CHARS = 2_000
_PASTE_PAUSE_SECONDS = 0.5


def can_prompt() -> bool:
    """Return whether a user can read a request (stderr) and answer it (stdin)."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def automatic_answer(*, yes: bool) -> ConfirmAnswer | None:
    """Return the answer to all confirmations if no user is asked: yes with `--yes`, no without a terminal, or None."""
    if yes:
        return ConfirmAnswer(approved=True, by="policy")
    if can_prompt():
        return None
    return ConfirmAnswer(approved=False, by="policy", reason=NO_TERMINAL)


class RequestResponder(Protocol):
    """A responder to a turn's requests, called in the order of the events."""

    def on_asked(self, kind: RequestKind[Any, Any], data: Mapping[str, Any]) -> None:
        """Handle the payload of the event that asks a request of that kind."""
        ...

    def on_closed(self, request_id: str) -> None:
        """Handle the end of that request, with any answer, from any client."""
        ...

    async def aclose(self) -> None:
        """Close all requests, because the turn is not followed any more; none is shown or answered afterwards."""
        ...


class NullResponder:
    """A responder that ignores requests, because a policy where the turn runs answers them."""

    def on_asked(self, kind: RequestKind[Any, Any], data: Mapping[str, Any]) -> None:
        return

    def on_closed(self, request_id: str) -> None:
        return

    async def aclose(self) -> None:
        return


class AutomaticResponder:
    """A responder that gives each confirmation the same answer at once; its reason shows that no user gave it.

    Questions of agents have no answer.
    """

    def __init__(self, send_answer: SendAnswer, answer: ConfirmAnswer) -> None:
        self._send_answer = send_answer
        self._answer = answer if answer.reason is not None else replace(answer, reason=ALLOWED_BY_YES)
        self._tasks: set[asyncio.Task[None]] = set()

    def on_asked(self, kind: RequestKind[Any, Any], data: Mapping[str, Any]) -> None:
        answer = self._answer if kind is CONFIRMATION else kind.no_answer("policy")
        task = asyncio.create_task(_send(self._send_answer, data, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_closed(self, request_id: str) -> None:
        return

    async def aclose(self) -> None:
        await _cancel(self._tasks)


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel these tasks, and wait until they have ended."""
    if open_tasks := [task for task in tasks if not task.done()]:
        for task in open_tasks:
            if not task.cancelling():  # a second request would cut short the end of an editor
                task.cancel()
        await asyncio.wait(open_tasks)


async def _send(send_answer: SendAnswer, data: Mapping[str, Any], answer: UserAnswer) -> None:
    """Send the answer to the request of an asking event's payload."""
    with suppress(AgenticXError):  # another client answered first, or while the user typed; that answer counts
        await send_answer(data["id"], answer, data.get("digest", ""))


class TerminalResponder:
    """A responder that shows each request at the terminal and sends the answer that the user types.

    A request is shown when its event arrives, so never before the events that led to it. Only a line typed after its
    request counts: earlier input is discarded, and a request that is closed otherwise (expired, stopped, answered in
    another window) stops reading. Concurrent requests are shown one after the other. A call of a kind in `allowed` is
    approved without asking.
    """

    def __init__(
        self,
        send_answer: SendAnswer,
        output: Output,
        keyboard: Keyboard,
        *,
        edit_text: EditText,
        allowed: set[CallKind],
    ) -> None:
        self._send_answer = send_answer
        self._output = output
        self._keyboard = keyboard
        self._edit_text = edit_text
        self._allowed = allowed
        self._prompt_lock = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def on_asked(self, kind: RequestKind[Any, Any], data: Mapping[str, Any]) -> None:
        ask = self._ask_to_confirm if kind is CONFIRMATION else self._ask_question
        self._tasks[data["id"]] = asyncio.create_task(self._ask(ask, data))

    def on_closed(self, request_id: str) -> None:
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()

    async def aclose(self) -> None:
        await _cancel(self._tasks.values())
        self._output.prompts_closed()

    async def _ask(self, ask: Callable[[Mapping[str, Any]], Awaitable[UserAnswer]], data: Mapping[str, Any]) -> None:
        async with self._prompt_lock:
            answer = await ask(data)
        await _send(self._send_answer, data, answer)

    async def _ask_to_confirm(self, data: Mapping[str, Any]) -> ConfirmAnswer:
        kind = _call_kind(data["context"])
        if kind in self._allowed:
            return ConfirmAnswer(approved=True, reason=ALLOWED_KIND)
        with self._keyboard.read_lines() as is_pasting:
            answer = await self._read_answer(data, is_pasting=is_pasting)
        if kind is not None and answer.approved and answer.remember == "session":
            self._allowed.add(kind)
        return answer

    async def _ask_question(self, data: Mapping[str, Any]) -> QuestionAnswer:
        with self._keyboard.read_lines() as is_pasting:
            return QuestionAnswer(answer=await self._read_text(data, is_pasting=is_pasting))

    async def _read_text(self, data: Mapping[str, Any], *, is_pasting: bool) -> str:
        """Show a question of the agent and return the line that the user types, "" at end of input.

        The rest of a paste is no answer.
        """
        options = data.get("options", ())
        prompt = f"Your answer{f', or 1 to {len(options)}' if options else ''} (Ctrl-D: none): "
        self._output.show_request(data, prompt)
        while line := await (_read_paste() if is_pasting else read_line()):
            self._output.prompt_answered(line)
            text = None if is_pasting else strip_paste_marks(line)
            if answer := parse_choice(_printable(text or ""), options):
                return answer
            is_pasting = False
            discard_typed_ahead()
            self._output.show_prompt(prompt)
        self._output.prompt_answered(line)
        return ""

    async def _read_answer(self, data: Mapping[str, Any], *, is_pasting: bool) -> ConfirmAnswer:
        """Show the confirmation, and read lines until one of them is an answer; the rest of a paste is none."""
        self._output.show_request(data, _prompt(data["context"]))
        draft: str | None = None
        while True:
            line = await (_read_paste() if is_pasting else read_line())
            self._output.prompt_answered(line)
            text = None if is_pasting else strip_paste_marks(line)
            answer, is_pasting = None if text is None else parse_answer(text), False
            if answer == "edit":
                answer, draft = await self._edit(data["context"].get("arguments", {}), draft)
            elif answer is None:
                self._output.show_note(Note(_answers_help(data["context"])))
            if answer is not None:
                return answer
            discard_typed_ahead()
            self._output.show_prompt(_ASK_AGAIN)

    async def _edit(self, arguments: Mapping[str, Any], draft: str | None) -> tuple[ConfirmAnswer | None, str | None]:
        """Return the answer with the edited arguments, or None and the draft for the next edit."""
        try:
            edited = await edit_arguments(arguments, self._edit_text, draft=draft)
        except EditFailed as exc:
            draft = exc.text or draft
            kept = "y runs the call as shown" if draft is None else "e goes on with your text, y runs the call as shown"
            self._output.show_note(Note(f"{visible_line(str(exc))}; {kept}", "bad"))
            return None, draft
        if edited is None:
            self._output.show_note(Note("the arguments are unchanged"))
            return None, draft
        return ConfirmAnswer(approved=True, arguments=edited), None


def parse_answer(line: str) -> ConfirmAnswer | Literal["edit"] | None:
    """Return the answer in a line that the user typed, None if it is none; an empty line and end of input are no.

    >>> parse_answer("n not this file").reason
    'not this file'
    """
    word, _, rest = line.strip().partition(" ")
    reason = _printable(rest)[:_MAX_REASON_CHARS]
    match word.lower(), reason:
        case ("n" | "no", _):
            return ConfirmAnswer(approved=False, reason=reason or None)
        case ("", ""):
            return ConfirmAnswer(approved=False)
        case ("y" | "yes", ""):
            return ConfirmAnswer(approved=True)
        case ("s" | "session", ""):
            return ConfirmAnswer(approved=True, remember="session")
        case ("e" | "edit", ""):
            return "edit"
        case _:
            return None


def _printable(text: str) -> str:
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def _prompt(context: Mapping[str, Any]) -> str:
    if _is_asked_each_time(context):
        return "Allow this? [y]es, [n]o [reason], [e]dit: "
    kind = _call_kind(context)
    same = "exactly this call" if kind is None else f"{kind[0]} of this file"
    return f"Allow this? [y]es, [s]ession ({same}), [n]o [reason], [e]dit: "


def _answers_help(context: Mapping[str, Any]) -> str:
    """Return what each answer does; a user reads it after a line that is none, such as `?`."""
    kind = _call_kind(context)
    session = "run it, and in this session ask no more about the same call with the same arguments"
    if _is_asked_each_time(context):
        session = "as y, because this is asked about each time"
    elif kind is not None:
        session += f"; until this agx ends, not about {kind[0]} of this file with other content either"
    return (
        "  y           run this call\n"
        f"  s           {session}\n"
        "  n [reason]  do not run it, and tell the model the reason\n"
        "  e           edit the arguments, and run it with the new ones"
    )


def _is_asked_each_time(context: Mapping[str, Any]) -> bool:
    return context.get("decided_by") == "remembers"


def _call_kind(context: Mapping[str, Any]) -> CallKind | None:
    """Return the kind of a call that changes the content of one unprotected file: tool and path; None for other calls.

    For those the gate remembers the same call, with all that it depends on (`remember="session"`).
    """
    tool, path = context.get("tool"), context.get("arguments", {}).get("path")
    if tool not in _CONTENT_TOOLS or context.get("risk") != "write" or not isinstance(path, str):
        return None
    if context.get("decided_by") in ("protected", "unchecked"):
        return None
    return (tool, path, str(context.get("path")))


async def _read_paste() -> str:
    """Return the last line of a paste: the line with the end mark, or the last line before a pause."""
    line = await read_line()
    with suppress(TimeoutError):
        while line and PASTE_END not in line:
            async with asyncio.timeout(_PASTE_PAUSE_SECONDS):
                line = await read_line()
    return line


async def read_line() -> str:
    """Return the next line typed at the terminal, "" at end of input; cancelling the call consumes no input."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    descriptor = sys.stdin.fileno()
    try:
        loop.add_reader(descriptor, lambda: readable.done() or readable.set_result(None))
    except NotImplementedError:  # Windows: a thread; it outlives a cancelled call until a line is typed
        return await run_in_thread(sys.stdin.readline, name="agx-confirm")
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    try:
        return os.read(descriptor, 4096).decode(errors="replace")  # a terminal returns one line per read
    except OSError:  # it was closed
        return ""
