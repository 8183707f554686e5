"""The protocol of image models, their results, and the check of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

from agenticx.attachments import image_type, pixel_size
from agenticx.errors import ModelError
from agenticx.llms.base import Usage

__all__ = [
    "MAX_IMAGE_BYTES",
    "MAX_IMAGE_PIXELS",
    "Image",
    "ImageProvider",
    "ImageResult",
    "checked_image",
    "image_host",
    "largest_image_cost",
]

MAX_IMAGE_BYTES = 10 * 1024 * 1024
MAX_IMAGE_PIXELS = 50_000_000


@dataclass(frozen=True, slots=True)
class Image:
    """A PNG, JPEG, WebP or GIF image: its bytes, its media type by the first of them, and its size in pixels."""

    content: bytes
    media_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ImageResult:
    """The result for one prompt or image: the new `image`, or None and a sentence as `error`.

    `usage` is what the request used: None if it failed before anything was used, `Usage()` if that is not known.
    """

    image: Image | None = None
    error: str = ""
    usage: Usage | None = None


@runtime_checkable
class ImageProvider(Protocol):
    """A model that makes images; `name` is its name for the user, for example `openai:gpt-image-2`.

    Both methods return one result per prompt or image, in their order: a failure does not affect the others. They raise
    nothing but a cancellation. A provider may also have a `host` that prompts and images are sent to, a method
    `largest_cost()`, see `largest_image_cost`, and `aclose()`.
    """

    @property
    def name(self) -> str: ...

    async def generate(
        self, prompts: Sequence[str], size: str | None = None, transparent: bool = False
    ) -> Sequence[ImageResult]:
        """Return an image for each prompt; `size` is WIDTHxHEIGHT in pixels, None leaves it to the provider."""
        ...

    async def remove_background(self, images: Sequence[Image]) -> Sequence[ImageResult]:
        """Return each image with a transparent background."""
        ...


def image_host(provider: ImageProvider) -> str | None:
    """Return the host that `provider` sends prompts and images to, None if unknown."""
    host: object = getattr(provider, "host", None)
    return host if isinstance(host, str) else None


def largest_image_cost(provider: ImageProvider) -> Decimal | None:
    """Return the most that one image of `provider` costs in US dollars, None if its price is unknown."""
    find: Any = getattr(provider, "largest_cost", None)
    return None if find is None else find()


def checked_image(content: bytes) -> Image:
    """Return the image in `content` from a server or a user; only its header is read.

    Raises `ModelError` if it is no PNG, JPEG, WebP or GIF image, has more than 10 MiB or 50 megapixels, or does not
    give its size in its header.
    """
    media_type = image_type(content)
    if media_type is None:
        raise _refused("it is no PNG, JPEG, WebP or GIF image")
    if len(content) > MAX_IMAGE_BYTES:
        raise _refused(f"it has {len(content):,} bytes; the limit is {MAX_IMAGE_BYTES // 2**20} MiB")
    width, height = pixel_size(content, media_type) or (0, 0)
    if not (width and height):
        raise _refused("its header does not give its size in pixels")
    if width * height > MAX_IMAGE_PIXELS:
        raise _refused(f"it has {width:,} × {height:,} pixels; the limit is {MAX_IMAGE_PIXELS:,} in all")
    return Image(content, media_type, width, height)


def _refused(reason: str) -> ModelError:
    return ModelError(f"the image cannot be used: {reason}", code="provider.bad_reply")
