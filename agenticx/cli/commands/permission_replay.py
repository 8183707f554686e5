"""The `agx permissions replay` action: what a rule would have decided about the calls of past sessions."""

from __future__ import annotations

import asyncio
import heapq
import json
import re
import shlex
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from agenticx.cli.client.base import SessionInfo, SessionReader
from agenticx.cli.client.session_lookup import all_sessions
from agenticx.cli.commands.session_access import open_session_reader, print_note
from agenticx.cli.exit_codes import DONE
from agenticx.cli.options import enabled_tools
from agenticx.clocks import rfc3339
from agenticx.errors import AgenticXError
from agenticx.permissions.rule_stores import open_rules
from agenticx.permissions.rules import ANY_TOOL, EDITS, Call, Rule, parse_rule
from agenticx.permissions.verdict import Decision, decide
from agenticx.runtime.calls.explaining import describe_call
from agenticx.runtime.events import EventType
from agenticx.sandbox.options import sandbox_options
from agenticx.sessions.store.factory import using_shared_state
from agenticx.settings import Settings, load_settings
from agenticx.tools.base import Assessment, Tool
from agenticx.tools.context import ToolContext
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible_line

__all__ = ["replay", "start_of_period"]

_SHOWN, _LISTED = 20, 100
_MAX_CHARS = 200
_PERIOD = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_WORDS: Mapping[Decision, str] = {"allow": "allowed", "ask": "asked about", "deny": "denied"}


def start_of_period(text: str) -> str:
    """Return the time of a day or of a period before now, as RFC 3339; raise `ArgumentTypeError`."""
    if (period := _PERIOD.fullmatch(text)) is not None:
        try:
            return rfc3339(datetime.now(UTC) - timedelta(**{_UNITS[period[2]]: int(period[1])}))
        except OverflowError:
            return ""
    try:
        return f"{date.fromisoformat(text).isoformat()}T00:00:00.000Z"
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is neither a day, as in 2026-01-31, nor a period such as 7d or 12h"
        ) from None


@dataclass(frozen=True, slots=True, order=True)
class _PastCall:
    """A call that the rule would have decided about; `was_asked` says that it was asked about then."""

    at: str
    session_id: str
    tool: str
    subject: str
    was_asked: bool

    def to_json(self) -> dict[str, Any]:
        """Return the row of the call."""
        row = {"at": self.at, "session_id": self.session_id, "tool": self.tool}
        return {**row, "subject": self.subject, "was_asked": self.was_asked}


@dataclass(slots=True)
class _Findings:
    """The calls of past sessions by what the rule would have decided, the newest ones with their texts."""

    counts: Counter[Decision] = field(default_factory=Counter[Decision])
    asked: Counter[Decision] = field(default_factory=Counter[Decision])
    newest: dict[Decision, list[_PastCall]] = field(default_factory=dict[Decision, list[_PastCall]])
    calls: int = 0
    unreadable: int = 0

    def add(self, decision: Decision, call: _PastCall) -> None:
        """Count a call about which the rule speaks."""
        self.counts[decision] += 1
        self.asked[decision] += call.was_asked
        kept = self.newest.setdefault(decision, [])
        heapq.heappush(kept, call)
        if len(kept) > _LISTED:
            heapq.heappop(kept)


def replay(arguments: Namespace) -> int:
    """Run `agx permissions replay` and return its exit code; raise `InvalidArguments`."""
    words: list[str] = arguments.words
    folder = None if arguments.cwd is None else str(arguments.cwd.resolve())
    rule = parse_rule(words[0] if len(words) == 1 else shlex.join(words), workspace=folder)
    settings = load_settings()
    with using_shared_state(settings, only_reads=True) as shared:
        stored = open_rules(settings.home, shared).list()
    found = asyncio.run(_replay(rule, stored, settings, arguments.since or ""))
    if arguments.json:
        print(json.dumps(_to_json(rule, found)))
    else:
        _print(rule, found)
    return DONE


async def _replay(rule: Rule, stored: Sequence[Rule], settings: Settings, since: str) -> _Findings:
    found = _Findings()
    tools = {tool.schema.name: tool for tool in enabled_tools(settings)}
    decider = _Decider(rule, stored, settings, tools)
    async with open_session_reader() as (client, _):
        async for session in all_sessions(client):
            if rule.holds_in(Path(session.record.workspace)):
                await _replay_session(client, session, decider, since, found)
    return found


async def _replay_session(
    client: SessionReader, session: SessionInfo, decider: _Decider, since: str, found: _Findings
) -> None:
    calls, asked = list[tuple[str, str, str, Mapping[str, Any]]](), set[object]()
    async with client.read_log(session.id) as log:
        async for event in log:
            if event.type == EventType.CONFIRM_REQUIRED:
                context = cast("Mapping[str, Any]", event.data.get("context", {}))
                asked.add(context.get("tool_call_id"))
            elif event.type == EventType.TOOL_CALL and event.timestamp >= since:
                name, arguments = event.data.get("name"), event.data.get("arguments")
                if isinstance(name, str) and isinstance(arguments, dict) and decider.may_speak_about(name):
                    given = cast("dict[str, Any]", arguments)
                    calls.append((event.timestamp, str(event.data.get("tool_call_id")), name, given))
    for at, call_id, name, arguments in calls:
        found.calls += 1
        try:
            call, decision = decider.decide(name, arguments, Path(session.record.workspace))
        except (AgenticXError, OSError):
            found.unreadable += 1
            continue
        if decision is not None:
            found.add(decision, _PastCall(at, session.id, name, _subject(call), call_id in asked))


@dataclass(frozen=True, slots=True)
class _Decider:
    """The decision about a past call in mode default, with the rule and those that are stored."""

    rule: Rule
    stored: Sequence[Rule]
    settings: Settings
    tools: Mapping[str, Tool]

    def may_speak_about(self, tool: str) -> bool:
        """Return whether the rule can be about calls of a tool."""
        return self.rule.tool in (ANY_TOOL, EDITS, tool)

    def decide(self, name: str, arguments: Mapping[str, Any], workspace: Path) -> tuple[Call, Decision | None]:
        """Return the call, and what the rule would decide about it, None if it says nothing.

        Raises an `AgenticXError` for a call that the tool refuses today.
        """
        if (tool := self.tools.get(name)) is None:  # of an application or a server
            unknown = Assessment(risk="execute", undeclared=True)
            call = Call(tool=name, assessment=unknown, arguments=arguments, workspace=workspace)
        else:
            private, sandbox = self.settings.private_paths, sandbox_options(self.settings)
            context = ToolContext(workspace=workspace, protected_roots=private, sandbox=sandbox)
            call = describe_call(tool, arguments, context)
        verdict = decide("default", call, rules=[self.rule, *self.stored])
        return call, verdict.decision if self.rule in verdict.rules else None


def _subject(call: Call) -> str:
    """Return what a call is about, on one line: its command, its path, or its arguments."""
    assessment, arguments = call.assessment, call.arguments
    if assessment.shell is not None:
        return visible_line(assessment.shell.text, _MAX_CHARS)
    if assessment.paths:
        return visible_line(", ".join(assessment.paths), _MAX_CHARS)
    return visible_line(json.dumps(dict(arguments), default=repr)[: 2 * _MAX_CHARS], _MAX_CHARS)


def _to_json(rule: Rule, found: _Findings) -> dict[str, Any]:
    row: dict[str, Any] = {"rule": rule.to_json(), "looked_at": found.calls, "unreadable": found.unreadable}
    for decision in _WORDS:
        newest = sorted(found.newest.get(decision, ()), reverse=True)
        row[decision] = {
            "count": found.counts[decision],
            "were_asked": found.asked[decision],
            "calls": [call.to_json() for call in newest],
        }
    return row


def _print(rule: Rule, found: _Findings) -> None:
    print(visible_line(str(rule), 2 * _MAX_CHARS))
    for decision, word in _WORDS.items():
        if number := found.counts[decision]:
            asked = found.asked[decision]
            print(f"would have {word}: {pluralize(number, 'call')} (asked about then: {asked:,})")
            for call in sorted(found.newest[decision], reverse=True)[:_SHOWN]:
                mark = "?" if call.was_asked else " "
                print(f"  {mark} {call.at[:16]}  {visible_line(call.tool, _MAX_CHARS)}  {call.subject}")
            if number > _SHOWN:
                print(f"    … and {number - _SHOWN:,} older ones")
    if not found.counts:
        print_note(f"it decides about none of {pluralize(found.calls, 'past call')}")
    if found.unreadable:
        left_out = pluralize(found.unreadable, "call")
        print_note(f"{left_out} cannot be looked at today, for example because a file is gone")
    print_note("the calls are judged with today's files and stored rules, in mode default, not as they were then")
