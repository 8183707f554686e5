"""The tools for the files of a session: create one, change it, and save it to the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from agenticx.errors import InvalidArguments, ToolError
from agenticx.threads import run_in_thread, run_sized
from agenticx.tools.artifacts.edits import MAX_EDITS, EditError, apply_edits
from agenticx.tools.artifacts.extraction import unwrap_page
from agenticx.tools.artifacts.files import Artifact, UnknownArtifact, artifact_media_type, is_image_type
from agenticx.tools.artifacts.paths import check_artifact_path
from agenticx.tools.artifacts.preview import DEFAULT_PATH, preview
from agenticx.tools.base import Assessment, ToolOutput
from agenticx.tools.builtin.edits import assess_write, write_file
from agenticx.tools.context import ToolContext
from agenticx.tools.diffs import unified_diff
from agenticx.tools.plurals import pluralize
from agenticx.tools.registry import tool
from agenticx.tools.visible import visible_path

__all__ = ["artifact_read", "artifact_save", "create_file", "edit_file"]


class Edit(TypedDict):  # its docstring is part of the schema that the model sees
    """One replacement."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    old_text: str
    new_text: str
    count: NotRequired[int]


# Like the planning tools these write, so that their calls run one after the other and their arguments are never
# repaired; they change nothing outside the session, so the user is not asked.


@tool(risk="read", read_only=False, idempotent=True, preview=preview)
async def create_file(content: str, context: ToolContext, path: str = DEFAULT_PATH) -> str:
    """Create a file of this session that the user sees at once, such as a web page, or replace one as a whole.

    It lives in the session, not in the workspace: use it for something to look at, and file_write for files of the
    workspace. To change a part of it, use edit_file.

    Args:
        content: The complete content, to the last character.
        path: Its name, such as "index.html" or "css/site.css".
    """
    check_artifact_path(path)
    if is_image_type(artifact_media_type(path)):
        raise InvalidArguments(
            f"the path {visible_path(path)!r} is that of an image, and this writes text; an SVG is text"
        )
    if not content.strip():
        raise ToolError("the content is empty; give the complete content of the file")
    unwrapped = await run_sized(unwrap_page, path, content, size=len(content), name="agx create_file")
    artifact, is_new = await _write_text(context, path, content if unwrapped is None else unwrapped)
    verb = "Created" if is_new else "Replaced"
    note = "" if unwrapped is None else " The fence or tag around the page was left out."
    return f"{verb} {visible_path(path)} ({pluralize(artifact.size, 'byte')}, revision {artifact.revision}).{note}"


@tool(risk="read", read_only=False)
async def edit_file(
    context: ToolContext,
    path: str = DEFAULT_PATH,
    old_text: str | None = None,
    new_text: str | None = None,
    count: int | None = None,
    edits: Annotated[list[Edit] | None, Field(min_length=1, max_length=MAX_EDITS)] = None,
) -> str:
    """Replace pieces of a file of this session by others. Give enough of the old text that it occurs just once.

    Args:
        path: The name of the file.
        old_text: The text to replace, exactly as in the file.
        new_text: The text to put there, written out in full.
        count: How many places to replace from the first on, -1 for all; without it the text must occur once.
        edits: Several replacements instead, made in order; if one cannot be made, none is.
    """
    check_artifact_path(path)
    arguments = {"old_text": old_text, "new_text": new_text, "count": count, "edits": edits}
    given = {name: value for name, value in arguments.items() if value is not None}
    before = await _read_text(context, path)
    edited = await run_in_thread(
        apply_edits, before, given, raise_if_stopped=context.raise_if_stopped, name="agx edit_file"
    )
    artifact, _ = await _write_text(context, path, edited.text)
    diff = await run_in_thread(unified_diff, before, edited.text, path, name="agx edit_file")
    result = f"Edited {visible_path(path)} (revision {artifact.revision}), first in line {edited.first_line}."
    return "\n".join([" ".join([result, *edited.notes]), diff.text])


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
        raise EditError(f"{exc}; create it with create_file", kind="no_file") from exc
    if is_image_type(artifact.media_type):
        raise ToolError(f"{visible_path(path)!r} is an image, which cannot be edited as text")
    return (await context.artifacts.read(artifact)).decode()


async def _write_text(context: ToolContext, path: str, text: str) -> tuple[Artifact, bool]:
    """Write a text file of the session and tell clients; return its revision, and whether it is new.

    The event has the whole content unless clients were shown just that while the call was received, or it is large.
    """
    shown, is_new = context.preview, path not in context.artifacts.current
    number = shown.revision if shown is not None and shown.path == path else None
    artifact = await context.artifacts.write(path, text.encode(), revision=number)
    was_shown = number is not None and shown is not None and shown.text == text
    context.emit("artifact", artifact.event_data(None if was_shown else text))
    return artifact, is_new


# --- saving -----------------------------------------------------------------------------------------------------------


def _assess_save(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
    check_artifact_path(arguments["path"])
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
async def artifact_save(path: str, to: str, context: ToolContext) -> ToolOutput:
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
