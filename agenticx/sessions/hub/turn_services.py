"""The models, tools, settings and prompts that the turns of a hub share."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from agenticx import user_code
from agenticx.clocks import Clock
from agenticx.errors import (
    AgentConfigError,
    AgenticXError,
    ResourcesExhausted,
    SettingsError,
    UnknownAgent,
    UserCodeError,
)
from agenticx.llms.base import ChatModel, ToolSchema
from agenticx.llms.duck_typed.model import adapt
from agenticx.llms.sampling import Sampling, check_sampling
from agenticx.logs import get_logger
from agenticx.permissions.rule_stores import RuleStore
from agenticx.permissions.trusted_files import Instructions, TrustStore, read_instructions
from agenticx.runtime import AgentRuntime, AsyncConfirmGate, HookRegistry, Session
from agenticx.runtime.channel import WritePacer
from agenticx.runtime.compactor import ContextCompactor
from agenticx.runtime.deadlines import ModelClocks
from agenticx.runtime.model_request import RequestBuilder
from agenticx.runtime.turn import Turn
from agenticx.runtime.turn_agent import AgentDefinition, TurnAgent, TurnAgents
from agenticx.runtime.turn_context import OnExhausted, TurnNotes, TurnWork, WorkResult
from agenticx.sessions.hub.permission_watch import PermissionWatch
from agenticx.sessions.hub.session_fields import check_folder
from agenticx.sessions.hub.submission import TurnObjects
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.store.base import Log, Store
from agenticx.sessions.store.blobs import Blobs, MemoryBlobs
from agenticx.sessions.store.hosts import check_workspace
from agenticx.settings import PROJECT_FILE, Settings, prompt_text
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool, is_idempotent
from agenticx.tools.registry import Toolbox, check_deps

__all__ = [
    "AgentFileSource",
    "AgentSource",
    "NewSessionAgent",
    "NextRequest",
    "NoteSource",
    "NoteTurn",
    "TeamSource",
    "TurnConfiguration",
    "TurnServices",
    "TurnSetup",
]

_log = get_logger(__name__)

_READING_SECONDS = 5.0  # to read a few small files, whose disk may not answer


class AgentSource(Protocol):
    """The agents of sessions other than the main one.

    An agent without a model of its own has the model of the session, `default`. With `override` all agents have that
    model.
    """

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, name: object, /) -> bool: ...
    def check_name(self, name: str) -> None:
        """Raise `UnknownAgent` unless an agent has the name."""
        ...

    def add(self, agent: AgentDefinition[Any, Any]) -> None:
        """Let sessions use one more agent; raise `ValueError` for a name that is taken."""
        ...

    def find(self, name: str) -> AgentDefinition[Any, Any] | None:
        """Return the agent of that name, None if there is none."""
        ...

    def agent(self, name: str, session_id: str, agents: TurnAgents) -> TurnAgent:
        """Return the agent of that name for the turn of `agents` in the session; raises as `check_name` does."""
        ...

    def for_turn(self, session_id: str, *, default: ChatModel, override: ChatModel | None) -> TurnAgents:
        """Return the agents to which one turn of the session can hand over."""
        ...


class AgentFileSource(Protocol):
    """Agents defined by files, for new sessions."""

    def names(self) -> Sequence[str]:
        """Return the names of all; blocks."""
        ...

    async def new_session_agent(self, name: str) -> NewSessionAgent:
        """Return the agent of that name; raise `UnknownAgent`, or `AgentConfigError` for an unusable file."""
        ...


class NoteSource(Protocol):
    """The notes that sessions can use."""

    async def enter(self, record: SessionRecord, turn: TurnRecord) -> NoteTurn | None:
        """Let the tools for notes use the notes of the current turn; return these, None without any."""
        ...

    async def folders(self) -> Collection[Path]:
        """Return the folders of all vaults, where the tools for notes write."""
        ...

    async def close(self) -> None:
        """Close what is open; called once, after the last turn."""
        ...


class TeamSource(Protocol):
    """The teams that sessions can have."""

    async def check(self, record: SessionRecord) -> None:
        """Raise `SettingsError` if the session cannot run its team."""
        ...

    def work(self, record: SessionRecord) -> TurnWork:
        """Return the run of the session's team as the work of a turn."""
        ...


@dataclass(frozen=True, slots=True)
class NewSessionAgent:
    """The parts of a new session that come from the file of an agent; None stands for the default."""

    system_prompt: str
    model: str | None
    tools: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class NoteTurn:
    """The notes of a turn, and its limits if they are not the usual ones.

    `enabled` returns the tools of the session that the turn may use.
    """

    notes: TurnNotes
    max_rounds: int | None = None
    turn_seconds: float | None = None
    on_exhausted: OnExhausted | None = None
    enabled: Callable[[Sequence[Tool]], Toolbox] | None = None


@dataclass(frozen=True, slots=True)
class TurnConfiguration:
    """The settings of a turn in its workspace, and its system prompt with its AGENTS.md files."""

    settings: Settings
    system_prompt: str
    instructions: Instructions = field(default_factory=Instructions)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSetup:
    """The model and the tools with which a turn runs; its `configuration` is read when it begins, unless given.

    - `agent` replaces them and the system prompt.
    - `agents` are the agents to which the turn can hand over; None if only a tool's result can name another agent.
    - `work` replaces the model calls, see `TurnContext`.
    - `objects` are not stored: only this process has them.
    - `deps` are the deps of the tools, from `objects` or else from the hub.
    """

    model: ChatModel
    tools: Sequence[Tool]
    configuration: TurnConfiguration | None = None
    agent: TurnAgent | None = None
    agents: TurnAgents | None = None
    work: TurnWork | None = None
    objects: TurnObjects = field(default_factory=TurnObjects)
    deps: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRequest:
    """The parts of the next model request of a session, apart from the message that it will answer.

    `window` is the context window of its model in tokens, None if it is not known.
    """

    system_prompt: str
    tools: Sequence[ToolSchema]
    session: Session
    window: int | None


@dataclass(slots=True, kw_only=True)
class TurnServices:
    """The store, models, tools and settings that the turns of all sessions share.

    `models` finds a model by name (None: the default) and `tools` returns the tools of a session; both raise an
    `AgenticXError` whose message names the accepted values. `own_system_prompt` replaces the text of
    `config/prompts/system.md`, and a session's own prompt replaces either. The other parts are as in `Hub`. `closing`
    is set once no turn may begin any more.
    """

    store: Store
    models: Callable[[str | None], ChatModel]
    tools: Callable[[SessionRecord], Sequence[Tool]]
    settings: Settings
    gate: AsyncConfirmGate
    hooks: HookRegistry
    clock: Clock
    work: Callable[[SessionRecord], TurnWork | None] = lambda _record: None
    agents: AgentSource | None = None
    agent_files: AgentFileSource | None = None
    teams: TeamSource | None = None
    notes: NoteSource | None = None
    deps: Callable[[SessionRecord], Any] | None = None
    rules: RuleStore | None = None
    trust: TrustStore | None = None
    own_system_prompt: str | None = None
    closing: bool = False
    pacer: WritePacer = field(default_factory=WritePacer)
    permission_watch: PermissionWatch = field(init=False)
    _own_blobs: Blobs = field(default_factory=MemoryBlobs, init=False)
    _runtime: tuple[ChatModel, Settings, AgentRuntime] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.permission_watch = PermissionWatch(self.rules, self.trust, self.clock)

    @property
    def blobs(self) -> Blobs:
        """The contents of sessions in the store, or in this process for a store that keeps none."""
        return self.store.blobs or self._own_blobs

    def turn_setup(
        self,
        record: SessionRecord,
        model_name: str | None,
        sampling: Sampling | None,
        work: TurnWork | None = None,
        objects: TurnObjects | None = None,
        *,
        resumes: bool = False,
    ) -> TurnSetup:
        """Return the setup of a turn that begins or goes on now, with the deps of its tools.

        Raises as `setup` does, `TypeError` for deps of another class than its tools take, `SettingsError` if they take
        some and there are none, and `UserCodeError` if the function of the hub fails. One that `resumes` needs no deps,
        so that a hub opened without them, or with a function that fails, loses no question: a tool that takes some
        fails when it is called.
        """
        setup = self.setup(record, model_name, sampling, work, objects)
        tools, deps = setup.tools if setup.agent is None else setup.agent.tools, setup.objects.deps
        if deps is not None:
            check_deps(tools, deps)
            return setup
        if self.deps is not None:
            try:
                deps = user_code.call_sync(self.deps, record, what="the function deps of the hub")
            except UserCodeError as exc:
                if not resumes:
                    raise
                _log.warning("a turn goes on without deps", session=record.id, error=str(exc), exc_info=exc)
        try:
            if not resumes:
                check_deps(tools, deps)
        except TypeError as exc:
            raise SettingsError(f"{exc}; give the run its deps, or open the hub with deps=") from exc
        return replace(setup, deps=deps)

    def setup(
        self,
        record: SessionRecord,
        model_name: str | None,
        sampling: Sampling | None,
        work: TurnWork | None = None,
        objects: TurnObjects | None = None,
    ) -> TurnSetup:
        """Return the setup of a turn without the deps of the hub; a named model replaces the session's.

        Raises the errors of `models`, `tools` and `agents`, `UnsupportedSampling`, and `WorkspaceElsewhere`: a turn
        never works in a folder of this host that only has the path of another host's folder.
        """
        work = work or self._work(record)
        check_workspace(record, self.log)
        model = self.models(model_name or record.model)
        objects = objects or TurnObjects()
        tools, agent, agents = self.tools(record), None, None
        if work is not None and objects.agent is not None:
            raise SettingsError(f"session {record.id!r} has a team, which answers; an agent cannot act in it")
        if work is None and (record.agent is not None or self.agents is not None or objects.agent is not None):
            agents = self._turn_agents(record.id, model, None if model_name is None else model)
            if objects.agent is not None:
                agent = agents.of(objects.agent)
            elif record.agent is not None:
                agent = self._agents_for(record.agent).agent(record.agent, record.id, agents)
        if sampling is not None:
            check_sampling(model if agent is None else agent.model, sampling)
            agent = None if agent is None else replace(agent, sampling=agent.sampling.updated(sampling))
        return TurnSetup(
            model=model, tools=tools, agent=agent, agents=agents, work=work, objects=objects, deps=objects.deps
        )

    def _turn_agents(self, session_id: str, default: ChatModel, override: ChatModel | None) -> TurnAgents:
        if self.agents is not None:
            return self.agents.for_turn(session_id, default=default, override=override)

        def model_of(agent: AgentDefinition[Any, Any]) -> ChatModel:
            if override is not None or agent.model is None:
                return override or default
            return self.models(agent.model) if isinstance(agent.model, str) else adapt(agent.model)

        return TurnAgents(model_of, self.hooks)

    def _agents_for(self, name: str | None) -> AgentSource:
        """Return the agents besides the main one; raise `UnknownAgent` if there are none."""
        if self.agents is None:
            raise UnknownAgent(f"unknown agent {name!r}: the session has its main agent only")
        return self.agents

    def agent_named(self, name: str) -> AgentDefinition[Any, Any] | None:
        """Return the agent of that name for sessions, None for the main agent and an unknown name."""
        return None if self.agents is None else self.agents.find(name)

    def add_agent(self, agent: AgentDefinition[Any, Any]) -> str:
        """Let sessions use an agent and return its name; raise `ValueError` if that is taken.

        A session stores the name alone, so a later process must find the agent by it.
        """
        self._agents_for(agent.name).add(agent)
        return agent.name

    def output_type(self, record: SessionRecord) -> Any:
        """Return the output type of the agent of a session, None if its answers are text."""
        agent = None if record.agent is None else self.agent_named(record.agent)
        return None if agent is None else agent.output_type

    def has_agent(self, name: str) -> bool:
        """Return whether the hub has an agent of that name, which a later process finds too."""
        return self.agents is not None and name in self.agents

    async def with_agent(self, record: SessionRecord, name: str, given: Collection[str]) -> SessionRecord:
        """Return the record of a new session with the agent of that name: one of the hub's, else one of a file.

        The prompt, the model and the tools of a file are copied, except for the fields in `given`. Raises
        `UnknownAgent`, and `AgentConfigError` for a file that cannot be used, also because of its model.
        """
        files = self.agent_files
        if files is None or self.has_agent(name):
            return replace(record, agent=name)
        try:
            agent = await files.new_session_agent(name)
        except UnknownAgent as exc:
            if not self.agents:
                raise
            known = ", ".join(sorted({*self.agents, *await run_in_thread(files.names, name="agx agents")}))
            raise UnknownAgent(f"unknown agent {name!r}; known agents: {known}") from exc
        copied: dict[str, Any] = {"system_prompt": agent.system_prompt}
        if agent.model is not None:
            copied["model"] = agent.model
        if agent.tools is not None:
            copied["tools"] = agent.tools
        copied = {field: value for field, value in copied.items() if field not in given}
        if "tools" in copied:
            copied["tools"] = self._available_tools(record, name, copied["tools"])
        if "model" in copied:
            try:
                self.models(copied["model"])
            except ResourcesExhausted:
                raise
            except AgenticXError as exc:
                raise AgentConfigError(f"agent {name!r}: {exc}") from exc
        return replace(record, agent_file=name, **copied)

    def _available_tools(self, record: SessionRecord, agent: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names whose tools a session can have; `record` has the enabled ones."""
        available = {tool.schema.name for tool in self.tools(record)}
        missing = [name for name in names if name not in available]
        if missing:
            _log.info("tools of an agent are not available and left out", agent=agent, tools=missing)
        return tuple(name for name in names if name in available)

    async def check_team(self, record: SessionRecord) -> None:
        """Raise `SettingsError` for a session with a team that it cannot run."""
        if record.team is None:
            return
        _check_beside_team(record)
        await self._team_source(record.team).check(record)

    def _work(self, record: SessionRecord) -> TurnWork | None:
        return self.work(record) if record.team is None else self._team_source(record.team).work(record)

    def _team_source(self, name: str) -> TeamSource:
        if self.teams is None:
            raise SettingsError(f"this hub has no teams, so a session cannot have the team {name!r}")
        return self.teams

    def check_change(self, record: SessionRecord, changes: Mapping[str, Any]) -> None:
        """Check the `changes`, whose result is `record`.

        Raise the error of `models`, `tools` or `agents` for an unknown name, and `SettingsError` for an agent or
        a system prompt of a session with a team.
        """
        if changes.get("model") is not None:
            self.models(record.model)
        if changes.get("tools") is not None:
            self.tools(record)
        if changes.keys() & {"agent", "system_prompt"}:
            _check_beside_team(record)
        if record.agent is not None and "agent" in changes:
            self._agents_for(record.agent).check_name(record.agent)

    @property
    def log(self) -> Log:
        """The log of the store."""
        return self.store.log

    @property
    def can_resume(self) -> bool:
        """True if a turn that waits for an answer of the user continues after a restart."""
        return self.log.durability != "memory" and self.settings.resume_interrupted == "confirms"

    async def read_configuration(self, record: SessionRecord) -> TurnConfiguration:
        """Return the settings and the system prompt of a turn of that session that begins now, read in a thread.

        Raises `WorkspaceGone` for a workspace that is no folder, `SettingsError` for an unusable file,
        `ResourcesExhausted` if no thread could read it.
        """
        has_begun, workspace = False, Path(record.workspace)

        def read() -> TurnConfiguration:
            nonlocal has_begun
            has_begun = True
            check_folder(record)
            settings, text = self.settings.in_workspace(workspace), self._system_prompt(record, workspace)
            instructions = read_instructions(workspace, self.settings.private_paths, self.trust)
            return TurnConfiguration(settings, text + instructions.prompt, instructions)

        try:
            async with asyncio.timeout(self.clock.real(_READING_SECONDS)):
                return await run_in_thread(read, name="agx reading settings")
        except TimeoutError:
            if not has_begun:
                raise ResourcesExhausted("a thread that was started did not begin; memory has run out") from None
            files = f"{workspace / PROJECT_FILE}, AGENTS.md or the system prompt"
            raise SettingsError(f"{files} could not be read within {_READING_SECONDS:g} seconds") from None

    def _system_prompt(self, record: SessionRecord, workspace: Path) -> str:
        """Return the session's prompt, else the application's, else `system.md`, filled in.

        The text is the same all day, so that prompt caches stay valid. Raises `SettingsError`.
        """
        values = {"workspace": workspace, "platform": platform.system(), "date": self.clock.now().date().isoformat()}
        own = self.own_system_prompt if record.system_prompt is None else record.system_prompt
        text = prompt_text("system") if own is None else own
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    async def next_request(self, record: SessionRecord, session: Session) -> NextRequest:
        """Return the next request of that session as it stands; raises as `setup` and `read_configuration` do."""
        setup = self.setup(record, None, None)
        if (agent := setup.agent) is None:
            prompt = (await self.read_configuration(record)).system_prompt
            tools, model = Toolbox(setup.tools), setup.model
        else:
            given, tools, model = agent.system_prompt, agent.tools, agent.model
            prompt = given or "" if given is None or isinstance(given, str) else await given({})
        return NextRequest(
            system_prompt=prompt or "", tools=tools.schemas(), session=session, window=model.context_window
        )

    def runtime(self, model: ChatModel, settings: Settings) -> AgentRuntime:
        """Return the runtime of turns with this model and these settings; the latest one is kept for the next turn."""
        if self._runtime is None or self._runtime[0] is not model or self._runtime[1] is not settings:
            runtime = AgentRuntime(
                model,
                self.gate,
                max_tool_rounds=settings.max_tool_rounds,
                hooks=self.hooks,
                compactor=self._compactor(settings),
                settings=settings,
                clock=self.clock,
            )
            self._runtime = model, settings, runtime
        return self._runtime[2]

    def has_work(self, record: SessionRecord) -> bool:
        """Return whether turns of the session run `work`; False if it cannot be made now."""
        try:
            return self._work(record) is not None
        except AgenticXError as exc:
            _log.warning("the work of a session cannot be made", session=record.id, error=str(exc))
            return False

    async def subagent_runtime(self, record: SessionRecord, model_name: str | None) -> AgentRuntime:
        """Return the runtime of sub-agents of a session, with that model instead of its own if it is named.

        Raises the error of `models`, and as `read_configuration` does.
        """
        model = self.models(model_name or record.model)
        configuration = await self.read_configuration(record)
        prompt = await run_in_thread(prompt_text, "subagent", name="agx reading settings")
        settings = configuration.settings
        runtime = AgentRuntime(
            model,
            self.gate,
            system_prompt=f"{configuration.system_prompt}\n\n{prompt}",
            max_tool_rounds=settings.max_tool_rounds,
            hooks=self.hooks,
            compactor=self._compactor(settings),
            settings=settings,
            clock=self.clock,
        )
        runtime.agent = replace(runtime.agent, instructions=configuration.instructions)
        return runtime

    async def compaction_work(self, turn: Turn) -> WorkResult:
        """Compact the conversation: the work of a turn whose message asks for that."""
        compactor, clocks = self._compactor(turn.settings), ModelClocks.from_settings(turn.settings)
        return WorkResult(await RequestBuilder(compactor=compactor, clocks=clocks).compact(turn))

    def _compactor(self, settings: Settings) -> ContextCompactor:
        """Return a compactor that goes by size alone, unless a setting limits the number of messages."""
        messages = settings.compaction_threshold_messages
        return ContextCompactor(
            threshold_messages=sys.maxsize if messages is None else messages,
            threshold_chars=settings.compaction_threshold_chars,
            retain_recent_messages=settings.compaction_retain_messages,
            timeout=settings.compaction_timeout_seconds,
            prune_tool_result_chars=settings.prune_tool_result_chars,
            clock=self.clock,
        )

    def is_repeatable(self, record: SessionRecord, tool_name: str) -> bool:
        """Return whether the session has an idempotent tool of that name, whose calls may run again."""
        try:
            tools = self.tools(record)
        except AgenticXError:
            return False
        return any(is_idempotent(tool) for tool in tools if tool.schema.name == tool_name)


def _check_beside_team(record: SessionRecord) -> None:
    """Raise `SettingsError` for a session with a team that also has an agent or a system prompt."""
    if record.agent is not None and record.team is not None:
        raise SettingsError(f"a session has an agent, here {record.agent!r}, or a team, {record.team!r}, not both")
    if record.system_prompt is not None and record.team is not None:
        raise SettingsError(f"a session with a team has the prompts of its file; team {record.team!r} takes no other")
