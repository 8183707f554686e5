"""Benchmarks of files of a session: what a live preview costs, and several options at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from agenticx.runtime import AgentRuntime, EventType, Session, Turn, TurnContext, WorkResult, encode_envelope
from agenticx.runtime.options import run_options
from agenticx.settings import load_settings
from agenticx.testing import ScriptedModel, call, pause, say
from agenticx.tools import Toolbox, ToolContext, tool
from agenticx.tools.builtin import create_file
from tests.benchmarks.rows import Row, Scale

__all__ = ["artifact_rows"]

MICRO, MILLI = 1e6, 1e3
PIECE_CHARS = 12
_OPTIONS, _OPTION_TOKENS, _TOKEN_SECONDS = 4, 40, 0.01


@tool(risk="read", read_only=False, name="create_file")
async def _without_preview(content: str, context: ToolContext, path: str = "index.html") -> str:
    """Create a file as `create_file` does, without a preview."""
    return await create_file.function(content, context, path)


async def artifact_rows(scale: Scale) -> list[Row]:
    """Measure a call of `create_file` at full speed with and without its preview, and options beside one answer."""
    content = ('<p class="card">Rye bread, 3.20</p>\n' * (scale.tokens * PIECE_CHARS // 36 + 1))[
        : scale.tokens * PIECE_CHARS
    ]
    shown, plain, sent = list[float](), list[float](), 0
    for _ in range(scale.repeats):
        plain.append((await _written(content, scale.tokens, _without_preview))[0])
        took, sent = await _written(content, scale.tokens, create_file)
        shown.append(took)
    one, several = await _answered(1), await _answered(_OPTIONS)
    return [
        Row(
            name="a call of create_file with a live preview, per token",
            value=median(shown) / scale.tokens * MICRO,
            unit="µs",
            floor=median(plain) / scale.tokens * MICRO,
            first_light=1.5,
        ),
        Row(
            name="bytes of its artifact events",
            value=sent / 1e3,
            unit="kB",
            floor=(len(content) + 4_000 / 1.5) / 1e3,
            first_light=1.5,
        ),
        Row(
            name=f"{_OPTIONS} options at once, beside one",
            value=several * MILLI,
            unit="ms",
            floor=one * MILLI,
            first_light=1.3,
        ),
    ]


async def _written(content: str, pieces: int, own: object) -> tuple[float, int]:
    """Return the CPU time of a turn with such a call, and the bytes of its artifact events."""
    model = ScriptedModel([call("create_file", {"content": content}, pieces=pieces), "Done."])
    agent = AgentRuntime(model, settings=load_settings(environ={}))
    begun, sent = time.process_time(), 0
    async for event in agent.run_turn("go", Session(workspace=Path.cwd()), tools=Toolbox([own])):  # type: ignore[list-item]
        if event.type is EventType.ARTIFACT:
            sent += len(
                encode_envelope(event, session_id="ses_0", turn_id=event.turn_id, seq=1, ts="2026-01-01T00:00:00Z")
            )
    return time.process_time() - begun, sent


async def _answered(count: int) -> float:
    """Return the time in which so many paced options are made."""
    script = [part for _ in range(_OPTION_TOKENS) for part in (pause(_TOKEN_SECONDS), say("word "))]
    agent = AgentRuntime(ScriptedModel([script] * count), settings=load_settings(environ={}))

    async def work(turn: Turn) -> WorkResult:
        return WorkResult(await run_options(turn, count))

    begun = time.perf_counter()
    events: Sequence[object] = [
        event async for event in agent.run_turn("go", Session(workspace=Path.cwd()), context=TurnContext(work=work))
    ]
    assert events
    return time.perf_counter() - begun
