"""The files of a session, called artifacts: they live with the session, not on the disk.

Each change of a file is a revision of it. The contents are stored by their digest before the commit that names them;
each revision is a part of the session's state. Old revisions are kept up to a limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import zipfile
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any, Protocol

from agenticx.errors import AgenticXError, ToolError
from agenticx.llms.images.base import MAX_IMAGE_BYTES
from agenticx.threads import run_in_thread
from agenticx.tools.artifacts.paths import check_artifact_path, check_path_conflicts
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
    "KeptRevision",
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
"""The limits of a session's files in bytes; images, each of at most `MAX_IMAGE_BYTES`, count apart."""

MAX_OLD_REVISIONS = 500
MAX_OLD_BYTES = 100 * 1024 * 1024
"""The limits of old revisions: those current neither in the session nor in one of its options."""

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
class KeptRevision:
    """A revision that a session keeps.

    `is_own` is true if the session itself has or had it, not only one of its options. `old_since` is 0 while it is
    current somewhere; old revisions are dropped in the order of these numbers.
    """

    artifact: Artifact
    old_since: int
    is_own: bool


@dataclass(frozen=True, slots=True)
class ArtifactPreview:
    """The part of a file that clients were shown while its call was received, and the revision it may become."""

    path: str
    revision: int
    text: str

    @property
    def dropped_data(self) -> dict[str, Any]:
        """The payload of the `artifact` event that reports that nothing of it was stored."""
        return {"path": self.path, "final": True, "revision": self.revision, "dropped": True}


class Artifacts:
    """The files of a session: the kept revisions of each, and the current one.

    Branches, for example of options, share the revisions and numbers of one session, and each shows only the revisions
    that it has or had itself. All revisions that are current in the session or an option are kept, and the 500 old ones
    that were current last, up to 100 MB together. A rewind to a revision that is no longer kept leaves its file out. No
    number is used twice, even after a rewind has removed revisions.
    """

    def __init__(self, contents: Contents | None = None) -> None:
        self.contents = contents or MemoryContents()
        self._revisions = _Revisions()
        self._current: dict[str, int] = {}
        self._own: dict[str, set[int]] = {}
        self.version = 0
        """A number that rises with each change of `branch_data`."""

    @property
    def current(self) -> Mapping[str, int]:
        """The numbers of the current revisions, by path."""
        return self._current

    @property
    def revisions(self) -> Collection[Artifact]:
        """All kept revisions, including other branches'."""
        return self._revisions.by_key.values()

    @property
    def numbers(self) -> Mapping[str, int]:
        """The last number of each path; its revision may not have been written."""
        return self._revisions.numbers

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
            known = sorted(number for number in own if (path, number) in self._revisions.by_key)[-20:]
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
        """Mark a revision number as used, because clients were shown a revision with it."""
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
            self._own.setdefault(path, set()).add(number)
            self.version += 1
            self.return_to({**self._current, path: number})
            revisions.drop_oldest()
        return artifact

    async def remove_dropped(self) -> None:
        """Delete the contents of dropped revisions; raise `StoreError`.

        Call it once the drop is stored, and do not cancel it midway.
        """
        async with self._revisions.storing:
            if dropped := self._revisions.take_unnamed():
                await self.contents.remove(dropped)

    def check(self, path: str, size: int, media_type: str, *, count: int = 1) -> None:
        """Raise `ToolError` unless a file, or `count` new ones, of `size` bytes can be added to the other files.

        The limits are 200 files, 2 MB each, 20 MB together; apart from these 200 images, 10 MB each, 100 MB together.
        Also raised for a path that `check_artifact_path` or `check_path_conflicts` refuses.
        """
        check_artifact_path(path)
        check_path_conflicts(path, self.current)
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

    # --- as parts of the session's state --------------------------------------------------------------------------

    def keys(self) -> Iterator[str | tuple[str, int]]:
        """Yield the paths that have a number, and path and number of each kept revision."""
        yield from self._revisions.numbers
        yield from self._revisions.by_key

    def take_changes(self) -> Collection[str | tuple[str, int]]:
        """Return the keys that have changed since the last call, also of dropped revisions.

        A path changes with its last number and its current revision, a revision with the fields of a `KeptRevision`.
        """
        revisions = self._revisions
        changed, revisions.changed = revisions.changed, {}
        for key in changed:
            if not isinstance(key, str) and key not in revisions.by_key:
                self._own.get(key[0], set[int]()).discard(key[1])
        return changed

    def kept(self, path: str, revision: int) -> KeptRevision | None:
        """Return a revision of the session or one of its options, None if it is not kept."""
        key, revisions = (path, revision), self._revisions
        if key not in revisions.by_key:
            return None
        return KeptRevision(revisions.by_key[key], revisions.old.get(key, 0), revision in self._own.get(path, ()))

    @classmethod
    def restored(
        cls,
        contents: Contents,
        kept: Iterable[KeptRevision],
        *,
        numbers: Mapping[str, int],
        current: Mapping[str, int],
    ) -> Artifacts:
        """Return the files of a session that has kept these revisions, with these contents."""
        artifacts = cls(contents)
        for each in sorted(kept, key=attrgetter("old_since")):
            artifacts._revisions.add(each.artifact, each.old_since)
            if each.is_own:
                artifacts._own.setdefault(each.artifact.path, set()).add(each.artifact.revision)
        artifacts._revisions.numbers.update(numbers)
        artifacts.return_to(current)
        return artifacts

    def return_to(self, current: Mapping[str, int]) -> None:
        """Make these revisions, by path, the session's files, as far as they are kept."""
        revisions, before = self._revisions, self._current
        self._current = {path: number for path, number in current.items() if (path, number) in revisions.by_key}
        self.version += 1
        revisions.change_use(before.items() - self._current.items(), self._current.items() - before.items())

    def branch(self) -> Artifacts:
        """Return a copy of the files that changes independently.

        All branches share the revisions and numbers of one session, so that a path and a number name one content.
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
        """Return the branch as JSON for `restore`; some of its revisions may have been dropped."""
        return {"current": self._current, "own": {path: sorted(numbers) for path, numbers in self._own.items()}}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Restore the files that `branch_data` described, as far as they are kept."""
        self._set_own({path: set(numbers) for path, numbers in data.get("own", {}).items()})
        self.return_to(data.get("current", {}))

    def take_over(self, branch: Artifacts) -> None:
        """Replace the files by a branch's; the revisions of both stay this branch's own."""
        paths = [*self._own, *branch._own]
        self._set_own({path: {*self._own.get(path, ()), *branch._own.get(path, ())} for path in paths})
        self.return_to(branch.current)

    def _set_own(self, own: dict[str, set[int]]) -> None:
        for numbers_by_path in (self._own, own):
            for path, numbers in numbers_by_path.items():
                self._revisions.changed |= dict.fromkeys((path, number) for number in numbers)
        self._own = own
        self.version += 1

    def summary(self) -> str:
        """Return a short list of the files for a model."""
        return ", ".join(f"{visible_path(each.path)} ({pluralize(each.size, 'byte')})" for each in self.listed())


class _Revisions:
    """The revisions of the files of a session and its options, by path and number.

    `numbers` has the last number of each path. `old` has the revisions that are current in no branch, each with a
    number that rises with the time of that. `changed` has the changed paths and revisions. `storing` is held while
    contents are stored or removed.
    """

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, int], Artifact] = {}
        self.numbers: dict[str, int] = {}
        self.storing = asyncio.Lock()
        self._uses = Counter[tuple[str, int]]()  # in how many branches a revision is current
        self.old: dict[tuple[str, int], int] = {}
        self._old_bytes = self._old_count = 0
        self._names = Counter[str]()  # of contents: their revisions, and writes under way
        self._unnamed = set[str]()
        self.changed: dict[str | tuple[str, int], None] = {}

    def skip(self, path: str, revision: int) -> None:
        if revision > self.numbers.get(path, 0):
            self.numbers[path] = revision
            self.changed[path] = None

    def add(self, artifact: Artifact, old_since: int | None = None) -> None:
        """Add a revision that is not current yet; a stored one has its `old_since`."""
        key = artifact.path, artifact.revision
        self.by_key[key] = artifact
        self._names[artifact.sha256] += 1
        self._add_old(key, old_since)

    def change_use(self, before: Iterable[tuple[str, int]], now: Iterable[tuple[str, int]]) -> None:
        """Record that in a branch the revisions `before` are no longer current, and the revisions `now` are."""
        for key in now:
            self.changed |= {key[0]: None, key: None}
            self._uses[key] += 1
            if key in self.old:
                del self.old[key]
                self._old_bytes -= self.by_key[key].size
        for key in sorted(before):
            self.changed[key[0]] = None
            self._uses[key] -= 1
            if not self._uses[key]:
                del self._uses[key]
                self._add_old(key)

    def drop_oldest(self) -> None:
        """Drop the oldest revisions over the limits."""
        while len(self.old) > MAX_OLD_REVISIONS or self._old_bytes > MAX_OLD_BYTES:
            key = next(iter(self.old))
            del self.old[key]
            artifact = self.by_key.pop(key)
            self.changed[key] = None
            self._old_bytes -= artifact.size
            self._remove_name(artifact.sha256)

    def _add_old(self, key: tuple[str, int], old_since: int | None = None) -> None:
        self._old_count = self._old_count + 1 if old_since is None else old_since
        self.old[key] = self._old_count
        self.changed[key] = None
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


def artifact_media_type(path: str) -> str:
    """Return the media type of a text file by the end of its name."""
    return _MEDIA_TYPES.get(PurePosixPath(path).suffix.lower(), "text/plain")


def is_image_type(media_type: str) -> bool:
    """Return whether a media type is an image's; SVG counts as text."""
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
