"""The files attached to messages of a session over HTTP: sent by the digest of their content."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from agenticx.attachments import Attachment
from agenticx.sessions.store.attachments import find_attachment
from agenticx.threads import run_in_thread
from studio.http.contents import content_response, disposition
from studio.http.problems import Problem
from studio.services import services

__all__ = ["show"]

_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"})
"""The types that a browser may show inline; it saves all others, because some would run scripts here."""
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


async def show(request: Request) -> Response:
    """Send a file that is attached to a message of the conversation, or to one that waits, by its `sha256` there.

    Its type is that in the message: an image, a PDF or text. A browser saves text of other types than `text/plain`,
    such as HTML. The ETag is the digest, so that a request with `If-None-Match` is a 304 without the content.
    """
    studio, session_id = services(request), request.path_params["session_id"]
    digest = request.path_params["digest"]
    attachment = await find_attachment(studio.store, session_id, digest)
    if attachment is None:
        sentence = f"No message of the session has an attachment with the SHA-256 {digest[:64]!r}."
        raise Problem("attachment_not_found", sentence)
    content = await run_in_thread(attachment.content, name="agx attachments")
    headers = disposition("inline" if attachment.media_type in _SHOWN_TYPES else "attachment", attachment.name)
    return content_response(request, content, _content_type(attachment, content), etag=digest, headers=headers)


def _content_type(attachment: Attachment, content: bytes) -> str:
    if attachment.kind != "text":
        return attachment.media_type
    charset = "utf-16" if content.startswith(_UTF_16_MARKS) else "utf-8"
    return f"{attachment.media_type}; charset={charset}"
