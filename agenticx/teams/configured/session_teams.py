"""The configured teams of a hub: the runs of a session's team as the work of its turns.

The modules of teams are imported with the first team: importing them takes a tenth of the time of a hub's import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agenticx.clocks import Clock
from agenticx.errors import AgenticXError
from agenticx.llms.base import ChatModel
from agenticx.messages import UserMessage
from agenticx.runtime import HookRegistry
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_context import TurnWork, WorkResult
from agenticx.sessions.history.subagent_notices import read_talk_events
from agenticx.sessions.log.session_record import SessionRecord
from agenticx.sessions.store.base import Log
from agenticx.settings import Settings
from agenticx.teams.configured.errors import TeamConfigError, TeamUnavailable
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool

if TYPE_CHECKING:
    from agenticx.teams.configured.build import TeamParts
    from agenticx.teams.configured.config import TeamConfig

__all__ = ["SessionTeams"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTeams:
    """The teams of the sessions of a hub. A team is made again for each turn, from its file and the session's log.

    `home` is AGX_HOME. `models` finds a model by name and `tools` returns the tools of a session; both raise an
    `AgenticXError`.
    """

    home: Path
    log: Log
    models: Callable[[str | None], ChatModel]
    tools: Callable[[SessionRecord], Sequence[Tool]]
    hooks: HookRegistry
    settings: Settings
    clock: Clock

    async def check(self, record: SessionRecord) -> None:
        """Raise a `TeamConfigError` if there is no such team, or if the session cannot run it."""
        name = _team_of(record)
        config = await run_in_thread(self._read_config, name, name="agx team")
        from agenticx.teams.configured.build import check_parts

        try:
            check_parts(name, config, self.models, self.tools(record))
        except TeamConfigError:
            raise
        except AgenticXError as exc:
            raise TeamConfigError(f"team {name!r}: {exc}") from exc

    def work(self, record: SessionRecord) -> TurnWork:
        """Return the run of the session's team as the work of a turn."""
        return partial(self._run, record, _team_of(record))

    async def _run(self, record: SessionRecord, name: str, turn: Turn) -> WorkResult:
        """Run the team in `turn`. The turn's message is the task; an empty message continues the last task.

        Raises `TeamUnavailable` for a team that cannot be used, or that cannot continue from the session's log.
        """
        try:
            config, parts = await run_in_thread(self._read, record, name, turn, name="agx team")
            from agenticx.teams.configured.build import build_team
            from agenticx.teams.group_chats.logged_attachments import with_contents
            from agenticx.teams.group_chats.team_turns import task_message

            team = build_team(name, config, parts)
        except TeamConfigError as exc:
            raise TeamUnavailable(str(exc)) from exc
        events = await read_talk_events(self.log, record.id)
        messages = (message for message in turn.session.all_messages if isinstance(message, UserMessage))
        events = with_contents(events, [file for message in messages for file in message.attachments])
        task = _last_message(turn)
        given = None if task is None or not (task.content or task.attachments) else task_message(task)
        try:
            return await team.run_as_work(turn, given, events)
        except ValueError as exc:  # other participants or messages than the log has, or a task that cannot begin a run
            raise TeamUnavailable(f"team {name!r} cannot go on in this session: {exc}") from exc

    def _read(self, record: SessionRecord, name: str, turn: Turn) -> tuple[TeamConfig, TeamParts]:
        """Return the configuration and the parts of the session for a turn that begins now; blocks."""
        from agenticx.teams.configured.build import TeamParts

        settings, instructions = self.settings.in_workspace(Path(record.workspace)), turn.context.instructions
        parts = TeamParts(
            model=turn.agent.model,
            models=self.models,
            tools=self.tools(record),
            instructions="" if instructions is None else instructions.prompt,
            hooks=self.hooks,
            settings=settings.model_copy(update={"max_tool_rounds": settings.max_tool_rounds}),
            clock=self.clock,
        )
        return self._read_config(name), parts

    def _read_config(self, name: str) -> TeamConfig:
        """Return the configuration of a team; blocks, the first time for the import of the modules of teams."""
        import agenticx.teams.configured.build  # noqa: F401  # pyright: ignore[reportUnusedImport]
        from agenticx.teams.configured.files import TeamFiles

        return TeamFiles(self.home).read(name)


def _team_of(record: SessionRecord) -> str:
    assert record.team is not None
    return record.team


def _last_message(turn: Turn) -> UserMessage | None:
    """Return the message with which the turn began, None if it has none."""
    messages = (message for message in reversed(turn.session.messages) if isinstance(message, UserMessage))
    return next(messages, None)
