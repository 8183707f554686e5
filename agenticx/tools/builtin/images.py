"""The tools that make images: they become files of the session and are shown to the model.

The first two things that the user is told are the provider and the number of images: prompts and images are sent to it,
and it asks money for them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from agenticx.attachments import Attachment, make_attachment
from agenticx.errors import AttachmentTooLarge, ModelError, SettingsError, ToolError
from agenticx.llms.base import Usage
from agenticx.llms.images.base import (
    Image,
    ImageProvider,
    ImageResult,
    checked_image,
    image_host,
    largest_image_cost,
)
from agenticx.threads import run_in_thread
from agenticx.tools.artifacts.files import UnknownArtifact
from agenticx.tools.base import Assessment, Tool, ToolOutput
from agenticx.tools.context import SettleCost, ToolContext
from agenticx.tools.plurals import pluralize
from agenticx.tools.registry import tool
from agenticx.tools.visible import visible_line, visible_path

__all__ = ["IMAGE_TOOLS", "image_tools"]

IMAGE_TOOLS = frozenset({"generate_images", "remove_background"})

_SIZE = "1024x1024"
_SECONDS = 600.0
_MOST_PROMPTS = 8
_MOST_IMAGES = 20
_SHOWN_PROMPT_CHARS = 300
_NAME_CHARS = 40
_DIGEST_CHARS = 8
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}

_Prompt = Annotated[str, Field(min_length=1, max_length=32_000)]


def image_tools(provider: ImageProvider) -> list[Tool]:
    """Return the tools that make images with `provider`, in the order in which a model sees them."""

    def assess_prompts(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        prompts = _unique_prompts(arguments["prompts"])
        _check_room(len(prompts), context)
        price = _Price.of(provider)
        question = f"Send {pluralize(len(prompts), 'prompt')} to {price.receiver} to make {_images(len(prompts))}?"
        sent = (f"It sends: {visible_line(prompt, _SHOWN_PROMPT_CHARS)}" for prompt in prompts)
        return Assessment(
            risk="execute", question=question, reasons=(price.sentence(len(prompts)), *sent), binding=price.binding
        )

    @tool(risk="execute", timeout=_SECONDS, assess=assess_prompts)
    async def generate_images(
        prompts: Annotated[list[_Prompt], Field(min_length=1, max_length=_MOST_PROMPTS)], context: ToolContext
    ) -> ToolOutput:
        """Make an image for each prompt. They become files of this session under images/, and you see them.

        Args:
            prompts: What each image shows, in full: its subject, style, colors and background. Equal ones count once.
        """
        unique = _unique_prompts(prompts)
        _check_room(len(unique), context)
        with _reserved(provider, len(unique), context) as settle:
            results = await provider.generate(unique, _SIZE)
            settle(results)
        names = [_name_of(prompt) for prompt in unique]
        return await _store(results, names, [repr(visible_line(prompt, 80)) for prompt in unique], context)

    def assess_images(arguments: Mapping[str, Any], context: ToolContext) -> Assessment:
        sources = [_find(name, context) for name in dict.fromkeys(arguments["images"])]
        _check_room(len(sources), context)
        price = _Price.of(provider)
        question = f"Send {_images(len(sources))} to {price.receiver} to remove the background?"
        sent = (f"It sends {visible_path(source.name)} ({pluralize(source.size, 'byte')})." for source in sources)
        return Assessment(
            risk="execute",
            question=question,
            reasons=(price.sentence(len(sources)), *sent),
            binding={**price.binding, "sha256": [source.sha256 for source in sources]},
        )

    @tool(risk="execute", timeout=_SECONDS, assess=assess_images)
    async def remove_background(
        images: Annotated[list[str], Field(min_length=1, max_length=_MOST_IMAGES)], context: ToolContext
    ) -> ToolOutput:
        """Make copies of images with a transparent background. They become files of this session, and you see them.

        Args:
            images: Paths of files of this session, such as images/fox.png, or names of attached files; no URLs.
        """
        sources = [_find(name, context) for name in dict.fromkeys(images)]
        checked = [await source.load(context) for source in sources]
        _check_room(len(sources), context)
        sendable = [image for image in checked if isinstance(image, Image)]
        with _reserved(provider, len(sendable), context) as settle:
            made: Sequence[ImageResult] = await provider.remove_background(sendable) if sendable else ()
            settle(made)
        rest = iter(made)
        results = [next(rest) if isinstance(image, Image) else ImageResult(error=image) for image in checked]
        names = [f"{_name_of(PurePosixPath(source.name).stem)}-no-background" for source in sources]
        return await _store(results, names, [visible_path(source.name) for source in sources], context)

    return [generate_images, remove_background]


# --- what is sent, and its price --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Price:
    """The receiver of prompts and images, and the most that one image costs, in US dollars, None if unknown."""

    name: str
    host: str | None
    cost_usd: Decimal | None

    @classmethod
    def of(cls, provider: ImageProvider) -> _Price:
        """Return the price of an image of `provider`; raise `ToolError` if it cannot be used, as without a key."""
        try:
            return cls(provider.name, image_host(provider), largest_image_cost(provider))
        except SettingsError as exc:
            raise ToolError(f"no images can be made: {exc}") from exc

    @property
    def receiver(self) -> str:
        return self.name if self.host is None else f"{self.name} ({self.host})"

    @property
    def binding(self) -> dict[str, Any]:
        return {"provider": self.name, "host": self.host}

    def sentence(self, count: int) -> str:
        """Return a sentence about the cost of `count` images."""
        if self.cost_usd is None:
            return f"What {_images(count)} of {self.name} cost is unknown."
        return f"By the list price it costs up to ${(count * self.cost_usd).normalize():f}."


def _images(count: int) -> str:
    return pluralize(count, "image")


def _unique_prompts(prompts: Sequence[str]) -> list[str]:
    """Return the prompts, each once; raise `ToolError` for a blank one."""
    unique = list(dict.fromkeys(prompt.strip() for prompt in prompts))
    if "" in unique:
        raise ToolError("a prompt is blank; say what the image shows")
    return unique


def _check_room(count: int, context: ToolContext) -> None:
    """Raise `ToolError` if so many new images cannot be stored, before they are made and paid for."""
    context.artifacts.check(_path("image", "0" * _DIGEST_CHARS, "image/png"), 0, "image/png", count=count)


@contextmanager
def _reserved(provider: ImageProvider, count: int, context: ToolContext) -> Generator[_Settle]:
    """Reserve the cost of `count` images; without results it counts in full, unless nothing was begun.

    Raises `BudgetExceeded` before anything is sent.
    """
    price = _Price.of(provider)
    reservations = list[SettleCost]()
    with ExitStack() as release:
        for _ in range(count):
            reservations.append(context.reserve_cost(price.name, price.cost_usd))
            release.callback(reservations[-1], None)
        release.pop_all()
    settle = _Settle(reservations)
    try:
        yield settle
    finally:
        settle.end()


class _Settle:
    """The open reservations of a call: one for each image."""

    def __init__(self, reservations: Sequence[SettleCost]) -> None:
        self._open = list(reservations)

    def __call__(self, results: Sequence[ImageResult]) -> None:
        """Count what each result used."""
        for result, settle in zip(results, self._open, strict=True):
            settle(result.usage)
        self._open.clear()

    def end(self) -> None:
        """Count the images without a result, because the call was stopped, as used at an unknown cost."""
        for settle in self._open:
            settle(Usage())
        self._open.clear()


# --- images to be sent ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    """A file of the session, or one that the user attached; `attachment` is None for the former."""

    name: str
    size: int
    sha256: str
    attachment: Attachment | None = None

    async def load(self, context: ToolContext) -> Image | str:
        """Return the image, or the reason why the file cannot be sent as one."""
        try:
            if self.attachment is None:
                content = await context.artifacts.read(context.artifacts.find(self.name))
            else:
                content = await run_in_thread(self.attachment.content, name="agx images")
            return checked_image(content)
        except (UnknownArtifact, ModelError) as exc:
            return str(exc)


def _find(name: str, context: ToolContext) -> _Source:
    """Return the file of that path in the session, else the newest attached one of that name; raise `ToolError`."""
    try:
        artifact = context.artifacts.find(name)
        return _Source(name, artifact.size, artifact.sha256)
    except UnknownArtifact:
        attached = context.attachments()
    if (found := next((file for file in attached if file.name == name), None)) is not None:
        return _Source(name, found.size, found.digest, found)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", name):
        raise ToolError(f"{visible_line(name, 80)!r} is a URL, and nothing is fetched; name a file of the session")
    known = [*(artifact.path for artifact in context.artifacts.listed()), *(file.name for file in attached)]
    names = ", ".join(map(visible_path, dict.fromkeys(known[:20]))) or "none"
    raise ToolError(f"there is no file {visible_path(name)!r}, attached or of this session; there are: {names}")


# --- results ----------------------------------------------------------------------------------------------------------


async def _store(
    results: Sequence[ImageResult], names: Sequence[str], subjects: Sequence[str], context: ToolContext
) -> ToolOutput:
    """Store the images as files of the session; return a line and, if it is not too large, an image for each result.

    Raises `ToolError` with the lines if no image was made.
    """
    lines, shown, has_images = list[str](), list[Attachment](), False
    for number, (result, name, subject) in enumerate(zip(results, names, subjects, strict=True), 1):
        try:
            path, image = await _store_one(result, name, context)
        except (ToolError, ModelError) as exc:
            lines.append(f"{number}. {subject}: Error: {exc}")
            continue
        has_images = True
        line = f"{number}. {subject}: {path} ({image.media_type}, {image.width} × {image.height} pixels)"
        try:
            shown.append(await run_in_thread(make_attachment, path, image.content, name="agx images"))
        except AttachmentTooLarge:
            line += ", which is too large for you to see"
        lines.append(line)
    text = "\n".join(lines)
    if not has_images:
        raise ToolError(f"No image was made:\n{text}")
    return ToolOutput(text, attachments=tuple(shown))


async def _store_one(result: ImageResult, name: str, context: ToolContext) -> tuple[str, Image]:
    """Store the image of a result and tell clients; return its path. Raises `ToolError` or `ModelError`."""
    if result.image is None:
        raise ToolError(result.error or "the provider made no image")
    image = checked_image(result.image.content)  # a provider of an application may not have checked it
    path = _path(name, hashlib.sha256(image.content).hexdigest(), image.media_type)
    artifact = await context.artifacts.write(path, image.content, media_type=image.media_type)
    context.emit("artifact", artifact.event_data())
    return path, image


def _path(name: str, sha256: str, media_type: str) -> str:
    return f"images/{name}-{sha256[:_DIGEST_CHARS]}.{_SUFFIXES[media_type]}"


def _name_of(text: str) -> str:
    """Return the first words of a text as a part of a file's name.

    >>> _name_of("A red fox, in the snow!")
    'a-red-fox-in-the-snow'
    """
    words = re.findall(r"[a-z0-9]+", text[: 4 * _NAME_CHARS].lower())
    return "-".join(words)[:_NAME_CHARS].strip("-") or "image"
