"""The `artifact` events of a turn, and the previews of calls that are still being received or run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from agenticx.runtime.events import EventType
from agenticx.runtime.loop_detector import LoopDetector
from agenticx.tools.artifacts.files import ArtifactPreview

__all__ = ["ArtifactEvents"]


class ArtifactEvents:
    """The writer of a turn's `artifact` events, which the loop detector sees too.

    `previews` are the previews of calls, by call id, that have had no last event yet.
    """

    def __init__(self, emit: Callable[[EventType, dict[str, Any]], None], loop_detector: LoopDetector) -> None:
        self.previews: dict[str, ArtifactPreview] = {}
        self._emit = emit
        self._loop_detector = loop_detector

    def emit(self, data: dict[str, Any]) -> None:
        """Emit an event; a file that was stored as its call's preview showed it ends that preview."""
        call_id = data.get("tool_call_id", "")
        shown = self.previews.get(call_id)
        if data["final"] and shown is not None and (shown.path, shown.revision) == (data["path"], data["revision"]):
            del self.previews[call_id]
        self._loop_detector.record_artifact(data["path"], data.get("content", ""), data.get("delta", ""))
        self._emit(EventType.ARTIFACT, data)

    def show_preview(self, call_id: str, preview: ArtifactPreview) -> None:
        """Emit what `preview` adds to the text that was shown of the call's file so far."""
        shown = self.previews.get(call_id)
        offset = 0 if shown is None else len(shown.text)
        self.previews[call_id] = preview
        data = {"path": preview.path, "final": False, "tool_call_id": call_id, "revision": preview.revision}
        self.emit(data | {"delta": preview.text[offset:], "offset": offset})

    def restore(self, previews: Mapping[str, ArtifactPreview]) -> None:
        """Take over the previews of an earlier process."""
        self.previews.update(previews)

    def drop_previews(self, call_ids: Collection[str] | None = None) -> None:
        """Emit that nothing was stored of the previewed files of these calls, or of all; each has no last event yet."""
        for call_id in [call_id for call_id in self.previews if call_ids is None or call_id in call_ids]:
            self.emit(self.previews[call_id].dropped_data | {"tool_call_id": call_id})
