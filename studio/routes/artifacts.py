"""The files that live in a session over HTTP: listed, and sent one by one or in an archive."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.threads import run_in_thread
from agenticx.tools.artifacts.files import Artifact, Artifacts, is_image_type, zip_files
from studio.http.contents import disposition
from studio.http.queries import RequestQuery, parse_digits, read_query
from studio.services import services

__all__ = ["ArtifactListResponse", "ArtifactQuery", "ArtifactsQuery", "index", "show"]

_Number = Annotated[int, Field(ge=1), BeforeValidator(parse_digits)]


class ArtifactsQuery(RequestQuery):
    """The form of the answer."""

    format: Literal["json", "zip"] = Field("json", description="`json`: a list; `zip`: an archive of all files.")
    option: _Number | None = Field(None, description="An option's files; by default those of the session.")


class ArtifactQuery(RequestQuery):
    """The revision of a file; by default the last one."""

    revision: _Number | None = Field(None, description="The number of the revision; by default the last.")
    option: _Number | None = Field(None, description="An option's files; by default those of the session.")


class ArtifactItem(TypedDict):
    """A file of a session as it is now; `size` is in bytes."""

    path: Annotated[str, Field(description="The path of the file in the session.")]
    revision: Annotated[int, Field(description="The number of its latest revision, from 1.")]
    size: Annotated[int, Field(description="Its size in bytes.")]
    sha256: Annotated[str, Field(description="The SHA-256 of its content, in hex.")]
    media_type: Annotated[str, Field(description="Its media type.")]


class ArtifactListResponse(TypedDict):
    """The files of a session, by path in order."""

    artifacts: Annotated[list[ArtifactItem], Field(description="The files, by their paths.")]


async def index(request: Request) -> Response:
    query = read_query(request, ArtifactsQuery)
    artifacts = await _artifacts(request, query.option)
    if query.format == "zip":
        files = [(artifact.path, await artifacts.read(artifact)) for artifact in artifacts.listed()]
        archive = await run_in_thread(zip_files, files, name="agx zip")
        return Response(archive, media_type="application/zip", headers=disposition("attachment", "artifacts.zip"))
    items = [ArtifactItem(**asdict(artifact)) for artifact in artifacts.listed()]
    return JSONResponse(ArtifactListResponse(artifacts=items))


async def show(request: Request) -> Response:
    """Send a file; a browser stores it, as a page written by a model must not run on this origin."""
    query = read_query(request, ArtifactQuery)
    artifacts = await _artifacts(request, query.option)
    artifact = artifacts.find(request.path_params["path"], query.revision)
    content = await artifacts.read(artifact)
    headers = disposition("attachment", artifact.path.rpartition("/")[2])
    return Response(content, media_type=_sent_type(artifact), headers=headers)


async def _artifacts(request: Request, option: int | None) -> Artifacts:
    return await services(request).hub.artifacts(request.path_params["session_id"], option=option)


def _sent_type(artifact: Artifact) -> str:
    return artifact.media_type if is_image_type(artifact.media_type) else "text/plain; charset=utf-8"
