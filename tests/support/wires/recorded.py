"""Recorded streams of providers with their expected outcomes, if they are on this machine."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from agenticx.errors import ModelError
from agenticx.llms import Reply

Chunking = Literal["whole", "random", "bytes"]
CHUNKINGS: tuple[Chunking, ...] = ("whole", "random", "bytes")

NO_STREAMS = "no recorded provider streams: set AGX_STREAMS to the folder that has expected.jsonl"
_FIELDS_BEFORE_ERROR = ("text", "reasoning", "tool_calls", "error", "error_type")


@dataclass(frozen=True)
class Recording:
    """One recorded stream; a reply is right if it equals any of `outcomes`."""

    slug: str
    body: bytes
    outcomes: tuple[dict[str, Any], ...]
    notes: dict[str, Any]

    def closest_outcome(self, actual: dict[str, Any]) -> dict[str, Any]:
        """Return `actual` if it is one of the expected outcomes, else the first of them."""
        for outcome in self.outcomes:
            if comparable_fields(actual, outcome) == comparable_fields(outcome, outcome):
                return actual
        return self.outcomes[0]


def comparable_fields(actual: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Return the compared part of an outcome: with an error only the fields before it, reasoning without whitespace."""
    keys = _FIELDS_BEFORE_ERROR if expected["error"] else tuple(expected)
    return {key: re.sub(r"\s", "", actual[key]) if key == "reasoning" else actual[key] for key in keys}


def outcome(reply: Reply, error: ModelError | None) -> dict[str, Any]:
    """Return a reply in the form of the expected outcomes."""
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "tool_calls": [
            {"name": call.name, "arguments": json.loads(call.arguments) if call.arguments.strip() else {}}
            for call in reply.tool_calls
        ],
        "finish_reason": reply.finish_reason,
        "usage": {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens},
        "error": error is not None,
        "error_type": error.provider_type if error else None,
        "complete": reply.complete,
    }


def split_body(body: bytes, chunking: Chunking, seed: int = 1) -> Iterator[bytes]:
    """Yield `body` whole, in random chunks, or byte by byte."""
    if chunking == "whole":
        yield body
        return
    rng, start = random.Random(seed), 0
    while start < len(body):
        size = 1 if chunking == "bytes" else rng.randint(1, 97)
        yield body[start : start + size]
        start += size


def garble(body: bytes, rng: random.Random) -> bytes:
    """Return `body` with a few bytes changed, dropped, doubled or moved."""
    garbled = bytearray(body)
    for _ in range(rng.randint(1, 6)):
        at, size = rng.randrange(len(garbled)), rng.randint(1, 40)
        match rng.randrange(4):
            case 0:
                garbled[at] = rng.randrange(256)
            case 1:
                del garbled[at : at + size]
            case 2:
                garbled[at:at] = garbled[at : at + size]
            case _:
                garbled[at : at + size] = rng.choice([b"null", b"{}", b"[]", b'"', b"\\ud800", b"\n\n", b"1e999"])
        if not garbled:
            return b""
    return bytes(garbled)


@cache
def streams_folder() -> Path | None:
    given = os.environ.get("AGX_STREAMS")
    found = Path(given) if given else Path(__file__).parents[3] / "../shared/data/streams"
    return found if (found / "expected.jsonl").is_file() else None


def recordings(kind: str) -> list[Any]:
    """Return parameters for `@pytest.mark.parametrize("recording", …)`: one per stream, or one that skips."""
    root = streams_folder()
    if root is None:
        return [pytest.param(None, marks=pytest.mark.skip(NO_STREAMS), id="none")]
    rows = (json.loads(line) for line in (root / "expected.jsonl").read_text(encoding="utf-8").splitlines())
    return [pytest.param(_recording(root, row), id=row["slug"]) for row in rows if row["kind"] == kind]


def recorded_errors(kind: str) -> list[Any]:
    """Return parameters for the recorded HTTP errors of a wire, as dicts with status, headers and body."""
    root = streams_folder()
    if root is None:
        return [pytest.param(None, marks=pytest.mark.skip(NO_STREAMS), id="none")]
    files = sorted((root / "errors" / kind).glob("*.json"))
    return [pytest.param(json.loads(file.read_text(encoding="utf-8")), id=file.stem) for file in files]


def _recording(root: Path, row: dict[str, Any]) -> Recording:
    body = (root / row["kind"] / f"{row['slug']}.sse").read_bytes()
    return Recording(row["slug"], body, (row["outcome"], *row.get("alternatives", ())), row["notes"])
