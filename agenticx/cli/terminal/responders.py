"""Requests at the terminal: confirmations and questions of agents are shown, and the answers are sent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from agenticx.cli.terminal.argument_editor import EditFailed, EditText, edit_arguments
from agenticx.cli.terminal.event_text import ALLOWED_BY_YES, NO_TERMINAL, Note, kinds_of
from agenticx.cli.terminal.keyboard import PASTE_END, Keyboard, strip_paste_marks
from agenticx.cli.terminal.output import Output
from agenticx.errors import AgenticXError
from agenticx.permissions.rules import Rule
from agenticx.runtime.gates.terminal import discard_typed_ahead, has_typed_more
from agenticx.runtime.user_requests.kinds import CONFIRMATION, RequestKind
from agenticx.runtime.user_requests.request_text import parse_choice
from agenticx.runtime.user_requests.requests import ConfirmAnswer, QuestionAnswer, UserAnswer
from agenticx.threads import run_in_thread
from agenticx.tools.visible import visible_line

__all__ = [
    "AutomaticResponder",
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
    another window) stops reading. Concurrent requests are shown one after the other, each within `free_terminal`, which
    takes a prompt off the screen; it may end a request without an answer. The user's editor runs within `hold_log`.
    """

    def __init__(
        self,
        send_answer: SendAnswer,
        output: Output,
        keyboard: Keyboard,
        *,
        edit_text: EditText,
        free_terminal: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        hold_log: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._send_answer = send_answer
        self._output = output
        self._keyboard = keyboard
        self._edit_text = edit_text
        self._free_terminal = free_terminal
        self._hold_log = hold_log
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
        answers: list[UserAnswer] = []
        async with self._prompt_lock, self._free_terminal():
            answers.append(await ask(data))
        for answer in answers:  # none if the user ended the request
            await _send(self._send_answer, data, answer)

    async def _ask_to_confirm(self, data: Mapping[str, Any]) -> ConfirmAnswer:
        with self._keyboard.read_lines() as is_pasting:
            return await self._read_answer(data, is_pasting=is_pasting)

    async def _ask_question(self, data: Mapping[str, Any]) -> QuestionAnswer:
        with self._keyboard.read_lines() as is_pasting:
            return QuestionAnswer(answer=await self._read_text(data, is_pasting=is_pasting))

    async def _read_text(self, data: Mapping[str, Any], *, is_pasting: bool) -> str:
        """Show a question of the agent and return the line that the user types, "" at end of input.

        The rest of a paste is no answer; all lines of one are.
        """
        options = data.get("options", ())
        prompt = f"Your answer{f', or 1 to {len(options)}' if options else ''} (Ctrl-D: none): "
        self._output.show_request(data, prompt)
        while line := await (_read_paste() if is_pasting else read_line()):
            self._output.prompt_answered(line)
            while not is_pasting and has_typed_more():
                line += await read_line()
            text = None if is_pasting else strip_paste_marks(line)
            if answer := parse_choice(_printable(text or ""), options):
                return answer
            is_pasting = False
            discard_typed_ahead()
            self._output.show_prompt(prompt)
        self._output.prompt_answered(line)
        return ""

    async def _read_answer(self, data: Mapping[str, Any], *, is_pasting: bool) -> ConfirmAnswer:
        """Show the confirmation, and read lines until one of them is an answer.

        The rest of a paste is none, and no line of a paste of several lines.
        """
        context = data["context"]
        self._output.show_request(data, _prompt(context))
        draft: str | None = None
        while True:
            line = await (_read_paste() if is_pasting else read_line())
            self._output.prompt_answered(line)
            text = None if is_pasting or has_typed_more() else strip_paste_marks(line)
            answer, is_pasting = None if text is None else parse_answer(text, context), False
            if answer == "edit":
                answer, draft = await self._edit(context.get("arguments", {}), draft)
            elif answer is None:
                self._output.show_note(Note(_answers_help(context)))
            if answer is not None:
                return answer
            discard_typed_ahead()
            self._output.show_prompt(f"{', '.join(('y', *_remembering(context)))}, n [reason] or e (Enter: no): ")

    async def _edit(self, arguments: Mapping[str, Any], draft: str | None) -> tuple[ConfirmAnswer | None, str | None]:
        """Return the answer with the edited arguments, or None and the draft for the next edit."""
        try:
            edited = await edit_arguments(arguments, self._edit_text, draft=draft, hold_log=self._hold_log)
        except EditFailed as exc:
            draft = exc.text or draft
            kept = "y runs the call as shown" if draft is None else "e goes on with your text, y runs the call as shown"
            self._output.show_note(Note(f"{visible_line(str(exc))}; {kept}", "bad"))
            return None, draft
        if edited is None:
            self._output.show_note(Note("the arguments are unchanged"))
            return None, draft
        return ConfirmAnswer(approved=True, arguments=edited), None


def parse_answer(line: str, context: Mapping[str, Any]) -> ConfirmAnswer | Literal["edit"] | None:
    """Return the answer in a line that the user typed, None if it is none; an empty line and end of input are no.

    `context` is that of the confirmation: where nothing can be remembered, only yes, no and edit are answers.

    >>> parse_answer("n not this file", {}).reason
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
        case ("e" | "edit", ""):
            return "edit"
        case ("s" | "session", "") if kinds_of(context):
            return ConfirmAnswer(approved=True, remember="session")
        case ("a" | "always", "") if kinds_of(context):
            return ConfirmAnswer(approved=True, remember="always")
        case ("x" | "exact", "") if (rule := _exact_rule(context)) is not None:
            return ConfirmAnswer(approved=True, remember="session", rules=(rule,))
        case _:
            return None


def _exact_rule(context: Mapping[str, Any]) -> Rule | None:
    """Return the rule for exactly this call, None if there is none, or if it is the one that is shown."""
    exact = context.get("exact_rule")
    if exact is None or context.get("rules") == [exact]:
        return None
    try:
        return Rule.model_validate(exact)
    except ValidationError:  # of a server of another release
        return None


def _exactly(rule: Rule | None) -> str:
    """Return what an exact rule covers: of a file, any content."""
    return "exactly this call" if rule is None or rule.exact else "this file, whatever is written to it"


def _printable(text: str) -> str:
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def _remembering(context: Mapping[str, Any]) -> Sequence[str]:
    """Return the letters of the answers that can be given and are remembered."""
    return [*(("s", "a") if kinds_of(context) else ()), *(("x",) if _exact_rule(context) is not None else ())]


def _prompt(context: Mapping[str, Any]) -> str:
    words = {"s": "[s]ession, ", "a": "[a]lways, ", "x": "e[x]actly this, "}
    return f"Allow this? [y]es, {''.join(map(words.__getitem__, _remembering(context)))}[n]o [reason], [e]dit: "


def _answers_help(context: Mapping[str, Any]) -> str:
    """Return what each answer does; a user reads it after a line that is none, such as `?`."""
    kinds = "; ".join(kinds_of(context))
    lines = {
        "s": f"run it, and in this session ask no more about: {kinds}",
        "a": f"run it, and in this folder never again ask about: {kinds}\n"
        "              (`agx permissions list` shows it, `agx permissions remove` takes it back)",
        "x": f"run it, and in this session ask no more about {_exactly(_exact_rule(context))}",
    }
    remembering = [f"  {letter}           {lines[letter]}" for letter in _remembering(context)]
    if not remembering:
        remembering = ["              (a call like this is asked about each time: a yes cannot be remembered)"]
    return "\n".join(
        (
            "  y           run this call",
            *remembering,
            "  n [reason]  do not run it, and tell the model the reason",
            "  e           edit the arguments, and run it with the new ones",
        )
    )


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
