"""Gemini: Google's own wire, `streamGenerateContent` as server-sent events."""

from __future__ import annotations

from agenticx.llms.wires.gemini.model import GEMINI_BASE_URL, GeminiDialect, GeminiModel

__all__ = ["GEMINI_BASE_URL", "GeminiDialect", "GeminiModel"]
