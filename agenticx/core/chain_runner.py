"""A runner that makes one message, with notes, tools and limits, a turn with checked citations.

It assembles a runtime, its tools and hooks and the context of the turn, and calls `AgentRuntime.run_turn`; it has no
loop of its own. Differences from the originally specified runner:

1. The turn's stop takes the place of an abort controller, its events that of functions that update a view.
2. The prompt and the tools are the same in all modes, so that a provider's cached prefix stays valid; the mode decides
   what a model gets before its first call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from agenticx.clocks import Clock, SystemClock
from agenticx.core.chain_limits import ChainLimits
from agenticx.core.context_envelope import ContextEnvelope
from agenticx.core.prompt_modes import Mode, ModeKind, detect_mode
from agenticx.core.turn_notes import SessionTurnNotes
from agenticx.errors import AgenticXError
from agenticx.knowledge.tools import VaultAccess, note_tools
from agenticx.knowledge.vaults import Vaults
from agenticx.logs import get_logger
from agenticx.messages import Attachment, UserMessage
from agenticx.runtime.agent_runtime import AgentRuntime
from agenticx.runtime.events import Event
from agenticx.runtime.gates.base import ConfirmGate, GateFunction
from agenticx.runtime.hooks import AgentHook, HookRegistry
from agenticx.runtime.interrupts import StopSignal
from agenticx.runtime.session import Session
from agenticx.runtime.turn_context import TurnContext
from agenticx.settings import Settings, load_settings
from agenticx.threads import run_in_thread
from agenticx.tools.base import Tool
from agenticx.tools.registry import Toolbox

__all__ = ["AgentChainRunner", "AgentInput", "AgentOptions", "InvalidAgentInput"]

_INVALID = "The message cannot be used as it is; the log says why. Write it again, or without what is attached."

_log = get_logger(__name__)


class InvalidAgentInput(AgenticXError):
    """Raised for an input of another form; its text is for a person, and the log has the whole reason."""


class AgentOptions(BaseModel):
    """Options of a turn: `debug` logs the sizes of its context, `ignore_system_message` omits the system prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    debug: bool = False
    ignore_system_message: bool = False


class AgentInput(BaseModel):
    """The input of a turn: the `message` for the model, and what belongs to it.

    `original_message` has the person's own words if the message has more, such as the text of a note; the mode, the
    names of notes and the first search are taken from it. An `envelope` replaces the context that the runner would
    make: it has the system text, the history in a new session, and passages with their numbers in the session
    (`number_passage`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: str = Field(min_length=1, strict=True)
    original_message: str | None = Field(None, strict=True)
    attachments: tuple[Attachment, ...] = ()
    envelope: InstanceOf[ContextEnvelope] | None = None
    options: AgentOptions = AgentOptions()

    @classmethod
    def checked(cls, value: AgentInput | Mapping[str, Any] | str) -> AgentInput:
        """Return the input, made of a mapping or of a text; raises `InvalidAgentInput`."""
        if isinstance(value, AgentInput):
            return value
        try:
            return cls.model_validate({"message": value} if isinstance(value, str) else value)
        except ValidationError as exc:
            _log.warning("the input of a turn is not valid", error=str(exc))
            raise InvalidAgentInput(_INVALID) from exc


class AgentChainRunner:
    """A runner of turns about notes and everything else, with the limits of the settings `autonomous_agent_*`.

    `vaults` are the person's notes, None for none; their tools are added to `tools`. The other arguments are those of
    `AgentRuntime`. A turn that is out of model calls or of its 300 s ends with what was found so far.
    """

    def __init__(
        self,
        llm: Any,
        confirm_gate: ConfirmGate | GateFunction | None = None,
        *,
        vaults: Vaults | None = None,
        tools: Sequence[Tool | Callable[..., Any]] | Toolbox = (),
        system_prompt: str | None = None,
        hooks: HookRegistry | Sequence[AgentHook] | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings or load_settings()
        self._limits = ChainLimits.from_settings(self._settings)
        self._vaults = vaults
        own = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self._access = None if vaults is None else VaultAccess(vaults)
        notes = () if self._access is None else note_tools(self._find_vaults)
        available = Toolbox([*own, *(tool for tool in notes if tool.schema.name not in own)])
        self._tools = self._limits.enabled(available)
        self._system_prompt = system_prompt
        self._runtime = AgentRuntime(
            llm,
            confirm_gate,
            tools=self._tools,
            system_prompt=system_prompt,
            hooks=hooks,
            settings=self._settings,
            clock=clock or SystemClock(),
        )

    async def run_turn(
        self,
        agent_input: AgentInput | Mapping[str, Any] | str,
        session: Session | None = None,
        should_stop: StopSignal | Callable[[], bool] | None = None,
        *,
        mode: ModeKind | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run one turn and yield its events, as `AgentRuntime.run_turn` does.

        `mode` replaces the mode that is detected from the words. Raises `InvalidAgentInput` before the turn begins.
        """
        checked = AgentInput.checked(agent_input)
        session = Session() if session is None else session
        envelope, words = checked.envelope, checked.original_message or checked.message
        notes = _ChainNotes(self._access, await self._mode(words, mode), self._settings, words, checked)
        await notes.check_indexes()
        if envelope is not None and not session.messages:
            session.messages.extend(envelope.history)
        system = envelope.system if envelope is not None and envelope.system else self._system_prompt
        context = TurnContext(
            max_rounds=self._limits.max_rounds,
            turn_seconds=self._limits.turn_seconds,
            on_exhausted=self._limits.on_exhausted,
            notes=notes,
        )
        events = self._runtime.run_turn(
            UserMessage(content=checked.message, attachments=checked.attachments),
            session,
            should_stop,
            system_prompt="" if checked.options.ignore_system_message else system,
            context=context,
        )
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def aclose(self) -> None:
        """Close the connections of the models; the vaults stay open."""
        await self._runtime.aclose()

    def _find_vaults(self) -> VaultAccess:
        assert self._access is not None
        return self._access

    async def _mode(self, words: str, chosen: ModeKind | None) -> Mode:
        if chosen is not None:
            if chosen not in get_args(ModeKind):
                raise ValueError(f"mode must be one of {', '.join(get_args(ModeKind))}, not {chosen!r}")
            return Mode(chosen, "the user chose it", certain=True)
        has_vaults = self._access is not None and bool(await self._access.list())
        return await run_in_thread(
            lambda: detect_mode(words, vaults=has_vaults, tools=self._tools.names), name="agx mode"
        )


class _ChainNotes(SessionTurnNotes):
    """The notes of a turn of a runner: from the given envelope, else from the vaults."""

    def __init__(
        self, access: VaultAccess | None, mode: Mode, settings: Settings, words: str, agent_input: AgentInput
    ) -> None:
        super().__init__(access, mode, has_citations=settings.enable_inline_citations, words=words)
        self._input = agent_input

    async def make_envelope(self, session: Session, raw: UserMessage, window: int | None) -> ContextEnvelope:
        """Return the context of the turn."""
        envelope = self._input.envelope
        if envelope is None:
            envelope = await super().make_envelope(session, raw, window)
        if self._input.options.debug:
            sizes = {size.layer: size.characters for size in envelope.sizes()}
            _log.info("the context of a turn", mode=self.mode, mode_reason=self.mode_reason, sizes=cast("Any", sizes))
        return envelope
