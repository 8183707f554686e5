"""A turn in a process of its own whose memory is measured.

Usage: `python -m tests.support.faults.measured_call WIRE URL CLOCKS`.
The growth of its memory is printed as JSON. The first request warms up, the second is measured under `CLOCKS`, settings
as JSON; no other clock runs out.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from agenticx.llms import RetryingModel, RetryPolicy, close_model
from agenticx.runtime import AgentRuntime, Session
from agenticx.settings import load_settings
from agenticx.tools import tool
from tests.support.wires.wires import WIRES

NO_LIMIT = {f"llm_{name}_seconds": 86_400 for name in ("invoke_timeout", "heartbeat_timeout", "hard_timeout")}


@tool(risk="read")
async def look(at: list[Any]) -> str:
    """Look."""
    return f"saw {len(at)}"


async def main(wire: str, url: str, clocks: str) -> None:
    model = WIRES[wire].model(url)
    await turn(model, {})
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = kilobytes("VmHWM")
    end = await turn(model, json.loads(clocks))
    await close_model(model)
    print(json.dumps({"grew": (kilobytes("VmHWM") - before) // 1024, **end}))


async def turn(model: Any, clocks: dict[str, float]) -> dict[str, Any]:
    """Return the code or type of the last event, and the number of characters received before it."""
    retrying, characters = RetryingModel(model, (), RetryPolicy(attempts=1)), 0
    runtime = AgentRuntime(retrying, settings=load_settings({**NO_LIMIT, **clocks}))
    async for event in runtime.run_turn("hi", Session(), tools=[look]):
        characters += len(event.data["text"]) if event.type == "token" else 0
        if event.terminal:
            said = event.data["text"][:90] if event.type == "error" else ""
            return {"end": event.data.get("code", event.type), "characters": characters, "said": said}
    raise AssertionError("a turn without an end")


def kilobytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) if found else 0


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
