"""Ollama: the native wire of the local model server, `/api/chat` as lines of JSON."""

from __future__ import annotations

from agenticx.llms.wires.ollama.model import OLLAMA_BASE_URL, OllamaModel, ollama_url

__all__ = ["OLLAMA_BASE_URL", "OllamaModel", "ollama_url"]
