"""The files of a session's workspace over HTTP, for mentions in messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.errors import ToolError
from agenticx.sessions.hub.session_fields import check_folder
from agenticx.sessions.store.hosts import check_workspace
from agenticx.threads import run_in_thread
from agenticx.tools.workspace_files import find_files
from studio.http.problems import Problem
from studio.http.queries import ErrorCode, RequestQuery, WholeNumber, read_query
from studio.services import services

__all__ = ["FileListResponse", "FilesQuery", "index"]


class FilesQuery(RequestQuery):
    """The query of the files of a workspace."""

    q: Annotated[str, ErrorCode("bad_query")] = Field(
        "", max_length=500, description="Words that the path must have, in upper or lower case."
    )
    limit: WholeNumber = Field(50, ge=1, le=200, description="The maximum number of files.")


class FileItem(TypedDict):
    """A file by its path relative to the workspace; reading one with the name of a `secret` file asks the user."""

    path: str
    secret: bool


class FileListResponse(TypedDict):
    """The files that match, the best match first; without `complete` there may be others."""

    files: list[FileItem]
    complete: bool


async def index(request: Request) -> Response:
    """List files of the workspace whose path has all words of `q`, without those that a .gitignore names.

    First come files whose name begins with the words, then those whose name has them. Links, .git and the files of
    AgenticX are left out. At most 100,000 files are looked at, for two seconds, folder by folder from the top.
    """
    studio, query = services(request), read_query(request, FilesQuery)
    record = await studio.store.catalog.get(request.path_params["session_id"])
    check_workspace(record, studio.store.log)
    check_folder(record)
    try:
        matches = await run_in_thread(
            find_files,
            Path(record.workspace),
            query.q,
            limit=query.limit,
            private=studio.settings.private_paths,
            name="agx files",
        )
    except ToolError as exc:
        raise Problem("bad_workspace", str(exc)) from exc
    files: list[FileItem] = [{"path": file.path, "secret": file.is_secret} for file in matches.files]
    return JSONResponse(FileListResponse(files=files, complete=matches.complete))
