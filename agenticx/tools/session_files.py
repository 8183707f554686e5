"""The files of a session, called artifacts: they live with the session, not on the disk.

Each change of a file is a revision of it. The contents lie beside the session by their digest, and are stored before
the commit that names them; the table of the revisions is part of the session's state. Old revisions are kept up to a
limit, which also bounds that table: a change of it is stored with the whole of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import zipfile
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
    "MAX_OLD_BYTES",
    "MAX_OLD_REVISIONS",
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

MAX_OLD_REVISIONS = 500
MAX_OLD_BYTES = 100 * 1024 * 1024
"""The most that a session keeps of revisions that are current neither in it nor in one of its options."""

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

    async def remove(self, sha256: Collection[str]) -> None:
        """Delete these contents; raises `StoreError`."""
        ...


class MemoryContents:
    """Contents in memory, of a session without a store."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    async def put(self, content: bytes) -> None:
        self._contents[hashlib.sha256(content).hexdigest()] = content

    def read(self, sha256: str) -> bytes | None:
        return self._contents.get(sha256)

    async def remove(self, sha256: Collection[str]) -> None:
        for digest in sha256:
            self._contents.pop(digest, None)


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


class Artifacts:
    """The files of a session: the revisions that are kept of them, and which are the session's now.

    Branches, such as those of options, share the revisions and numbers of one session, and each shows those alone that
    it has or had itself. Kept are all revisions that are current in the session or in an option, and 500 old ones of
    100 MB together: those that were current last. A rewind to an older revision leaves its file out. No number is used
    twice, also where a rewind has taken revisions away.
    """

    def __init__(self, contents: Contents | None = None) -> None:
        self.contents = contents or MemoryContents()
        self._revisions = _Revisions()
        self._current: dict[str, int] = {}
        self._own: dict[str, list[int]] = {}
        self._text, self._text_of = "", -1

    @property
    def current(self) -> Mapping[str, int]:
        """The numbers of the revisions that are the session's files now, by path."""
        return self._current

    @property
    def revisions(self) -> Collection[Artifact]:
        """All revisions that are kept, also those of other branches."""
        return self._revisions.by_key.values()

    def listed(self) -> list[Artifact]:
        """Return the session's files as they are now, by path in order."""
        return [self._revisions.by_key[path, self._current[path]] for path in sorted(self._current)]

    def find(self, path: str, revision: int | None = None) -> Artifact:
        """Return a file, or that revision of it; raise `UnknownArtifact`."""
        number = self._current.get(path) if revision is None else revision
        own = self._own.get(path, ())
        if number is not None and (revision is None or number in own) and (path, number) in self._revisions.by_key:
            return self._revisions.by_key[path, number]
        name = repr(visible_path(path))
        if revision is not None and own:
            known = [number for number in own if (path, number) in self._revisions.by_key][-20:]
            text = f"{name} has no revision {revision}; it has {', '.join(map(str, known)) or 'none any more'}"
            if revision <= self._revisions.numbers[path]:
                text += (
                    ". Others were not written to their end, belong to other options, or are not kept any more: a "
                    f"session keeps {MAX_OLD_REVISIONS} old revisions, {MAX_OLD_BYTES:,} bytes of them"
                )
            raise UnknownArtifact(text)
        names = ", ".join(map(visible_path, sorted(self._current)[:20])) or "none yet"
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
        number = self._revisions.numbers.get(path, 0) + 1
        self.skip(path, number)
        return number

    def skip(self, path: str, revision: int) -> None:
        """Take note that clients were shown a revision of that number, so that no later one gets it."""
        self._revisions.skip(path, revision)

    async def write(
        self, path: str, content: bytes, *, media_type: str | None = None, revision: int | None = None
    ) -> Artifact:
        """Store a new revision of a file, with a number that was reserved, and return it; raise as `check` does."""
        media_type = media_type or artifact_media_type(path)
        self.check(path, len(content), media_type)
        sha256, revisions = hashlib.sha256(content).hexdigest(), self._revisions
        with revisions.naming(sha256):
            async with revisions.storing:
                await self.contents.put(content)
            number = self.reserve(path) if revision is None else revision
            artifact = Artifact(path, number, len(content), sha256, media_type)
            revisions.add(artifact)
            self._own.setdefault(path, []).append(number)
            self.return_to({**self._current, path: number})
            revisions.drop_oldest()
        return artifact

    async def remove_dropped(self) -> None:
        """Delete the contents that only revisions had which are not kept any more; raise `StoreError`.

        To be called once it is stored that they are not. Do not cancel it midway.
        """
        async with self._revisions.storing:
            if dropped := self._revisions.take_unnamed():
                await self.contents.remove(dropped)

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
        return json.loads(self.to_json_text())

    def to_json_text(self) -> str:
        """Return the table as the text of a JSON object; it is encoded again only if it has changed."""
        if self._text_of != self._revisions.version:
            self._text_of = self._revisions.version
            table = {**self._revisions.to_json(), **self.branch_data()} if self._revisions.numbers else {}
            self._text = json.dumps(table, separators=(",", ":"))
        return self._text

    @classmethod
    def from_json(cls, data: Mapping[str, Any], contents: Contents) -> Artifacts:
        """Return what `to_json` returned, with these contents."""
        artifacts = cls(contents)
        for row in data.get("revisions", ()):
            artifacts._revisions.add(Artifact(*row))
        artifacts._revisions.numbers.update(data.get("numbers", {}))
        artifacts.restore(data)
        return artifacts

    def return_to(self, current: Mapping[str, int]) -> None:
        """Make these revisions, by path, the session's files, as far as they are kept."""
        revisions, before = self._revisions, self._current
        self._current = {path: number for path, number in current.items() if (path, number) in revisions.by_key}
        revisions.change_use(before.items() - self._current.items(), self._current.items() - before.items())

    def branch(self) -> Artifacts:
        """Return files that begin as these and change by themselves from then on.

        All branches have the revisions and numbers of one session, so that a path and a number name one content.
        """
        own = {path: [number] for path, number in self._current.items()}
        return self.branch_of({"current": self._current, "own": own})

    def branch_of(self, data: Mapping[str, Any]) -> Artifacts:
        """Return the branch that `branch_data` described."""
        branch = Artifacts(self.contents)
        branch._revisions = self._revisions
        branch.restore(data)
        return branch

    def branch_data(self) -> dict[str, Any]:
        """Return as JSON what a branch has by itself; see `restore`."""
        kept = self._revisions.by_key
        own = {path: [number for number in numbers if (path, number) in kept] for path, numbers in self._own.items()}
        self._own = own
        return {"current": self._current, "own": {path: numbers for path, numbers in own.items() if numbers}}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Make these files what `branch_data` described, as far as it is kept."""
        self._own = {path: list(numbers) for path, numbers in data.get("own", {}).items()}
        self.return_to(data.get("current", {}))

    def take_over(self, branch: Artifacts) -> None:
        """Make the files of a branch these, which have the revisions of both from then on."""
        paths = [*self._own, *branch._own]
        self._own = {path: sorted({*self._own.get(path, ()), *branch._own.get(path, ())}) for path in paths}
        self.return_to(branch.current)

    def summary(self) -> str:
        """Return a short list of the files for a model."""
        return ", ".join(f"{visible_path(each.path)} ({pluralize(each.size, 'byte')})" for each in self.listed())


class _Revisions:
    """The revisions of the files of a session and its options, by path and number.

    `numbers` are the last number of each path. `version` rises with each change, also of what is current in a branch.
    `storing` is held while contents are stored or removed.
    """

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, int], Artifact] = {}
        self.numbers: dict[str, int] = {}
        self.storing = asyncio.Lock()
        self._uses = Counter[tuple[str, int]]()  # in how many branches a revision is current
        self._old: dict[tuple[str, int], None] = {}  # those of no branch, the one first that was current least recently
        self._old_bytes = 0
        self._names = Counter[str]()  # of contents: their revisions, and writes under way
        self._unnamed = set[str]()
        self.version = 0

    def skip(self, path: str, revision: int) -> None:
        if revision > self.numbers.get(path, 0):
            self.numbers[path] = revision
            self.version += 1

    def add(self, artifact: Artifact) -> None:
        """Add a revision that is not current yet."""
        key = artifact.path, artifact.revision
        self.by_key[key] = artifact
        self.version += 1
        self._names[artifact.sha256] += 1
        self._add_old(key)

    def change_use(self, before: Iterable[tuple[str, int]], now: Iterable[tuple[str, int]]) -> None:
        """Take note that in a branch the revisions `before` are not current any more, and those of `now` are."""
        self.version += 1
        for key in now:
            self._uses[key] += 1
            if key in self._old:
                del self._old[key]
                self._old_bytes -= self.by_key[key].size
        for key in sorted(before):
            self._uses[key] -= 1
            if not self._uses[key]:
                del self._uses[key]
                self._add_old(key)

    def drop_oldest(self) -> None:
        """Drop old revisions beyond what is kept of them."""
        while len(self._old) > MAX_OLD_REVISIONS or self._old_bytes > MAX_OLD_BYTES:
            key = next(iter(self._old))
            del self._old[key]
            artifact = self.by_key.pop(key)
            self.version += 1
            self._old_bytes -= artifact.size
            self._remove_name(artifact.sha256)

    def _add_old(self, key: tuple[str, int]) -> None:
        self._old[key] = None
        self._old_bytes += self.by_key[key].size

    @contextmanager
    def naming(self, sha256: str) -> Generator[None]:
        """Keep a content from being removed for the time of a block."""
        self._names[sha256] += 1
        self._unnamed.discard(sha256)
        try:
            yield
        finally:
            self._remove_name(sha256)

    def _remove_name(self, sha256: str) -> None:
        self._names[sha256] -= 1
        if not self._names[sha256]:
            del self._names[sha256]
            self._unnamed.add(sha256)

    def take_unnamed(self) -> Collection[str]:
        """Return the contents that nothing names any more, once."""
        unnamed, self._unnamed = self._unnamed, set[str]()
        return unnamed

    def to_json(self) -> dict[str, Any]:
        """Return the revisions as JSON, those that are old last and in order, and the numbers."""
        keys = [*(key for key in self.by_key if key not in self._old), *self._old]
        found = map(self.by_key.__getitem__, keys)
        rows = [[each.path, each.revision, each.size, each.sha256, each.media_type] for each in found]
        return {"revisions": rows, "numbers": self.numbers}


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
