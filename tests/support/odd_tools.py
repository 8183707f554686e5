"""Exceptions and values that are hard to report, and a turn that calls one tool."""

from __future__ import annotations

from agenticx.runtime import AutoApproveConfirmGate, encode_envelope
from agenticx.testing import call
from agenticx.tools import tool


class Panic(BaseException):
    """An exception that is neither an Exception nor a SystemExit."""


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no")


def cyclic():
    value: dict = {"a": 1}
    value["self"] = value
    return value


async def one_result(play, function, **options):
    """Run a turn with one call of `function` and return its result's data."""
    options.setdefault("gate", AutoApproveConfirmGate())
    made = tool(risk="read", name="odd")(function) if not hasattr(function, "schema") else function
    run = await play([call("odd"), "ok"], tools=[made], **options)
    assert run.outline[-3:] == ["round_start", "token", "final:answer"]
    for event in run.events:
        encode_envelope(event, session_id="s", turn_id="t", seq=1, ts="now")
    [result] = run.events_of("tool_result")
    return result.data
