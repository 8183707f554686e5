"""A server with the Images API, and images of a given size."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any

from tests.support.json_server import JsonHandler, serving

__all__ = ["ImageServer", "image_server", "png"]


def png(width: int = 4, height: int = 3, size: int = 0) -> bytes:
    """Return the header of a PNG image of that size in pixels, and `size` further bytes."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(size)


@dataclass
class ImageServer:
    """A running server: its address, and the requests that it was sent, each with its path, and their keys.

    `images` are given for prompts, and for the contents of images that are edited; `png()` for all others. A prompt or
    content in `errors` is answered with that status and message, each time with the next one if it has several.
    `unknown_parameter` is one that the server refuses. `answer` is the body of all responses, if not None.
    """

    address: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    keys: list[str] = field(default_factory=list[str])
    images: dict[str | bytes, bytes] = field(default_factory=dict[str | bytes, bytes])
    errors: dict[str | bytes, list[tuple[int, str]]] = field(default_factory=dict[str | bytes, list[tuple[int, str]]])
    unknown_parameter: str | None = None
    usage: dict[str, Any] | None = None
    answer: bytes | None = None

    @property
    def prompts(self) -> list[str]:
        """The prompts of all requests."""
        return [fields["prompt"] for _, fields in self.requests]


@contextmanager
def image_server() -> Iterator[ImageServer]:
    """Serve `/v1/images/generations` and `/v1/images/edits`."""
    state = ImageServer()

    class Handler(JsonHandler):
        def fixed_body(self) -> bytes | None:
            return state.answer

        def do_POST(self) -> None:
            body = self.read_body()
            is_edit = self.path == "/v1/images/edits"
            fields = _form(self.headers["content-type"], body) if is_edit else json.loads(body)
            state.requests.append((self.path, fields))
            state.keys.append(self.headers["authorization"])
            subject = fields["image"] if is_edit else fields["prompt"]
            if (name := state.unknown_parameter) in fields:
                self.send_json(400, {"error": {"message": f"Unknown parameter: '{name}'.", "param": name}})
            elif errors := state.errors.get(subject):
                status, message = errors.pop(0)
                self.send_json(status, {"error": {"message": message}})
            else:
                data = b64encode(state.images.get(subject, png())).decode()
                self.send_json(200, {"created": 1, "data": [{"b64_json": data}], "usage": state.usage})

    with serving(Handler) as state.address:
        yield state


def _form(content_type: str, body: bytes) -> dict[str, Any]:
    """Return the fields of multipart/form-data: texts, and the bytes of files, whose type is in `NAME_type`."""
    message = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    fields = dict[str, Any]()
    for part in message.get_payload():
        assert isinstance(part, Message)
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        assert isinstance(name, str)
        assert isinstance(content, bytes)
        fields[name] = content if part.get_filename() else content.decode()
        if part.get_filename():
            fields[f"{name}_type"] = part.get_content_type()
    return fields
