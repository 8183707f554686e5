"""The registry of hooks: they run in priority order, each isolated and limited in time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any, cast

from agenticx import user_code
from agenticx.errors import AgenticXError, HookFailed, UserCodeError
from agenticx.llms.base import Reply
from agenticx.llms.openai_rows import messages_from_rows
from agenticx.messages import Message
from agenticx.runtime.hooks.base import AgentHook, Block, HookContext

__all__ = ["FailureReporter", "HookRegistry"]

FailureReporter = Callable[[AgenticXError], None]
"""A callback that receives the failure of an observer."""


_HOOK_POINTS = tuple(name for name in vars(AgentHook) if not name.startswith("_"))
_HOOK_PREFIXES = ("before_", "after_", "on_")
_SIMILAR, _SIMILAR_IF_PREFIXED, _SIMILAR_WORD = 0.8, 0.5, 0.75  # ratios of difflib.SequenceMatcher


class HookRegistry:
    """The hooks of a runtime. Lower `priority` runs first; equal ones in order of registration.

    `limit` is the real seconds that each method of a hook may take; the default is the runtime's setting. `overridden`
    has the names of the methods that any hook overrides: callers need not call `run_…` for the others.
    """

    def __init__(self, hooks: Sequence[AgentHook] = (), *, limit: float | None = None) -> None:
        self._entries: list[tuple[int, int, AgentHook]] = []
        self.limit = limit
        self.overridden: set[str] = set()
        for hook in hooks:
            self.register(hook)

    @classmethod
    def from_hooks(cls, hooks: HookRegistry | Sequence[AgentHook] | None) -> HookRegistry:
        """Return a registry as it is, or a registry of a list of hooks; raise `TypeError` for other types."""
        if isinstance(hooks, HookRegistry):
            return hooks
        if hooks is not None and not isinstance(hooks, list | tuple):
            raise TypeError(f"hooks must be a HookRegistry or a list of hooks, not {type(hooks).__name__}")
        return cls(hooks or ())

    def register(self, hook: AgentHook, priority: int = 0) -> None:
        """Add a hook.

        Raises `TypeError` for an object without any hook method, for example the class of a hook, and for a public
        method with almost the name, or with the prefix, of a hook method: it would never be called.
        """
        if not any(callable(getattr(type(hook), point, None)) for point in _HOOK_POINTS):
            raise TypeError(f"{_name_of(hook)} is no hook: give an object of a class that derives from AgentHook")
        _check_method_names(type(hook))
        self._entries.append((priority, len(self._entries), hook))
        self._entries.sort(key=lambda entry: entry[:2])
        self.overridden.update(point for point in _HOOK_POINTS if _overrides(hook, point))

    def has(self, kind: type[AgentHook]) -> bool:
        """Return whether a hook of that class is registered."""
        return any(isinstance(hook, kind) for _, _, hook in self._entries)

    def with_default_limit(self, limit: float) -> HookRegistry:
        """Return the same hooks, later ones included, under `limit` if this registry sets none."""
        if self.limit is not None:
            return self
        bounded = HookRegistry(limit=limit)
        bounded._entries, bounded.overridden = self._entries, self.overridden
        return bounded

    def with_hooks(self, hooks: Sequence[AgentHook]) -> HookRegistry:
        """Return a registry of this one's present hooks and, after them at priority 0, `hooks`."""
        more = HookRegistry(limit=self.limit)
        for priority, _, hook in self._entries:
            more.register(hook, priority)
        for hook in hooks:
            more.register(hook)
        return more

    async def run_before_model(self, messages: list[Message], context: HookContext) -> list[Message]:
        """Return the messages to send; raise `HookFailed` if a hook fails."""
        for hook, what in self._overriding("before_model"):
            changed = await self._guard(hook.before_model, messages, context, what=what)
            if changed is None:
                continue
            if not isinstance(changed, list | tuple):
                raise HookFailed(f"{what} must return a list of messages or None, not {type(changed).__name__}")
            try:
                messages = messages_from_rows(cast("Sequence[object]", changed))
            except TypeError as exc:
                raise HookFailed(f"{what} must return messages or dict rows: {exc}") from exc
        return messages

    async def run_before_tool_call(self, name: str, arguments: Mapping[str, Any], context: HookContext) -> Block | None:
        """Return the `Block` of the first hook that blocks the call, else None; raise `HookFailed` if a hook fails."""
        for hook, what in self._overriding("before_tool_call"):
            verdict = await self._guard(hook.before_tool_call, name, dict(arguments), context, what=what)
            if isinstance(verdict, Block):
                return verdict
            if verdict is not None:
                raise HookFailed(f"{what} must return Block(reason) or None, not {type(verdict).__name__}")
        return None

    async def run_after_tool_call(
        self, name: str, arguments: Mapping[str, Any], result: str, context: HookContext
    ) -> str:
        """Return the result that is sent to the model; raise `HookFailed` if a hook fails."""
        for hook, what in self._overriding("after_tool_call"):
            changed = await self._guard(hook.after_tool_call, name, dict(arguments), result, context, what=what)
            if changed is None:
                continue
            if not isinstance(changed, str):
                raise HookFailed(f"{what} must return text or None, not {type(changed).__name__}")
            result = changed
        return result

    async def run_after_model(self, reply: Reply, context: HookContext, report: FailureReporter) -> None:
        for hook, what in self._overriding("after_model"):
            await self._observe(hook.after_model, reply, context, what=what, report=report)

    async def run_on_compaction(self, count: int, summary: str, context: HookContext, report: FailureReporter) -> None:
        for hook, what in self._overriding("on_compaction"):
            await self._observe(hook.on_compaction, count, summary, context, what=what, report=report)

    async def run_on_agent_end(self, reason: str, text: str, context: HookContext, report: FailureReporter) -> None:
        for hook, what in self._overriding("on_agent_end"):
            await self._observe(hook.on_agent_end, reason, text, context, what=what, report=report)

    def _overriding(self, point: str) -> Iterator[tuple[AgentHook, str]]:
        for _, _, hook in tuple(self._entries):
            if _overrides(hook, point):
                yield hook, f"hook {type(hook).__name__}.{point}"

    async def _guard(self, method: Callable[..., Any], *args: Any, what: str) -> Any:
        try:
            return await user_code.call(method, *args, what=what, limit=self.limit)
        except AgenticXError as exc:
            raise HookFailed(str(exc)) from exc

    async def _observe(self, method: Callable[..., Any], *args: Any, what: str, report: FailureReporter) -> None:
        try:
            await user_code.call(method, *args, what=what, limit=self.limit)
        except AgenticXError as exc:
            report(exc if isinstance(exc, UserCodeError) else HookFailed(f"{what}: {exc}"))


def _overrides(hook: AgentHook, point: str) -> bool:
    base = getattr(AgentHook, point)
    return getattr(type(hook), point, base) is not base


def _check_method_names(hook_class: type) -> None:
    for name in dir(hook_class):
        if name.startswith("_") or name in _HOOK_POINTS or not callable(getattr(hook_class, name, None)):
            continue
        closest = _closest_point(name)
        if closest or name.startswith(_HOOK_PREFIXES):
            advice = f"did you mean {closest}? T" if closest else "t"
            raise TypeError(
                f"{hook_class.__name__}.{name} would never be called; {advice}he methods of a hook are"
                f" {', '.join(_HOOK_POINTS)}"
            )


def _closest_point(name: str) -> str | None:
    """Return the hook point that was probably meant by `name`, None if none is similar.

    Names are compared by their words, in any order, and by their letters.

    >>> [_closest_point(name) for name in ("befor_tool", "tool_call_after", "on_end", "on_finish", "call_tool")]
    ['before_tool_call', 'after_tool_call', 'on_agent_end', None, None]
    """
    words = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    scores = {point: (_shared_words(words, point), _similarity(name.lower(), point)) for point in _HOOK_POINTS}
    closest = max(scores, key=lambda point: scores[point])
    in_words, in_letters = scores[closest]
    has_prefix = name.startswith(_HOOK_PREFIXES)
    is_close = in_words >= _SIMILAR or in_letters >= _SIMILAR or (has_prefix and in_words > _SIMILAR_IF_PREFIXED)
    return closest if is_close else None


def _shared_words(words: Sequence[str], point: str) -> float:
    """Return the share of words that a name and a hook point have in common, 0 without "before", "after" or "on"."""
    expected = point.split("_")
    common = [word for word in expected if get_close_matches(word, words, n=1, cutoff=_SIMILAR_WORD)]
    return 2 * len(common) / (len(words) + len(expected)) if expected[0] in common else 0


def _similarity(name: str, point: str) -> float:
    return SequenceMatcher(a=name, b=point, autojunk=False).ratio()


def _name_of(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
