"""An image model that gives scripted results in order and records what it was sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from decimal import Decimal

from agenticx.errors import ModelError
from agenticx.llms.base import Usage
from agenticx.llms.images.base import Image, ImageResult, checked_image

__all__ = ["ScriptedImages"]


class ScriptedImages:
    """An image model that gives `replies` in order, one for each prompt or image.

        ScriptedImages([png_bytes, "the prompt is refused"], cost_usd="0.04")

    A reply is the bytes of an image, or a text: the error in its place. A reply that `checked_image` refuses is an
    error too, and so is a missing one. Each image costs `cost_usd` US dollars. `prompts` has the prompts of all calls,
    `images` the images whose background was to be removed, and `host` is the receiver in questions to the user.
    """

    def __init__(
        self,
        replies: Iterable[bytes | str] = (),
        *,
        name: str = "scripted:images",
        host: str = "images.example",
        cost_usd: Decimal | str | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.prompts: list[str] = []
        self.images: list[Image] = []
        self._replies = deque(replies)
        self._cost = None if cost_usd is None else Decimal(cost_usd)

    def largest_cost(self) -> Decimal | None:
        """Return the cost of an image in US dollars, None if it is unknown."""
        return self._cost

    async def generate(
        self, prompts: Sequence[str], size: str | None = None, transparent: bool = False
    ) -> Sequence[ImageResult]:
        """Record the prompts and return the next results."""
        self.prompts += prompts
        return [self._next() for _ in prompts]

    async def remove_background(self, images: Sequence[Image]) -> Sequence[ImageResult]:
        """Record the images and return the next results."""
        self.images += images
        return [self._next() for _ in images]

    def _next(self) -> ImageResult:
        reply = self._replies.popleft() if self._replies else "there is no further scripted image"
        if isinstance(reply, str):
            return ImageResult(error=reply)
        usage = Usage(cost_usd=self._cost)
        try:
            return ImageResult(checked_image(reply), usage=usage)
        except ModelError as exc:
            return ImageResult(error=str(exc), usage=usage)
