"""A player that runs one turn and checks what must hold for every turn."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agenticx import UserMessage
from agenticx.clocks import Clock
from agenticx.messages import AssistantMessage, Message, SystemMessage, ToolMessage
from agenticx.runtime import AgentRuntime, RuntimeEvent, Session, TurnContext, sanitize
from agenticx.settings import Settings, load_settings
from agenticx.testing import ScriptedGate, ScriptedModel, check_grammar, fake_openai, outline
from tests.support.jumping_clock import LoopClock
from tests.support.wires import chunk_server

_PROVIDER_FILES = (fake_openai.__file__, chunk_server.__file__)

__all__ = ["PlayedTurn", "Player", "check_turn", "collector"]


@dataclass(frozen=True, kw_only=True)
class PlayedTurn:
    """A turn that is over."""

    events: list[RuntimeEvent]
    session: Session
    model: Any

    @property
    def outline(self) -> list[str]:
        """The events without state and usage, each with its detail: `tool_result:denied`."""
        return outline(self.events, detail=True)

    @property
    def results(self) -> list[tuple[str, str, str]]:
        """The (id, outcome, text) of each call's result."""
        return [(e.data["tool_call_id"], e.data["outcome"], e.data["result"]) for e in self.events_of("tool_result")]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The session's messages, as `row` writes them."""
        return [row(message) for message in self.session.messages]

    @property
    def terminal(self) -> dict[str, Any]:
        """The data of the last event."""
        return self.events[-1].data

    def events_of(self, type_: str) -> list[RuntimeEvent]:
        return [event for event in self.events if event.type == type_]


def row(message: Message) -> tuple[Any, ...]:
    """Return a message as a tuple: ("user", text), ("assistant", text, call names), ("tool", id, outcome, text), …

    The first element is the role, "reminder" for injected messages and "partial" for partial ones.
    """
    match message:
        case UserMessage():
            return ("reminder" if message.injected else "user", message.content)
        case AssistantMessage():
            names = [call.name for call in message.tool_calls]
            return ("partial" if message.partial else "assistant", message.content, *([names] if names else []))
        case ToolMessage():
            return ("tool", message.tool_call_id, message.outcome, message.content)
        case SystemMessage():
            return ("system", message.content)


@dataclass(frozen=True)
class Player:
    """A runner of turns: `await play([say("hi")])` runs one in a workspace of its own to its end and checks it."""

    home: Path
    workspace: Path

    def settings(self, **overrides: Any) -> Settings:
        """Return settings that no variable or file of this machine affects."""
        return load_settings(overrides, environ={"AGX_HOME": str(self.home)})

    def session(self, **options: Any) -> Session:
        return Session(workspace=self.workspace, **options)

    def runtime(self, model: Any, gate: Any = None, *, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        """Return a runtime whose clock is that of the running loop."""
        gate = ScriptedGate() if gate is None else gate
        return AgentRuntime(model, gate, settings=self.settings(**settings or {}), **{"clock": LoopClock(), **options})

    async def __call__(
        self,
        script: Any,
        *,
        tools: Any = (),
        gate: Any = None,
        session: Session | None = None,
        user: Any = "go",
        stop: Any = None,
        on: Callable[[RuntimeEvent], object] | None = None,
        clock: Clock | None = None,
        agent_id: str = "meta",
        system_prompt: str | None = None,
        output_type: Any = None,
        steering: Any = None,
        context: TurnContext | None = None,
        **options: Any,
    ) -> PlayedTurn:
        """Run a turn and return it; `script` is a list of replies or a model, `on` is called with each event."""
        clock = clock or LoopClock()
        model = ScriptedModel(script, clock=clock) if isinstance(script, list) else script
        session = session or self.session()
        before = asyncio.all_tasks()
        runtime = self.runtime(model, gate, clock=clock, **options)
        events: list[RuntimeEvent] = []
        async for event in runtime.run_turn(
            user,
            session,
            stop,
            tools=tools,
            agent_id=agent_id,
            system_prompt=system_prompt,
            output_type=output_type,
            context=context if steering is None else TurnContext(steering=steering),
        ):
            events.append(event)
            if on is not None:
                on(event)
        run = PlayedTurn(events=events, session=session, model=model)
        check_turn(run, before)
        for scripted in (model, gate):
            if isinstance(scripted, ScriptedModel | ScriptedGate):
                scripted.assert_done()
        return run


def collector(events: list[RuntimeEvent]) -> Callable[[Sequence[RuntimeEvent]], Awaitable[None]]:
    """Return a sink that appends the events of a turn to `events`."""

    async def sink(batch: Sequence[RuntimeEvent]) -> None:
        events.extend(batch)

    return sink


def check_turn(run: PlayedTurn, before: set[asyncio.Task[Any]]) -> None:
    """Check what must hold for every finished turn; `before` are the tasks that existed before it."""
    check_grammar(run.events)
    assert sanitize(run.session.messages) == run.session.messages, "the engine writes valid history"
    own = [call for call in run.events_of("tool_call") if call.turn_id == run.events[0].turn_id]
    asked = [call.data["tool_call_id"] for call in own]
    answered = [message.tool_call_id for message in run.session.messages if isinstance(message, ToolMessage)]
    last = min(len(asked), len(answered)) if run.events_of("compaction") else len(asked)
    assert answered[len(answered) - last :] == asked[len(asked) - last :], "one tool row per call, in call order"
    left = [task for task in asyncio.all_tasks() - before if not _is_of_provider(task)]
    assert left == [], "no task is left"
    assert getattr(run.model, "open_streams", 0) == 0, "no stream is left"


def _is_of_provider(task: asyncio.Task[Any]) -> bool:
    """Return whether `task` serves a connection of a fake provider, which ends soon after its client's turn."""
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and coroutine.cr_code.co_filename in _PROVIDER_FILES
