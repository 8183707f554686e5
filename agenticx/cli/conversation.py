"""A conversation in this process: model, tools, gate and session put together from arguments and settings."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from agenticx.cli.asking import AtTheTerminal, Audience, NobodyGate, Silent, someone_to_ask
from agenticx.cli.narrate import Note
from agenticx.cli.render import Output
from agenticx.cli.turns import play
from agenticx.clocks import SystemClock
from agenticx.errors import SettingsError
from agenticx.llms.assembly import assemble_model
from agenticx.llms.base import ChatModel
from agenticx.llms.catalog import default_model_spec
from agenticx.logs import configure_logging
from agenticx.messages import UserMessage
from agenticx.runtime import (
    AgentRuntime,
    AsyncConfirmGate,
    AutoApproveConfirmGate,
    ConfirmGate,
    RuntimeEvent,
    Session,
    StopSignal,
)
from agenticx.runtime.system_prompt import default_system_prompt
from agenticx.settings import Settings, load_settings
from agenticx.tools.base import Tool
from agenticx.tools.builtin import builtin_tools
from agenticx.tools.permissions import PermissionMode

__all__ = [
    "Conversation",
    "add_arguments",
    "current_folder",
    "enabled_tools",
    "open_conversation",
    "settings_for",
    "workspace_of",
]


def add_arguments(parser: ArgumentParser) -> None:
    """The options that `run` and `chat` share."""
    parser.add_argument("--model", metavar="M", help="provider:name or demo (default: AGX_MODEL, else what is set up)")
    parser.add_argument("--base-url", metavar="U", help="the model server's address, such as http://127.0.0.1:8080/v1")
    parser.add_argument("--cwd", metavar="D", type=Path, help="the folder to work in (default: the current one)")
    parser.add_argument("--yes", action="store_true", help="allow every call without asking")
    parser.add_argument(
        "--permission-mode",
        metavar="MODE",
        choices=get_args(PermissionMode),
        help=f"when to ask: {', '.join(get_args(PermissionMode))} (default: AGX_PERMISSION_MODE)",
    )
    parser.add_argument("--max-tool-rounds", metavar="N", help="model calls with tools in one turn, 10 to 120")


def workspace_of(arguments: Namespace) -> Path:
    """--cwd or the current folder, resolved; raises SettingsError if it is no folder."""
    folder: Path = arguments.cwd or current_folder()
    if not folder.is_dir():
        raise SettingsError(f"--cwd {str(folder)!r} is not a folder")
    return folder.resolve()


def current_folder() -> Path:
    """The folder that the shell is in; raises SettingsError if that was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as exc:
        raise SettingsError("the current folder was deleted; change to another one") from exc


def settings_for(arguments: Namespace, workspace: Path) -> Settings:
    """The settings in force in `workspace`, options first."""
    given = {"permission_mode": arguments.permission_mode, "max_tool_rounds": arguments.max_tool_rounds}
    return load_settings(given, project=workspace)


def enabled_tools(settings: Settings) -> Sequence[Tool]:
    """The built-in tools that AGX_ENABLED_TOOLS leaves; raises SettingsError for a name that no tool has."""
    tools = {tool.schema.name: tool for tool in builtin_tools()}
    if settings.enabled_tools is None:
        return tuple(tools.values())
    unknown = [name for name in settings.enabled_tools if name not in tools]
    if unknown:
        raise SettingsError(f"AGX_ENABLED_TOOLS names {unknown[0]!r}, which is no tool; tools are: {', '.join(tools)}")
    return tuple(tools[name] for name in settings.enabled_tools)


@dataclass(slots=True)
class Conversation:
    """One session and what it takes to run its turns; `model` may be changed between turns."""

    model: ChatModel
    settings: Settings
    session: Session
    gate: ConfirmGate
    tools: Sequence[Tool] = field(default_factory=tuple[Tool, ...])

    def turn(self, runner: asyncio.Runner, said: str | UserMessage, output: Output) -> int:
        """Play one turn; returns its exit code. Raises KeyboardInterrupt when the person wants to leave at once."""
        try:
            return runner.run(self._turn(said, output))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    async def _turn(self, said: str | UserMessage, output: Output) -> int:
        runtime = AgentRuntime(
            self.model, self.gate, max_tool_rounds=self.settings.max_tool_rounds, settings=self.settings
        )
        told = default_system_prompt(self.session.workspace, SystemClock().now().date())

        def start(stop: StopSignal) -> AsyncGenerator[RuntimeEvent]:
            return runtime.run_turn(said, self.session, stop, tools=self.tools, system_prompt=told)

        return await play(start, output, self._audience(output))

    def _audience(self, output: Output) -> Audience:
        return AtTheTerminal(self.gate, output) if isinstance(self.gate, AsyncConfirmGate) else Silent()


def open_conversation(arguments: Namespace) -> tuple[Conversation, Note | None]:
    """A new conversation as the options say, and a note on how its model was chosen where nobody named it."""
    workspace = workspace_of(arguments)
    settings = settings_for(arguments, workspace)
    configure_logging("warning" if settings.log_level == "info" else settings.log_level)  # a person reads along
    spec, note = _model_spec(arguments.model or settings.model, settings)
    conversation = Conversation(
        model=assemble_model(spec, settings, base_url=arguments.base_url),
        settings=settings,
        session=Session(workspace=workspace, permission_mode=settings.permission_mode),
        gate=_gate(yes=arguments.yes),
        tools=enabled_tools(settings),
    )
    return conversation, note


def _model_spec(named: str | None, settings: Settings) -> tuple[str, Note | None]:
    if named:
        return named, None
    spec, reason = default_model_spec(settings)
    return spec, Note(f"model: {spec}, because {reason}")


def _gate(*, yes: bool) -> ConfirmGate:
    if yes:
        return AutoApproveConfirmGate()
    return AsyncConfirmGate() if someone_to_ask() else NobodyGate()
