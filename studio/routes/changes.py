"""The files that the agent changed in a session over HTTP, with their diffs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.sessions.files.changed_files import ChangedFile, find_changed_files, read_file_diff, read_text_before
from studio.http.queries import RequestQuery, WholeNumber, read_query
from studio.services import Services, services

__all__ = ["ChangeListResponse", "ChangesQuery", "index"]

_DIFF_CHARS = 20_000
_WHOLE_DIFF_CHARS = 4_000_000


class ChangesQuery(RequestQuery):
    """The query of the changed files of a session."""

    turn_id: str | None = Field(None, description="Only what the calls of this turn, and of its child turns, changed.")
    tool_call_id: str | None = Field(None, description="Only what this call changed, with the text before.")
    path: str | None = Field(
        None, description="Only the file with this path, as a list has it, with its whole diff and the text before."
    )
    limit: WholeNumber = Field(50, ge=1, le=200, description="The maximum number of files, the last changed ones.")


class ChangedFileItem(TypedDict):
    """A file, and what it has become from the first to the last change."""

    path: Annotated[str, Field(description="Its path, relative to the workspace; absolute outside of it.")]
    created: Annotated[bool, Field(description="true: it did not exist before.")]
    added: Annotated[int | None, Field(description="The number of added lines; null without a diff.")]
    removed: Annotated[int | None, Field(description="The number of removed lines; null without a diff.")]
    diff: Annotated[
        str | None, Field(description="The unified diff; null if a content is not text, or not stored any more.")
    ]
    diff_cut: Annotated[bool, Field(description="true: the diff is longer; ask for the `path` to get all of it.")]
    unchanged_below: Annotated[
        int, Field(description="The number of unchanged lines after the last one of the whole diff.")
    ]
    before: Annotated[
        str | None,
        Field(
            description="The text before the change, which has its unchanged lines; null unless a `path` or a"
            " `tool_call_id` is asked for, and if it is no text, not stored any more, or very long."
        ),
    ]
    tool_call_ids: Annotated[list[str], Field(description="The calls that changed it, in order.")]


class ChangeListResponse(TypedDict):
    files: Annotated[list[ChangedFileItem], Field(description="The files, the last changed one first.")]
    has_more: Annotated[bool, Field(description="true: there are other files.")]


async def index(request: Request) -> Response:
    """List the files that the agent's file tools changed, in the session, in one turn or by one call, with their diffs.

    Changes that a rewind has undone are left out, and those of commands, which are not recorded. A diff is cut at about
    20,000 characters; that of one `path` has up to 4,000,000.
    """
    studio, query = services(request), read_query(request, ChangesQuery)
    record = await studio.store.catalog.get(request.path_params["session_id"])
    found = await find_changed_files(studio.store, record, query.turn_id, query.tool_call_id)
    if query.path is not None:
        found = [file for file in found if file.path == query.path]
    max_chars = _DIFF_CHARS if query.path is None else _WHOLE_DIFF_CHARS
    has_before = query.path is not None or query.tool_call_id is not None
    files = [await _item(studio, record.id, file, max_chars, has_before) for file in found[: query.limit]]
    return JSONResponse(ChangeListResponse(files=files, has_more=len(files) < len(found)))


async def _item(
    studio: Services, session_id: str, file: ChangedFile, max_chars: int, has_before: bool
) -> ChangedFileItem:
    diff = await read_file_diff(studio.store, session_id, file, max_chars)
    before = await read_text_before(studio.store, session_id, file, _WHOLE_DIFF_CHARS) if has_before else None
    return {
        "path": file.path,
        "created": file.before is None,
        "added": None if diff is None else diff.added,
        "removed": None if diff is None else diff.removed,
        "diff": None if diff is None else diff.text,
        "diff_cut": diff is not None and diff.is_cut,
        "unchanged_below": 0 if diff is None else diff.unchanged_below,
        "before": before,
        "tool_call_ids": list(file.call_ids),
    }
