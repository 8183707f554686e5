"""A person in the loop: a client reads a turn as server-sent events and answers its question.

    AGX_MODEL=openai:gpt-4o agx serve --app tests.examples.approval_over_sse:app
    python -m tests.examples.approval_over_sse "Refund order 7."

Takes one model call for the refund, and one for the answer. Any other client, such as the page, may approve instead.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from agenticx.tools import tool
from studio import create_app


@tool(risk="write")
def refund(order: int) -> str:
    """Refund an order."""
    return f"order {order} is refunded"


app = create_app(tools=[refund])


async def converse(client: httpx.AsyncClient, text: str, decide: Callable[[str], Awaitable[bool]]) -> dict[str, Any]:
    """Run a turn in a new session, and return the data of its last event; `decide` answers questions."""
    session = (await client.post("/api/sessions", json={})).json()["id"]
    path, headers = f"/api/sessions/{session}/turns", {"Accept": "text/event-stream"}
    data: dict[str, Any] = {}
    async with client.stream("POST", path, json={"input": text}, headers=headers, timeout=None) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                data = event["data"]
                if event["type"] == "confirm_required":  # the digest says what is approved: these arguments
                    decision = {"approved": await decide(data["question"]), "digest": data["digest"]}
                    await client.post(f"/api/confirms/{data['id']}", json=decision)
    return data


async def main(text: str) -> None:
    """Ask at the terminal."""
    authorization = f"Bearer {(Path.home() / '.agenticx' / 'token').read_text().strip()}"
    async with httpx.AsyncClient(base_url="http://127.0.0.1:8765", headers={"Authorization": authorization}) as client:
        end = await converse(client, text, lambda question: asyncio.to_thread(lambda: input(question) == "yes"))
        print(end["text"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
