"""Agents from files, which sessions are made with.

An agent is a TOML file: `NAME.toml` in the folder `agents` of AGX_HOME (`~/.agenticx`), or one of those that come with
AgenticX, which a file of the user with the same name replaces. `agx agent list` shows all, with their paths and
problems; `agx run --agent NAME "prompt"`, `agx chat --agent NAME`, `POST /api/sessions {"agent": NAME}` and
`hub.create(agent=NAME)` use them. For example:

    description = "Answers about the files of a folder."
    model = "demo"
    tools = ["file_read", "file_search", "list_files"]
    system_prompt = "Answer from the files in {workspace}, and name those that you used."

Keys marked with ? may be left out. A key that is not listed here is a problem, which names the file and the place:

    system_prompt    the instructions, at most 64 KiB; {workspace}, {platform} and {date} become those of the session,
                     and the AGENTS.md files of the workspace follow
    description?     a sentence for lists
    model?           by default the one that sessions have
    tools?           names of at most 100 tools, by default those that sessions have; one that this installation does
                     not have, or that AGX_ENABLED_TOOLS leaves out, is left out with a line in the log

A session that is made with an agent copies the prompt, the model and the tools of its file, unless the request names
others, and keeps the name. So a later edit of the file, or its end, changes no session that there is already, and a
restart or a fork finds what the session began with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, field_validator
from typing_extensions import TypedDict

from agenticx.config_files.named import NamedFile, NamedFiles
from agenticx.config_files.table import MAX_LISTED, ConfigTable, parse_table, repeated_name, shortened
from agenticx.errors import AgentConfigError, AgenticXError, ResourcesExhausted, UnknownAgent
from agenticx.sessions.hub.session_fields import MAX_PROMPT_BYTES, check_model_name
from agenticx.sessions.hub.turn_services import NewSessionAgent
from agenticx.threads import run_in_thread

__all__ = ["AgentConfig", "AgentFiles", "AgentItem", "agent_item", "parse_agent", "with_model_problems"]

_Text = Annotated[str, Field(min_length=1)]


class AgentConfig(ConfigTable):
    """An agent as its file has it; without `model` or `tools` it has those of any session."""

    description: _Text | None = None
    system_prompt: str
    model: Annotated[_Text, AfterValidator(check_model_name)] | None = None
    tools: Annotated[list[_Text], Field(max_length=MAX_LISTED)] | None = None

    @field_validator("system_prompt")
    @classmethod
    def _check_prompt(cls, prompt: str) -> str:
        size = len(prompt.encode())
        if not 1 <= size <= MAX_PROMPT_BYTES:
            raise ValueError(f"has {size:,} bytes; right would be 1 to {MAX_PROMPT_BYTES:,}")
        if "\0" in prompt:
            raise ValueError("has the character NUL; right would be a text without it")
        return prompt

    @field_validator("tools")
    @classmethod
    def _check_unique(cls, names: list[str] | None) -> list[str] | None:
        if (twice := repeated_name(names or ())) is not None:
            raise ValueError(f"names {shortened(twice)} twice")
        return names


_ADAPTER: TypeAdapter[AgentConfig] = TypeAdapter(AgentConfig)


def parse_agent(text: str, where: str) -> AgentConfig:
    """Return the agent that the TOML `text` describes; `where` names its file in an `AgentConfigError`."""
    return parse_table(text, where, _ADAPTER, error=AgentConfigError)


class AgentItem(TypedDict):
    """An agent of a file; `problem` says why it cannot be used.

    `source` is `user` for a file in AGX_HOME/agents, else `packaged`. `model` and `tools` are null if it has none of
    its own.
    """

    name: str
    description: str | None
    model: str | None
    tools: list[str] | None
    source: Literal["user", "packaged"]
    problem: str | None


def agent_item(agent: NamedFile[AgentConfig]) -> AgentItem:
    """Return an agent as clients read it."""
    config = agent.config
    return {
        "name": agent.name,
        "description": None if config is None else config.description,
        "model": None if config is None else config.model,
        "tools": None if config is None else config.tools,
        "source": agent.origin,
        "problem": agent.problem,
    }


def with_model_problems(
    agents: Iterable[NamedFile[AgentConfig]], models: Callable[[str], object]
) -> list[NamedFile[AgentConfig]]:
    """Return the agents, with its problem for each one whose model `models` refuses with an `AgenticXError`."""
    return [replace(agent, problem=agent.problem or _model_problem(agent.config, models)) for agent in agents]


def _model_problem(config: AgentConfig | None, models: Callable[[str], object]) -> str | None:
    if config is None or config.model is None:
        return None
    try:
        models(config.model)
    except ResourcesExhausted:
        raise
    except AgenticXError as exc:
        return str(exc)
    return None


class AgentFiles(NamedFiles[AgentConfig]):
    """The files of the agents, the `AgentFileSource` of a hub; `home` is AGX_HOME."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, "agents", noun="agent", parse=parse_agent, error=AgentConfigError, unknown=UnknownAgent)

    async def new_session_agent(self, name: str) -> NewSessionAgent:
        """Return the agent of that name; raises as `read` does."""
        config = await run_in_thread(self.read, name, name="agx agent")
        tools = None if config.tools is None else tuple(config.tools)
        return NewSessionAgent(config.system_prompt, config.model, tools)
