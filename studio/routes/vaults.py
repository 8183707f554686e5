"""Vaults of notes over HTTP: added, listed, searched, checked and forgotten."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired
from unicodedata import normalize

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from agenticx.errors import ToolError
from agenticx.knowledge import (
    EmbeddingConsent,
    NoteProblem,
    NoteRecord,
    UnknownVault,
    Vault,
    VaultIndex,
    VaultUnreadable,
)
from agenticx.threads import run_in_thread
from agenticx.tools.visible import visible
from studio.http.bodies import RequestBody, read_body
from studio.http.problems import Problem
from studio.http.queries import ErrorCode, RequestQuery, WholeNumber, read_query
from studio.services import services

__all__ = [
    "AddVaultBody",
    "ChangeVaultBody",
    "NoteResponse",
    "NoteSearchQuery",
    "NoteSearchResponse",
    "RescanBody",
    "VaultEmbeddingsItem",
    "VaultListResponse",
    "VaultProblemsResponse",
    "VaultResponse",
    "add",
    "change",
    "delete",
    "index",
    "note",
    "problems",
    "rescan",
    "search",
    "show",
]

_LIST_SECONDS = 0.2
_DAY_START = time(tzinfo=UTC)


class AddVaultBody(RequestBody):
    """A folder of notes on the server's machine; without a name the vault is called as its folder."""

    path: str = Field(min_length=1, max_length=4_096, description="The absolute path of the folder, or one in `~`.")
    name: str | None = Field(None, min_length=1, max_length=100, description="The name of the vault.")


class RescanBody(RequestBody):
    """No fields."""


class ChangeVaultBody(RequestBody):
    """The person's answer whether text of the notes may be sent to the server of the embedding model."""

    embeddings: bool = Field(description="true: text of the notes may be sent.")


class VaultEmbeddingsItem(TypedDict):
    """The state of search by meaning: `embedded` of `passages` have a vector of `model`.

    `consent` is "needed" until the person has said whether text of the notes may be sent to `host`, and "not_needed" if
    that is the server's own machine. `problem` says why the model cannot be used now.
    """

    model: Annotated[str, Field(description="The embedding model.")]
    host: Annotated[str, Field(description="The server of the model.")]
    consent: Annotated[EmbeddingConsent, Field(description="Whether text may be sent to the server.")]
    embedded: Annotated[int, Field(description="The number of passages that have a vector.")]
    passages: Annotated[int, Field(description="The number of all passages.")]
    problem: NotRequired[Annotated[str, Field(description="Why the model cannot be used now.")]]


class VaultResponse(TypedDict):
    """A vault: `notes` are those that are indexed, `problems` files that are skipped and defects of notes.

    `state` is "indexing" while the index is behind, and "missing" while the folder or the index cannot be read;
    `problem` says why, or why the index cannot be brought up to date. With an embedding model there is `embeddings`, or
    `embedding_problem` if it cannot be used.
    """

    id: Annotated[str, Field(description="The id of the vault.")]
    name: Annotated[str, Field(description="Its name.")]
    path: Annotated[str, Field(description="The absolute path of its folder.")]
    notes: Annotated[int, Field(description="The number of indexed notes.")]
    problems: Annotated[int, Field(description="The number of problems in files and notes.")]
    state: Annotated[Literal["indexing", "ready", "missing"], Field(description="How its index stands.")]
    problem: NotRequired[
        Annotated[str, Field(description="Why the folder or the index cannot be read, or brought up to date.")]
    ]
    embeddings: NotRequired[Annotated[VaultEmbeddingsItem, Field(description="The state of search by meaning.")]]
    embedding_problem: NotRequired[Annotated[str, Field(description="Why the embedding model cannot be used.")]]


class VaultListResponse(TypedDict):
    """All vaults; `problem` names files of vaults that are damaged."""

    vaults: Annotated[list[VaultResponse], Field(description="The vaults, by their names.")]
    problem: NotRequired[Annotated[str, Field(description="The damaged files of vaults, as a sentence.")]]


class NoteProblemItem(TypedDict):
    path: Annotated[str, Field(description="The path of the file in the vault.")]
    problem: Annotated[NoteProblem, Field(description="The problem.")]


class VaultProblemsResponse(TypedDict):
    """Files that are skipped and defects of notes; `problem` says why these are not up to date, if they are not."""

    problems: Annotated[list[NoteProblemItem], Field(description="The problems, by the paths of the files.")]
    problem: NotRequired[Annotated[str, Field(description="Why the list is not up to date.")]]


class NoteSearchQuery(RequestQuery):
    """The query of a search in notes."""

    q: Annotated[str, ErrorCode("bad_query")] = Field(
        "", max_length=2_000, description="Words, a question, or phrases in double quotes."
    )
    limit: WholeNumber = Field(8, ge=1, le=50, description="The largest number of passages.")
    path: Annotated[str | None, ErrorCode("bad_path")] = Field(
        None, max_length=4_096, description="Only this note or folder, or a glob."
    )
    tag: Annotated[str | None, ErrorCode("bad_tag")] = Field(
        None, max_length=200, description="Only notes with this tag or one nested below it."
    )
    since: Annotated[date | None, ErrorCode("bad_day")] = Field(
        None, description="Only notes changed on this day (UTC) or later."
    )


class FoundPassageItem(TypedDict):
    """A passage; lines count from 1. `score` orders the results of a search, `matched` are the words found in it."""

    path: Annotated[str, Field(description="The path of the note in the vault.")]
    heading: Annotated[str | None, Field(description="The heading above the passage; null: none.")]
    line_start: Annotated[int, Field(description="The first line of the passage, from 1.")]
    line_end: Annotated[int, Field(description="The last line of the passage.")]
    text: Annotated[str, Field(description="The text of the passage.")]
    sha256: Annotated[str, Field(description="The SHA-256 of the text, in hex.")]
    score: Annotated[float, Field(description="How well the passage matches, higher is better.")]
    matched: Annotated[list[str], Field(description="The words of the query that it has.")]


class NoteSearchResponse(TypedDict):
    """The best passages; `indexed` of `total` notes were searched. `note` says if the query has nothing to search for.

    `problem` says why this is the vault's last state, and not as it is now; `embedding_note` what the search by meaning
    lacks, if it is on.
    """

    results: Annotated[list[FoundPassageItem], Field(description="The passages, the best match first.")]
    indexed: Annotated[int, Field(description="The number of indexed notes.")]
    total: Annotated[int, Field(description="The number of all notes.")]
    problem: NotRequired[Annotated[str, Field(description="Why the index is not up to date.")]]
    embedding_note: NotRequired[Annotated[str, Field(description="What the search by meaning left out, and why.")]]
    note: NotRequired[Annotated[str, Field(description="How the query was understood.")]]


class NoteResponse(TypedDict):
    """A note as it is now; `links` are names as it has them, `backlinks` paths of notes that link to it."""

    path: Annotated[str, Field(description="The path of the note in the vault.")]
    title: Annotated[str, Field(description="Its title.")]
    text: Annotated[str, Field(description="Its text.")]
    sha256: Annotated[str, Field(description="The SHA-256 of its text, in hex.")]
    tags: Annotated[list[str], Field(description="Its tags.")]
    links: Annotated[list[str], Field(description="The notes that it links to.")]
    backlinks: Annotated[list[str], Field(description="The notes that link to it.")]


async def index(request: Request) -> Response:
    vaults, items = await services(request).vaults.list(), list[VaultResponse]()
    for vault in vaults:
        with suppress(UnknownVault):  # removed meanwhile
            await vault.refresh(seconds=_LIST_SECONDS)
    for vault in vaults:
        with suppress(UnknownVault):
            items.append(await _item(vault))
    response = VaultListResponse(vaults=items)
    if damaged := await run_in_thread(services(request).vaults.registry.damaged, name="agx vaults"):
        files = ", ".join(visible(str(file)) for file in damaged)
        response["problem"] = f"damaged: {files}; remove its folder, and add the folder of the notes again"
    return JSONResponse(response)


async def add(request: Request) -> Response:
    """Add a folder as a vault and begin to index it.

    200 with the vault under its present name if the folder is one already.
    """
    body = await read_body(request, AddVaultBody)
    vault, is_new = await services(request).vaults.add(Path(body.path), body.name)
    await vault.refresh(seconds=0, with_embeddings=True)
    return JSONResponse(await _item(vault), 201 if is_new else 200)


async def show(request: Request) -> Response:
    vault = await _vault(request)
    await vault.refresh(seconds=_LIST_SECONDS)
    return JSONResponse(await _item(vault))


async def change(request: Request) -> Response:
    """Store whether text of the notes may be sent to the embedding model; if it may, passages get their vectors."""
    body = await read_body(request, ChangeVaultBody)
    vault = await _vault(request)
    await services(request).vaults.allow_embeddings(vault, allowed=body.embeddings)
    await vault.refresh(seconds=0, with_embeddings=True)
    return JSONResponse(await _item(vault))


async def delete(request: Request) -> Response:
    """Forget a vault and delete its index; no note is changed."""
    await services(request).vaults.remove(await _vault(request))
    return Response(status_code=204)


async def rescan(request: Request) -> Response:
    await read_body(request, RescanBody)
    vault = await _vault(request)
    await vault.refresh(seconds=0, with_embeddings=True)
    return JSONResponse(await _item(vault), 202)


async def problems(request: Request) -> Response:
    vault = await _vault(request)
    found = await vault.call(VaultIndex.problems)
    items = [NoteProblemItem(path=visible(path), problem=problem) for path, problem in found.items()]
    response = VaultProblemsResponse(problems=items)
    if vault.problem is not None:
        response["problem"] = vault.problem
    return JSONResponse(response)


async def search(request: Request) -> Response:
    query = read_query(request, NoteSearchQuery)
    vault = await _vault(request)
    since = None if query.since is None else datetime.combine(query.since, _DAY_START)
    tags = () if query.tag is None else (query.tag,)
    try:
        found = await vault.search(query.q, limit=query.limit, path=query.path, tags=tags, since=since)
    except (UnknownVault, VaultUnreadable):
        raise
    except ToolError as exc:
        raise Problem("bad_path", f"'path' cannot be used: {exc}.", field="path") from exc
    results = [
        FoundPassageItem(
            path=result.passage.path,
            heading=result.passage.heading,
            line_start=result.passage.line_start,
            line_end=result.passage.line_end,
            text=result.passage.text,
            sha256=result.passage.sha256,
            score=result.score,
            matched=list(result.matched),
        )
        for result in found.results
    ]
    response = NoteSearchResponse(results=results, indexed=found.state.indexed, total=found.state.total)
    if found.problem is not None:
        response["problem"] = found.problem
    if found.embedding_note is not None:
        response["embedding_note"] = found.embedding_note
    if found.query_note is not None:
        response["note"] = found.query_note
    return JSONResponse(response)


async def note(request: Request) -> Response:
    path = request.path_params["path"]
    vault = await _vault(request)
    response = await vault.call(lambda index: _read_note(index, path))
    if response is None and vault.problem is not None:
        raise VaultUnreadable(vault.problem)
    if response is None:
        raise Problem("note_not_found", f"The vault {vault.record.name!r} has no note {visible(path)!r}.")
    return JSONResponse(response)


def _read_note(index: VaultIndex, path: str) -> NoteResponse | None:
    written = normalize("NFC", path)
    found = index.find_notes(path)  # first an exact match: a path can have two Unicode forms
    record: NoteRecord | None = next((note for note in found if normalize("NFC", note.path) == written), None)
    if record is None:
        return None
    try:
        content = index.read(record.path)
    except ToolError:  # removed meanwhile
        return None
    structure: dict[str, Any] = record.structure
    return NoteResponse(
        path=record.path,
        title=record.title,
        text=content.text,
        sha256=content.sha256,
        tags=structure["tags"],
        links=[*structure["links"], *structure["embeds"]],
        backlinks=index.backlinks(record),
    )


async def _vault(request: Request) -> Vault:
    return await services(request).vaults.find(request.path_params["vault_id"])


async def _item(vault: Vault) -> VaultResponse:
    summary = await vault.summary()
    record = vault.record
    item = VaultResponse(
        id=record.id,
        name=record.name,
        path=str(record.path),
        notes=summary.notes,
        problems=summary.problems,
        state=vault.state,
    )
    if vault.problem is not None:
        item["problem"] = vault.problem
    if (status := await vault.embedding_status()) is not None:
        embeddings = VaultEmbeddingsItem(
            model=status.model,
            host=status.host,
            consent=status.consent,
            embedded=status.embedded,
            passages=status.passages,
        )
        if status.problem is not None:
            embeddings["problem"] = status.problem
        item["embeddings"] = embeddings
    elif vault.embedding_problem is not None:
        item["embedding_problem"] = vault.embedding_problem
    return item
