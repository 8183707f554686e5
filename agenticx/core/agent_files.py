"""Agents from files, for sessions.

An agent is a TOML file: `NAME.toml` in the folder `agents` of AGX_HOME (`~/.agenticx`), or a packaged one; a file of
the user replaces the packaged file of the same name. `agx agent list` shows all agents with their paths and problems.
`agx run --agent NAME "prompt"`, `agx chat --agent NAME`, `POST /api/sessions {"agent": NAME}` and
`hub.create(agent=NAME)` use them. For example:

    description = "Answers about the files of a folder."
    model = "demo"
    tools = ["file_read", "file_search", "list_files"]
    system_prompt = "Answer from the files in {workspace}, and name the files that you used."

Keys marked with ? may be left out. Any other key is a problem, which names the file and the place:

    system_prompt    the instructions, at most 64 KiB, with the values of the session for {workspace}, {platform} and
                     {date}; the AGENTS.md files of the workspace follow
    description?     a sentence for lists
    model?           by default the model of other sessions
    tools?           names of at most 100 tools, by default the tools of other sessions; a tool that this installation
                     lacks, or that AGX_ENABLED_TOOLS leaves out, is left out with a line in the log

A session that is created with an agent copies the prompt, the model and the tools of the file, unless the request names
others, and keeps the agent's name. Later changes of the file do not change the session, also after a restart or in a
fork.
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
    """An agent as its file describes it; a missing `model` or `tools` is taken from the session."""

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

    name: Annotated[str, Field(description="The name of the file without its ending.")]
    description: Annotated[str | None, Field(description="What the agent is for; null if the file does not say.")]
    model: Annotated[str | None, Field(description="The model of its turns; null: that of the session.")]
    tools: Annotated[list[str] | None, Field(description="The names of its tools; null: those of the session.")]
    source: Annotated[
        Literal["user", "packaged"], Field(description="Where the file is: in the home folder, or in the package.")
    ]
    problem: Annotated[str | None, Field(description="Why the file cannot be used; null if it can.")]


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
    """Return the agents; an agent whose model `models` refuses with an `AgenticXError` gets that as its problem."""
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
