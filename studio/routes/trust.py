"""The AGENTS.md files of a session over HTTP: which of them the user trusts, and trusting one."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import relpath
from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.permissions.trusted_files import Digest, TrustStore
from agenticx.threads import run_in_thread
from agenticx.tools.agents_files import AgentsFile, find_agents_files
from agenticx.untrusted_text import decode_text
from studio.http.bodies import RequestBody, read_body
from studio.http.problems import Problem
from studio.services import Services, services

__all__ = ["TrustBody", "TrustResponse", "TrustedFileItem", "index", "trust"]


class TrustBody(RequestBody):
    """The digest of the content to trust, as the list of files has it."""

    sha256: Digest = Field(description="The SHA-256 of the content to trust, in hex.")


class TrustedFileItem(TypedDict):
    """An AGENTS.md whose text is in the system prompt; its path is relative to the workspace.

    `sha256` is the digest of its content, or of the part that is used, with the size, of one that is too long.
    """

    path: Annotated[str, Field(description="The path of the file.")]
    sha256: Annotated[str, Field(description="The SHA-256 of its content, in hex.")]
    text: Annotated[str, Field(description="That content: what is used of the file.")]
    cut: Annotated[bool, Field(description="true: the file is longer than what is used of it.")]
    trusted: Annotated[bool, Field(description="true: this content is trusted.")]


class TrustResponse(TypedDict):
    """The AGENTS.md files of a session, the nearest last."""

    files: Annotated[list[TrustedFileItem], Field(description="The files, the nearest last.")]


async def index(request: Request) -> Response:
    studio = services(request)
    workspace = await _workspace(studio, request)
    return await run_in_thread(_response, studio, workspace, name="agx trusted files")


async def trust(request: Request) -> Response:
    """Trust the content of an AGENTS.md by its digest, in all sessions; confirmations that wait are decided again."""
    studio = services(request)
    body = await read_body(request, TrustBody)
    workspace = await _workspace(studio, request)

    def add() -> Response:
        files = _files(studio, workspace)
        file = next((file for file in files if file.sha256 == body.sha256), None)
        if file is None:
            raise Problem("unknown_digest", "No AGENTS.md of the session has this content now.", field="sha256")
        _store(studio).add(file.sha256, str(file.path))
        return _response(studio, workspace, files)

    return await run_in_thread(add, name="agx trusted files")


async def _workspace(studio: Services, request: Request) -> Path:
    return Path((await studio.store.catalog.get(request.path_params["session_id"])).workspace)


def _files(studio: Services, workspace: Path) -> Sequence[AgentsFile]:
    return [file for file in find_agents_files(workspace, studio.settings.private_paths) if file.reason is None]


def _response(studio: Services, workspace: Path, files: Sequence[AgentsFile] | None = None) -> Response:
    folder, trusted = workspace.resolve(), _store(studio).list()
    items = [
        TrustedFileItem(
            path=relpath(file.path, folder),
            sha256=file.sha256,
            text=decode_text(file.content, is_cut=file.is_cut) or "",
            cut=file.is_cut,
            trusted=file.sha256 in trusted,
        )
        for file in (_files(studio, workspace) if files is None else files)
    ]
    return JSONResponse(TrustResponse(files=items))


def _store(studio: Services) -> TrustStore:
    assert studio.hub.trust is not None
    return studio.hub.trust
