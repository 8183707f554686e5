"""Limits of a provider for attached files, and the files of a history that are over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agenticx.attachments import image_size, page_count
from agenticx.llms.file_refusals import SentFile
from agenticx.messages import Attachment

__all__ = ["FileFacts", "FileLimits", "find_over_limits"]

_Count = Annotated[int, Field(gt=0)]


class _ManyImages(BaseModel):
    """The limit of the longer side of an image, in pixels, in a request with more than `over` images."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    over: _Count
    pixels: _Count


class _LargeWindow(BaseModel):
    """The number of PDF pages for models with a window of more than `window` tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: _Count
    pdf_pages: _Count


class FileLimits(BaseModel):
    """The table `files` of a provider's row; None means unknown, `sources` cite its documentation.

    Per image: its media types, the characters of its base64, and the pixels of its longer side. Per request: the number
    of images, the pages of all PDFs, and the characters of the base64 of all files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_types: tuple[str, ...] | None = None
    image_base64: _Count | None = None
    image_pixels: _Count | None = None
    many_images: _ManyImages | None = None
    images: _Count | None = None
    pdf_pages: _Count | None = None
    large_window: _LargeWindow | None = None
    request_base64: _Count | None = None
    sources: tuple[str, ...] = ()

    def for_window(self, window: int | None) -> FileLimits:
        """Return the limits for a model with that window."""
        large = self.large_window
        if large is None or window is None or window <= large.window:
            return self
        return self.model_copy(update={"pdf_pages": large.pdf_pages})


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The longer side of an image in pixels, and the pages of a PDF; 0 where they are unknown."""

    pixels: int
    pages: int

    @classmethod
    def of(cls, attachment: Attachment) -> FileFacts:
        size = image_size(attachment) if attachment.kind == "image" else None
        return cls(max(size or (0,)), page_count(attachment) or 0)


def find_over_limits(
    files: Sequence[SentFile], limits: FileLimits, facts: Callable[[SentFile], FileFacts]
) -> list[tuple[SentFile, str]]:
    """Return the files that a request must not have, each with a clause that says why.

    `files` are the files of the history in its order. If there are too many, the oldest are left out.
    """
    over = list[tuple[SentFile, str]]()
    sent = _Sent(limits)
    for file in reversed(files):
        own = facts(file)
        if reason := _own_problem(file, limits, own) or sent.problem_with(file, own):
            over.append((file, reason))
        else:
            sent.add(file, own)
    return over


class _Sent:
    """The files that a request has so far, from the newest on."""

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits
        self._most_images = limits.images
        self._images = self._pages = self._base64 = 0

    def problem_with(self, file: SentFile, facts: FileFacts) -> str:
        """Return the reason why the request cannot have this file as well, "" if it can."""
        limits, many, is_image = self._limits, self._limits.many_images, file.attachment.kind == "image"
        if is_image and self._most_images is not None and self._images >= self._most_images:
            return f"a request may have {self._most_images} images"
        if is_image and many is not None and self._images >= many.over and facts.pixels > many.pixels:
            return f"in a request with many images the longer side may have {many.pixels} pixels, not {facts.pixels}"
        if limits.pdf_pages is not None and facts.pages and self._pages + facts.pages > limits.pdf_pages:
            return f"the PDFs of a request may have {limits.pdf_pages} pages, and this one has {facts.pages}"
        if limits.request_base64 is not None and self._base64 + len(file.attachment.data) > limits.request_base64:
            return f"the files of a request may have {limits.request_base64 * 3 // 4} bytes together"
        return ""

    def add(self, file: SentFile, facts: FileFacts) -> None:
        many = self._limits.many_images
        self._images += file.attachment.kind == "image"
        self._pages += facts.pages
        self._base64 += len(file.attachment.data)
        if many is not None and facts.pixels > many.pixels:  # older images are left out rather than this one
            self._most_images = min(self._most_images or many.over, many.over)


def _own_problem(file: SentFile, limits: FileLimits, facts: FileFacts) -> str:
    attachment = file.attachment
    if attachment.kind == "image":
        if limits.image_types is not None and attachment.media_type not in limits.image_types:
            return f"an image may be {', '.join(limits.image_types)}, not {attachment.media_type}"
        if limits.image_base64 is not None and len(attachment.data) > limits.image_base64:
            return f"an image may have {limits.image_base64 * 3 // 4} bytes, and this one has {attachment.size}"
        if limits.image_pixels is not None and facts.pixels > limits.image_pixels:
            return f"the longer side of an image may have {limits.image_pixels} pixels, and here it has {facts.pixels}"
    return ""
