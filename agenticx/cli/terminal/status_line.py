"""The status line of a chat: model, mode, tokens, cost, and how much of the model's context is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from agenticx.cli.client.base import ResolvedModel
from agenticx.cli.client.envelopes import Envelope
from agenticx.cli.terminal.conversation import TerminalConversation
from agenticx.cli.terminal.event_text import PAYLOAD_ERRORS
from agenticx.cli.terminal.output import Output, OutputWrapper
from agenticx.errors import AgenticXError
from agenticx.runtime.events import EventType
from agenticx.sessions.log.usage import DailyUsage, UsageCounts
from agenticx.tools.visible import visible_line

__all__ = ["StatusLine", "StatusOutput", "fit_status"]

_REFRESH_SECONDS = 0.5
"""The longest wait of a prompt for the numbers; a server may be slow."""
_MIN_COLUMNS = 12
_NAME_CHARS = 60


class StatusOutput(OutputWrapper):
    """A wrapper around an output that counts the tokens in the context after a session's last turn."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._session_id: str | None = None
        self._turn_id: str | None = None
        self._context_tokens: int | None = None

    def show(self, event: Envelope) -> None:
        super().show(event)
        if event.begins_root_turn:
            self._turn_id = event.turn_id
            if event.session_id != self._session_id:
                self._session_id, self._context_tokens = event.session_id, None
        elif event.turn_id == self._turn_id:
            with suppress(*PAYLOAD_ERRORS):  # an event of another release
                self._take_tokens(event)

    def _take_tokens(self, event: Envelope) -> None:
        if event.type == EventType.COMPACTION:
            self._context_tokens = int(event.data["tokens_after"])
        elif event.type == EventType.USAGE and event.data["input_tokens"] is not None:
            self._context_tokens = event.data["input_tokens"] + (event.data["output_tokens"] or 0)

    def context_tokens(self, session_id: str | None) -> int | None:
        """Return the tokens in the context of a session after its last turn, None if they are not known."""
        return self._context_tokens if session_id == self._session_id else None


@dataclass(slots=True)
class StatusLine:
    """The status of a conversation; `refresh` reads what has changed, `text` puts it on one line."""

    conversation: TerminalConversation
    output: StatusOutput
    _session_id: str | None = None
    _model: ResolvedModel | None = None
    _model_name: str | None = None
    _usage: UsageCounts | None = None

    async def refresh(self) -> None:
        """Read the model and the usage of the session; keep what is known if that takes too long or fails."""
        with suppress(AgenticXError, TimeoutError):
            async with asyncio.timeout(_REFRESH_SECONDS):
                await self._read()

    async def _read(self) -> None:
        conversation = self.conversation
        session_id = None if conversation.session is None else conversation.session.id
        if session_id != self._session_id:
            self._session_id, self._usage = session_id, None
        is_known = self._model is not None and self._model.context_window is not None  # a local server tells it later
        if not is_known or self._model_name != conversation.model_name:
            self._model = await conversation.client.resolve_model(conversation.model_name)
            self._model_name = conversation.model_name
        if session_id is not None:
            self._usage = DailyUsage.total(await conversation.client.usage(session_id=session_id))

    def text(self, columns: int) -> str:
        """Return the status in at most `columns` cells; "" before the first `refresh`, and where there is no room."""
        if self._model is None:
            return ""
        usage, context = self._usage, self.output.context_tokens(self._session_id)
        parts = [
            visible_line(self._model.name, _NAME_CHARS),
            *self._team_or_agent(),
            f"mode {self.conversation.permission_mode}",
        ]
        if usage is not None and usage.calls:
            tokens = f"{_short(usage.input_tokens + usage.output_tokens)} tokens"
            parts.append(tokens if usage.has_tokens else "tokens not reported")
            if usage.cost_usd is not None:
                parts.append(f"${usage.cost_usd:.4f}" if usage.cost_usd else "$0")
        if context is not None:
            window = self._model.context_window
            parts.append(f"context {_percentage(context, window)}" if window else f"context {_short(context)}")
        return fit_status(parts, columns)

    def _team_or_agent(self) -> Sequence[str]:
        """Return the team or the agent that answers, nothing for the main agent."""
        session, options = self.conversation.session, self.conversation.new_session_options
        team = options.team if session is None else session.record.team
        agent = options.agent if session is None else session.record.agent_name
        return [
            f"{kind} {visible_line(name, _NAME_CHARS)}" for kind, name in (("team", team), ("agent", agent)) if name
        ]


def fit_status(parts: Sequence[str], columns: int) -> str:
    """Return as many of the first parts as fit into `columns` cells, at least the beginning of the first.

    >>> fit_status(["demo", "mode default", "1.2k tokens"], 20)
    'demo · mode default'
    """
    if columns < _MIN_COLUMNS:
        return ""
    from rich.cells import cell_len, set_cell_size  # a chat from a pipe does not need it

    line = parts[0] if cell_len(parts[0]) <= columns else f"{set_cell_size(parts[0], columns - 1).rstrip()}…"
    for part in parts[1:]:
        if cell_len(line) + 3 + cell_len(part) > columns:
            break
        line += f" · {part}"
    return line


def _percentage(number: int, whole: int) -> str:
    percent = 100 * number / whole
    return f"{f'{percent:.0f}' if percent >= 1 else '<1'} % of {_short(whole)}"


def _short(number: int) -> str:
    """Return a number of tokens in few characters, such as `950`, `12.3k` or `1.05M`."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.3g}k" if number < 999_500 else f"{number / 1_000_000:.3g}M"
