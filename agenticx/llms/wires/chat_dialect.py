"""The differences between Chat Completions servers: the table `dialect` of models.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

__all__ = ["ChatDialect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDialect:
    """The differences of one compatible server from most of them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")  # models.toml has it as a table

    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The field for the output limit; OpenAI's reasoning models refuse the older name."""

    stream_options: bool = True
    """Whether usage is asked for with `stream_options`; Mistral refuses the field and sends usage anyway."""

    short_call_ids: bool = False
    """Whether call ids must be nine letters or digits (Mistral)."""

    dotted_call_ids: bool = False
    """Whether call ids may have dots and colons, and are wanted back as they were (Moonshot)."""

    returns_reasoning: bool = False
    """Whether a model's reasoning goes back to it, in the field that it came in; Groq, Cerebras and Mistral refuse."""

    needs_reasoning: bool = False
    """Whether every answer must have `reasoning_content`, also one of another model (DeepSeek and Moonshot refuse)."""

    one_call: bool = True
    """Whether `parallel_tool_calls` is taken; OpenAI's models that make one call at a time refuse the field itself."""

    images: bool = True
    """Whether images may stand in a message; models that do not see refuse."""

    files: bool = False
    """Whether PDFs may stand in a message (OpenAI, OpenRouter)."""

    output_schemas: bool | Literal["without_tools"] = False
    """Whether an answer can be held to a schema; many servers refuse, or take it and do not call tools any more."""
