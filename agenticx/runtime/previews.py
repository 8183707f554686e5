"""Live previews: the file that a call will write, shown while its arguments are being received."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from agenticx.errors import AgenticXError, UserCodeError
from agenticx.llms.growing_arguments import GrowingArguments
from agenticx.logs import get_logger
from agenticx.messages import clean_text
from agenticx.runtime.turn import Turn
from agenticx.tools.artifacts.files import ArtifactPreview
from agenticx.tools.artifacts.paths import check_artifact_path
from agenticx.user_code import call_sync

__all__ = ["Previews"]

PREVIEW_SECONDS = 0.1
"""The least time between two previews of a call, and the most that a received character waits for one."""

_log = get_logger(__name__)


class Previews:
    """The previews of a reply's calls of tools with a `preview` function.

    New arguments are shown at once if the last preview is at least 0.1 s old, else 0.1 s after it.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._calls: dict[str, _GrowingCall] = {}
        self._due: asyncio.TimerHandle | None = None
        self._shown_at = float("-inf")

    def begin(self, call_id: str, name: str) -> None:
        """Begin a call, once its name is known."""
        tools = self._turn.agent.tools
        preview = getattr(tools.get(name), "preview", None) if name in tools else None
        if preview is not None:
            self._calls[call_id] = _GrowingCall(self._turn, call_id, name, preview)

    def add(self, call_id: str, delta: str) -> None:
        """Add a piece of the arguments of a call."""
        call = self._calls.get(call_id)
        if call is None:
            return
        call.add(delta)
        if self._due is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._shown_at + PREVIEW_SECONDS - loop.time()
        if wait > 0:
            self._due = loop.call_later(wait, self._show)
        else:
            self._show()

    def finish(self, *, complete: bool) -> None:
        """Show the rest of a complete reply's calls, or report that an incomplete reply's previews are not stored."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._calls:
            return
        for call in self._calls.values():
            call.show(is_last=complete)
        if not complete:
            self._turn.artifact_events.drop_previews()

    def _show(self) -> None:
        self._due, self._shown_at = None, asyncio.get_running_loop().time()
        for call in self._calls.values():
            call.show()


class _GrowingCall:
    """The arguments of one call while they are received, and the preview shown last."""

    def __init__(self, turn: Turn, call_id: str, name: str, preview: Callable[[Any], Mapping[str, Any] | None]) -> None:
        self._turn = turn
        self._call_id = call_id
        self._name = name
        self._preview = preview
        self._arguments = GrowingArguments()
        self._is_new = self._is_frozen = False

    def add(self, delta: str) -> None:
        self._is_new = True
        self._arguments.add(delta)

    def show(self, *, is_last: bool = False) -> None:
        """Emit what was added to the preview since it was last shown; a preview that shrinks is frozen."""
        if is_last:
            self._arguments.end()
        if self._is_frozen or not (self._is_new or is_last):
            return
        self._is_new = False
        what = f"the preview of {self._name!r}"
        try:
            found = _file_in(call_sync(self._preview, self._arguments, what=what), what)
        except AgenticXError as exc:
            _log.warning("preview of a call failed; no more of it is shown", tool_name=self._name, error=str(exc))
            self._is_frozen = True
            return
        if found is None:
            return
        path, content = found
        artifact_events = self._turn.artifact_events
        shown = artifact_events.previews.get(self._call_id)
        if shown is None:
            shown = ArtifactPreview(path, self._turn.session.artifacts.reserve(path), "")
        if path != shown.path or not content.startswith(shown.text):
            self._is_frozen = True
            return
        if len(content) == len(shown.text):
            return
        artifact_events.show_preview(self._call_id, replace(shown, text=content))


def _file_in(found: object, what: str) -> tuple[str, str] | None:
    """Return the path and the text in the result of a preview function.

    Raises `UserCodeError` for a result of the wrong type, and `InvalidArguments` for a path that no file may have.
    """
    if found is None:
        return None
    path = content = None
    if isinstance(found, Mapping):
        file = cast("Mapping[str, object]", found)
        path, content = file.get("path"), file.get("content")
    if not isinstance(path, str) or not isinstance(content, str):
        kind = type(cast("object", found))
        text = f"{what} returned a {kind}; right would be a dict with the texts 'path' and 'content', or None"
        raise UserCodeError(text, what=what, kind="invalid_result")
    check_artifact_path(path)
    return path, clean_text(content)
