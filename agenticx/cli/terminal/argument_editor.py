"""The arguments of a call as the user edits them before it is approved: in $EDITOR, or at a prompt."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

from agenticx.errors import AgenticXError, error_text
from agenticx.messages import clean_text
from agenticx.settings import provider_setting
from agenticx.strict_json import read_json

__all__ = ["EditFailed", "EditText", "edit_arguments"]

EditText = Callable[[str], Awaitable[str | None]]
"""Lets the user edit a text at a prompt; returns the new text, or None if the user cancels."""

_MAX_DEPTH = 100  # of arguments, the same as in turns
_MAX_BYTES = 16 * 1024 * 1024
_END_SECONDS = 1.0


class EditFailed(AgenticXError):
    """Raised when no usable arguments result from an edit; `text` is what the user has written, if there is any."""

    def __init__(self, message: str, text: str | None = None) -> None:
        super().__init__(message)
        self.text = text


async def edit_arguments(
    arguments: Mapping[str, Any],
    edit_text: EditText,
    *,
    draft: str | None = None,
    hold_log: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any] | None:
    """Return the arguments as the user edited them, None if they are unchanged or the user cancelled.

    They are edited as JSON, in the program that VISUAL or EDITOR names, else with `edit_text`; `draft` is the text of
    an earlier edit that failed. The program runs within `hold_log`. Raises `EditFailed`.
    """
    text = draft or _escape_invisible(json.dumps(arguments, ensure_ascii=False, indent=2))
    program = provider_setting("VISUAL") or provider_setting("EDITOR")
    if program is None:
        edited = await edit_text(text)
    else:
        with hold_log():
            edited = await _edit_in_program(program, text)
    if edited is None or not edited.strip():
        return None
    try:
        value = read_json(clean_text(edited), max_depth=_MAX_DEPTH)
    except ValueError as exc:
        raise EditFailed(f"the edited arguments are not JSON: {exc}", clean_text(edited).rstrip("\n")) from exc
    if not isinstance(value, dict):
        raise EditFailed("the edited arguments are not a JSON object", clean_text(edited).rstrip("\n"))
    changed = cast("dict[str, Any]", value)
    return None if changed == arguments else changed


def _escape_invisible(text: str) -> str:
    """Return JSON with invisible characters as escapes, so that they are seen in the editor."""
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


async def _edit_in_program(program: str, text: str) -> str:
    try:
        words = shlex.split(program)
    except ValueError as exc:
        raise EditFailed(f"EDITOR {program!r} is not a command: {exc}") from exc
    descriptor, name = tempfile.mkstemp(prefix="agx-arguments-", suffix=".json")  # mode 0600
    file = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: ASYNC230 - a few kilobytes
            stream.write(f"{text}\n")
        await _run(words, file)
        if file.stat().st_size > _MAX_BYTES:  # noqa: ASYNC240
            raise EditFailed("the edited arguments are too long")
        return file.read_text("utf-8", "replace")  # noqa: ASYNC240
    except OSError as exc:
        raise EditFailed(f"EDITOR {program!r} cannot be used: {error_text(exc)}") from exc
    finally:
        with suppress(OSError):
            os.unlink(name)


async def _run(words: list[str], file: Path) -> None:
    """Run the editor at this terminal until it ends; cancelling the call ends it."""
    process = await asyncio.create_subprocess_exec(*words, str(file))
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        with suppress(ProcessLookupError):
            process.kill()
        raise
    if code != 0:
        raise EditFailed(f"the editor {words[0]!r} ended with exit code {code}")
