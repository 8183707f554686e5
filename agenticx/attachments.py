"""Images and files attached to a message or a tool's result: their media types, sizes and limits.

The type of a file is detected from its content, never from its name: PNG, JPEG, GIF, WebP, PDF, or text in UTF-8 or,
with a byte order mark, in UTF-16.

Files of a message are read and checked before the turn begins, those of a result when the tool returns them. Their
content is kept in the message: nothing reads a file again.
A name with hidden characters, such as the narrow blank in the names of macOS screenshots, is kept as tools show it:
`⟨U+202F⟩`. Events have the names, types and sizes only. Each wire sends the types that its protocol accepts, and tells
the model about the others (`llms.message_attachments`). Compaction keeps the files of the current request.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agenticx.argument_types import check_path
from agenticx.errors import AttachmentRefused, AttachmentTooLarge, error_text
from agenticx.resource_exhaustion import raise_if_exhausted
from agenticx.untrusted_text import MATERIAL, decode_text, frame_text

__all__ = [
    "MAX_ATTACHMENTS",
    "MAX_TOTAL_BYTES",
    "Attachment",
    "check_attachments",
    "complete_file_type",
    "file_type",
    "fingerprint",
    "image_size",
    "image_type",
    "is_file_name",
    "load_attachment",
    "make_attachment",
    "page_count",
    "pixel_size",
]

MAX_ATTACHMENTS = 20
MAX_TOTAL_BYTES = 16 * 1024 * 1024
"""Limit for one message. Providers accept requests of 20 to 50 MB, and base64 adds a third to each byte."""

_LIMITS = {"image": 5 * 1024 * 1024, "document": 12 * 1024 * 1024, "text": 512 * 1024}
"""By kind. What a provider accepts of that stands in models.toml; text becomes part of the prompt."""

_MAX_NAME_CHARS = 255
_IMAGE_CHARACTERS = 6_000
_DOCUMENT_BYTES_PER_CHARACTER = 8
_HEADER_BYTES = 256 * 1024  # of a JPEG, whose size follows its metadata
_TEXT_CONTROL_CHARS = "\t\n\r\f\b\x1b"  # control characters that occur in text files


class Attachment(BaseModel, frozen=True, extra="forbid"):
    """An attached file as it is stored and sent; `data` is base64.

    `make_attachment` and `load_attachment` return checked ones.
    """

    name: str
    media_type: str
    data: str

    @property
    def kind(self) -> str:
        """The kind of file: `image`, `document` or `text`."""
        if self.media_type.startswith("image/"):
            return "image"
        return "document" if self.media_type == "application/pdf" else "text"

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")

    @property
    def text(self) -> str:
        """The content of a text file; bytes that are not text in its encoding become U+FFFD."""
        return decode_text(b64decode(self.data)) or ""

    def content(self) -> bytes:
        """Return the content of the file."""
        return b64decode(self.data)

    @property
    def framed_text(self) -> str:
        """The content of a text file as it stands in a prompt."""
        return _framed(self)

    @property
    def description(self) -> str:
        """The name, the type and the size of the file, for a prompt."""
        name = self.name.replace("[", "(").replace("]", ")")  # it stands in brackets
        return f"{name} ({self.media_type}, {self.size} bytes)"

    @property
    def estimated_chars(self) -> int:
        """The number of characters of text that take about as much of a context window (four per token)."""
        match self.kind:
            case "image":
                return _IMAGE_CHARACTERS
            case "document":
                return max(_IMAGE_CHARACTERS, self.size // _DOCUMENT_BYTES_PER_CHARACTER)
            case _:
                return self.size

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content, in hexadecimal digits."""
        return hashlib.sha256(b64decode(self.data)).hexdigest()

    @property
    def summary(self) -> Mapping[str, Any]:
        """The fields shown in events and lists: all but the data."""
        return {"name": self.name, "media_type": self.media_type, "size": self.size, "sha256": self.digest}


@lru_cache(maxsize=MAX_ATTACHMENTS)
def _framed(attachment: Attachment) -> str:
    """Return the framed text of a file; those of the latest requests are kept, as each later request has them again."""
    return frame_text(f"attached file {attachment.description}", attachment.text, MATERIAL)


def make_attachment(name: str, content: bytes, media_type: str | None = None) -> Attachment:
    """Return `content` as an attachment of its detected media type; `media_type` only selects the kind of text.

    Raises `AttachmentRefused` for content of no accepted type, for an image without a size in its header (a provider
    would refuse the whole request), for text of the `media_type` of an image or PDF, and for a name that `is_file_name`
    refuses, `AttachmentTooLarge`.
    """
    attachment = Attachment(
        name=_shown_name(name) if is_file_name(name) else name,
        media_type=_detect_media_type(name, content, media_type),
        data=b64encode(content).decode(),
    )
    _check(attachment)
    return attachment


def load_attachment(path: str | PathLike[str]) -> Attachment:
    """Read the file at `path`: a PNG, JPEG, GIF or WebP image, a PDF, or text.

    An image may have 5 MiB, a PDF 12 MiB and a text 512 KiB; a message, or a tool's result, may have 20 files and 16
    MiB of them. Providers may accept less. Raises `AttachmentTooLarge` for a larger file, and `AttachmentRefused` for
    content of no such type, for a damaged image and for a file that cannot be read.
    """
    check_path("path", path)
    path = Path(path)
    try:
        if not path.is_file():
            raise AttachmentRefused(f"{str(path)!r} is not a file")
        if path.stat().st_size > MAX_TOTAL_BYTES:  # refuse it without reading it
            raise AttachmentTooLarge(
                f"{path.name!r} is larger than {_format_size(MAX_TOTAL_BYTES)}, the limit for one message"
            )
        return make_attachment(_shown_name(path.name), path.read_bytes())
    except (OSError, ValueError) as exc:
        raise_if_exhausted(exc)
        raise AttachmentRefused(f"{str(path)!r} cannot be read: {error_text(exc)}") from exc


def check_attachments(attachments: Sequence[Attachment]) -> None:
    """Raise `AttachmentRefused` or `AttachmentTooLarge` unless one message may have all of these."""
    if len(attachments) > MAX_ATTACHMENTS:
        raise AttachmentTooLarge(f"{len(attachments)} files are attached; the limit is {MAX_ATTACHMENTS}")
    for attachment in attachments:
        _check(attachment)
        found = _detect_media_type(attachment.name, _decode(attachment), attachment.media_type)
        if found != attachment.media_type:
            raise AttachmentRefused(f"{attachment.name!r} is {found}, not {attachment.media_type}")
    total = sum(attachment.size for attachment in attachments)
    if total > MAX_TOTAL_BYTES:
        raise AttachmentTooLarge(f"the files have {total} bytes together; the limit is {_format_size(MAX_TOTAL_BYTES)}")


def fingerprint(attachments: Sequence[Attachment]) -> str:
    """Return a hash that is equal for equal lists of files only; "" for none."""
    if not attachments:
        return ""
    digest = hashlib.sha256()
    for attachment in attachments:
        digest.update(attachment.model_dump_json().encode())
    return digest.hexdigest()


def image_size(attachment: Attachment) -> tuple[int, int] | None:
    """Return the width and height of an image in pixels, read from its header; None if they cannot be read there."""
    return pixel_size(b64decode(attachment.data[: _HEADER_BYTES // 3 * 4]), attachment.media_type)


def image_type(content: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP image by its first bytes, None for anything else."""
    found = file_type(content)
    return found if found is not None and found.startswith("image/") else None


def pixel_size(content: bytes, media_type: str) -> tuple[int, int] | None:
    """Return the width and height of an image of that type in pixels; None if its first 256 KiB do not have them."""
    header = content[:_HEADER_BYTES]
    match media_type:
        case "image/png" if header[12:16] == b"IHDR" and len(header) >= 24:
            return _big_endian(header[16:20]), _big_endian(header[20:24])
        case "image/gif" if len(header) >= 10:
            return _little_endian(header[6:8]), _little_endian(header[8:10])
        case "image/jpeg":
            return _jpeg_size(header)
        case "image/webp":
            return _webp_size(header)
        case _:
            return None


def page_count(attachment: Attachment) -> int | None:
    """Return the number of pages of a PDF; None if they are in compressed objects, or the file is no PDF."""
    if attachment.media_type != "application/pdf":
        return None
    return len(_PDF_PAGE.findall(b64decode(attachment.data))) or None


_PDF_PAGE = re.compile(rb"/Type\s{0,8}/Page(?![A-Za-z])")
_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start of frame, by kind of compression


def _jpeg_size(header: bytes) -> tuple[int, int] | None:
    """Return the size in the first frame header; a segment is FF, a marker, its length with these two bytes, data."""
    position = 2
    while position + 9 <= len(header) and header[position] == 0xFF:
        marker = header[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in _JPEG_SIZE_MARKERS:
            return _big_endian(header[position + 7 : position + 9]), _big_endian(header[position + 5 : position + 7])
        else:
            position += 2 + max(2, _big_endian(header[position + 2 : position + 4]))
    return None


def _webp_size(header: bytes) -> tuple[int, int] | None:
    if len(header) < 30:
        return None
    match header[12:16]:
        case b"VP8X":
            return _little_endian(header[24:27]) + 1, _little_endian(header[27:30]) + 1
        case b"VP8L":
            bits = _little_endian(header[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little_endian(header[26:28]) & 0x3FFF, _little_endian(header[28:30]) & 0x3FFF
        case _:
            return None


def _big_endian(digits: bytes) -> int:
    return int.from_bytes(digits, "big")


def _little_endian(digits: bytes) -> int:
    return int.from_bytes(digits, "little")


def is_file_name(name: str) -> bool:
    """Return whether an attached file may have that name: without control characters and changes of direction.

    Other hidden characters are kept as code points: blanks, joiners, and the direction marks of names from messengers.
    """
    return 0 < len(name) <= _MAX_NAME_CHARS and _REFUSED_IN_NAMES.search(name) is None


_REFUSED_IN_NAMES = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def _shown_name(name: str) -> str:
    """Return the name with its hidden characters as code points; the middle of a very long one is left out."""
    shown = "".join(char if char.isprintable() else f"⟨U+{ord(char):04X}⟩" for char in name)
    return shown if len(shown) <= _MAX_NAME_CHARS else f"{shown[:200]}…{shown[-50:]}"


def _check(attachment: Attachment) -> None:
    if not (0 < len(attachment.name) <= _MAX_NAME_CHARS and attachment.name.isprintable()):
        raise AttachmentRefused(
            f"a file's name is 1 to {_MAX_NAME_CHARS} printable characters, not {attachment.name[:80]!r}"
        )
    limit = _LIMITS[attachment.kind]
    if attachment.size > limit:
        kind = {"image": "an image", "document": "a PDF", "text": "a text file"}[attachment.kind]
        sentence = f"{attachment.name!r} has {attachment.size} bytes; {kind} may have {_format_size(limit)}"
        raise AttachmentTooLarge(sentence)


def _decode(attachment: Attachment) -> bytes:
    try:
        return b64decode(attachment.data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise AttachmentRefused(f"the data of {attachment.name!r} is not base64: {exc}") from exc


def _detect_media_type(name: str, content: bytes, declared: str | None) -> str:
    found = _sniff(content)
    if found is None:
        raise AttachmentRefused(
            f"{name[:80]!r} is neither a PNG, JPEG, GIF or WebP image, nor a PDF, nor text in UTF-8 or UTF-16; "
            "send one of these"
        )
    if found.startswith("image/") and not _has_size(content, found):
        raise AttachmentRefused(
            f"{name[:80]!r} begins like {found}, but it is cut off or damaged: its header has no size in pixels"
        )
    if found != "text/plain" or declared is None:
        return found
    declared = declared.partition(";")[0].strip().lower()
    if declared in _DETECTED_TYPES:
        raise AttachmentRefused(
            f"{name[:80]!r} is sent as {declared}, but it is text; send an image, a PDF, or text as such"
        )
    return declared if _is_text_type(declared) else found


def _sniff(content: bytes) -> str | None:
    return file_type(content) or ("text/plain" if _is_text(content) else None)


def file_type(content: bytes | bytearray) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP image or a PDF by its first 16 bytes, None for all else."""
    for magic, media_type in _MAGIC.items():
        if content.startswith(magic):
            return media_type
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def complete_file_type(content: bytes | bytearray) -> str | None:
    """Return the media type of content that has header and end of an image or a PDF; None for all else.

    A provider refuses a request with what only begins like one.
    """
    found = file_type(content)
    if found is None or _ENDS[found] not in content:
        return None
    return found if found == "application/pdf" or _has_size(content, found) else None


def _has_size(content: bytes | bytearray, media_type: str) -> bool:
    """Return True if the header of an image has its size, or may have it after much metadata of a JPEG."""
    if media_type == "image/jpeg" and len(content) > _HEADER_BYTES:
        return True
    width, height = pixel_size(bytes(content[:_HEADER_BYTES]), media_type) or (0, 0)
    return width > 0 and height > 0


_ENDS = {
    "image/png": b"IEND",
    "image/jpeg": b"\xff\xd9",
    "image/gif": b"\0",  # ends the blocks of an image
    "image/webp": b"VP8",  # has no mark of an end
    "application/pdf": b"startxref",
}
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}
_DETECTED_TYPES = {*_MAGIC.values(), "image/webp"}


def _is_text(content: bytes) -> bool:
    text = decode_text(content, strict=True)
    return text is not None and (
        not any(character < " " and character not in _TEXT_CONTROL_CHARS for character in set(text))
        and "\x7f" not in text
    )


def _is_text_type(media_type: str) -> bool:
    return re.fullmatch(r"text/[a-z0-9.+-]+|application/([a-z0-9.-]+\+)?(json|xml|yaml)", media_type[:100]) is not None


def _format_size(size: int) -> str:
    return f"{size // 1024} KiB" if size < 1024 * 1024 else f"{size // (1024 * 1024)} MiB"
