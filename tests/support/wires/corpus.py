"""The malformed streams of `odd/`, one file each, with their expected outcomes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agenticx.errors import ModelError
from agenticx.llms import Reply
from tests.support.wires.wires import WIRES, WireUnderTest

__all__ = ["MALFORMED_STREAMS", "MalformedStream", "outcome"]


@dataclass(frozen=True)
class MalformedStream:
    """One body and its outcome, where `error` is the provider's error type, None without a type, or absent."""

    wire: WireUnderTest
    name: str
    body: bytes
    expected: dict[str, Any]


def outcome(reply: Reply, error: ModelError | None) -> dict[str, Any]:
    """Return a reply in the form of the outcomes; only a complete one has a stop reason."""
    fields: dict[str, Any] = {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "tool_calls": [[call.id, call.name, call.arguments] for call in reply.tool_calls],
        "complete": reply.complete,
    }
    if reply.complete:
        fields |= {"finish_reason": reply.finish_reason, "stop": reply.stop}
    if error is not None:
        fields["error"] = error.provider_type
    return fields


def _read(wire: WireUnderTest) -> list[MalformedStream]:
    folder = Path(__file__).parents[2] / "unit" / "wires" / "odd" / wire.name
    return [
        MalformedStream(
            wire, file.stem, file.read_bytes(), json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        )
        for file in sorted(folder.glob(f"*.{wire.ending}"))
    ]


MALFORMED_STREAMS = [oddity for wire in WIRES.values() for oddity in _read(wire)]
