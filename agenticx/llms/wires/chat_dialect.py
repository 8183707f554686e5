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
    """Whether usage is requested with `stream_options`; Mistral refuses the field and sends usage anyway."""

    seed: Literal["seed", "random_seed"] = "seed"
    """The field for a seed; Mistral has another name for it."""

    short_call_ids: bool = False
    """Whether call ids must be nine letters or digits (Mistral)."""

    dotted_call_ids: bool = False
    """Whether call ids may have dots and colons, and must be sent back unchanged (Moonshot)."""

    returns_reasoning: bool = False
    """Whether a model's reasoning is sent back to it, in the same field; Groq, Cerebras and Mistral refuse."""

    needs_reasoning: bool = False
    """Whether every answer must have `reasoning_content`, also one of another model (DeepSeek and Moonshot refuse)."""

    alternating_roles: bool = False
    """Whether the user's and the assistant's rows must alternate (Mistral, Perplexity, strict chat templates)."""

    system_rows: bool = True
    """Whether instructions may be in a system row; else they are in the user's first one (templates of Gemma 2)."""

    call_signatures: bool = False
    """Whether calls of other models need a signature (Gemini 3 on its compatible endpoint)."""

    one_call: bool = True
    """Whether `parallel_tool_calls` is accepted; OpenAI's models that make one call at a time refuse the field."""

    required_calls: bool = True
    """Whether a call can be required with `tool_choice`; several servers refuse that of models that think."""

    tool_choice: bool = True
    """Whether the server has `tool_choice` at all; else requests that forbid calls have no tools."""

    images: bool = True
    """Whether messages may have images; models without vision refuse."""

    files: bool = False
    """Whether messages may have PDFs (OpenAI, OpenRouter)."""

    output_schemas: bool | Literal["without_tools"] = False
    """Whether output schemas are supported; many servers refuse one, or accept it and no longer call tools."""
