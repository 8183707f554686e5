"""The files of a session, called artifacts: they live with the session, not on the disk.

Each change of a file is a revision of it. The contents lie beside the session by their digest, and are stored before
the commit that names them; the table of the revisions is part of the session's state.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any, Protocol

from agenticx.errors import AgenticXError, ToolError
from agenticx.llms.images.base import MAX_IMAGE_BYTES
from agenticx.threads import run_in_thread
from agenticx.tools.artifact_paths import check_artifact_path, check_path_beside
from agenticx.tools.plurals import pluralize
from agenticx.tools.visible import visible_path

__all__ = [
    "MAX_FILES",
    "MAX_FILE_BYTES",
    "MAX_TEXT_BYTES",
    "Artifact",
    "ArtifactPreview",
    "Artifacts",
    "Contents",
    "MemoryContents",
    "UnknownArtifact",
    "artifact_media_type",
    "is_image_type",
    "zip_files",
]

MAX_FILES = 200
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_TEXT_BYTES = 20 * 1024 * 1024
MAX_IMAGES_BYTES = 100 * 1024 * 1024
"""The limits of a session's files in bytes; images, of which one may have `MAX_IMAGE_BYTES`, count apart."""

_MAX_EVENT_TEXT_BYTES = 256 * 1024
"""The size of the largest content that an event carries whole; a client fetches a larger one."""

_MEDIA_TYPES = {
    ".css": "text/css",
    ".csv": "text/csv",
    ".gif": "image/gif",
    ".htm": "text/html",
    ".html": "text/html",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".xml": "application/xml",
}
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


class UnknownArtifact(AgenticXError):
    """Raised for a file, or a revision of one, that a session does not have."""


class Contents(Protocol):
    """The contents of a session's files by their SHA-256 in hexadecimal digits."""

    async def put(self, content: bytes) -> None:
        """Store a content, so that it survives the end of the process; raises `StoreError`."""
        ...

    def read(self, sha256: str) -> bytes | None:
        """Return a content, None if it is not stored or damaged; may block, so call it in a thread."""
        ...


class MemoryContents:
    """Contents in memory, of a session without a store."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    async def put(self, content: bytes) -> None:
        self._contents[hashlib.sha256(content).hexdigest()] = content

    def read(self, sha256: str) -> bytes | None:
        return self._contents.get(sha256)


@dataclass(frozen=True, slots=True)
class Artifact:
    """One revision of a file of a session; `size` is in bytes, and revisions of a path count from 1 with gaps."""

    path: str
    revision: int
    size: int
    sha256: str
    media_type: str

    def event_data(self, text: str | None = None) -> dict[str, Any]:
        """Return the payload of the last `artifact` event of this revision, with a small text if it is given."""
        content = {} if text is None or self.size > _MAX_EVENT_TEXT_BYTES else {"content": text}
        return {**asdict(self), "final": True, **content}


@dataclass(frozen=True, slots=True)
class ArtifactPreview:
    """The part of a file that clients were shown while its call was received, and the revision it may become."""

    path: str
    revision: int
    text: str

    @property
    def dropped_data(self) -> dict[str, Any]:
        """The payload of the `artifact` event which says that nothing of it was stored."""
        return {"path": self.path, "final": True, "revision": self.revision, "dropped": True}


@dataclass(slots=True)
class Artifacts:
    """The files of a session: every revision there has been, and which of them are the session's now.

    `numbers` are the last revision numbers by path, of which none is used twice, also where a rewind has taken
    revisions away. `own` are those of the revisions that these files have or had: branches share all others.
    """

    contents: Contents = field(default_factory=MemoryContents)
    revisions: list[Artifact] = field(default_factory=list[Artifact])
    current: dict[str, int] = field(default_factory=dict[str, int])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    own: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def listed(self) -> list[Artifact]:
        """Return the session's files as they are now, by path in order."""
        return [self.find(path) for path in sorted(self.current)]

    def find(self, path: str, revision: int | None = None) -> Artifact:
        """Return a file, or that revision of it; raise `UnknownArtifact`."""
        known = self.own.get(path, ())
        wanted = self.current.get(path) if revision is None else revision if revision in known else None
        for artifact in reversed(self.revisions):
            if artifact.path == path and artifact.revision == wanted:
                return artifact
        name = repr(visible_path(path))
        if revision is not None and known:
            raise UnknownArtifact(f"{name} has no revision {revision}; it has {', '.join(map(str, known[-20:]))}")
        names = ", ".join(map(visible_path, sorted(self.current)[:20])) or "none yet"
        raise UnknownArtifact(f"the session has no file {name}; it has {names}")

    async def read(self, artifact: Artifact) -> bytes:
        """Return the content of a revision; raise `UnknownArtifact` if it is lost."""
        content = await run_in_thread(self.contents.read, artifact.sha256, name="agx reading a file")
        if content is None:
            raise UnknownArtifact(
                f"the content of {visible_path(artifact.path)!r}, revision {artifact.revision}, is not stored any more"
            )
        return content

    def reserve(self, path: str) -> int:
        """Return the number for the next revision of a path; no other one gets it."""
        self.numbers[path] = self.numbers.get(path, 0) + 1
        return self.numbers[path]

    def skip(self, path: str, revision: int) -> None:
        """Take note that clients were shown a revision of that number, so that no later one gets it."""
        self.numbers[path] = max(revision, self.numbers.get(path, 0))

    async def write(
        self, path: str, content: bytes, *, media_type: str | None = None, revision: int | None = None
    ) -> Artifact:
        """Store a new revision of a file, with a number that was reserved, and return it; raise as `check` does."""
        media_type = media_type or artifact_media_type(path)
        self.check(path, len(content), media_type)
        await self.contents.put(content)
        number = self.reserve(path) if revision is None else revision
        artifact = Artifact(path, number, len(content), hashlib.sha256(content).hexdigest(), media_type)
        self.revisions.append(artifact)
        self.current[path] = number
        self.own.setdefault(path, []).append(number)
        return artifact

    def check(self, path: str, size: int, media_type: str, *, count: int = 1) -> None:
        """Raise `ToolError` unless a file, or `count` new ones, of `size` bytes can be written beside the others.

        The limits are 200 files, 2 MB each, 20 MB together; apart from these 200 images, 10 MB each, 100 MB together.
        Also raised for a path that `check_artifact_path` refuses, or `check_path_beside` beside the other files.
        """
        check_artifact_path(path)
        check_path_beside(path, self.current)
        is_image = is_image_type(media_type)
        others = [
            artifact
            for artifact in self.listed()
            if artifact.path != path and is_image_type(artifact.media_type) == is_image
        ]
        kind = "images" if is_image else "files"
        if len(others) + count > MAX_FILES:
            advice = "ask for fewer" if is_image else "write to one of those"
            raise ToolError(f"the session has {len(others)} {kind}, and {MAX_FILES} is the most; {advice}")
        most, together = (MAX_IMAGE_BYTES, MAX_IMAGES_BYTES) if is_image else (MAX_FILE_BYTES, MAX_TEXT_BYTES)
        if size > most:
            raise ToolError(
                f"the file has {size:,} bytes, and {most:,} is the most; divide it into several files"
                if not is_image
                else f"the image has {size:,} bytes, and {most:,} is the most"
            )
        used = sum(artifact.size for artifact in others)
        if used + size > together:
            raise ToolError(
                f"the session's {kind} would have {used + size:,} bytes together, and {together:,} is the most"
            )

    # --- as a part of the session's state -------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON, without the contents."""
        if not (self.revisions or self.numbers):
            return {}
        revisions = [[each.path, each.revision, each.size, each.sha256, each.media_type] for each in self.revisions]
        return {"revisions": revisions, "numbers": self.numbers, **self.branch_data()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], contents: Contents) -> Artifacts:
        """Return what `to_json` returned, with these contents."""
        revisions = [Artifact(*row) for row in data.get("revisions", ())]
        return cls(contents, revisions, numbers=dict(data.get("numbers", {}))).branch_of(data)

    def return_to(self, current: Mapping[str, int]) -> None:
        """Make these revisions, by path, the session's files, after the conversation was rewound."""
        known = {(artifact.path, artifact.revision) for artifact in self.revisions}
        self.current = {path: number for path, number in current.items() if (path, number) in known}

    def branch(self) -> Artifacts:
        """Return files that begin as these and change by themselves from then on.

        All branches have the revisions and numbers of one session, so that a path and a number name one content.
        """
        own = {path: [number] for path, number in self.current.items()}
        return replace(self, current=dict(self.current), own=own)

    def branch_data(self) -> dict[str, Any]:
        """Return as JSON what a branch has by itself; see `branch_of`."""
        return {"current": self.current, "own": self.own}

    def branch_of(self, data: Mapping[str, Any]) -> Artifacts:
        """Return the branch that `branch_data` described."""
        own = {path: list(numbers) for path, numbers in data.get("own", {}).items()}
        return replace(self, current=dict(data.get("current", {})), own=own)

    def take_over(self, branch: Artifacts) -> None:
        """Make the files of a branch these, which have the revisions of both from then on."""
        paths = [*self.own, *branch.own]
        self.own = {path: sorted({*self.own.get(path, ()), *branch.own.get(path, ())}) for path in paths}
        self.current = dict(branch.current)

    def summary(self) -> str:
        """Return a short list of the files for a model."""
        return ", ".join(f"{visible_path(each.path)} ({pluralize(each.size, 'byte')})" for each in self.listed())


def artifact_media_type(path: str) -> str:
    """Return the media type of a text file by the end of its name."""
    return _MEDIA_TYPES.get(PurePosixPath(path).suffix.lower(), "text/plain")


def is_image_type(media_type: str) -> bool:
    """Return whether a media type is that of an image without a text form; SVG counts as text."""
    return media_type.startswith("image/") and media_type != "image/svg+xml"


def zip_files(files: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a ZIP archive of files, given by path and content; the same files give the same bytes."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files:
            info = zipfile.ZipInfo(path, _ZIP_DATE)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, content)
    return buffer.getvalue()
