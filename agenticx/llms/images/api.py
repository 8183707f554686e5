"""The Images API of OpenAI, and of the servers that have it too.

https://developers.openai.com/api/reference/resources/images. Each image is a request of its own, so that a failure
concerns one image only. Images come back in the response as `b64_json`; a URL in their place is never fetched.

1. GPT image models always return base64 and refuse `response_format`; all others need it to return base64.
2. A parameter that only describes the form of the response, and that the server refuses, is left out from then on.
3. A failed request is sent again only if no image can have been made: after a temporary error of the server, or if no
   connection could be made. After a broken connection the image may have been made and paid for.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar, cast

from agenticx.clocks import Clock, SystemClock
from agenticx.errors import ModelError
from agenticx.llms.base import Usage
from agenticx.llms.images.base import MAX_IMAGE_BYTES, Image, ImageResult, checked_image
from agenticx.llms.json_values import cost_in, count_in, fields_in, items_in, text_in
from agenticx.llms.opening_policy import RetryPolicy
from agenticx.llms.prices import ImagePrice
from agenticx.llms.transport.clients import NotConnected
from agenticx.llms.transport.http import ProviderHttp
from agenticx.threads import run_in_thread

__all__ = ["ImagesApi"]

_PARALLEL_REQUESTS = 4
_SECONDS = 300.0  # an image of the best quality takes up to two minutes, and the server sends nothing before
_MAX_ANSWER_BYTES = MAX_IMAGE_BYTES * 4 // 3 + 64 * 1024
_GPT_IMAGE = ("gpt-image", "chatgpt-image")
_FORM_PARAMETERS = ("response_format", "output_format", "size")
"""Parameters that can be left out if the server refuses them: the response has an image all the same."""
_NO_BACKGROUND = (
    "Remove the background. Keep the main subject exactly as it is: its shape, colors, details, size and position. "
    "All else becomes fully transparent."
)
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}

T = TypeVar("T")


class ImagesApi:
    """A model of a server with the Images API; `name` is that for the user, `model` its name at the server."""

    def __init__(
        self,
        model: str,
        http: ProviderHttp,
        *,
        name: str,
        price: ImagePrice | None = None,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._model = model
        self._http = http
        self._price = price
        self._policy = policy or RetryPolicy()
        self._clock = clock or SystemClock()
        self._refused = set[str]()

    def __repr__(self) -> str:
        return f"ImagesApi({self.name!r}, host={self.host!r})"

    @property
    def host(self) -> str:
        """The host that prompts and images are sent to, with its port if that is not the usual one."""
        return self._http.host

    def largest_cost(self) -> Decimal | None:
        """Return the most that one image costs in US dollars, None if its price is unknown."""
        return None if self._price is None else self._price.largest_cost(self._clock.now().date())

    async def generate(
        self, prompts: Sequence[str], size: str | None = None, transparent: bool = False
    ) -> Sequence[ImageResult]:
        """Return an image for each prompt, in their order; the server is sent at most four requests at once."""

        async def generate(prompt: str) -> ImageResult:
            fields = self._fields(prompt, size, transparent=transparent)
            return await self._request("/images/generations", fields, _json_body)

        return await _in_parallel(generate, prompts)

    async def remove_background(self, images: Sequence[Image]) -> Sequence[ImageResult]:
        """Return each image with a transparent background, as the model draws it again."""

        async def remove(image: Image) -> ImageResult:
            fields = self._fields(_NO_BACKGROUND, None, transparent=True)
            return await self._request("/images/edits", fields, lambda sent: _form_body(sent, image))

        return await _in_parallel(remove, images)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._http.aclose()

    def _fields(self, prompt: str, size: str | None, *, transparent: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": self._model, "prompt": prompt, "n": 1}
        if self._model.rpartition("/")[2].startswith(_GPT_IMAGE):
            fields["output_format"] = "png"
        else:
            fields["response_format"] = "b64_json"
        if size is not None:
            fields["size"] = size
        if transparent:
            fields["background"] = "transparent"
        return fields

    async def _request(
        self, path: str, fields: Mapping[str, Any], encode: Callable[[Mapping[str, Any]], tuple[bytes, str]]
    ) -> ImageResult:
        """Return the image of one request, or its error as a sentence; a request that may succeed later is repeated."""
        failed_attempts = 0
        while True:
            sent = {name: value for name, value in fields.items() if name not in self._refused}
            try:
                answer = await self._post(path, *encode(sent))
            except ModelError as error:
                if (name := _refused_parameter(error, sent)) is not None:
                    self._refused.add(name)
                    continue
                failed_attempts += 1
                wait = self._policy.wait(error, failed_attempts) if _made_nothing(error) else None
                if wait is None:
                    return ImageResult(error=str(error), usage=None if _made_nothing(error) else Usage())
                await self._clock.sleep(wait)
            else:
                return await run_in_thread(self._read, answer, name="agx images")

    async def _post(self, path: str, body: bytes, content_type: str) -> bytes:
        async with await self._http.post(
            path, body, accept="application/json", content_type=content_type, timeout=_SECONDS
        ) as response:
            return await response.read(_MAX_ANSWER_BYTES)

    def _read(self, answer: bytes) -> ImageResult:
        """Return the image in a response with status 200, or what is wrong with that."""
        try:
            content: Any = json.loads(answer)
        except (ValueError, RecursionError) as exc:
            return ImageResult(error=self._bad_reply(f"its answer is not JSON: {exc}"), usage=Usage())
        fields = cast("dict[str, Any]", content) if isinstance(content, dict) else dict[str, Any]()
        usage = self._usage(fields_in(fields, "usage"))
        items = items_in(fields, "data")
        data = text_in(items[0], "b64_json") if items else ""
        if not data:
            reason = "a URL in place of an image" if items and text_in(items[0], "url") else "no image"
            return ImageResult(error=self._bad_reply(f"it sent {reason}"), usage=usage)
        try:
            return ImageResult(checked_image(b64decode(data, validate=True)), usage=usage)
        except (binascii.Error, ValueError) as exc:
            return ImageResult(error=self._bad_reply(f"the image is not base64: {exc}"), usage=usage)
        except ModelError as exc:
            return ImageResult(error=self._bad_reply(str(exc)), usage=usage)

    def _usage(self, counts: dict[str, Any]) -> Usage:
        """Return the usage of one image; its cost is the provider's number, else computed from the list price."""
        usage = Usage(count_in(counts, "input_tokens"), count_in(counts, "output_tokens"))
        cost = cost_in(counts, "cost")
        if cost is None and self._price is not None:
            cost = self._price.cost(usage, self._clock.now().date())
        return replace(usage, cost_usd=cost)

    def _bad_reply(self, reason: str) -> str:
        return f"{self.name} at {self.host} made no image: {reason}"


async def _in_parallel(work: Callable[[T], Awaitable[ImageResult]], items: Sequence[T]) -> Sequence[ImageResult]:
    """Return `work(item)` for each item, in their order, at most four at once."""
    room = asyncio.Semaphore(_PARALLEL_REQUESTS)

    async def limited(item: T) -> ImageResult:
        async with room:
            return await work(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(limited(item)) for item in items]
    return [task.result() for task in tasks]


def _refused_parameter(error: ModelError, sent: Mapping[str, Any]) -> str | None:
    """Return the parameter in a request that the server refuses and that can be left out, None if there is none."""
    if error.status not in (400, 422):
        return None
    names = [name for name in _FORM_PARAMETERS if name in sent]
    return next((name for name in names if name == error.param or name in str(error)), None)


def _made_nothing(error: ModelError) -> bool:
    """Return whether a failed request has certainly made no image and so costs nothing."""
    return error.status is not None or isinstance(error.__cause__, NotConnected)


def _json_body(fields: Mapping[str, Any]) -> tuple[bytes, str]:
    return json.dumps(fields).encode(), "application/json"


def _form_body(fields: Mapping[str, Any], image: Image) -> tuple[bytes, str]:
    """Return `fields` and an image as multipart/form-data (RFC 7578), and the content type with its boundary."""
    boundary = secrets.token_hex(20)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="image"; '
        f'filename="image.{_SUFFIXES[image.media_type]}"\r\nContent-Type: {image.media_type}\r\n\r\n'
    )
    body = b"".join(
        [*(part.encode() for part in parts), head.encode(), image.content, f"\r\n--{boundary}--\r\n".encode()]
    )
    return body, f"multipart/form-data; boundary={boundary}"
