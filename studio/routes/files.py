"""The files of a workspace over HTTP: listed for mentions, and those of a session sent for previews."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.errors import ToolError
from agenticx.permissions.rules import Rule
from agenticx.sessions.files.shown_files import ShownFile, read_shown_file
from agenticx.sessions.hub.session_fields import check_folder
from agenticx.sessions.store.hosts import check_workspace
from agenticx.threads import run_in_thread
from agenticx.tools.workspace_files import find_files
from studio.http.contents import disposition
from studio.http.problems import Problem
from studio.http.queries import ErrorCode, RequestQuery, WholeNumber, read_query
from studio.routes.sessions import workspace_folder
from studio.services import Services, services

__all__ = ["FileListResponse", "FilesQuery", "FolderFilesQuery", "in_folder", "index", "show"]


class FilesQuery(RequestQuery):
    """The query of the files of a workspace."""

    q: Annotated[str, ErrorCode("bad_query")] = Field(
        "", max_length=500, description="Words that the path must have, in upper or lower case."
    )
    limit: WholeNumber = Field(50, ge=1, le=200, description="The maximum number of files.")


class FolderFilesQuery(FilesQuery):
    """The query of the files of a folder that a session can have as its workspace."""

    workspace: str | None = Field(
        None, max_length=4096, description="The absolute path of the folder, by default that of new sessions."
    )


class FileItem(TypedDict):
    """A file by its path relative to the workspace; reading one with the name of a `secret` file asks the user."""

    path: Annotated[str, Field(description="The path of the file, relative to the workspace.")]
    secret: Annotated[bool, Field(description="true: reading the file asks the user, because of its name.")]


class FileListResponse(TypedDict):
    """The files that match, the best match first; without `complete` there may be others."""

    files: Annotated[list[FileItem], Field(description="The files, the best match first.")]
    complete: Annotated[bool, Field(description="false: not all files of the workspace were looked at, or listed.")]


async def index(request: Request) -> Response:
    """List files of the workspace whose path has all words of `q`, without those that a .gitignore names.

    First come files whose name begins with the words, then those whose name has them. Links, .git and the files of
    AgenticX are left out. At most 100,000 files are looked at, for two seconds, folder by folder from the top.
    """
    studio, query = services(request), read_query(request, FilesQuery)
    return await _find(studio, await _workspace(studio, request.path_params["session_id"]), query)


async def in_folder(request: Request) -> Response:
    """List files of a folder as those of a workspace, before a session is made there."""
    studio, query = services(request), read_query(request, FolderFilesQuery)
    return await _find(studio, await run_in_thread(workspace_folder, studio, query.workspace, name="agx files"), query)


async def _find(studio: Services, workspace: Path, query: FilesQuery) -> Response:
    try:
        matches = await run_in_thread(
            find_files,
            workspace,
            query.q,
            limit=query.limit,
            private=studio.settings.private_paths,
            name="agx files",
        )
    except ToolError as exc:
        raise Problem("bad_workspace", str(exc)) from exc
    files: list[FileItem] = [{"path": file.path, "secret": file.is_secret} for file in matches.files]
    return JSONResponse(FileListResponse(files=files, complete=matches.complete))


async def show(request: Request) -> Response:
    """Send a file of the workspace as it is now, by its path relative to that; a browser stores it.

    An image has its media type, text is `text/plain` in UTF-8, and all else `application/octet-stream`: what the agent
    has written must not run on this origin. An image of more than 10 MB, and another file of more than 2 MB, is
    refused. So are the files of AgenticX, those that hold keys or passwords, and those of the user's deny rules.
    """
    studio, session_id = services(request), request.path_params["session_id"]
    workspace = await _workspace(studio, session_id)
    own = await studio.hub.session_rules(session_id)
    file = await run_in_thread(_read, studio, workspace, request.path_params["path"], own, name="agx files")
    media_type = {None: "application/octet-stream", "text/plain": "text/plain; charset=utf-8"}
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "no-store"}
    return Response(
        file.content,
        media_type=media_type.get(file.media_type, file.media_type),
        headers={**disposition("attachment", file.name), **headers},
    )


def _read(studio: Services, workspace: Path, path: str, own_rules: Sequence[Rule]) -> ShownFile:
    stored = () if studio.hub.rules is None else studio.hub.rules.list()
    return read_shown_file(workspace, path, rules=[*stored, *own_rules], private=studio.settings.private_paths)


async def _workspace(studio: Services, session_id: str) -> Path:
    record = await studio.store.catalog.get(session_id)
    check_workspace(record, studio.store.log)
    check_folder(record)
    return Path(record.workspace)
