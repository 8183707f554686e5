"""Parsing of text parts, reasoning details and usage counts of Chat Completions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from agenticx.llms.base import Usage
from agenticx.llms.json_values import cost_in, count_in, fields_in, first_count_in

__all__ = ["ReasoningDetails", "parse_usage", "plain_text"]


def plain_text(value: object) -> str:
    """Return the text in a string, a part, or a list of parts; encrypted and redacted parts have none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(plain_text(part) for part in cast("list[object]", value))
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        names = ("text", "thinking", "summary", "refusal", "content")
        return next((text for name in names if (text := plain_text(fields.get(name)))), "")
    return ""


class ReasoningDetails:
    """Streamed `reasoning_details` or `thinking_blocks`: adjacent fragments of one type and index are one detail."""

    def __init__(self) -> None:
        self._details: list[tuple[dict[str, Any], dict[str, list[str]]]] = []

    def add(self, fragments: list[object]) -> None:
        """Add the fragments of one delta."""
        for fragment in fragments:
            if isinstance(fragment, dict):
                self._add(cast("dict[str, Any]", fragment))

    def _add(self, fragment: dict[str, Any]) -> None:
        if not self._details or any(self._details[-1][0].get(name) != fragment.get(name) for name in ("type", "index")):
            self._details.append(({}, {}))
        fields, texts = self._details[-1]
        for name, value in fragment.items():
            if name in ("text", "summary", "data", "thinking") and isinstance(value, str):
                texts.setdefault(name, []).append(value)
            elif value not in (None, "") or name not in fields:
                fields[name] = value

    def joined(self) -> list[dict[str, Any]]:
        """Return the details, each with its fragments joined."""
        return [
            {**fields, **{name: "".join(fragments) for name, fragments in texts.items()}}
            for fields, texts in self._details
        ]


def parse_usage(usage: object) -> Usage | None:
    """Return the counts in a `usage` object, None if it is none.

    xAI does not count reasoning as output; its total count shows that.
    """
    if not isinstance(usage, dict):
        return None
    fields = cast("dict[str, Any]", usage)
    prompt, completion = fields_in(fields, "prompt_tokens_details"), fields_in(fields, "completion_tokens_details")
    tokens_in, tokens_out = count_in(fields, "prompt_tokens"), count_in(fields, "completion_tokens")
    thought = first_count_in((completion, "reasoning_tokens"), (fields, "reasoning_tokens"))
    return Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=first_count_in(
            (prompt, "cached_tokens"), (fields, "cached_tokens"), (fields, "prompt_cache_hit_tokens")
        ),
        reasoning_tokens=thought,
        cost_usd=_reported_cost(fields),
        cache_write_tokens=count_in(prompt, "cache_write_tokens"),
        output_excludes_reasoning=bool(thought)
        and count_in(fields, "total_tokens") == (tokens_in or 0) + (tokens_out or 0) + (thought or 0),
    )


def _reported_cost(fields: dict[str, Any]) -> Decimal | None:
    """Return the cost that the provider reports in dollars: OpenRouter in dollars, xAI in 10⁻¹⁰ dollars."""
    ticks = count_in(fields, "cost_in_usd_ticks")
    return cost_in(fields, "cost") if ticks is None else Decimal(ticks).scaleb(-10)
