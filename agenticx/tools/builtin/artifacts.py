"""The tools for the files of a session: create one, change it, and save it to the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agenticx.errors import ToolError
from agenticx.tools.artifacts.paths import check_artifact_path
from agenticx.tools.artifacts.preview import DEFAULT_PATH, preview
from agenticx.tools.base import Assessment, ToolContext
from agenticx.tools.builtin.edits import assess_write, write_file
from agenticx.tools.plurals import pluralize
from agenticx.tools.registry import tool
from agenticx.tools.session_files import MAX_EVENT_BYTES, Artifact, UnknownArtifact, is_image_type
from agenticx.tools.visible import visible_path

__all__ = ["artifact_read", "artifact_save", "create_file", "write_text"]


# Like the planning tools these write, so that their calls run one after the other and their arguments are never
# repaired; they change nothing outside the session, so the user is not asked.


@tool(risk="read", read_only=False, idempotent=True, preview=preview)
async def create_file(content: str, context: ToolContext, path: str = DEFAULT_PATH) -> str:
    """Create a file of this session that the user sees at once, such as a web page, or replace one as a whole.

    It lives in the session, not in the workspace: use it for something to look at, and file_write for files of the
    workspace.

    Args:
        content: The complete content, to the last character.
        path: Its name, such as "index.html" or "css/site.css".
    """
    check_artifact_path(path)
    if not content.strip():
        raise ToolError("the content is empty; give the complete content of the file")
    artifact, is_new = await write_text(context, path, content)
    verb = "Created" if is_new else "Replaced"
    return f"{verb} {visible_path(path)} ({pluralize(artifact.size, 'byte')}, revision {artifact.revision})."


@tool(risk="read")
async def artifact_read(context: ToolContext, path: str = DEFAULT_PATH) -> str:
    """Return the text of a file of this session, for edits of one that you no longer see.

    Args:
        path: The name of the file.
    """
    check_artifact_path(path)
    return await _read_text(context, path)


async def _read_text(context: ToolContext, path: str) -> str:
    try:
        artifact = context.artifacts.find(path)
    except UnknownArtifact as exc:
        raise ToolError(f"{exc}; create it with create_file") from exc
    if is_image_type(artifact.media_type):
        raise ToolError(f"{visible_path(path)!r} is an image, which cannot be edited as text")
    return (await context.artifacts.read(artifact)).decode()


async def write_text(context: ToolContext, path: str, text: str) -> tuple[Artifact, bool]:
    """Write a text file of the session and tell clients; return its revision, and whether it is new.

    The event has the whole content unless clients were shown just that while the call was received, or it is large.
    """
    shown, is_new = context.preview, path not in context.artifacts.current
    number = shown.revision if shown is not None and shown.path == path else None
    content = text.encode()
    artifact = await context.artifacts.write(path, content, revision=number)
    data = artifact.event_data
    if (number is None or shown is None or shown.text != text) and len(content) <= MAX_EVENT_BYTES:
        data["content"] = text
    context.emit("artifact", data)
    return artifact, is_new


# --- saving -----------------------------------------------------------------------------------------------------------


def _assess_save(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    try:
        artifact = context.artifacts.find(arguments["path"])
    except UnknownArtifact as exc:
        raise ToolError(str(exc)) from exc
    content = context.artifacts.contents.read(artifact.sha256)
    if content is None:
        raise ToolError(f"the content of {visible_path(artifact.path)!r} is not stored any more; create it again")
    assessment = assess_write(arguments["to"], content, context)
    source = f"It copies {visible_path(artifact.path)} of this session, revision {artifact.revision}, to the workspace."
    binding = {**assessment.binding, "sha256": artifact.sha256}
    return replace(assessment, reasons=(source, *assessment.reasons), binding=binding)


@tool(risk="write", assess=_assess_save)
async def artifact_save(path: str, to: str, context: ToolContext) -> str:
    """Write a file of this session to the workspace, where it stays and other programs find it.

    Args:
        path: The name of the file in the session, such as "index.html".
        to: The file in the workspace, relative to it; folders are made, and an existing file is replaced.
    """
    try:
        content = await context.artifacts.read(context.artifacts.find(path))
    except UnknownArtifact as exc:
        raise ToolError(str(exc)) from exc
    return await write_file(to, content, context)
