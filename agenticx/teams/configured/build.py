"""A team made of its configuration and the parts of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agenticx.clocks import Clock
from agenticx.errors import AgenticXError, ResourcesExhausted, SettingsError, ToolError
from agenticx.llms.base import ChatModel
from agenticx.runtime import HookRegistry
from agenticx.settings import Settings
from agenticx.teams.agents.assistant_agent import AssistantAgent
from agenticx.teams.agents.protocols import ChatAgent
from agenticx.teams.agents.user_proxy import UserProxyAgent
from agenticx.teams.configured.config import AssistantConfig, ParticipantConfig, SelectorConfig, TeamConfig
from agenticx.teams.configured.errors import TeamConfigError
from agenticx.teams.configured.files import ConfiguredTeam
from agenticx.teams.group_chats.base import BaseGroupChat
from agenticx.teams.group_chats.round_robin import RoundRobinGroupChat
from agenticx.teams.group_chats.selector import SelectorGroupChat
from agenticx.teams.group_chats.swarm import Swarm
from agenticx.teams.termination.base import OrTerminationCondition
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox

__all__ = ["TeamParts", "build_team", "check_parts", "with_problems"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamParts:
    """The parts of a session that its team uses.

    `models` finds a model by name and raises an `AgenticXError` for an unknown name; `model` is the default model of
    agents. Agents choose from `tools` by name. `instructions` follow the system message of each agent. `hooks` run in
    every speech of an agent.
    """

    model: ChatModel
    models: Callable[[str], ChatModel]
    tools: Iterable[Tool]
    instructions: str
    hooks: HookRegistry
    settings: Settings
    clock: Clock


def check_parts(name: str, config: TeamConfig, models: Callable[[str], object], tools: Iterable[Tool]) -> None:
    """Raise `TeamConfigError` if a session with these tools cannot run the team, and what `models` raises."""
    toolbox = Toolbox(tools)
    for assistant in config.assistants:
        _tools_of(name, assistant, toolbox)
    selector = config.model if isinstance(config, SelectorConfig) else None
    for model in (selector, *(assistant.model for assistant in config.assistants)):
        if model is not None:
            models(model)


def with_problems(
    teams: Iterable[ConfiguredTeam], models: Callable[[str], object], tools: Iterable[Tool]
) -> list[ConfiguredTeam]:
    """Return the teams; a team that a session with these models and tools cannot run gets a `problem`."""
    toolbox = Toolbox(tools)
    return [replace(team, problem=team.problem or _problem(team, models, toolbox)) for team in teams]


def _problem(team: ConfiguredTeam, models: Callable[[str], object], tools: Toolbox) -> str | None:
    if team.config is None:
        return None
    try:
        check_parts(team.name, team.config, models, tools)
    except ResourcesExhausted:
        raise
    except AgenticXError as exc:
        return str(exc)
    return None


def build_team(name: str, config: TeamConfig, parts: TeamParts) -> BaseGroupChat:
    """Return the team `name`; raise `TeamConfigError` if the session cannot run it, also for an unknown model."""
    toolbox = Toolbox(parts.tools)
    try:
        members = [_participant(name, participant, parts, toolbox) for participant in config.participants]
        return _team(name, config, parts, members)
    except TeamConfigError:
        raise
    except SettingsError as exc:
        raise TeamConfigError(f"team {name!r}: {exc}") from exc
    except (ValueError, TypeError) as exc:
        raise TeamConfigError(f"team {name!r} cannot be made: {exc}") from exc


def _team(name: str, config: TeamConfig, parts: TeamParts, members: Sequence[ChatAgent]) -> BaseGroupChat:
    options: dict[str, Any] = {
        "name": name,
        "description": config.description,
        "termination_condition": OrTerminationCondition(*config.termination) if config.termination else None,
        "max_turns": config.max_turns or parts.settings.team_max_turns,
        "settings": parts.settings,
        "clock": parts.clock,
    }
    match config.kind:
        case "round_robin":
            return RoundRobinGroupChat(members, **options)
        case "selector":
            return SelectorGroupChat(
                members,
                _model(config.model, parts),
                selector_prompt=config.selector_prompt,
                allow_repeated_speaker=config.allow_repeated_speaker,
                **options,
            )
        case "swarm":
            return Swarm(members, **options)


def _participant(team: str, config: ParticipantConfig, parts: TeamParts, toolbox: Toolbox) -> ChatAgent:
    described: dict[str, Any] = {} if config.description is None else {"description": config.description}
    if not isinstance(config, AssistantConfig):
        return UserProxyAgent(config.name, settings=parts.settings, **described)
    return AssistantAgent(
        config.name,
        _model(config.model, parts),
        tools=_tools_of(team, config, toolbox),
        handoffs=config.handoffs,
        system_message=config.system_message + parts.instructions,
        hooks=parts.hooks,
        settings=parts.settings,
        **described,
    )


def _model(name: str | None, parts: TeamParts) -> ChatModel:
    return parts.model if name is None else parts.models(name)


def _tools_of(team: str, config: AssistantConfig, toolbox: Toolbox) -> Sequence[Tool]:
    try:
        return list(toolbox.only(config.tools))
    except ToolError as exc:
        raise TeamConfigError(f"team {team!r}: participant {config.name!r}: {exc} in this session") from exc
