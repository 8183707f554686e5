"""The hub: the public operations on sessions; each is a command that the owner of the session carries out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import chain, repeat
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload
from weakref import WeakSet

from agenticx.argument_types import (
    check_callable,
    check_mapping,
    check_path,
    check_str,
    check_type,
    is_encodable,
    wrong_type,
)
from agenticx.call_errors import explain_calls
from agenticx.clocks import Clock, SystemClock, rfc3339
from agenticx.errors import AgenticXError, SessionNotFound, SettingsError, StoreError
from agenticx.llms.base import ChatModel
from agenticx.llms.openai_rows import user_message
from agenticx.llms.sampling import Sampling
from agenticx.logs import bound_ids, get_logger
from agenticx.messages import clean_text, new_id, sources_of
from agenticx.permissions.rule_stores import RuleStore, UnknownRule
from agenticx.permissions.rules import Rule
from agenticx.permissions.trusted_files import TrustStore
from agenticx.permissions.verdict import PermissionMode
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.runtime import (
    AgentHook,
    AsyncConfirmGate,
    ConfirmAnswer,
    Event,
    HookRegistry,
    QuestionAnswer,
    Session,
    UserRequest,
)
from agenticx.runtime.run_results import RunResult, UserInput, own_events, run_result
from agenticx.runtime.session import AutoConsent, Option
from agenticx.runtime.structured_output import OutputType
from agenticx.runtime.turn_agent import AgentDefinition, OutputT
from agenticx.runtime.turn_context import TurnWork
from agenticx.runtime.user_requests.kinds import AnswerT, kind_of
from agenticx.sessions.files.options import OptionState, find_option, option_states, stored_session_files
from agenticx.sessions.history.transcript import read_messages
from agenticx.sessions.hub.commands import (
    Answer,
    Change,
    ChangeQueued,
    Command,
    Delete,
    DirectSubagent,
    ListSubagents,
    NothingStored,
    Pick,
    RemoveRule,
    ResetTeam,
    Rewind,
    Stop,
    StopOption,
    Submit,
    SuspendedTurn,
    decode_command,
    decode_result,
    encode_command,
    encode_error,
    encode_result,
    repeatable,
)
from agenticx.sessions.hub.open_hubs import register_hub, remove_hub
from agenticx.sessions.hub.ownership import ActorCache, Takeover
from agenticx.sessions.hub.queue import QueuedMessage
from agenticx.sessions.hub.readers import EventReader
from agenticx.sessions.hub.rewind import RewindResult
from agenticx.sessions.hub.session_actor import SessionActor
from agenticx.sessions.hub.session_fields import check_fields, check_text
from agenticx.sessions.hub.state_tracker import load_session
from agenticx.sessions.hub.submission import (
    HubClosed,
    Submission,
    TurnConflict,
    TurnFailed,
    TurnObjects,
    TurnRequest,
    check_files,
    check_request,
)
from agenticx.sessions.hub.turn_services import (
    AgentFileSource,
    AgentSource,
    NextRequest,
    NoteSource,
    TeamSource,
    TurnServices,
)
from agenticx.sessions.log.damage import DamagedData, map_decode_errors
from agenticx.sessions.log.events import SessionEvent, stored_request
from agenticx.sessions.log.session_record import SessionRecord, TurnRecord
from agenticx.sessions.log.tool_state import decode_rules
from agenticx.sessions.store.attachments import AttachmentLease, posted_messages
from agenticx.sessions.store.base import (
    ArchivedFilter,
    ListedSession,
    NoOwner,
    OwnershipLost,
    SessionOwnedElsewhere,
    Store,
)
from agenticx.sessions.store.hosts import is_workspace_here, workspace_host
from agenticx.settings import Settings
from agenticx.threads import run_in_thread
from agenticx.tools.artifacts.files import Artifacts
from agenticx.tools.base import DepsT, Tool

__all__ = ["Hub", "HubClosed", "TurnConflict", "TurnFailed", "TurnRequest", "workspace_folder"]

T = TypeVar("T")

_OWNER_SECONDS = 10.0  # time for the lease of an owner that does not answer to run out
_CLOSING_OWNER_SECONDS = 0.5  # for an owner that is ending too to give the session up
_DRAIN_PAUSE_SECONDS = 0.02  # between two looks for turns that have ended
_PAUSE_SECONDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # between attempts at a session whose owner changes

_log = get_logger(__name__)


class HubRunOptions(TypedDict, total=False):
    """Keyword arguments of `Hub.run` that `run_turn` takes too."""

    context_variables: Mapping[str, Any] | None
    model: str | None
    permission_mode: PermissionMode | None
    sampling: Sampling | None


class Hub:
    """The owner of the sessions of one store, each of which has a `SessionActor` while it is in use.

    `models` finds a model by name (None: the default) and `tools` returns the tools of a session; both raise an
    `AgenticXError` whose message names the accepted values. `hooks` run in every turn, with `system_prompt` instead of
    `config/prompts/system.md`. If the store has `blobs`, the previous contents of the files that turns change are kept.
    A turn runs with `settings` as they apply in its session's workspace. The catalog of `store` lists and finds
    sessions, its log has their events. All methods must be called on one event loop.

    - `work` returns a function that replaces the model calls in the turns of a session, None for most sessions.
    - `agents` are agents that can answer instead of the main one. A session keeps the name of its active agent, which a
      handoff or `change` sets. `agent_files` are definitions from which a session copies prompt, model and tools.
    - `teams` are the teams that a session can name; its turns are then runs of that team.
    - `notes` are the vaults that sessions can use.
    - `deps` returns the deps of a turn that is given none, from the record of its session; it is called when the turn
      begins, and again when the turn is resumed after a restart.
    - `rules` are the user's rules for calls in all sessions.
    - `trust` has the contents of AGENTS.md files that the user trusts; without it, no file is trusted.

    In mode auto, the first call of a new turn that writes or executes is asked about if the session is older than the
    hub, until a person says yes to one such call, or a request or `change` names the mode again. Turns that `recover`
    resumes keep the consent with which they began.
    """

    def __init__(
        self,
        store: Store,
        *,
        models: Callable[[str | None], ChatModel],
        tools: Callable[[SessionRecord], Sequence[Tool]],
        settings: Settings,
        gate: AsyncConfirmGate | None = None,
        hooks: HookRegistry | Sequence[AgentHook] = (),
        system_prompt: str | None = None,
        work: Callable[[SessionRecord], TurnWork | None] = lambda _record: None,
        agents: AgentSource | None = None,
        agent_files: AgentFileSource | None = None,
        teams: TeamSource | None = None,
        notes: NoteSource | None = None,
        deps: Callable[[SessionRecord], Any] | None = None,
        rules: RuleStore | None = None,
        trust: TrustStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        if system_prompt is not None:
            check_text("system_prompt", system_prompt)
        if deps is not None:
            check_callable("deps", deps, "a function of the SessionRecord")
        self.gate = gate or AsyncConfirmGate()
        self.store = store
        self._services = TurnServices(
            store=store,
            models=models,
            tools=tools,
            settings=settings,
            gate=self.gate,
            hooks=HookRegistry.from_hooks(hooks),
            clock=clock or SystemClock(),
            own_system_prompt=system_prompt,
            work=work,
            agents=agents,
            agent_files=agent_files,
            teams=teams,
            notes=notes,
            deps=deps,
            rules=rules,
            trust=trust,
        )
        self._actors = ActorCache(self._claim)
        self._takeover = Takeover(store, self._take_over, self._services.clock)
        self._resume_only: Collection[str] | None = ()  # no turn resumes before `recover`
        self._serving, self._is_serving = AsyncExitStack(), False
        self._draining = False
        self._started_at = rfc3339(self._services.clock.now())
        self._auto_consents = dict[str, AutoConsent]()  # of sessions that had none when they were claimed first
        self._readers = WeakSet[EventReader]()

    @explain_calls
    async def create(
        self,
        *,
        name: str | None = None,
        model: str | None = None,
        permission_mode: PermissionMode | None = None,
        workspace: str | PathLike[str] | None = None,
        tools: Sequence[str] | None = None,
        vaults: Sequence[str] | None = None,
        system_prompt: str | None = None,
        agent: str | AgentDefinition[Any, Any] | None = None,
        team: str | None = None,
        client_session_id: str | None = None,
    ) -> SessionRecord:
        """Create a session and return its record; the settings supply what is not given.

        `vaults` are the ids of the vaults of notes that it may use, None for all. `agent` answers each message: an
        `Agent`, which the hub knows from now on, or the name of one that it knows, None for the main one. The session
        keeps the name alone: opened again, the hub needs `open_hub(agents=[agent])`, else the next turn raises
        `UnknownAgent`. For single turns use `run(session_id, …, agent=agent)`. The prompt, model and tools of an agent
        of a file are copied into the record, where none are given. Each message to a session with a `team` is the task
        of a run of that configured team; an empty one lets the team go on. A call with the `client_session_id` of an
        earlier one creates nothing and returns that session as it is now, until it is deleted. Raises `ValueError` for
        a value that cannot be stored, `SettingsError` for a workspace that is no folder and for a team or agent that
        cannot be used, the errors of `models`, `tools` and `agents` for unknown names, `HubClosed`, `StoreError`.
        """
        self._check_open()
        session_id = new_id("ses")
        if client_session_id is not None:
            check_str("client_session_id", client_session_id)
            session_id = f"ses_{_stable_id(client_session_id)}"
            with suppress(SessionNotFound):
                return await self.store.catalog.get(session_id)
        settings = self._services.settings
        if isinstance(agent, AgentDefinition):
            agent = self._services.add_agent(agent)
        if workspace is not None:
            check_path("workspace", workspace)
        mode = settings.permission_mode if permission_mode is None else permission_mode
        own = {"model": model, "tools": tools, "system_prompt": system_prompt}
        given = [field for field, value in own.items() if value is not None]
        tools = settings.enabled_tools if tools is None else tools
        fields = {"name": name, "model": model, "permission_mode": mode, "tools": tools, "system_prompt": system_prompt}
        check_fields(fields | {"agent": agent, "vaults": vaults})
        if team is not None:
            check_str("team", team)
        folder, host = await run_in_thread(
            _workspace, workspace or settings.workspace_root, settings.shared_workspaces, name="agx workspace"
        )
        record = SessionRecord(
            id=session_id,
            name=name,
            model=model,
            permission_mode=mode,
            workspace=folder,
            workspace_host=host,
            tools=None if tools is None else tuple(tools),
            vaults=None if vaults is None else tuple(vaults),
            system_prompt=system_prompt,
            agent=None if team is None else agent,
            team=team,
            created_at=rfc3339(self._services.clock.now()),
        )
        if agent is not None and team is None:
            record = await self._services.with_agent(record, agent, given)
        self._services.setup(record, None, None)
        await self._services.check_team(record)
        await self.store.create(record)
        # A call with the same `client_session_id` at the same time may have created the session first.
        return record if client_session_id is None else await self.store.catalog.get(session_id)

    # --- turns --------------------------------------------------------------------------------------------------------

    @overload
    async def run(
        self,
        session_id: str,
        user_input: UserInput,
        *,
        agent: AgentDefinition[DepsT, OutputT],
        deps: DepsT | None = None,
        output_type: None = None,
        **options: Unpack[HubRunOptions],
    ) -> RunResult[OutputT]: ...
    @overload
    async def run(
        self,
        session_id: str,
        user_input: UserInput,
        *,
        agent: AgentDefinition[Any, Any] | None = None,
        deps: Any = None,
        output_type: type[T],
        **options: Unpack[HubRunOptions],
    ) -> RunResult[T]: ...
    @overload
    async def run(
        self,
        session_id: str,
        user_input: UserInput,
        *,
        agent: AgentDefinition[Any, Any] | None = None,
        deps: Any = None,
        output_type: Any = None,
        **options: Unpack[HubRunOptions],
    ) -> RunResult[Any]: ...
    @explain_calls
    async def run(
        self,
        session_id: str,
        user_input: UserInput,
        *,
        agent: AgentDefinition[Any, Any] | None = None,
        deps: Any = None,
        output_type: Any = None,
        **options: Unpack[HubRunOptions],
    ) -> RunResult[Any]:
        """Run a turn of a session as `run_turn` does, and return its result.

        The hub asks the person who answers by `answer`, in a page, at a terminal or in another task; an agent with a
        `confirm_gate` asks that. `options` are `context_variables`, `model`, `permission_mode` and `sampling`, as of
        `run_turn`. Raises `TurnError` if the turn fails, `HubClosed` if the hub is closed while it waits for an
        answer, and as `run_turn` does.
        """
        record = await self._record(session_id)
        if output_type is None:
            output_type = self._services.output_type(record) if agent is None else agent.output_type
        output = None if output_type is None else OutputType(output_type)
        turn = self.run_turn(session_id, user_input, agent=agent, deps=deps, output_type=output, **options)
        events = [event async for event in turn]
        return await self.turn_result(session_id, events, output, agent=agent)

    async def _record(self, session_id: str) -> SessionRecord:
        _check_session_id(session_id)
        return await self.store.catalog.get(session_id)

    async def turn_result(
        self, session_id: str, events: Sequence[Event], output: OutputType | None = None, *, agent: Any = None
    ) -> RunResult[Any]:
        """Return the result of a turn of a session from these events, all up to its end; `output` has its object.

        `agent` is the agent that began it. Raises `TurnError` if the turn failed, and `HubClosed` for a turn without an
        end.
        """
        own = own_events(events)
        if not own[-1].terminal:
            raise HubClosed("the hub was closed while the turn waited for an answer; it goes on in the next one")
        session = load_session(await self._record(session_id), await self.store.log.state(session_id))
        ids, end = [message.message_id for message in session.messages], own[-1]
        first, last = (cast("Mapping[str, Any]", event.data).get("message_id", "") for event in (own[0], end))
        begin = ids.index(first) if first in ids else 0  # a summary may have taken its place
        added = session.messages[begin : ids.index(last) + 1 if last in ids else len(ids)]
        acted = agent if agent is not None and agent.name == end.agent_id else self._services.agent_named(end.agent_id)
        return run_result(events, added, output, agent=acted, context_variables=session.state.context_variables)

    async def run_turn(
        self,
        session_id: str,
        user_input: UserInput,
        *,
        agent: AgentDefinition[Any, Any] | None = None,
        deps: Any = None,
        context_variables: Mapping[str, Any] | None = None,
        model: str | None = None,
        output_type: Any = None,
        permission_mode: PermissionMode | None = None,
        sampling: Sampling | None = None,
        client_turn_id: str | None = None,
        when_busy: Literal["reject", "queue", "interrupt"] = "reject",
    ) -> AsyncGenerator[Event]:
        """Submit a message and yield the events of its turn and its child turns, each once it is stored, up to the end.

        `user_input` is text, a `UserMessage` or a dict row with role `user`; anything else is a `TypeError`. The turn
        runs by itself: leaving the loop does not end it, but `stop` does, and `follow` shows how it continues. A
        request to the user (`confirm_required`, `question_asked`) is answered in the loop, with `answer`. While another
        turn runs, the message is refused with `SessionBusy` unless `when_busy` says otherwise. With a `client_turn_id`
        of an earlier turn, the events of that turn are yielded. The terminal event is missing only if the hub is closed
        while the turn waits for an answer: the turn then continues after the next start.

        `model` and `permission_mode` replace the session's for this turn, and the parameters of `sampling` replace the
        model's. They are stored: the turn keeps them while it is queued and across a restart.

        An `agent`, such as an `Agent`, acts in this turn instead of the session's. Its tools and instructions, the
        `deps` and an `output_type` (see `Agent.run`) are not stored, so such a turn is not queued. After a restart a
        turn that waits for an answer continues if the hub was opened with an agent of that name, with the deps that the
        hub's own `deps` return for its session; without the agent it waits on, and without the deps a tool that takes
        some fails when its call is approved. `context_variables` are added to those of the session.

        Raises as `submit` does, `TurnFailed` if the message is handed back before its turn begins, `SessionNotFound` if
        the session is deleted.
        """
        message = user_message(user_input)
        request = TurnRequest(
            input=message.content,
            attachments=message.attachments,
            client_turn_id=client_turn_id,
            model=model,
            permission_mode=permission_mode,
            sampling=sampling,
            when_busy=when_busy,
        )
        if context_variables is not None:
            check_mapping("context_variables", context_variables)
        if agent is None and deps is None and output_type is None and not context_variables:
            submission = await self.submit(session_id, request)
        else:
            output = output_type if isinstance(output_type, OutputType | None) else OutputType(output_type)
            objects = TurnObjects(agent=agent, deps=deps, context_variables=context_variables or {}, output=output)
            submission = await self._submit_here(session_id, request, objects)
        if submission.state == "handed_back":
            raise TurnFailed("the message was handed back: its turn never began")
        reader = await self._new_reader(session_id, submission.after_seq, submission.turn.id)
        while events := await reader.next_events():
            for event in events:
                yield event.event

    async def follow(self, session_id: str, *, after: int = 0) -> AsyncGenerator[SessionEvent]:
        """Yield the events of a session after the cursor `after`, those stored already and then those to come.

        The cursor of an event is its `seq`; 0 is the beginning, and a turn begins after its `after_seq`. The events end
        when the hub is closed. Raises `SessionNotFound`, also when the session is deleted.
        """
        if after < 0:
            raise ValueError(f"a cursor is 0 or the seq of an event, not {after}")
        reader = await self._new_reader(session_id, after)
        while events := await reader.next_events():
            for event in events:
                yield event

    async def _new_reader(self, session_id: str, after: int, turn_id: str | None = None) -> EventReader:
        _check_session_id(session_id)
        reader = EventReader(self.store.log, session_id, after=after, turn_id=turn_id)
        self._readers.add(reader)
        if self._actors.is_closed:
            await reader.finish()
        return reader

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        """Return the messages of a session's conversation, as `agenticx.sessions.transcript` does."""
        _check_session_id(session_id)
        return await read_messages(self.store.log, session_id)

    async def next_request(self, session_id: str) -> NextRequest:
        """Return the next model request of a session as it is stored now, without the message that it will answer.

        Raises `SessionNotFound`, and the errors with which a turn of the session would begin.
        """
        _check_session_id(session_id)
        record = await self.store.catalog.get(session_id)
        session = load_session(record, await self.store.log.state(session_id))
        return await self._services.next_request(record, session)

    async def start(self, session_id: str, request: TurnRequest) -> TurnRecord:
        """Submit a message as `submit` does and return its turn."""
        return (await self.submit(session_id, request)).turn

    async def submit(self, session_id: str, request: TurnRequest) -> Submission:
        """Accept a message and return its state. What is returned is durable. An idle session begins its turn at once.

        A turn counts as begun once its first event is stored; `after_seq` is the sequence number just before that
        event, or before the pick of an option that the message continues. While another turn runs, `request.when_busy`
        decides; a turn that is about to end accepts no steering any more, so the message begins the next turn. A
        repeated `client_turn_id` returns the state of the first message and has no effect.

        Raises `SessionNotFound`, `SessionBusy` (nothing was written), `TurnConflict`, `TurnFailed`, `HubClosed` and
        `StoreError`; for the parts of the request `AttachmentRefused`, the error of `models` for an unknown model and
        of `agents` for an unknown active agent, `UnsupportedSampling`, `ValueError` for an unknown mode, `TypeError`
        for a part of another type; and `SettingsError` (nothing was written) if the settings file of the session's
        workspace cannot be used, or `WorkspaceElsewhere`, a subclass, if that is on another host.
        """
        self._check_open()
        check_request(request)
        if request.attachments:
            await check_files(request.attachments)
        return await self._perform(session_id, Submit(request=request))

    async def _submit_here(self, session_id: str, request: TurnRequest, objects: TurnObjects) -> Submission:
        self._check_open()
        if objects.agent is not None:
            check_type("agent", objects.agent, AgentDefinition, "an Agent")
        if request.when_busy != "reject":
            raise ValueError(f"when_busy must be 'reject', not {request.when_busy!r}: objects of a turn cannot wait")
        check_request(request)
        await check_files(request.attachments)
        return await self._perform_here(session_id, Submit(request=request, objects=objects))

    def _check_open(self) -> None:
        if self._actors.is_closed:
            raise HubClosed("the hub is closed; open it again")

    async def stop(self, session_id: str) -> TurnRecord | None:
        """Request the end of the session's running turn and return it, None when none runs.

        Queued messages are handed back once no turn runs.
        """
        return await self._perform(session_id, Stop())

    async def queue(self, session_id: str) -> Sequence[dict[str, Any]]:
        """Return the messages that wait, in the order of their arrival.

        Each is {message_id, turn_id, state, input, client_turn_id?, attachments?}; `state` is queued, or steered if the
        running turn is to take it in.
        """
        posted = await posted_messages(self.store, session_id)
        return [QueuedMessage.from_fact(session_id, fact).to_json() for fact in posted]

    async def change_queued(
        self,
        session_id: str,
        message_id: str,
        *,
        text: str | None = None,
        when_busy: Literal["steer", "interrupt"] | None = None,
    ) -> dict[str, Any]:
        """Replace the text of a message that waits, or have it read now, and return it as `queue` does.

        With `steer` the running turn takes it in, or it stays queued if that one takes in no more; with `interrupt`
        the running turn is stopped for it. Raises `SessionNotFound`, `HubClosed`, `NotQueued` for a message that does
        not wait any more, and `SessionBusy` if the texts of the queue would be too long.
        """
        clean = None if text is None else clean_text(text)
        return await self._perform(session_id, ChangeQueued(message_id=message_id, text=clean, when_busy=when_busy))

    async def remove_queued(self, session_id: str, message_id: str) -> None:
        """Remove a message that waits: it is handed back. Raises `SessionNotFound`, `HubClosed`, `NotQueued`."""
        await self._perform(session_id, ChangeQueued(message_id=message_id, is_removed=True))

    def running_turn_id(self, session_id: str) -> str | None:
        """Return the id of the turn that the session runs in this process, None when none runs."""
        actor = self._actors.get(session_id)
        return actor.turns.current.id if actor and actor.turns.current else None

    @property
    def working_turns(self) -> frozenset[str]:
        """The ids of the sessions' turns that run in this process and do not wait for a person."""
        turns = [actor.turns.live.main for actor in self._actors]
        return frozenset(turn.id for turn in turns if turn is not None and turn.status in ("queued", "running"))

    async def wait_for_turn(self, session_id: str, turn_id: str) -> None:
        """Wait until this process does not run that turn any more: it has ended, or a later process continues it.

        A turn that another worker of the store runs is waited for until it has ended, or its session is deleted.
        """
        actor = self._actors.get(session_id)
        main = None if actor is None else actor.turns.live.main
        if main is not None and main.id == turn_id and main.task is not None:
            await asyncio.wait({main.task})
        elif self.store.log.is_shared:
            with suppress(SessionNotFound):
                await self._wait_for_turn_elsewhere(session_id, turn_id)

    async def _wait_for_turn_elsewhere(self, session_id: str, turn_id: str) -> None:
        turn = await self.store.log.turn(session_id, turn_id)
        if turn is not None:
            reader = await self._new_reader(session_id, turn.after_seq or 0, turn_id)
            while await reader.next_events():
                pass

    async def sessions(
        self,
        *,
        query: str | None = None,
        limit: int = 50,
        before: str | None = None,
        archived: ArchivedFilter = "without",
    ) -> list[ListedSession]:
        """Return sessions as `Catalog.sessions` does, with the turns that they run here or at another owner."""
        listed = await self.store.catalog.sessions(query=query, limit=limit, before=before, archived=archived)
        actors = [(one, self._actors.get(one.id)) for one in listed]
        return [
            one if actor is None else replace(one, running_turn_id=actor.turns.current and actor.turns.current.id)
            for one, actor in actors
        ]

    async def current_turn_id(self, session_id: str) -> str | None:
        """Return the id of the turn that a session runs, here or at another owner; raises `SessionNotFound`."""
        actor = self._actors.get(session_id)
        running = await self.store.log.turn(session_id) if actor is None else actor.turns.current
        return running and running.id

    async def change(self, session_id: str, changes: dict[str, Any]) -> SessionRecord:
        """Replace fields of the session's record and append a `session_changed` event.

        Fields are name, model, permission_mode, tools, system_prompt, agent, workspace, pinned and archived; changes
        for turns apply from the next turn on. A workspace is changed while no turn runs or waits, else `SessionBusy` is
        raised; what the user allowed for the session ends with it. Raises `ValueError` for another field or a value
        that cannot be stored, the errors of `models`, `tools` and `agents` for unknown names, and `SettingsError` for
        an agent of a session with a team and for a workspace that is no folder.
        """
        check_type("changes", changes, Mapping, "a dict of the fields to change")
        check_fields(changes)
        if "workspace" in changes:
            shared = self._services.settings.shared_workspaces
            folder, host = await run_in_thread(_workspace, changes["workspace"], shared, name="agx workspace")
            changes = {**changes, "workspace": folder, "workspace_host": host}
        return await self._perform(session_id, Change(changes=changes))

    @property
    def rules(self) -> RuleStore | None:
        """The rules of the user for calls in all sessions; None in a hub without a place for them."""
        return self._services.rules

    @property
    def trust(self) -> TrustStore | None:
        """The contents of AGENTS.md files that the user trusts; None in a hub without a place for them."""
        return self._services.trust

    async def session_rules(self, session_id: str) -> Sequence[Rule]:
        """Return the rules that the user gave for one session; raises `SessionNotFound`, `DamagedData`."""
        await self._record(session_id)
        if (actor := self._actors.get(session_id)) is not None:
            return tuple(actor.session.rules)
        state = await self.store.log.state(session_id)
        with map_decode_errors(f"state of session {session_id!r}"):
            return tuple(decode_rules(state.parts))

    async def untrusted_sources(self, session_id: str) -> tuple[str, ...]:
        """Return the names of the texts of others in a session's conversation; raises as `session_rules` does."""
        await self._record(session_id)
        if (actor := self._actors.get(session_id)) is not None:
            return sources_of(actor.session.messages)
        return sources_of((await self.store.log.state(session_id)).messages)

    async def remove_rule(self, rule_id: str) -> Rule:
        """Remove a rule by its id and return it; the next call is decided without it.

        Raises `UnknownRule`, `RulesUnusable` and `StoreError`.
        """
        session_id = rule_id.rpartition(".")[0]  # of a rule that was given for one session
        if session_id:
            with suppress(SessionNotFound):  # a rule in the file of the user may have any id
                return await self._perform(session_id, RemoveRule(rule_id=rule_id))
        if self.rules is None:
            raise UnknownRule(f"no rule has the id {rule_id[:100]!r}")
        return await run_in_thread(self.rules.remove, rule_id, name="agx rules")

    async def rewind(self, session_id: str, message_id: str | None) -> RewindResult:
        """Truncate the session's conversation after that message (None: to nothing) and restore files to that point.

        The active agent stays. Raises `SessionNotFound`, `MessageNotFound`, `SessionBusy` while a turn runs,
        `HubClosed`, `StoreError`.
        """
        return await self._perform(session_id, Rewind(message_id=message_id))

    async def delete(self, session_id: str) -> None:
        """Stop the session's turn and delete the session with its queued messages; it may be unreadable.

        Its kept contents of files are deleted last, since only the deletion shows that no other process owns the
        session. After a crash or an error a second call, which raises `SessionNotFound`, deletes the remaining
        contents.
        """
        _check_session_id(session_id)
        try:
            await self._perform(session_id, Delete())
        except DamagedData as exc:
            _log.error("unreadable session is being deleted", error=str(exc))
            await self.store.delete(await self.store.ownership.claim(session_id))
            await self._services.blobs.forget(session_id)
        except SessionNotFound:
            await self._services.blobs.forget(session_id)
            raise

    # --- turns of application code ------------------------------------------------------------------------------------

    async def run_work(
        self, session_id: str, user_input: UserInput, work: TurnWork, *, turn_id: str | None = None
    ) -> TurnRecord:
        """Begin a turn in which `work` takes the place of the model calls, see `TurnContext`, and return it.

        A process that ends, or is killed, takes that code with it. If the turn waited for a person then, itself or in
        all its child turns, it waits on after the next start without any code: its questions and confirmations are
        listed and can be answered, a stop ends it, and the session is busy with it, until the application runs the work
        again.

        With the `turn_id` of the session's `suspended_turn` the work continues that turn, which has its input already:
        the work finds the questions that it has asked there, with the answers given since, and its child turns, which
        continue when it begins them again. Without a `turn_id`, such a turn is ended as interrupted first. Raises as
        `submit` does, `TurnFailed` if that turn does not wait any more, and `SessionOwnedElsewhere`: work runs in this
        process only.
        """
        self._check_open()
        message = user_message(user_input)
        await check_files(message.attachments)
        request = TurnRequest(input=message.content, attachments=message.attachments)
        return (await self._perform_here(session_id, Submit(request=request, work=work, turn_id=turn_id))).turn

    async def suspended_turn(self, session_id: str) -> TurnRecord | None:
        """Return the turn of an earlier process that waits for `run_work` to continue it, else None.

        Raises `SessionNotFound`, `StoreError`.
        """
        return await self._perform(session_id, SuspendedTurn())

    # --- files and options --------------------------------------------------------------------------------------------

    async def artifacts(self, session_id: str, *, option: int | None = None) -> Artifacts:
        """Return the files of a session, or of one of its options, as they are stored; for reading only.

        Raises `SessionNotFound`, `UnknownOption`, `DamagedData`.
        """
        session = await self._stored(session_id)
        return session.artifacts if option is None else find_option(session.options, option).artifacts

    async def options(self, session_id: str) -> Sequence[tuple[Option, OptionState]]:
        """Return the options of a session, and how each stands.

        Raises `SessionNotFound`, `DamagedData`.
        """
        options = (await self._stored(session_id)).options
        run_id = await self.current_turn_id(session_id)
        running = [option.turn_id for option in options if option.run_id == run_id]
        turn_ids = [option.turn_id for option in options]
        states = await option_states(self.store.log, session_id, turn_ids, running=running)
        return [(option, states[option.turn_id]) for option in options]

    async def pick(self, session_id: str, number: int) -> SessionRecord:
        """Continue with an option: its files become the session's, and its answer a part of the conversation.

        The other options stay; another pick replaces this one. While the turn that makes the option still runs, those
        that are not done are stopped; this returns once that turn has ended and the pick is stored. Raises
        `SessionNotFound`, `UnknownOption`, `OptionNotDone` for an option without an answer, and `SessionBusy` while
        another turn runs.
        """
        return await self._perform(session_id, Pick(number=number))

    async def stop_option(self, session_id: str, number: int) -> None:
        """Stop a running option; the others continue. Raises `SessionNotFound`, `UnknownOption`."""
        await self._perform(session_id, StopOption(number=number))

    async def _stored(self, session_id: str) -> Session:
        """Return a session with its files and options as they are stored, and nothing else."""
        await self.store.catalog.get(session_id)
        state = await self.store.log.state(session_id)
        return stored_session_files(state.parts, self._services.blobs, session_id)

    # --- requests to the user -----------------------------------------------------------------------------------------

    async def open_requests(self, session_id: str | None = None) -> list[UserRequest]:
        """Return the open requests to the user, of a session or of all, oldest first.

        A `ConfirmRequest` is listed once its `confirm_required` is stored, a `QuestionRequest` of an agent once its
        `question_asked` is. An expired request is not open, even before its turn has noticed.
        """
        if session_id is not None:
            _check_session_id(session_id)
        now = self._services.clock.now()
        asked = map(stored_request, await self.store.catalog.open_requests(session_id))
        return [request for request in asked if request.expires_at > now]

    async def answer(self, request_id: str, answer: AnswerT, *, digest: str = "") -> AnswerT:
        """Answer a request to the user and return the answer that counts, which is durable: the first valid one.

        A `ConfirmAnswer` names the `digest` of the confirmation (`confirm_required`). A `QuestionAnswer` answers a
        question of an agent (`question_asked`); an empty one is none, `by` policy where nobody can be asked.

        Raises `UnknownConfirm`, `DigestMismatch`, or `ConfirmClosed` for another answer that comes too late; for
        questions `UnknownQuestion` and `QuestionClosed`. Raises `TypeError` or `ValueError` for an answer with a wrong
        field.
        """
        check_type("answer", answer, (ConfirmAnswer, QuestionAnswer), "a ConfirmAnswer or a QuestionAnswer")
        kind = kind_of(answer)
        command = Answer(request_id=request_id, answer=kind.checked_answer(answer), digest=digest)
        session_id = None
        if is_encodable(request_id):
            session_id = await self.store.catalog.session_of_request(request_id)
        if session_id is None:
            raise kind.unknown_id(request_id)
        return await self._perform(session_id, command)

    # --- sub-agents and teams -----------------------------------------------------------------------------------------

    async def subagents(self, session_id: str) -> Sequence[dict[str, Any]]:
        """Return the states of all sub-agents of a session, in the order of their starts.

        Each is {agent_id, state, rounds, task, parent_agent_id, depth}, with the `code` of an error, the `activity` of
        a running one, and `waits_for_user` if a request is open. `state` is queued, running, paused, completed or
        error.
        """
        return await self._perform(session_id, ListSubagents())

    async def cancel_subagent(self, session_id: str, agent_id: str) -> dict[str, Any]:
        """Stop a sub-agent and its own sub-agents, and return its state; nothing changes if it has ended.

        Raises `SessionNotFound`, `SubagentNotFound`.
        """
        return await self._perform(session_id, DirectSubagent(agent_id=agent_id, action="cancel"))

    async def retry_subagent(
        self, session_id: str, agent_id: str, *, client_turn_id: str | None = None
    ) -> dict[str, Any]:
        """Have a sub-agent that has ended begin its task anew, with an empty conversation, and return its state.

        Messages that it has not heard follow the task. A retry with the `client_turn_id` of an earlier one has no
        effect, so it may be sent again. Raises `SessionNotFound`, `SubagentNotFound`, `SubagentBusy` if it works,
        `SubagentLimitReached`, `HubClosed`, and `TurnConflict` if the retry of another sub-agent had that
        `client_turn_id`.
        """
        turn_id = new_id("turn")
        if client_turn_id is not None:
            turn_id = f"turn_{_stable_id(session_id, client_turn_id)}"
        command = DirectSubagent(
            agent_id=agent_id, action="retry", turn_id=turn_id, client_turn_id=client_turn_id or ""
        )
        return await self._perform(session_id, command)

    async def message_subagent(
        self, session_id: str, agent_id: str, text: str, *, client_message_id: str | None = None
    ) -> dict[str, Any]:
        """Send a message to a sub-agent and return its state; one that has ended, or is being stopped, continues.

        A message with the `client_message_id` of an earlier one to that sub-agent has no effect, so it may be sent
        again. Raises `SessionNotFound`, `SubagentNotFound`, `SubagentLimitReached`, `HubClosed`.
        """
        message_id = new_id("msg")
        if client_message_id is not None:
            message_id = f"msg_{_stable_id(agent_id, client_message_id)}"
        command = DirectSubagent(agent_id=agent_id, action="message", text=clean_text(text), message_id=message_id)
        return await self._perform(session_id, command)

    async def reset_team(self, session_id: str, team: str) -> None:
        """Append an event after which a team of that name starts afresh.

        Raises `SessionNotFound`, `SessionBusy` while a turn runs (nothing was written), and `StoreError`.
        """
        await self._perform(session_id, ResetTeam(team=team))

    # --- owners -------------------------------------------------------------------------------------------------------

    async def _perform(self, session_id: str, command: Command) -> Any:
        """Carry out a command: here, if this process owns the session or can claim it, else at its owner."""
        _check_session_id(session_id)
        clock = self._services.clock
        began = clock.monotonic()
        for pause in chain(_PAUSE_SECONDS, repeat(_PAUSE_SECONDS[-1])):
            with suppress(NoOwner, NothingStored):
                try:
                    return await self._perform_here(session_id, command)
                except SessionOwnedElsewhere:
                    command = repeatable(command)
                    answer = await self.store.ownership.call(session_id, encode_command(command))
                return decode_result(command, answer)
            limit = _CLOSING_OWNER_SECONDS if self._services.closing else _OWNER_SECONDS
            if clock.monotonic() + pause > began + limit:
                break
            await clock.sleep(pause)
        raise StoreError(f"the owner of session {session_id!r} does not answer; try again")

    async def _perform_here(self, session_id: str, command: Command) -> Any:
        actor = await self._actors.open(session_id)
        try:
            return await actor.perform(command)
        except OwnershipLost:
            await self._actors.abandon(actor)
            raise
        finally:
            if actor.deleted or self._actors.is_closed or not actor.is_here:
                await self._actors.finish(actor, keep=actor.is_here)

    async def _handle(self, session_id: str, data: bytes) -> bytes:
        """Carry out the command of another process for a session that this one owns."""
        command = decode_command(data)
        actor = await self._actors.get_after_change(session_id)  # the other process could not claim it before
        if actor is not None and self._draining and actor.can_leave:
            await self._actors.leave(actor)
            actor = None
        if actor is None:
            raise NoOwner(f"session {session_id!r} is not owned here")
        try:
            return encode_result(command, await self._perform_here(session_id, command))
        except (SessionOwnedElsewhere, HubClosed) as exc:
            raise NoOwner(f"session {session_id!r} is not owned here any more") from exc
        except (AgenticXError, TypeError, ValueError) as exc:
            return encode_error(exc)

    # --- start and end ------------------------------------------------------------------------------------------------

    async def recover(self, *, resume_only: Collection[str] | None = None) -> None:
        """Resume or end the turns of the previous process; call it before any other method.

        Messages queued after a resumed turn stay queued. All other queued messages are handed back: no turn begins by
        itself at a start. A process that serves only some sessions names them in `resume_only`: a resumable turn of any
        other session stays suspended, with the messages queued after it, for a later call or process. A turn with work
        of the application waits for that in any case, see `run_work` and `suspended_turn`. If the store has other
        workers, sessions that one leaves later are taken over in the same way until `close`.
        """
        self._resume_only = resume_only
        register_hub(self)
        if not self._is_serving:
            self._is_serving = True
            await self._serving.enter_async_context(self.store.ownership.serve(self._handle))
        session_ids = [session_id async for session_id in self.store.ownership.orphans()]
        suspended = [actor.id for actor in self._actors if actor.has_suspended]  # of an earlier call
        for session_id in (*session_ids, *suspended, *(resume_only or ())):
            try:
                await self._take_over(session_id)
            except StoreError as exc:
                _log.error("session recovery failed", session=session_id, error=str(exc))
        self._takeover.start()

    async def _take_over(self, session_id: str) -> None:
        """Become the owner of an orphaned session and continue its work, if its workspace is on this host."""
        with bound_ids(session=session_id):
            with suppress(SessionNotFound):  # by a catalog that lags
                if not is_workspace_here(await self.store.catalog.get(session_id), self.store.log):
                    return
            actor = await self._actors.open(session_id)
            try:
                if actor.has_suspended:
                    await actor.recover(may_resume=self._may_resume(session_id))
            finally:
                if self._actors.is_closed:
                    await self._actors.finish(actor)

    async def drain(self, seconds: float) -> None:
        """Give the sessions to other workers of the store, and let turns that run here end; call `close` afterwards.

        Sessions without a turn, and turns that wait for an answer, go to other workers at once; any other session goes
        once its turn has ended. Commands are carried out as before, and a turn that one begins here is waited for too.
        Returns once this process has no session, at the latest after `seconds`, and at once if no other worker can take
        the sessions.
        """
        clock, deadline = self._services.clock, self._services.clock.monotonic() + seconds
        self._draining = await self._has_other_workers()
        if not self._draining:
            return
        await self._takeover.close()
        while actors := list(self._actors):
            await asyncio.gather(*(self._actors.leave(actor) for actor in actors if actor.can_leave))
            if clock.monotonic() >= deadline:
                return
            await clock.sleep(_DRAIN_PAUSE_SECONDS)

    async def _has_other_workers(self) -> bool:
        if not self.store.log.is_shared:
            return False
        try:
            report = await self.store.workers()
        except StoreError as exc:
            _log.warning("the sessions are not handed over before the end", error=str(exc))
            return False
        return sum(worker["is_alive"] for worker in report["workers"]) > 1

    async def close(self) -> None:
        """Stop all turns and wait for them, bounded; no turn begins afterwards and queued messages are handed back.

        If the store outlives the process, turns that wait for an answer and the messages queued after them stay as they
        are: they continue after a restart.
        """
        self._services.closing = True
        remove_hub(self)
        for actor in self._actors:  # before any answer that comes from now on
            actor.turns.suspend()
        await self._takeover.close()
        while actors := list(self._actors):  # again for those that a command has claimed meanwhile
            await asyncio.gather(*(actor.turns.wait_for_commit() for actor in actors))
            for actor in actors:
                actor.turns.suspend()
            await asyncio.gather(*(actor.turns.stop() for actor in actors))
            await asyncio.gather(*(actor.close() for actor in actors))
            for actor in actors:
                self._actors.discard(actor)
        self._actors.is_closed = True
        await asyncio.gather(*(reader.finish() for reader in list(self._readers)))
        await self._services.permission_watch.close()
        if self._services.notes is not None:
            await self._services.notes.close()
        await self._serving.aclose()

    async def _claim(self, session_id: str) -> SessionActor:
        """Become the owner of the session and continue the work that an earlier owner left."""
        lease = AttachmentLease(await self.store.ownership.claim(session_id), self.store.blobs)
        try:
            loaded = await lease.load()
            actor = SessionActor(lease, loaded, self._services)
            actor.session.auto_consent = await self._auto_consent(loaded.record)
            if (actor.has_work or loaded.damaged_facts) and actor.is_here and not self._services.closing:
                await self._recover(actor)
        except StoreError:  # the next operation, here or elsewhere, claims the session again
            with suppress(StoreError):
                await lease.release(work_left=True)
            raise
        return actor

    async def _auto_consent(self, record: SessionRecord) -> AutoConsent:
        """Return the consent to mode auto in a claimed session; a fork begins with the consent of its source.

        A session that is older than this hub has none, whichever process owned it until now.
        """
        source, consent = record, self._auto_consents.get(record.id)
        while consent is None and source.created_at >= self._started_at:
            if source.forked_from is None:
                return AutoConsent()
            try:
                source = await self.store.catalog.get(source.forked_from)
            except SessionNotFound:  # deleted
                break
            consent = self._auto_consents.get(source.id)
        if consent is not None and consent.is_given and source is not record:
            return AutoConsent()
        return self._auto_consents.setdefault(record.id, AutoConsent(is_given=False))

    async def _recover(self, actor: SessionActor) -> None:
        """Continue the work that an earlier owner left; if that fails, end all tasks of the actor."""
        try:
            await actor.recover(may_resume=self._may_resume(actor.id))
        except StoreError:
            await actor.abandon()
            raise

    def _may_resume(self, session_id: str) -> bool:
        return self._resume_only is None or session_id in self._resume_only


def _stable_id(*ids: str) -> str:
    """Return the random part of an id, which is always the same for these ids."""
    return hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _check_session_id(session_id: object) -> None:
    if not isinstance(session_id, str):
        raise wrong_type("session_id", session_id, "the id of a session, which is a str")
    if not is_encodable(session_id):
        raise SessionNotFound(f"no session has the id {session_id!r}")


def _workspace(given: str | PathLike[str] | None, shared: Path | None) -> tuple[str, str | None]:
    """Return the resolved path of a workspace, and its host, None if all hosts have it; raise `SettingsError`."""
    folder = workspace_folder(given)
    return folder, workspace_host(folder, shared)


def workspace_folder(given: str | PathLike[str] | None) -> str:
    """Return the resolved path of a workspace, by default the current folder; raise `SettingsError` if it is none."""
    try:
        folder = Path.cwd() if given is None else Path(given).resolve()
        if folder.is_dir():
            return str(folder)
    except (OSError, RuntimeError, ValueError) as exc:  # deleted, forbidden or too long; circular links; a NUL
        raise_if_exhausted(exc)
    raise SettingsError(f"the workspace {str(given or '.')!r} is not a folder; give one that exists and can be read")
