"""Contents of attachments: they are stored by their digests, before the commit that names the digests.

In a commit, the `data` of a large attachment is `sha256:` and the digest of its content; the colon tells it from
base64. Messages that an `AttachmentLease` loads have their contents again. Messages that are read without a lease, for
a fork or a rewind, keep the digests.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace

from agenticx.attachments import Attachment
from agenticx.errors import ResourcesExhausted, StoreError
from agenticx.logs import get_logger
from agenticx.messages import Message, UserMessage, files_of
from agenticx.sessions.log.commits import Commit, LoadedSession, SessionState, StateChange
from agenticx.sessions.log.events import StoredEvent
from agenticx.sessions.log.records import Fact, MessagePosted
from agenticx.sessions.store.base import Lease, StoreReader
from agenticx.sessions.store.blobs import TOO_LARGE, Blobs
from agenticx.threads import run_in_thread

__all__ = [
    "SMALLEST_CONTENT",
    "AttachmentLease",
    "attachment_digests",
    "find_attachment",
    "load_attachments",
    "posted_messages",
    "stored_attachments",
]

SMALLEST_CONTENT = 32 * 1024
"""The least size in bytes of a content that is stored by its digest; a smaller content is cheaper in the commit.

So the 20 attachments of a message take less than 1 MB of base64 in a commit, the usual limit of message queues.
"""

_PREFIX = "sha256:"

_log = get_logger(__name__)


class AttachmentLease:
    """The `Lease` of a session whose commits name the contents of large attachments by their digests.

    The contents are in `blobs`; without these, they stay in the commits of `lease`.
    """

    def __init__(self, lease: Lease, blobs: Blobs | None) -> None:
        self.lease = lease
        self.session_id, self.lost = lease.session_id, lease.lost
        self._blobs = blobs

    async def check(self) -> None:
        await self.lease.check()

    async def load(self) -> LoadedSession:
        loaded, blobs = await self.lease.load(), self._blobs
        if blobs is None:
            return loaded

        async def read(digest: str) -> bytes | None:
            return await blobs.get(self.session_id, digest)

        messages = await load_attachments(loaded.state.messages, read)
        facts = [await _change_fact(fact, lambda message: _load_message(message, read)) for fact in loaded.open_facts]
        return replace(loaded, state=SessionState(messages, loaded.state.parts), open_facts=facts)

    async def commit(self, commit: Commit) -> Sequence[StoredEvent]:
        return await self.lease.commit(await self._store_contents(commit))

    async def _store_contents(self, commit: Commit) -> Commit:
        """Store the contents of large attachments; return the commit with their digests instead."""
        blobs, state = self._blobs, commit.state
        if blobs is None or not (state or commit.facts):
            return commit

        async def store(message: Message) -> Message:
            return await _store_message(self.session_id, blobs, message)

        if state is not None and any(map(_has_attachments, (*state.messages, *state.compacted))):
            messages, compacted = [[await store(m) for m in part] for part in (state.messages, state.compacted)]
            state = replace(state, messages=messages, compacted=compacted)
        facts = [await _change_fact(fact, store) for fact in commit.facts]
        return replace(commit, state=state, facts=facts, blobs=sorted(_digests_in(state, facts)))

    async def release(self, *, work_left: bool = False) -> None:
        await self.lease.release(work_left=work_left)


def attachment_digests(messages: Iterable[Message]) -> set[str]:
    """Return the digests of attachments in messages as a store returns them."""
    files = (file for message in messages for file in files_of(message))
    return {file.data.removeprefix(_PREFIX) for file in files if file.data.startswith(_PREFIX)}


async def load_attachments(
    messages: Sequence[Message], read: Callable[[str], Awaitable[bytes | None]]
) -> list[Message]:
    """Return messages from a store with the contents of their attachments; `read` returns a content by its digest.

    If a content is missing, the text of the message names the attachment instead. Messages without digests are returned
    unchanged.
    """
    if not any(map(_has_attachments, messages)):
        return list(messages)
    return [await _load_message(message, read) for message in messages]


async def stored_attachments(store: StoreReader, session_id: str, digests: Collection[str]) -> list[Attachment]:
    """Return the attachments of a session that can have one of these digests.

    They are all small attachments, whose digests are not stored, and the large ones whose digest is in `digests`. The
    attachments are those of the conversation and of waiting messages; messages that a rewind removed do not count.
    Raises `SessionNotFound` and `StoreError`.
    """
    posted = await store.log.facts(session_id, MessagePosted)
    compacted, state = await store.log.compacted_messages(session_id), await store.log.state(session_id)
    messages: list[Message] = [*compacted, *state.messages, *(fact.message for fact in posted)]
    blobs, found = store.blobs, list[Attachment]()
    for file in (file for message in messages for file in files_of(message)):
        if not file.data.startswith(_PREFIX):
            found.append(file)
            continue
        digest = file.data.removeprefix(_PREFIX)
        content = await blobs.get(session_id, digest) if blobs is not None and digest in digests else None
        if content is not None:
            found.append(await _with_content(file, content))
    return found


async def posted_messages(store: StoreReader, session_id: str) -> list[MessagePosted]:
    """Return the waiting messages of a session, oldest first, with the contents of their attachments."""
    blobs = store.blobs

    async def read(digest: str) -> bytes | None:
        return None if blobs is None else await blobs.get(session_id, digest)

    posted = await store.log.facts(session_id, MessagePosted)
    messages = await load_attachments([fact.message for fact in posted], read)
    return [
        replace(fact, message=message)
        for fact, message in zip(posted, messages, strict=True)
        if isinstance(message, UserMessage)
    ]


async def find_attachment(store: StoreReader, session_id: str, digest: str) -> Attachment | None:
    """Return the first of the `stored_attachments` with this SHA-256 digest of its content, or None."""
    files = await stored_attachments(store, session_id, {digest})
    return await run_in_thread(_with_digest, files, digest, name="agx attachments")


def _with_digest(files: Sequence[Attachment], digest: str) -> Attachment | None:
    return next((file for file in files if file.digest == digest), None)


# --- one message ------------------------------------------------------------------------------------------------------


def _has_attachments(message: Message) -> bool:
    return bool(files_of(message))


async def _load_message(message: Message, read: Callable[[str], Awaitable[bytes | None]]) -> Message:
    if not attachment_digests([message]):
        return message
    text, files = message.content, list[Attachment]()
    for file in files_of(message):
        if not file.data.startswith(_PREFIX):
            files.append(file)
        elif (content := await read(file.data.removeprefix(_PREFIX))) is not None:
            files.append(await _with_content(file, content))
        else:
            _log.error("content of an attachment is missing", message=message.message_id, file=file.name)
            text += f"\n[attached: {file.name}]"
    return message.model_copy(update={"content": text, "attachments": tuple(files)})


async def _with_content(file: Attachment, content: bytes) -> Attachment:
    data = await run_in_thread(b64encode, content, name="agx attachments")
    return file.model_copy(update={"data": data.decode()})


async def _store_message(session_id: str, blobs: Blobs, message: Message) -> Message:
    if all(file.size < SMALLEST_CONTENT for file in files_of(message)):
        return message
    files = [
        file if file.size < SMALLEST_CONTENT else await _store_attachment(session_id, blobs, file)
        for file in files_of(message)
    ]
    return message.model_copy(update={"attachments": tuple(files)})


async def _store_attachment(session_id: str, blobs: Blobs, file: Attachment) -> Attachment:
    """Store the content of an attachment and return what stands for it in commits; raise `StoreError`."""
    try:
        content = await run_in_thread(_decode, file.data, name="agx attachments")
        digest = TOO_LARGE if content is None else await blobs.put(session_id, content, retention="kept")
    except ResourcesExhausted as exc:
        raise StoreError(str(exc)) from exc
    return file if digest == TOO_LARGE else file.model_copy(update={"data": _PREFIX + digest})


def _decode(data: str) -> bytes | None:
    """Return the decoded content, None if `data` is not base64, or not the base64 that encoding gives."""
    try:
        content = b64decode(data, validate=True)
    except ValueError:
        return None
    last = b64encode(content[-(len(content) % 3 or 3) :])  # only there can valid base64 differ
    return content if len(data) == (len(content) + 2) // 3 * 4 and data.endswith(last.decode()) else None


async def _change_fact(fact: Fact, change: Callable[[Message], Awaitable[Message]]) -> Fact:
    """Return the fact of a posted message with the changed message, and any other one as it is."""
    if not isinstance(fact, MessagePosted):
        return fact
    changed = await change(fact.message)
    assert isinstance(changed, UserMessage)
    return fact if changed is fact.message else replace(fact, message=changed)


def _digests_in(state: StateChange | None, facts: Sequence[Fact]) -> set[str]:
    posted = [fact.message for fact in facts if isinstance(fact, MessagePosted)]
    return attachment_digests(posted if state is None else [*posted, *state.messages, *state.compacted])
